//! ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div: the approximate instructions, nearly correctly rounded

/// `ex2.approx.f32`.
pub fn ex2(x: f32) -> f32 {
    todo!("{x}")
}
pub fn lg2(x: f32) -> f32 {
    todo!("{x}")
}
pub fn rcp(x: f32) -> f32 {
    todo!("{x}")
}
pub fn rsqrt(x: f32) -> f32 {
    todo!("{x}")
}
pub fn sqrt(x: f32) -> f32 {
    todo!("{x}")
}
pub fn sin(x: f32) -> f32 {
    todo!("{x}")
}
pub fn cos(x: f32) -> f32 {
    todo!("{x}")
}
pub fn tanh(x: f32) -> f32 {
    todo!("{x}")
}
/// `div.approx.f32`.
pub fn div_approx(a: f32, b: f32) -> f32 {
    todo!("{a} {b}")
}
/// `div.full.f32`.
pub fn div_full(a: f32, b: f32) -> f32 {
    todo!("{a} {b}")
}
pub fn rcp_approx_f64(x: f64) -> f64 {
    todo!("{x}")
}
pub fn rsqrt_approx_f64(x: f64) -> f64 {
    todo!("{x}")
}
/// `f` on the value of a 16-bit operand, its result rounded to nearest: `tanh.approx.f16` is `half(Half::F16, a, tanh)`.
pub fn half(half: super::packed::Half, a: u16, f: impl Fn(f32) -> f32) -> u16 {
    todo!("{half:?} {a} {}", f(0.0))
}

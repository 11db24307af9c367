//! Sets the soname: `libsardonyx.so` is loaded as `libsardonyx.so.0`, and an incompatible ABI gets another number

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsardonyx.so.0");
}

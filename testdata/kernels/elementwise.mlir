// Elementwise operations with operands of fewer dimensions, masks, and values that are positions.
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 1 32, 5 67

!x = !sdx.tensor<[b, s, 8], f32>

func.func @broadcast(%x: !x, %row: !sdx.tensor<[8], f32>, %col: !sdx.tensor<[b, s, 1], f32>, %batch: !sdx.tensor<[b, 1, 8], f32>) -> !x {
  %0 = sdx.broadcast %row to [2] : !sdx.tensor<[8], f32> -> !x
  %1 = sdx.broadcast %col to [0, 1, 2] : !sdx.tensor<[b, s, 1], f32> -> !x
  %2 = sdx.broadcast %batch to [0, 1, 2] : !sdx.tensor<[b, 1, 8], f32> -> !x
  %3 = sdx.map "mul"(%x, %0) : (!x, !x) -> !x
  %4 = sdx.map "add"(%3, %1) : (!x, !x) -> !x
  %5 = sdx.map "sub"(%4, %2) : (!x, !x) -> !x
  return %5 : !x
}
// -----
// CALLS n: 0, 1, 7, 8, 9, 255, 256, 257, 4095, 4097, 10000

!x = !sdx.tensor<[n], f32>

func.func @gelu(%x: !x) -> !x {
  %c = sdx.const dense<0.707106769> : tensor<f32> : !sdx.tensor<[], f32>
  %h = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %o = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %c1 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !x
  %h1 = sdx.broadcast %h to [] : !sdx.tensor<[], f32> -> !x
  %o1 = sdx.broadcast %o to [] : !sdx.tensor<[], f32> -> !x
  %0 = sdx.map "mul"(%x, %c1) : (!x, !x) -> !x
  %1 = sdx.map "erf"(%0) : (!x) -> !x
  %2 = sdx.map "add"(%1, %o1) : (!x, !x) -> !x
  %3 = sdx.map "mul"(%x, %h1) : (!x, !x) -> !x
  %4 = sdx.map "mul"(%3, %2) : (!x, !x) -> !x
  return %4 : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!m = !sdx.tensor<[b, s], i64>
!i = !sdx.tensor<[s, s], i64>
!k = !sdx.tensor<[b, s, s], i1>
!y = !sdx.tensor<[b, s, s], f32>

// A causal mask and one of padding: positions compared, bools joined, a float chosen.
func.func @mask(%mask: !m) -> !y {
  %0 = sdx.convert %mask : !m -> !sdx.tensor<[b, s], i1>
  %1 = sdx.broadcast %0 to [0, 2] : !sdx.tensor<[b, s], i1> -> !k
  %r = sdx.iota axis 0 : !i
  %c = sdx.iota axis 1 : !i
  %2 = sdx.map "le"(%c, %r) : (!i, !i) -> !sdx.tensor<[s, s], i1>
  %3 = sdx.broadcast %2 to [1, 2] : !sdx.tensor<[s, s], i1> -> !k
  %4 = sdx.map "and"(%1, %3) : (!k, !k) -> !k
  %5 = sdx.map "not"(%4) : (!k) -> !k
  %z = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %l = sdx.const dense<-3.4028235E+38> : tensor<f32> : !sdx.tensor<[], f32>
  %z1 = sdx.broadcast %z to [] : !sdx.tensor<[], f32> -> !y
  %l1 = sdx.broadcast %l to [] : !sdx.tensor<[], f32> -> !y
  %6 = sdx.map "select"(%5, %l1, %z1) : (!k, !y, !y) -> !y
  return %6 : !y
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s], i64>

// Values that are known as expressions of the dimensions.
func.func @sizes(%x: !x) -> (!x, !sdx.tensor<[2], i64>) {
  %0 = sdx.dims ["b", "2*s + 1"] : !sdx.tensor<[2], i64>
  %1 = sdx.dims ["s - b"] : !sdx.tensor<[1], i64>
  %2 = sdx.broadcast %1 to [1] : !sdx.tensor<[1], i64> -> !x
  %3 = sdx.map "mul"(%x, %2) : (!x, !x) -> !x
  return %3, %0 : !x, !sdx.tensor<[2], i64>
}
// -----
// CALLS n: 0, 1, 31, 100

!h = !sdx.tensor<[n], f16>
!b = !sdx.tensor<[n], bf16>

func.func @narrow(%x: !h, %y: !b) -> (!h, !b) {
  %0 = sdx.map "mul"(%x, %x) : (!h, !h) -> !h
  %1 = sdx.map "add"(%0, %x) : (!h, !h) -> !h
  %2 = sdx.map "tanh"(%1) : (!h) -> !h
  %3 = sdx.map "exp"(%y) : (!b) -> !b
  %4 = sdx.map "sub"(%3, %y) : (!b, !b) -> !b
  return %2, %4 : !h, !b
}
// -----
// CALLS n: 0, 1, 31, 100

!x = !sdx.tensor<[n], f32>
!i = !sdx.tensor<[n], i32>

// Bits of a number, shifted and back: its power of two.
func.func @bits(%x: !x, %h: !sdx.tensor<[n], f16>) -> (!x, !sdx.tensor<[n], i16>, !sdx.tensor<[n], ui8>) {
  %c = sdx.const dense<23> : tensor<i32> : !sdx.tensor<[], i32>
  %23 = sdx.broadcast %c to [] : !sdx.tensor<[], i32> -> !i
  %0 = sdx.convert %x {bits} : !x -> !i
  %1 = sdx.map "shr"(%0, %23) : (!i, !i) -> !i
  %2 = sdx.map "shl"(%1, %23) : (!i, !i) -> !i
  %3 = sdx.convert %2 {bits} : !i -> !x
  %4 = sdx.convert %h {bits} : !sdx.tensor<[n], f16> -> !sdx.tensor<[n], i16>
  %5 = sdx.convert %x : !x -> !sdx.tensor<[n], f8E5M2>
  %6 = sdx.convert %5 {bits} : !sdx.tensor<[n], f8E5M2> -> !sdx.tensor<[n], ui8>
  return %3, %4, %6 : !x, !sdx.tensor<[n], i16>, !sdx.tensor<[n], ui8>
}
// -----
// CALLS n: 0, 1, 31, 100

!x = !sdx.tensor<[n], f32>
!q = !sdx.tensor<[n], i4>

// Constants, tensors in memory and results of less than a byte.
func.func @nibbles(%x: !x, %q: !q) -> (!q, !x, !sdx.tensor<[n], f4E2M1FN>) {
  %c = sdx.const dense<-3> : tensor<i4> : !sdx.tensor<[], i4>
  %three = sdx.broadcast %c to [] : !sdx.tensor<[], i4> -> !q
  %0 = sdx.map "add"(%q, %three) : (!q, !q) -> !q
  %1 = sdx.convert %0 : !q -> !x
  %2 = sdx.map "mul"(%1, %x) : (!x, !x) -> !x
  %3 = sdx.convert %2 : !x -> !sdx.tensor<[n], f4E2M1FN>
  return %0, %2, %3 : !q, !x, !sdx.tensor<[n], f4E2M1FN>
}
// -----
// CALLS n: 0, 1, 31, 100

!x = !sdx.tensor<[n], f64>

// The quotient of the largest and the least number has 2098 binary digits.
func.func @longest_remainder(%x: !x) -> !x {
  %c = sdx.const dense<8.0e+307> : tensor<f64> : !sdx.tensor<[], f64>
  %d = sdx.const dense<0x0000000000000001> : tensor<f64> : !sdx.tensor<[], f64>
  %large = sdx.broadcast %c to [] : !sdx.tensor<[], f64> -> !x
  %least = sdx.broadcast %d to [] : !sdx.tensor<[], f64> -> !x
  %0 = sdx.map "mul"(%x, %large) : (!x, !x) -> !x
  %1 = sdx.map "rem"(%0, %least) : (!x, !x) -> !x
  return %1 : !x
}
// -----
// CALLS n: 0, 1, 31, 100

!x = !sdx.tensor<[n], ui32>

// What is negated without a sign is another number, not one of another sign.
func.func @unsigned_magnitude(%x: !x) -> !x {
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.map "abs"(%0) : (!x) -> !x
  return %1 : !x
}

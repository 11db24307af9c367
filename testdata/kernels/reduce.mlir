// Reductions: of nothing, of one element, of rows around the threads of a warp and of a block.
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 32, 2 1 33, 1 2 255, 1 1 257, 1 3 1000

!x = !sdx.tensor<[b, s, t], f32>

func.func @add_last(%x: !x) -> !sdx.tensor<[b, s], f32> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], f32>
  return %0 : !sdx.tensor<[b, s], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 257 33

!x = !sdx.tensor<[b, s, t], f32>

func.func @add_middle(%x: !x) -> !sdx.tensor<[b, t], f32> {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !sdx.tensor<[b, t], f32>
  return %0 : !sdx.tensor<[b, t], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 32, 2 1 33, 1 2 255, 1 1 257, 1 3 1000

!x = !sdx.tensor<[b, s, t], f32>

func.func @max_last(%x: !x) -> !sdx.tensor<[b, s], f32> {
  %0 = sdx.reduce "max" %x axes [2] : !x -> !sdx.tensor<[b, s], f32>
  return %0 : !sdx.tensor<[b, s], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 257 33

!x = !sdx.tensor<[b, s, t], f32>

func.func @max_middle(%x: !x) -> !sdx.tensor<[b, t], f32> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], f32>
  return %0 : !sdx.tensor<[b, t], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 32, 2 1 33, 1 2 255, 1 1 257, 1 3 1000

!x = !sdx.tensor<[b, s, t], f32>

func.func @min_last(%x: !x) -> !sdx.tensor<[b, s], f32> {
  %0 = sdx.reduce "min" %x axes [2] : !x -> !sdx.tensor<[b, s], f32>
  return %0 : !sdx.tensor<[b, s], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 257 33

!x = !sdx.tensor<[b, s, t], f32>

func.func @min_middle(%x: !x) -> !sdx.tensor<[b, t], f32> {
  %0 = sdx.reduce "min" %x axes [1] : !x -> !sdx.tensor<[b, t], f32>
  return %0 : !sdx.tensor<[b, t], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 32, 2 1 33, 1 2 255, 1 1 257, 1 3 1000

!x = !sdx.tensor<[b, s, t], f32>

func.func @mul_last(%x: !x) -> !sdx.tensor<[b, s], f32> {
  %0 = sdx.reduce "mul" %x axes [2] : !x -> !sdx.tensor<[b, s], f32>
  return %0 : !sdx.tensor<[b, s], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 257 33

!x = !sdx.tensor<[b, s, t], f32>

func.func @mul_middle(%x: !x) -> !sdx.tensor<[b, t], f32> {
  %0 = sdx.reduce "mul" %x axes [1] : !x -> !sdx.tensor<[b, t], f32>
  return %0 : !sdx.tensor<[b, t], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 65 3 5

!x = !sdx.tensor<[b, s, t], f32>

func.func @add_first(%x: !x) -> !sdx.tensor<[s, t], f32> {
  %0 = sdx.reduce "add" %x axes [0] : !x -> !sdx.tensor<[s, t], f32>
  return %0 : !sdx.tensor<[s, t], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 2 33 31

!x = !sdx.tensor<[b, s, t], f32>

func.func @add_two(%x: !x) -> !sdx.tensor<[b], f32> {
  %0 = sdx.reduce "add" %x axes [1, 2] : !x -> !sdx.tensor<[b], f32>
  return %0 : !sdx.tensor<[b], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 9 3 40

!x = !sdx.tensor<[b, s, t], f32>

func.func @max_ends(%x: !x) -> !sdx.tensor<[s], f32> {
  %0 = sdx.reduce "max" %x axes [0, 2] : !x -> !sdx.tensor<[s], f32>
  return %0 : !sdx.tensor<[s], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 9 31 40

!x = !sdx.tensor<[b, s, t], f32>

func.func @add_all(%x: !x) -> !sdx.tensor<[], f32> {
  %0 = sdx.reduce "add" %x axes [0, 1, 2] : !x -> !sdx.tensor<[], f32>
  return %0 : !sdx.tensor<[], f32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], f64>

func.func @add_f64(%x: !x) -> !sdx.tensor<[b, s], f64> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], f64>
  return %0 : !sdx.tensor<[b, s], f64>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], f64>

func.func @max_f64(%x: !x) -> !sdx.tensor<[b, t], f64> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], f64>
  return %0 : !sdx.tensor<[b, t], f64>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], f16>

func.func @add_f16(%x: !x) -> !sdx.tensor<[b, s], f16> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], f16>
  return %0 : !sdx.tensor<[b, s], f16>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], f16>

func.func @max_f16(%x: !x) -> !sdx.tensor<[b, t], f16> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], f16>
  return %0 : !sdx.tensor<[b, t], f16>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], bf16>

func.func @add_bf16(%x: !x) -> !sdx.tensor<[b, s], bf16> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], bf16>
  return %0 : !sdx.tensor<[b, s], bf16>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], bf16>

func.func @max_bf16(%x: !x) -> !sdx.tensor<[b, t], bf16> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], bf16>
  return %0 : !sdx.tensor<[b, t], bf16>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], i64>

func.func @add_i64(%x: !x) -> !sdx.tensor<[b, s], i64> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], i64>
  return %0 : !sdx.tensor<[b, s], i64>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], i64>

func.func @max_i64(%x: !x) -> !sdx.tensor<[b, t], i64> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], i64>
  return %0 : !sdx.tensor<[b, t], i64>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], i32>

func.func @add_i32(%x: !x) -> !sdx.tensor<[b, s], i32> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], i32>
  return %0 : !sdx.tensor<[b, s], i32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], i32>

func.func @max_i32(%x: !x) -> !sdx.tensor<[b, t], i32> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], i32>
  return %0 : !sdx.tensor<[b, t], i32>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], i8>

func.func @add_i8(%x: !x) -> !sdx.tensor<[b, s], i8> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], i8>
  return %0 : !sdx.tensor<[b, s], i8>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], i8>

func.func @max_i8(%x: !x) -> !sdx.tensor<[b, t], i8> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], i8>
  return %0 : !sdx.tensor<[b, t], i8>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 3 70

!x = !sdx.tensor<[b, s, t], ui8>

func.func @add_ui8(%x: !x) -> !sdx.tensor<[b, s], ui8> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !sdx.tensor<[b, s], ui8>
  return %0 : !sdx.tensor<[b, s], ui8>
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 3 5 31, 1 70 3

!x = !sdx.tensor<[b, s, t], ui8>

func.func @max_ui8(%x: !x) -> !sdx.tensor<[b, t], ui8> {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b, t], ui8>
  return %0 : !sdx.tensor<[b, t], ui8>
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 3 31, 1 70

!x = !sdx.tensor<[b, s], i4>
!u = !sdx.tensor<[b, s], ui2>

// The least and the greatest number are those of the type, not of its byte.
func.func @extremes_of_nibbles(%x: !x, %u: !u) -> (!sdx.tensor<[b], i4>, !sdx.tensor<[b], i4>, !sdx.tensor<[b], ui2>) {
  %0 = sdx.reduce "min" %x axes [1] : !x -> !sdx.tensor<[b], i4>
  %1 = sdx.reduce "max" %x axes [1] : !x -> !sdx.tensor<[b], i4>
  %2 = sdx.reduce "min" %u axes [1] : !u -> !sdx.tensor<[b], ui2>
  return %0, %1, %2 : !sdx.tensor<[b], i4>, !sdx.tensor<[b], i4>, !sdx.tensor<[b], ui2>
}

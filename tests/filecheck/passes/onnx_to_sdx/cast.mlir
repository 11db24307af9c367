// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>
!i = !sdx.tensor<[3], i64>

// CHECK-LABEL: func.func @plain
// CHECK: sdx.convert %arg0 : <[b, s], f32> -> <[b, s], f16>
// CHECK: sdx.convert %arg0 : <[b, s], f32> -> <[b, s], i64>
func.func @plain(%x: !x, %like: !i) -> (!v, !v) {
  %half = onnx.node "Cast"(%x) opset 13 {to = 10 : i64} : (!x) -> !v
  %like_ints = onnx.node "CastLike"(%x, %like) opset 15 {} : (!x, !i) -> !v
  return %half, %like_ints : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>
!f8 = !sdx.tensor<[n], f8E4M3FN>

// What is too large for a float of 8 bits becomes its largest number, unless `saturate` is 0.

// CHECK-LABEL: func.func @saturated
// CHECK: sdx.const {{.*}}-4.480000e+02
// CHECK: %[[MAX:.*]] = sdx.map "max"(%arg0
// CHECK: %[[MIN:.*]] = sdx.map "min"(%[[MAX]]
// CHECK: sdx.convert %[[MIN]] : <[n], f32> -> <[n], f8E4M3FN>
// CHECK: sdx.convert %arg0 : <[n], f32> -> <[n], f8E5M2>
// CHECK: sdx.convert %arg1 : <[n], f8E4M3FN> -> <[n], i32>
// CHECK: sdx.convert %{{.*}} : <[n], i32> -> <[n], i4>
func.func @saturated(%x: !x, %y: !f8) -> (!v, !v, !v) {
  %a = onnx.node "Cast"(%x) opset 19 {to = 17 : i64} : (!x) -> !v
  %b = onnx.node "Cast"(%x) opset 19 {to = 19 : i64, saturate = 0 : i64} : (!x) -> !v
  %c = onnx.node "Cast"(%y) opset 21 {to = 22 : i64} : (!f8) -> !v
  return %a, %b, %c : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>

// The next power of two, by its bits.

// CHECK-LABEL: func.func @powers
// CHECK: %[[BITS:.*]] = sdx.convert %{{.*}} {bits} : <[n], f32> -> <[n], i32>
// CHECK: sdx.map "add"(%[[BITS]]
// CHECK: %[[EXPONENT:.*]] = sdx.map "bitand"
// CHECK: sdx.convert %[[EXPONENT]] {bits} : <[n], i32> -> <[n], f32>
// CHECK: sdx.map "select"
// CHECK: sdx.convert %{{.*}} : <[n], f32> -> <[n], f8E8M0FNU>
// CHECK: sdx.convert %arg0 : <[n], f32> -> <[n], f8E8M0FNU>
func.func @powers(%x: !x) -> (!v, !v) {
  %up = onnx.node "Cast"(%x) opset 25 {to = 24 : i64} : (!x) -> !v
  %nearest = onnx.node "Cast"(%x) opset 25 {round_mode = "nearest", saturate = 0 : i64, to = 24 : i64} : (!x) -> !v
  return %up, %nearest : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>

// CHECK-LABEL: func.func @bits
// CHECK: sdx.convert %arg0 {bits} : <[n], f32> -> <[n], i32>
func.func @bits(%x: !x) -> !v {
  %i = onnx.node "BitCast"(%x) opset 26 {to = 6 : i64} : (!x) -> !v
  return %i : !v
}

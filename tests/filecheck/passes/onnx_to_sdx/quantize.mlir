// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[n, c, h], f32>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], i8>

// CHECK-LABEL: func.func @whole
// CHECK: sdx.map "div"
// CHECK: sdx.map "round"
// CHECK: sdx.convert {{.*}}i8{{.*}}f32
// CHECK: sdx.map "add"
// CHECK: sdx.map "max"
// CHECK: sdx.map "min"
// CHECK: %[[Q:.*]] = sdx.convert %{{.*}} : <[n, c, h], f32> -> <[n, c, h], i8>
// CHECK: %[[W:.*]] = sdx.convert %[[Q]] : <[n, c, h], i8> -> <[n, c, h], i32>
// CHECK: sdx.map "sub"
// CHECK: sdx.convert {{.*}}i32{{.*}}f32
// CHECK: sdx.map "mul"
func.func @whole(%x: !x, %s: !s, %z: !z) -> !v {
  %q = onnx.node "QuantizeLinear"(%x, %s, %z) opset 13 {} : (!x, !s, !z) -> !v
  %y = onnx.node "DequantizeLinear"(%q, %s, %z) opset 13 {} : (!v, !s, !z) -> !v
  return %y : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, c, h], f32>
!s = !sdx.tensor<[c], f32>

// A scale for each channel; without a zero point the result is u8.

// CHECK-LABEL: func.func @along
// CHECK: sdx.reshape %arg1 : <[c], f32> -> <[c, 1], f32>
// CHECK: sdx.map "div"
// CHECK: sdx.convert %{{.*}} : <[n, c, h], f32> -> <[n, c, h], ui8>
func.func @along(%x: !x, %s: !s) -> !v {
  %q = onnx.node "QuantizeLinear"(%x, %s) opset 13 {axis = 1 : i64} : (!x, !s) -> !v
  return %q : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, 10], f16>
!s = !sdx.tensor<[n, 3], f16>

// A scale for each four of ten elements; a sum with a zero point is rounded in f32.

// CHECK-LABEL: func.func @blocks
// CHECK: sdx.broadcast %arg1 {{.*}} -> <[n, 3, 4], f16>
// CHECK: sdx.reshape {{.*}} -> <[n, 12], f16>
// CHECK: %[[S:.*]] = sdx.slice {{.*}} -> <[n, 10], f16>
// CHECK: sdx.map "div"(%arg0, %[[S]])
// CHECK: sdx.convert {{.*}} -> <[n, 10], i4>
func.func @blocks(%x: !x, %s: !s) -> !v {
  %q = onnx.node "QuantizeLinear"(%x, %s) opset 21 {axis = 1 : i64, block_size = 4 : i64, output_dtype = 22 : i64}
    : (!x, !s) -> !v
  return %q : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>

// CHECK-LABEL: func.func @dynamic
// CHECK: sdx.reduce "max"
// CHECK: sdx.reduce "min"
// CHECK: sdx.map "select"
// CHECK: sdx.map "div"
// CHECK: sdx.convert {{.*}} -> <[], ui8>
// CHECK: sdx.convert {{.*}} -> <[n], ui8>
func.func @dynamic(%x: !x) -> (!v, !v, !v) {
  %y, %scale, %zero = onnx.node "DynamicQuantizeLinear"(%x) opset 11 {} : (!x) -> (!v, !v, !v)
  return %y, %scale, %zero : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>
!s = !sdx.tensor<[], f32>

// CHECK-LABEL: func.func @contributed
// CHECK: sdx.map "div"
// CHECK: sdx.map "mul"
func.func @contributed(%x: !x, %s: !s) -> !v {
  %q = onnx.node "QuantizeLinear"(%x, %s) opset 1 domain "com.microsoft" {} : (!x, !s) -> !v
  %y = onnx.node "DequantizeLinear"(%q, %s) opset 1 domain "com.microsoft" {} : (!v, !s) -> !v
  return %y : !v
}

// -----

!v = !onnx.value
!w = !sdx.tensor<[64, 96], f8E4M3FN>
!s = !sdx.tensor<[64, 3], f32>
!z = !sdx.tensor<[64, 3], f8E4M3FN>

// Whole blocks are an axis of their own, with one scale and one zero point along it.

// CHECK-LABEL: func.func @whole_blocks
// CHECK: %[[W:.*]] = sdx.reshape %arg0 : <[64, 96], f8E4M3FN> -> <[64, 3, 32], f8E4M3FN>
// CHECK: sdx.convert %[[W]]
// CHECK: sdx.map "sub"
// CHECK: %[[Y:.*]] = sdx.map "mul"({{.*}}) : {{.*}} -> !sdx.tensor<[64, 3, 32], f32>
// CHECK: sdx.reshape %[[Y]] : <[64, 3, 32], f32> -> <[64, 96], f32>
func.func @whole_blocks(%w: !w, %s: !s, %z: !z) -> !v {
  %y = onnx.node "DequantizeLinear"(%w, %s, %z) opset 21 {axis = 1 : i64, block_size = 32 : i64} : (!w, !s, !z) -> !v
  return %y : !v
}

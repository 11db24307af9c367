// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Of few samples a product with tables of cosine and sine.

// CHECK-LABEL: func.func @dft
// CHECK: sdx.map "rem"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "sin"
// CHECK: sdx.contract
// CHECK: sdx.contract
// CHECK: sdx.map "neg"
// CHECK: sdx.concat
func.func @dft(%x: !sdx.tensor<[b, 12, 1], f32>) -> !v {
  %0 = onnx.node "DFT"(%x) opset 17 {onesided = 1 : i64} : (!sdx.tensor<[b, 12, 1], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Of an open number a fast transform; one side is all that it takes and gives.

// CHECK-LABEL: func.func @dft_open
// CHECK: sdx.host "Fourier inverse=0"(%{{.*}}) result 0 of 0 {{.*}} -> !sdx.tensor<[b, n, 2], f64>
// CHECK: sdx.slice
// CHECK: sdx.gather
// CHECK: sdx.map "neg"
// CHECK: sdx.map "select"
// CHECK: sdx.host "Fourier inverse=1"(%{{.*}}) result 0 of 1
// CHECK: sdx.slice
// CHECK-NOT: sdx.contract
// CHECK: return
func.func @dft_open(%x: !sdx.tensor<[b, n, 1], f32>, %y: !sdx.tensor<[b, m, 2], f32>) -> (!v, !v) {
  %0 = onnx.node "DFT"(%x) opset 17 {onesided = 1 : i64} : (!sdx.tensor<[b, n, 1], f32>) -> !v
  %1 = onnx.node "DFT"(%y) opset 17 {inverse = 1 : i64, onesided = 1 : i64} : (!sdx.tensor<[b, m, 2], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// The signal is laid out around the axis that the data name.

// CHECK-LABEL: func.func @dft_axis_from_data
// CHECK: sdx.bind
// CHECK: sdx.reshape
// CHECK: sdx.contract
// CHECK: sdx.contract
// CHECK: sdx.concat
// CHECK: sdx.reshape
func.func @dft_axis_from_data(%x: !sdx.tensor<[b, n, 2], f32>, %a: !sdx.tensor<[], i64>) -> !v {
  %l = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = onnx.node "DFT"(%x, %l, %a) opset 20 {inverse = 1 : i64}
    : (!sdx.tensor<[b, n, 2], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Frames are gathered and weighted.

// CHECK-LABEL: func.func @stft
// CHECK: sdx.bind
// CHECK: sdx.gather
// CHECK: sdx.map "mul"
// CHECK: sdx.contract
func.func @stft(%x: !sdx.tensor<[b, n, 1], f32>, %s: !sdx.tensor<[], i64>, %w: !sdx.tensor<[16], f32>) -> !v {
  %0 = onnx.node "STFT"(%x, %s, %w) opset 17 {}
    : (!sdx.tensor<[b, n, 1], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[16], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Sums of cosines.

// CHECK-LABEL: func.func @windows
// CHECK: sdx.bind
// CHECK: sdx.map "div"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "add"
// CHECK: sdx.convert
func.func @windows(%n: !sdx.tensor<[], i64>) -> (!v, !v, !v) {
  %0 = onnx.node "HannWindow"(%n) opset 17 {} : (!sdx.tensor<[], i64>) -> !v
  %1 = onnx.node "HammingWindow"(%n) opset 17 {periodic = 0 : i64} : (!sdx.tensor<[], i64>) -> !v
  %2 = onnx.node "BlackmanWindow"(%n) opset 17 {} : (!sdx.tensor<[], i64>) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value

// Triangles over bins.

// CHECK-LABEL: func.func @mel
// CHECK: sdx.map "log"
// CHECK: sdx.map "exp"
// CHECK: sdx.map "floor"
// CHECK: sdx.map "div"
// CHECK: sdx.map "div"
// CHECK: sdx.map "select"
// CHECK: sdx.map "select"
// CHECK: sdx.map "select"
func.func @mel(%r: !sdx.tensor<[], i64>, %l: !sdx.tensor<[], f32>, %h: !sdx.tensor<[], f32>) -> !v {
  %n = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %d = sdx.const dense<16> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = onnx.node "MelWeightMatrix"(%n, %d, %r, %l, %h) opset 17 {}
    : (!sdx.tensor<[], i64>, !sdx.tensor<[], i64>, !sdx.tensor<[], i64>, !sdx.tensor<[], f32>, !sdx.tensor<[], f32>) -> !v
  return %0 : !v
}

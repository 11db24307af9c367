// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @constant
// CHECK: sdx.pad %arg0 with %{{.*}} low ["0", "2"] : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[b, s + 1], f32>
func.func @constant(%x: !x) -> !v {
  %p = sdx.const dense<[2, -1]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %a = sdx.const dense<[1]> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %none = onnx.none : !v
  %0 = onnx.node "Pad"(%x, %p, %none, %a) opset 18 {} : (!x, !sdx.tensor<[2], i64>, !v, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// Elements repeat: at places that follow from where the result's element stands.

// CHECK-LABEL: func.func @reflect
// CHECK: sdx.iota axis 0 : <[s + 3], i64>
// CHECK: sdx.map "rem"
// CHECK: sdx.map "min"
// CHECK: sdx.gather %arg0[%{{.*}}] axis 1 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[s + 3], i64>) -> !sdx.tensor<[b, s + 3], f32>
func.func @reflect(%x: !x) -> !v {
  %0 = onnx.node "Pad"(%x) opset 10 {mode = "reflect", pads = [0, 2, 0, 1]} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// One axis is cut, the other one is padded; the odd element is at the end.

// CHECK-LABEL: func.func @center
// CHECK: sdx.pad %arg0 with %{{.*}} low ["-1", "1"] : {{.*}} -> !sdx.tensor<[3, 8], f32>
func.func @center(%x: !sdx.tensor<[6, 5], f32>) -> !v {
  %n = sdx.const dense<[3, 8]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %0 = onnx.node "CenterCropPad"(%x, %n) opset 18 {} : (!sdx.tensor<[6, 5], f32>, !sdx.tensor<[2], i64>) -> !v
  return %0 : !v
}

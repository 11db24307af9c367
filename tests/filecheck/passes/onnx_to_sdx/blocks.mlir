// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 8, h, w], f32>

// CHECK-LABEL: func.func @depth
// CHECK: sdx.transpose %{{.*}} [0, 3, 4, 1, 5, 2] : <[b, 2, 2, 2, h, w], f32> -> <[b, 2, h, 2, w, 2], f32>
// CHECK: sdx.reshape %{{.*}} -> <[b, 2, 2*h, 2*w], f32>
// CHECK: sdx.transpose %{{.*}} [0, 1, 4, 2, 5, 3]
func.func @depth(%x: !x) -> (!v, !v) {
  %0 = onnx.node "DepthToSpace"(%x) opset 13 {blocksize = 2} : (!x) -> !v
  %1 = onnx.node "DepthToSpace"(%x) opset 13 {blocksize = 2, mode = "CRD"} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, h, 4], f32>

// An extent that is not known must be divisible: the call checks that.

// CHECK-LABEL: func.func @space
// CHECK-SAME: sdx.checks = ["h == 2*((h) floordiv (2)) : {{.*}}"]
// CHECK: sdx.transpose %{{.*}} [0, 3, 5, 1, 2, 4]
// CHECK: sdx.reshape %{{.*}} -> <[b, 8, ((h) floordiv (2)), 2], f32>
func.func @space(%x: !x) -> !v {
  %0 = onnx.node "SpaceToDepth"(%x) opset 13 {blocksize = 2} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 6, 4], f32>

// Each element gathers what the blocks have that cover it.

// CHECK-LABEL: func.func @columns
// CHECK: sdx.gather %{{.*}} axis 2 : (!sdx.tensor<[b, 2, 12], f32>, !sdx.tensor<[6, 3], i64>) -> !sdx.tensor<[b, 2, 6, 3], f32>
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add" %{{.*}} axes [3]
func.func @columns(%x: !x) -> !v {
  %n = sdx.const dense<[6]> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %k = sdx.const dense<[3]> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "Col2Im"(%x, %n, %k) opset 18 {} : (!x, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, 4, 4], f32>

// CHECK-LABEL: func.func @channel_by_channel
// CHECK: sdx.transpose %{{.*}} [0, 1, 3, 5, 2, 4]
// CHECK: sdx.reshape %{{.*}} -> <[b, 8, 2, 2], f32>
func.func @channel_by_channel(%x: !x) -> !v {
  %0 = onnx.node "SpaceToDepth"(%x) opset 28 {blocksize = 2, mode = "CRD"} : (!x) -> !v
  return %0 : !v
}

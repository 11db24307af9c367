// RUN: sardonyx-opt %s --split-input-file --option nchwc-block=8 --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 12, 8, 8], f32>
!w = !sdx.tensor<[24, 16, 3, 3], f32>

// 12 channels are two blocks of 8, the weights of two blocks of inputs are put in order, and 20 of 24 channels are left.

// CHECK-LABEL: func.func @blocks
// CHECK: sdx.pad %arg0 with {{.*}} low ["0", "0", "0", "0"] : {{.*}} -> !sdx.tensor<[b, 16, 8, 8], f32>
// CHECK: sdx.reshape %arg1 : <[24, 16, 3, 3], f32> -> <[3, 2, 3, 3, 8, 8], f32>
// CHECK: sdx.transpose {{.*}} [0, 5, 1, 4, 2, 3]
// CHECK: sdx.reshape {{.*}} -> <[24, 16, 3, 3], f32>
// CHECK: sdx.contract
// CHECK: sdx.map "tanh"
// CHECK: sdx.slice {{.*}} -> <[b, 20, 6, 6], f32>
func.func @blocks(%x: !x, %w: !w) -> !v {
  %0 = onnx.node "ReorderInput"(%x) opset 1 domain "com.microsoft.nchwc" {} : (!x) -> !v
  %1 = onnx.node "Conv"(%0, %w) opset 1 domain "com.microsoft.nchwc" {activation = "Tanh"} : (!v, !w) -> !v
  %2 = onnx.node "ReorderOutput"(%1) opset 1 domain "com.microsoft.nchwc" {channels = 20} : (!v) -> !v
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, 8, 8], f32>
!w = !sdx.tensor<[16, 3, 3, 3], f32>

// Fewer channels than a block are read from an image in the usual order; channels last in the result.

// CHECK-LABEL: func.func @first
// CHECK: sdx.reshape %arg1 : <[16, 3, 3, 3], f32> -> <[2, 3, 3, 3, 8], f32>
// CHECK: sdx.transpose {{.*}} [0, 4, 1, 2, 3]
// CHECK: sdx.reduce "max"
// CHECK: sdx.transpose {{.*}} [0, 2, 3, 1]
func.func @first(%x: !x, %w: !w) -> !v {
  %0 = onnx.node "Conv"(%x, %w) opset 1 domain "com.microsoft.nchwc" {} : (!x, !w) -> !v
  %1 = onnx.node "GlobalMaxPool"(%0) opset 1 domain "com.microsoft.nchwc" {} : (!v) -> !v
  %2 = onnx.node "ReorderOutput"(%1) opset 1 domain "com.microsoft.nchwc" {channels = 16, channels_last = 1} : (!v) -> !v
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 8, 4, 4], f32>

// CHECK-LABEL: func.func @pools
// CHECK: sdx.reduce "max"
// CHECK: sdx.reduce "add"
// CHECK: return {{.*}} !sdx.tensor<[b, 8, 8, 8], f32>
func.func @pools(%x: !x) -> (!v, !v, !v, !v) {
  %0 = onnx.node "MaxPool"(%x) opset 1 domain "com.microsoft.nchwc" {kernel_shape = [2, 2]} : (!x) -> !v
  %1 = onnx.node "AveragePool"(%x) opset 1 domain "com.microsoft.nchwc" {kernel_shape = [2, 2]} : (!x) -> !v
  %2 = onnx.node "GlobalAveragePool"(%x) opset 1 domain "com.microsoft.nchwc" {} : (!x) -> !v
  %3 = onnx.node "Upsample"(%x) opset 1 domain "com.microsoft.nchwc" {scales = [1, 1, 2, 2]} : (!x) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 16, h, w], f32>
!y = !sdx.tensor<[b, 16, 1, 1], f32>

// A sum of images whose shapes are not known to be equal: the blocks are a last dimension there.

// CHECK-LABEL: func.func @sum
// CHECK: %[[X:.*]] = sdx.reshape %arg0 : <[b, 16, h, w], f32> -> <[b, 2, 8, h, w], f32>
// CHECK: sdx.transpose %[[X]] [0, 1, 3, 4, 2] : {{.*}} -> <[b, 2, h, w, 8], f32>
// CHECK: sdx.map "add"
// CHECK: %[[Y:.*]] = sdx.transpose {{.*}} [0, 1, 4, 2, 3] : {{.*}} -> <[b, 2, 8, h, w], f32>
// CHECK: sdx.reshape %[[Y]] : {{.*}} -> <[b, 16, h, w], f32>
func.func @sum(%x: !x, %y: !y) -> !v {
  %s = sdx.const dense<[0, -1, 0, 0, 8]> : tensor<5xi64> : <[5], i64>
  %t = sdx.const dense<[0, 16, 0, 0]> : tensor<4xi64> : <[4], i64>
  %0 = onnx.node "Reshape"(%x, %s) opset 17 {} : (!x, !sdx.tensor<[5], i64>) -> !v
  %1 = onnx.node "Reshape"(%y, %s) opset 17 {} : (!y, !sdx.tensor<[5], i64>) -> !v
  %2 = onnx.node "Add"(%0, %1) opset 17 {} : (!v, !v) -> !v
  %3 = onnx.node "Reshape"(%2, %t) opset 17 {} : (!v, !sdx.tensor<[4], i64>) -> !v
  return %3 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 16, 8, 8], f32>
!w = !sdx.tensor<[16, 1, 3, 3], f32>
!z = !sdx.tensor<[b, 16, 6, 6], f32>

// Depthwise, with a sum before the activation.

// CHECK-LABEL: func.func @depthwise
// CHECK: sdx.reshape %arg1 : <[16, 1, 3, 3], f32> -> <[2, 1, 3, 3, 8], f32>
// CHECK: sdx.transpose {{.*}} [0, 4, 1, 2, 3]
// CHECK: sdx.contract
// CHECK: sdx.map "add"
// CHECK: sdx.map "max"
func.func @depthwise(%x: !x, %w: !w, %z: !z) -> !v {
  %n = onnx.none : !v
  %0 = onnx.node "Conv"(%x, %w, %n, %z) opset 1 domain "com.microsoft.nchwc" {activation = "Relu", group = 16} : (!x, !w, !v, !z) -> !v
  return %0 : !v
}

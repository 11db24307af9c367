// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Padding, a window per axis, and a contraction over channels and offsets. One group has no letter.

// CHECK-LABEL: func.func @conv
// CHECK: %[[X:.*]] = sdx.pad %{{.*}} low {{.*}} -> !sdx.tensor<[b, 1, 3, 11, w + 2], f32>
// CHECK: %[[H:.*]] = sdx.window %[[X]] axis 3 size "3" stride 2 dilation 1 : {{.*}} -> <[b, 1, 3, 5, w + 2, 3], f32>
// CHECK: %[[W:.*]] = sdx.window %[[H]] axis 4 size "3" stride 1 dilation 1 : {{.*}} -> <[b, 1, 3, 5, w, 3, 3], f32>
// CHECK: %[[L:.*]] = sdx.reshape %[[W]] : {{.*}} -> <[b, 3, 5, w, 3, 3], f32>
// CHECK: %[[C:.*]] = sdx.contract "ncpqij,ocij->nopq"(%[[L]], %{{.*}})
// CHECK: sdx.broadcast %arg2 to [1] : <[8], f32> -> <[b, 8, 5, w], f32>
// CHECK: sdx.map "add"
func.func @conv(%x: !sdx.tensor<[b, 3, 9, w], f32>, %w: !sdx.tensor<[8, 3, 3, 3], f32>, %c: !sdx.tensor<[8], f32>) -> !v {
  %0 = onnx.node "Conv"(%x, %w, %c) opset 11 {strides = [2, 1], pads = [1, 1, 1, 1]}
    : (!sdx.tensor<[b, 3, 9, w], f32>, !sdx.tensor<[8, 3, 3, 3], f32>, !sdx.tensor<[8], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A group is a batch letter; one channel per group has none. The extent is kept by as much padding as that takes.

// CHECK-LABEL: func.func @depthwise
// CHECK: sdx.window %{{.*}} axis 3 size "3" stride 2 dilation 1 : {{.*}} -> <[b, 8, 1, ((s + 1) floordiv (2)), 3], f32>
// CHECK: sdx.contract "ngpi,gi->ngp"
func.func @depthwise(%x: !sdx.tensor<[b, 8, s], f32>, %w: !sdx.tensor<[8, 1, 3], f32>) -> !v {
  %0 = onnx.node "Conv"(%x, %w) opset 11 {strides = [2], group = 8, auto_pad = "SAME_UPPER"}
    : (!sdx.tensor<[b, 8, s], f32>, !sdx.tensor<[8, 1, 3], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A kernel of one element has no window.

// CHECK-LABEL: func.func @pointwise
// CHECK-NOT: sdx.window
// CHECK: sdx.slice %{{.*}} step [1, 1, 1, 2, 1]
// CHECK: sdx.contract "ncpq,oc->nopq"
func.func @pointwise(%x: !sdx.tensor<[b, 3, 9, w], f32>, %w: !sdx.tensor<[8, 3, 1, 1], f32>) -> !v {
  %0 = onnx.node "Conv"(%x, %w) opset 11 {strides = [2, 1]}
    : (!sdx.tensor<[b, 3, 9, w], f32>, !sdx.tensor<[8, 3, 1, 1], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// The offsets of a kernel fall into phases, two by a stride of 2; phases and channels are columns of one contraction.

// CHECK-LABEL: func.func @transposed
// CHECK: sdx.pad {{.*}}-> !sdx.tensor<[1, 4, 2, 4], f32>
// CHECK: sdx.slice %{{.*}} step [1, 1, 1, -1, 1]
// CHECK: sdx.window %{{.*}} axis 3 size "2" stride 1 dilation 1 : {{.*}} -> <[b, 1, 4, s + 1, 2], f32>
// CHECK: sdx.reshape {{.*}} -> <[1, 4, 2, 4], f32>
// CHECK: sdx.contract "ncpi,cix->npx"
// CHECK: sdx.transpose {{.*}} -> <[b, 1, 2, s + 1, 2], f32>
// CHECK: sdx.reshape {{.*}} -> <[b, 1, 2, 2*s + 2], f32>
// CHECK: sdx.slice {{.*}} -> <[b, 1, 2, 2*s + 1], f32>
func.func @transposed(%x: !sdx.tensor<[b, 4, s], f32>, %w: !sdx.tensor<[4, 2, 3], f32>) -> !v {
  %0 = onnx.node "ConvTranspose"(%x, %w) opset 11 {strides = [2]}
    : (!sdx.tensor<[b, 4, s], f32>, !sdx.tensor<[4, 2, 3], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A group of one channel keeps the axes of its phases: vectors run along the groups.

// CHECK-LABEL: func.func @transposed_depthwise
// CHECK: sdx.contract "ngpi,gix->ngpx"
func.func @transposed_depthwise(%x: !sdx.tensor<[b, 4, s], f32>, %w: !sdx.tensor<[4, 1, 4], f32>) -> !v {
  %0 = onnx.node "ConvTranspose"(%x, %w) opset 11 {strides = [2], group = 4 : i64}
    : (!sdx.tensor<[b, 4, s], f32>, !sdx.tensor<[4, 1, 4], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Between the offsets of a dilated one zeros go between the elements, and the kernel is turned around.

// CHECK-LABEL: func.func @transposed_and_dilated
// CHECK: sdx.slice %{{.*}} from {{.*}} step [1, 1, 1, -1]
// CHECK: sdx.contract "ncpi,coi->nop"
func.func @transposed_and_dilated(%x: !sdx.tensor<[b, 4, s], f32>, %w: !sdx.tensor<[4, 2, 3], f32>) -> !v {
  %0 = onnx.node "ConvTranspose"(%x, %w) opset 11 {strides = [2], dilations = [2]}
    : (!sdx.tensor<[b, 4, s], f32>, !sdx.tensor<[4, 2, 3], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, 8], f32>

// CHECK-LABEL: func.func @fused
// CHECK: sdx.contract "ncpi,oci->nop"
// CHECK: %[[S:.*]] = sdx.map "add"(%{{.*}}, %arg2)
// CHECK: sdx.map "max"(%[[S]],
func.func @fused(%x: !x, %w: !sdx.tensor<[4, 4, 3], f32>, %z: !sdx.tensor<[b, 4, 6], f32>) -> !v {
  %none = onnx.none : !v
  %0 = onnx.node "FusedConv"(%x, %w, %none, %z) opset 1 domain "com.microsoft" {activation = "Relu"}
    : (!x, !sdx.tensor<[4, 4, 3], f32>, !v, !sdx.tensor<[b, 4, 6], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 6, 6, 4], f32>
!w = !sdx.tensor<[5, 4, 3, 3], f32>
!z = !sdx.tensor<[b, 4, 4, 5], f32>

// CHECK-LABEL: func.func @channels_last
// CHECK: sdx.transpose %arg0 [0, 3, 1, 2]
// CHECK: sdx.contract
// CHECK: %[[Y:.*]] = sdx.transpose %{{.*}} [0, 2, 3, 1] : {{.*}} -> <[b, 4, 4, 5], f32>
// CHECK: sdx.map "add"(%[[Y]], %arg2)
// CHECK: sdx.map "max"
func.func @channels_last(%x: !x, %w: !w, %z: !z) -> !v {
  %no = onnx.none : !v
  %0 = onnx.node "NhwcFusedConv"(%x, %w, %no, %z) opset 1 domain "com.microsoft" {activation = "Relu"} : (!x, !w, !v, !z) -> !v
  return %0 : !v
}

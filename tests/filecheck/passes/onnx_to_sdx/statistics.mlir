// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 4, s], f32>
!c = !sdx.tensor<[4], f32>

// Two numbers per channel.

// CHECK-LABEL: func.func @batch
// CHECK: %[[D:.*]] = sdx.map "sqrt"
// CHECK: %[[F:.*]] = sdx.map "div"(%arg1, %[[D]])
// CHECK: %[[M:.*]] = sdx.map "mul"(%arg3, %[[F]])
// CHECK: sdx.map "sub"(%arg2, %[[M]])
// CHECK: sdx.map "mul"(%arg0,
// CHECK: sdx.map "add"
func.func @batch(%x: !x, %s: !c, %c: !c, %m: !c, %d: !c) -> !v {
  %0 = onnx.node "BatchNormalization"(%x, %s, %c, %m, %d) opset 15 {} : (!x, !c, !c, !c, !c) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, s], f32>
!c = !sdx.tensor<[4], f32>

// In training the batch's own statistics move the running ones.

// CHECK-LABEL: func.func @training
// CHECK: sdx.reduce "add" %arg0 axes [0, 2]
// CHECK: sdx.reduce "add" %{{.*}} axes [0, 2]
func.func @training(%x: !x, %s: !c, %c: !c, %m: !c, %d: !c) -> (!v, !v, !v) {
  %0:3 = onnx.node "BatchNormalization"(%x, %s, %c, %m, %d) opset 15 {training_mode = 1} : (!x, !c, !c, !c, !c) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, s], f32>
!c = !sdx.tensor<[4], f32>

// CHECK-LABEL: func.func @instance
// CHECK: sdx.reduce "add" %arg0 axes [2]
func.func @instance(%x: !x, %s: !c, %c: !c) -> !v {
  %0 = onnx.node "InstanceNormalization"(%x, %s, %c) opset 7 {} : (!x, !c, !c) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, s], f16>
!c = !sdx.tensor<[4], f16>

// In f32; scale and bias are per channel since opset 21.

// CHECK-LABEL: func.func @group
// CHECK: %[[X:.*]] = sdx.reshape %{{.*}} : <[b, 4, s], f32> -> <[b, 2, 2, s], f32>
// CHECK: sdx.reduce "add" %[[X]] axes [2, 3]
// CHECK: sdx.convert %{{.*}} : <[b, 4, s], f32> -> <[b, 4, s], f16>
// CHECK: sdx.broadcast %arg1 to [1]
func.func @group(%x: !x, %s: !c, %c: !c) -> !v {
  %0 = onnx.node "GroupNormalization"(%x, %s, %c) opset 21 {num_groups = 2} : (!x, !c, !c) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, h, w], f32>

// CHECK-LABEL: func.func @planes
// CHECK: sdx.reduce "add" %arg0 axes [0, 2, 3]
// CHECK: %[[P:.*]] = sdx.pad %{{.*}} low ["0", "1", "0", "0"]
// CHECK: %[[W:.*]] = sdx.window %[[P]] axis 1 size "4" stride 1 dilation 1 : {{.*}} -> <[b, 4, h, w, 4], f32>
// CHECK: sdx.reduce "add" %[[W]] axes [4]
// CHECK: sdx.map "pow"
func.func @planes(%x: !x) -> (!v, !v) {
  %0 = onnx.node "MeanVarianceNormalization"(%x) opset 13 {} : (!x) -> !v
  %1 = onnx.node "LRN"(%x) opset 13 {size = 4} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 6, 6, 8], f32>
!k = !sdx.tensor<[b, 8], f32>
!c = !sdx.tensor<[8], f32>

// Channels are last; the sum is a result too.

// CHECK-LABEL: func.func @groups_of_a_sum
// CHECK: sdx.reshape %arg1 : <[b, 8], f32> -> <[b, 1, 1, 8], f32>
// CHECK: %[[S:.*]] = sdx.map "add"
// CHECK: sdx.transpose %[[S]] [0, 3, 1, 2]
// CHECK: sdx.reduce "add" {{.*}} axes [2, 3, 4]
// CHECK: %[[Y:.*]] = sdx.transpose %{{.*}} [0, 2, 3, 1]
// CHECK: return %[[Y]], %[[S]], %{{.*}}
func.func @groups_of_a_sum(%x: !x, %k: !k, %c: !c) -> (!v, !v, !v) {
  %0:2 = onnx.node "SkipGroupNorm"(%x, %c, %c, %k) opset 1 domain "com.microsoft" {groups = 2 : i64, activation = 1 : i64} : (!x, !c, !c, !k) -> (!v, !v)
  %1 = onnx.node "GroupNorm"(%x, %c, %c) opset 1 domain "com.microsoft" {groups = 2 : i64, activation = 0 : i64} : (!x, !c, !c) -> !v
  return %0#0, %0#1, %1 : !v, !v, !v
}

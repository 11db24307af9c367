// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>

// What is around the operand is no maximum. With ceil_mode a last window may begin in the operand and end behind it.

// CHECK-LABEL: func.func @max
// CHECK: %[[P:.*]] = sdx.pad %arg0 with %{{.*}} low ["0", "0", "1"]
// CHECK: %[[W:.*]] = sdx.window %[[P]] axis 2 size "3" stride 2 dilation 1
// CHECK: sdx.reduce "max" %[[W]] axes [3]
func.func @max(%x: !x) -> !v {
  %0 = onnx.node "MaxPool"(%x) opset 12 {kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>

// The first of the places in the whole tensor where nothing in the window is larger.

// CHECK-LABEL: func.func @indices
// CHECK: %[[Y:.*]] = sdx.reduce "max" %[[W:.*]] axes [3]
// CHECK: sdx.map "lt"(%[[W]],
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "min"
// CHECK: sdx.map "add"
func.func @indices(%x: !x) -> (!v, !v) {
  %0:2 = onnx.node "MaxPool"(%x) opset 12 {kernel_shape = [2]} : (!x) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>

// Without padding all elements of a window count, else those inside.

// CHECK-LABEL: func.func @average
// CHECK: %[[S:.*]] = sdx.reduce "add"
// CHECK: sdx.const dense<2.000000e+00>
// CHECK: sdx.map "div"(%[[S]],
// CHECK: %[[T:.*]] = sdx.reduce "add"
// CHECK: %[[N:.*]] = sdx.reduce "add"
// CHECK: sdx.map "div"(%[[T]],
func.func @average(%x: !x) -> (!v, !v) {
  %0 = onnx.node "AveragePool"(%x) opset 11 {kernel_shape = [2]} : (!x) -> !v
  %1 = onnx.node "AveragePool"(%x) opset 11 {kernel_shape = [2], pads = [1, 0]} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>

// CHECK-LABEL: func.func @norms
// CHECK: sdx.map "mul"(%arg0, %arg0)
// CHECK: sdx.window
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "pow"
// CHECK: sdx.reduce "add" %{{.*}} axes [2]
// CHECK: sdx.map "pow"
func.func @norms(%x: !x) -> (!v, !v) {
  %0 = onnx.node "LpPool"(%x) opset 18 {kernel_shape = [2]} : (!x) -> !v
  %1 = onnx.node "GlobalLpPool"(%x) opset 7 {p = 3} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>

// CHECK-LABEL: func.func @global
// CHECK: sdx.reduce "add" %arg0 axes [2]
// CHECK: sdx.map "div"
// CHECK: sdx.reduce "max" %arg0 axes [2]
func.func @global(%x: !x) -> (!v, !v) {
  %0 = onnx.node "GlobalAveragePool"(%x) opset 7 {} : (!x) -> !v
  %1 = onnx.node "GlobalMaxPool"(%x) opset 7 {} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 8, 8, 3], f32>

// CHECK-LABEL: func.func @channels_last
// CHECK: sdx.transpose %arg0 [0, 3, 1, 2]
// CHECK: %[[Y:.*]] = sdx.reduce "max"
// CHECK: sdx.transpose %[[Y]] [0, 2, 3, 1]
func.func @channels_last(%x: !x) -> !v {
  %0 = onnx.node "NhwcMaxPool"(%x) opset 1 domain "com.microsoft" {kernel_shape = [2, 2]} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f32>
!i = !sdx.tensor<[b, 3, s], i64>

// Many elements find their places one after the other.

// CHECK-LABEL: func.func @unpool_in_turn
// CHECK: sdx.host "Scatter"(%{{.*}}) result 0 of 0 {{.*}} -> !sdx.tensor<[6*b*s, 1], f32>
// CHECK-NOT: sdx.host
func.func @unpool_in_turn(%x: !x, %i: !i) -> !v {
  %0 = onnx.node "MaxUnpool"(%x, %i) opset 11 {kernel_shape = [2], strides = [2]} : (!x, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, 8], f32>
!i = !sdx.tensor<[b, 3, 8], i64>

// CHECK-LABEL: func.func @unpool
// CHECK: sdx.map "eq"
// CHECK: sdx.reduce "max" %{{.*}} axes [3] : <[b, 3, 16, 8], f32> -> <[b, 3, 16], f32>
func.func @unpool(%x: !x, %i: !i) -> !v {
  %0 = onnx.node "MaxUnpool"(%x, %i) opset 11 {kernel_shape = [2], strides = [2]} : (!x, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!r = !sdx.tensor<[r, 5], f32>

// Along one axis, then along the other.

// CHECK-LABEL: func.func @regions
// CHECK: sdx.gather %arg0[%{{.*}}] axis 0
// CHECK: sdx.reduce "max" %{{.*}} -> <[r, 3, h, 2], f32>
// CHECK: sdx.reduce "max" %{{.*}} -> <[r, 3, 2, 4], f32>
func.func @regions(%x: !x, %r: !r) -> !v {
  %0 = onnx.node "MaxRoiPool"(%x, %r) opset 7 {pooled_shape = [4, 2]} : (!x, !r) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, s], f16>

// The sum of many elements may exceed what 16 bits hold where their mean does not: it is rounded once, after the division.

// CHECK-LABEL: func.func @means_of_f16
// CHECK: %[[X:.*]] = sdx.convert %arg0 : <[b, 3, s], f16> -> <[b, 3, s], f32>
// CHECK: sdx.reduce "add" %[[X]] axes [2]
// CHECK: %[[M:.*]] = sdx.map "div"
// CHECK: sdx.convert %[[M]] : {{.*}}f32> -> <{{.*}}f16>
// CHECK: %[[A:.*]] = sdx.reduce "add" %{{.*}}f32>
// CHECK: %[[D:.*]] = sdx.map "div"(%[[A]],
// CHECK: sdx.convert %[[D]] : {{.*}}f32> -> <{{.*}}f16>
func.func @means_of_f16(%x: !x) -> (!v, !v) {
  %0 = onnx.node "GlobalAveragePool"(%x) opset 11 {} : (!x) -> !v
  %1 = onnx.node "AveragePool"(%x) opset 11 {kernel_shape = [2]} : (!x) -> !v
  return %0, %1 : !v, !v
}

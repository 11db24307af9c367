// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// CHECK-LABEL: func.func @kinds
// CHECK: sdx.reduce "max" %{{.*}} axes [2] : <[b, s, 4], f32> -> <[b, s], f32>
// CHECK: sdx.reduce "min"
// CHECK: sdx.reduce "mul"
// CHECK: sdx.reduce "add"
func.func @kinds(%x: !x) -> (!v, !v, !v, !v) {
  %a = sdx.const dense<[-1]> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "ReduceMax"(%x) opset 13 {axes = [-1], keepdims = 0 : i64} : (!x) -> !v
  %1 = onnx.node "ReduceMin"(%x) opset 13 {axes = [-1], keepdims = 0 : i64} : (!x) -> !v
  %2 = onnx.node "ReduceProd"(%x) opset 13 {axes = [-1], keepdims = 0 : i64} : (!x) -> !v
  %3 = onnx.node "ReduceSum"(%x, %a) opset 13 {keepdims = 0 : i64} : (!x, !sdx.tensor<[1], i64>) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// A mean divides by the count, which may be an expression; a norm is the root of the squares.

// CHECK-LABEL: func.func @composed
// CHECK: %[[S:.*]] = sdx.reduce "add" %{{.*}} axes [1, 2]
// CHECK: %[[D:.*]] = sdx.dims ["4*s"] : <[], i64>
// CHECK: %[[N:.*]] = sdx.convert %[[D]] : <[], i64> -> <[], f32>
// CHECK: %[[W:.*]] = sdx.broadcast %[[N]]
// CHECK: sdx.map "div"(%[[S]], %[[W]])
// CHECK: %[[Q:.*]] = sdx.map "mul"(%arg0, %arg0)
// CHECK: %[[SQ:.*]] = sdx.reduce "add" %[[Q]]
// CHECK: sdx.map "sqrt"(%[[SQ]])
// CHECK: %[[R:.*]] = sdx.map "mul"(%arg0, %arg0)
// CHECK: sdx.reduce "add" %[[R]]
func.func @composed(%x: !x) -> (!v, !v, !v) {
  %0 = onnx.node "ReduceMean"(%x) opset 13 {axes = [1, 2], keepdims = 0 : i64} : (!x) -> !v
  %1 = onnx.node "ReduceL2"(%x) opset 13 {axes = [2], keepdims = 0 : i64} : (!x) -> !v
  %2 = onnx.node "ReduceSumSquare"(%x) opset 13 {axes = [2], keepdims = 0 : i64} : (!x) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// Dimensions are kept unless told otherwise; no axes are all axes, or none.

// CHECK-LABEL: func.func @axes
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: sdx.reduce "max" %[[X]] axes [1]
// CHECK: %[[KEPT:.*]] = sdx.reshape %{{.*}} -> <[b, 1, 4], f32>
// CHECK: sdx.reduce "max" %[[X]] axes [0, 1, 2]
// CHECK: %[[ALL:.*]] = sdx.reshape %{{.*}} -> <[1, 1, 1], f32>
// CHECK: return %[[KEPT]], %[[ALL]], %[[X]]
func.func @axes(%x: !x) -> (!v, !v, !v) {
  %a = sdx.const dense<1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "ReduceMax"(%x, %a) opset 18 {} : (!x, !sdx.tensor<[1], i64>) -> !v
  %1 = onnx.node "ReduceMax"(%x) opset 18 {} : (!x) -> !v
  %2 = onnx.node "ReduceMax"(%x) opset 18 {noop_with_empty_axes = 1 : i64} : (!x) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// CHECK-LABEL: func.func @softmax
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[M:.*]] = sdx.reduce "max" %[[X]] axes [2]
// CHECK: %[[MB:.*]] = sdx.broadcast %[[M]] to [0, 1]
// CHECK: %[[D:.*]] = sdx.map "sub"(%[[X]], %[[MB]])
// CHECK: %[[E:.*]] = sdx.map "exp"(%[[D]])
// CHECK: %[[S:.*]] = sdx.reduce "add" %[[E]] axes [2]
// CHECK: %[[SB:.*]] = sdx.broadcast %[[S]] to [0, 1]
// CHECK: sdx.map "div"(%[[E]], %[[SB]])
func.func @softmax(%x: !x) -> !v {
  %0 = onnx.node "Softmax"(%x) opset 13 {} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// Before opset 13 everything from the axis on is one row, and the axis is 1 by default.

// CHECK-LABEL: func.func @softmax_7
// CHECK: sdx.reduce "max" %{{.*}} axes [1, 2]
// CHECK: sdx.reduce "add" %{{.*}} axes [1, 2]
func.func @softmax_7(%x: !x) -> !v {
  %0 = onnx.node "Softmax"(%x) opset 7 {} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// CHECK-LABEL: func.func @log_softmax
// CHECK: %[[D:.*]] = sdx.map "sub"
// CHECK: sdx.map "exp"(%[[D]])
// CHECK: %[[S:.*]] = sdx.reduce "add" %{{.*}} axes [1]
// CHECK: %[[L:.*]] = sdx.map "log"(%[[S]])
// CHECK: %[[LB:.*]] = sdx.broadcast %[[L]] to [0, 2]
// CHECK: sdx.map "sub"(%[[D]], %[[LB]])
func.func @log_softmax(%x: !x) -> !v {
  %0 = onnx.node "LogSoftmax"(%x) opset 13 {axis = 1 : i64} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f16>
!w = !sdx.tensor<[4], f16>

// Statistics are f32 for narrower types; they are outputs too.

// CHECK-LABEL: func.func @layer_norm
// CHECK-SAME: -> (!sdx.tensor<[b, s, 4], f16>, !sdx.tensor<[b, s, 1], f32>, !sdx.tensor<[b, s, 1], f32>)
// CHECK: %[[X:.*]] = sdx.convert %arg0 : <[b, s, 4], f16> -> <[b, s, 4], f32>
// CHECK: sdx.reduce "add" %[[X]] axes [2]
// CHECK: %[[C:.*]] = sdx.map "sub"(%[[X]],
// CHECK: %[[Q:.*]] = sdx.map "mul"(%[[C]], %[[C]])
// CHECK: sdx.reduce "add" %[[Q]] axes [2]
// CHECK: sdx.const dense<9.99999974E-6>
// CHECK: sdx.map "sqrt"
// CHECK: %[[N:.*]] = sdx.map "mul"(%[[C]],
// CHECK: %[[Y:.*]] = sdx.convert %[[N]] : <[b, s, 4], f32> -> <[b, s, 4], f16>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[Y]],
// CHECK: sdx.map "add"(%[[SCALED]],
func.func @layer_norm(%x: !x, %w: !w, %c: !w) -> (!v, !v, !v) {
  %0:3 = onnx.node "LayerNormalization"(%x, %w, %c) opset 17 {} : (!x, !w, !w) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>
!w = !sdx.tensor<[4], f32>

// Without a mean: x / sqrt(mean(x²) + epsilon) * scale

// CHECK-LABEL: func.func @rms
// CHECK-NOT: sdx.map "sub"
// CHECK: sdx.map "mul"(%arg0, %arg0)
// CHECK: sdx.map "sqrt"
// CHECK: %[[N:.*]] = sdx.map "mul"(%arg0,
// CHECK: sdx.map "mul"(%[[N]],
// CHECK-NOT: sdx.map "sub"
// CHECK: return
func.func @rms(%x: !x, %w: !w) -> (!v, !v) {
  %0 = onnx.node "RMSNormalization"(%x, %w) opset 23 {} : (!x, !w) -> !v
  %1 = onnx.node "SimplifiedLayerNormalization"(%x, %w) opset 17 {} : (!x, !w) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>
!w = !sdx.tensor<[4], f32>

// com.microsoft: the sum of two values (and a bias) is normalised; it is the last output.

// CHECK-LABEL: func.func @skip
// CHECK: %[[XY:.*]] = sdx.map "add"(%arg0, %arg1)
// CHECK: %[[SUM:.*]] = sdx.map "add"(%[[XY]],
// CHECK: sdx.reduce "add" %[[SUM]] axes [2]
// CHECK: sdx.map "sub"(%[[SUM]],
// CHECK: %[[SIMPLE:.*]] = sdx.map "add"(%arg0, %arg1)
// CHECK: sdx.map "mul"(%[[SIMPLE]], %[[SIMPLE]])
// CHECK: return %{{.*}}, %[[SUM]], %{{.*}}
func.func @skip(%x: !x, %y: !x, %w: !w, %c: !w, %d: !w) -> (!v, !v, !v) {
  %0:4 = onnx.node "SkipLayerNormalization"(%x, %y, %w, %c, %d) opset 1 domain "com.microsoft" {}
    : (!x, !x, !w, !w, !w) -> (!v, !v, !v, !v)
  %1 = onnx.node "SkipSimplifiedLayerNormalization"(%x, %y, %w) opset 1 domain "com.microsoft" {} : (!x, !x, !w) -> !v
  return %0#0, %0#3, %1 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f16>

// Squares and sums of 16-bit floats may exceed the type where a norm or a mean does not; the largest element cannot.

// CHECK-LABEL: func.func @sums_of_f16
// CHECK: %[[X:.*]] = sdx.convert %arg0 : <[b, s, 4], f16> -> <[b, s, 4], f32>
// CHECK: sdx.reduce "add" %[[X]] axes [2]
// CHECK: sdx.map "div"
// CHECK: sdx.convert %{{.*}} : <[b, s], f32> -> <[b, s], f16>
// CHECK: sdx.reduce "max" %arg0 axes [2] : <[b, s, 4], f16> -> <[b, s], f16>
func.func @sums_of_f16(%x: !x) -> (!v, !v) {
  %0 = onnx.node "ReduceMean"(%x) opset 13 {axes = [2], keepdims = 0 : i64} : (!x) -> !v
  %1 = onnx.node "ReduceMax"(%x) opset 13 {axes = [2], keepdims = 0 : i64} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>
!w = !sdx.tensor<[4], f32>

// ONNX Runtime's optimiser writes the operator into models whose opset does not have it.

// CHECK-LABEL: func.func @layer_norm_of_an_optimiser
// CHECK: sdx.map "sqrt"
func.func @layer_norm_of_an_optimiser(%x: !x, %w: !w) -> !v {
  %0 = onnx.node "LayerNormalization"(%x, %w) opset 12 {} : (!x, !w) -> !v
  return %0 : !v
}

// RUN: sardonyx-opt %s --split-input-file --print-locations --pass-pipeline='builtin.module(onnx-to-sdx,fold-constants,simplify,func.func(canonicalize,cse),sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,inline-maps,symbol-dce)' \
// RUN:   | FileCheck %s

// Passes of ours and MLIR's own in one string; a fused kernel keeps the names of all its nodes.

!v = !onnx.value
!x = !sdx.tensor<[batch, seq, 4], f32>

// CHECK-LABEL: func.func @mlp
// CHECK: %[[W:.*]] = flow.param "up"
// CHECK: flow.kernel outer ["batch", "seq", "8"] inner ["4"]
// CHECK: flow.reduce "add"
// CHECK: flow.apply "erf"
// CHECK: } loc([[MLP:#.*]])
// CHECK-NOT: flow.kernel
// CHECK: return
// CHECK-DAG: [[MATMUL:#.*]] = loc("/up/MatMul")
// CHECK-DAG: [[ADD:#.*]] = loc("/up/Add")
// CHECK-DAG: [[GELU:#.*]] = loc("/Gelu")
// CHECK-DAG: [[MLP]] = loc(fused{{\[}}[[MATMUL]], [[ADD]], [[GELU]]{{\]}})
func.func @mlp(%x: !x) -> !v {
  %w = sdx.param "up" : !sdx.tensor<[4, 8], f32>
  %b = sdx.param "up.bias" : !sdx.tensor<[8], f32>
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !sdx.tensor<[4, 8], f32>) -> !v loc("/up/MatMul")
  %1 = onnx.node "Add"(%0, %b) opset 14 {} : (!v, !sdx.tensor<[8], f32>) -> !v loc("/up/Add")
  %2 = onnx.node "Gelu"(%1) opset 20 {} : (!v) -> !v loc("/Gelu")
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[batch, seq, 4], f32>

// Equal operations are one (cse), a private function that nobody calls is gone (symbol-dce), and softmax is one kernel.

// CHECK-LABEL: func.func @softmax
// CHECK: %[[Y:.*]] = flow.kernel outer ["batch", "seq"] inner ["4"]
// CHECK-NOT: flow.kernel
// CHECK: return %[[Y]], %[[Y]]
// CHECK-NOT: func.func
func.func @softmax(%x: !x) -> (!v, !v) {
  %0 = onnx.node "Softmax"(%x) opset 13 {} : (!x) -> !v loc("/a/Softmax")
  %1 = onnx.node "Softmax"(%x) opset 13 {} : (!x) -> !v loc("/b/Softmax")
  return %0, %1 : !v, !v
}
func.func private @unused(%x: i64) -> i64 {
  return %x : i64
}

// RUN: sardonyx-opt %s | FileCheck %s
// RUN: sardonyx-opt %s | sardonyx-opt - | FileCheck %s

// CHECK-LABEL: func.func @nodes
// CHECK: %[[NONE:.*]] = onnx.none : !onnx.value
// CHECK: onnx.node "Gemm"(%{{.*}}, %{{.*}}, %[[NONE]]) opset 13 {alpha = 5.000000e-01 : f32, transB = 1 : i64} : (!sdx.tensor<[b, 4], f32>, !sdx.tensor<[3, 4], f32>, !onnx.value) -> !onnx.value
// CHECK: onnx.node "Gelu"(%{{.*}}) opset 1 domain "com.microsoft" {} : (!onnx.value) -> !onnx.value
// CHECK: onnx.node "Split"(%{{.*}}) opset 18 {num_outputs = 2 : i64} : (!onnx.value) -> (!onnx.value, !onnx.value)
func.func @nodes(%x: !sdx.tensor<[b, 4], f32>, %w: !sdx.tensor<[3, 4], f32>) {
  %none = onnx.none : !onnx.value
  %0 = onnx.node "Gemm"(%x, %w, %none) opset 13 {transB = 1 : i64, alpha = 0.5 : f32} : (!sdx.tensor<[b, 4], f32>, !sdx.tensor<[3, 4], f32>, !onnx.value) -> !onnx.value
  %1 = onnx.node "Gelu"(%0) opset 1 domain "com.microsoft" {} : (!onnx.value) -> !onnx.value
  %2:2 = onnx.node "Split"(%1) opset 18 {num_outputs = 2 : i64} : (!onnx.value) -> (!onnx.value, !onnx.value)
  return
}

// A graph as an attribute sees the values around it.

// CHECK-LABEL: func.func @body
// CHECK: onnx.node "If"(%{{.*}}) opset 16 {} : (!sdx.tensor<[], i1>) -> !onnx.value with ["then_branch", "else_branch"] {
// CHECK-NEXT: onnx.yield %[[X:.*]] : !sdx.tensor<[b, 4], f32>
// CHECK: onnx.yield %[[X]] : !sdx.tensor<[b, 4], f32>
func.func @body(%c: !sdx.tensor<[], i1>, %x: !sdx.tensor<[b, 4], f32>) {
  %0 = onnx.node "If"(%c) opset 16 {} : (!sdx.tensor<[], i1>) -> !onnx.value with ["then_branch", "else_branch"] {
    onnx.yield %x : !sdx.tensor<[b, 4], f32>
  }, {
    onnx.yield %x : !sdx.tensor<[b, 4], f32>
  }
  return
}

// CHECK-LABEL: plan.kernel @k0
plan.kernel @k0 {
}

// CHECK-LABEL: plan.entry @main symbols ["input b 1..8"] checks [] arena "256*b"
// CHECK: %[[IN:.*]] = plan.input "x" !sdx.tensor<[b, 4], f32> : !plan.buffer
// CHECK: %[[OUT:.*]] = plan.output "y" !sdx.tensor<[b, 4], f32> : !plan.buffer
// CHECK: plan.param "w" !flow.container<[4, 4], f32, panels32> window [0, 4, 1] : !plan.buffer
// CHECK: plan.const dense<1> : tensor<i64> !flow.container<[], i64, row_major> : !plan.buffer
// CHECK: %[[TMP:.*]] = plan.arena "16*b" at "64" : !plan.buffer
// CHECK: plan.launch @k0(%[[IN]], %[[TMP]]) grid "b" params ["b", "4"]
// CHECK: plan.copy %[[TMP]] to %[[OUT]]
// CHECK: plan.bind "n" = %[[TMP]]
plan.entry @main symbols ["input b 1..8"] checks [] arena "256*b" {
  %x = plan.input "x" !sdx.tensor<[b, 4], f32> : !plan.buffer
  %y = plan.output "y" !sdx.tensor<[b, 4], f32> : !plan.buffer
  %w = plan.param "w" !flow.container<[4, 4], f32, panels32> window [0, 4, 1] : !plan.buffer
  %c = plan.const dense<1> : tensor<i64> !flow.container<[], i64, row_major> : !plan.buffer
  %t = plan.arena "16*b" at "64" : !plan.buffer
  plan.launch @k0(%x, %t) grid "b" params ["b", "4"]
  plan.copy %t to %y
  plan.bind "n" = %t
}

// CHECK-LABEL: plan.entry @decode symbols ["capacity room 0..", "input b 1..8", "kept kept 0.."] checks [] arena "0" states ["0 0 kept"] {
// CHECK: plan.launch @k0(%{{.*}}, %{{.*}}) grid "b" params []
plan.entry @decode symbols ["capacity room 0..", "input b 1..8", "kept kept 0.."] checks [] arena "0" states ["0 0 kept"] {
  %x = plan.input "past" !flow.container<[b], f32, "capacity<0, room>"> : !plan.buffer
  %y = plan.output "present" !flow.container<[b + 1], f32, "capacity<0, room>"> : !plan.buffer
  plan.launch @k0(%x, %y) grid "b" params []
}

// CHECK-LABEL: plan.entry @main.body0 symbols ["data n 0.."] checks [] arena "0" internal {
// CHECK: %[[X:.*]] = plan.input "x"
// CHECK: %[[V:.*]] = plan.value !flow.container<[1, n], i64, row_major> : !plan.buffer
// CHECK: plan.host "NonZero"(%[[X]], %[[V]]) of [!flow.container<[4], f32, row_major>] results [0] binds ["0 1 n"] calls []
plan.entry @main.body0 symbols ["data n 0.."] checks [] arena "0" internal {
  %x = plan.input "x" !flow.container<[4], f32, row_major> : !plan.buffer
  %v = plan.value !flow.container<[1, n], i64, row_major> : !plan.buffer
  plan.host "NonZero"(%x, %v) of [!flow.container<[4], f32, row_major>] results [0] binds ["0 1 n"] calls []
}

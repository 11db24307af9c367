// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Of five elements three steps; in reverse the neutral element enters at the end.

// CHECK-LABEL: func.func @doubling
// CHECK: sdx.slice
// CHECK: sdx.pad
// CHECK: sdx.map "add"
// CHECK: sdx.slice
// CHECK: sdx.pad
// CHECK: sdx.map "add"
// CHECK: sdx.slice
// CHECK: sdx.pad
// CHECK: sdx.map "add"
// CHECK-NOT: sdx.map
// CHECK: return
func.func @doubling(%x: !sdx.tensor<[b, 5], f32>) -> !v {
  %a = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = onnx.node "CumSum"(%x, %a) opset 14 {} : (!sdx.tensor<[b, 5], f32>, !sdx.tensor<[], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A length that is not known: in blocks of blocks each place takes what is before it, and then what the blocks before have.

// CHECK-LABEL: func.func @blocks
// CHECK: sdx.pad
// CHECK: sdx.reshape %{{.*}} -> <[b, ((s + 63) floordiv (64)), 64], f32>
// CHECK: sdx.map "lt"
// CHECK: sdx.broadcast
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "mul" %{{.*}} axes [3]
// CHECK: sdx.reduce "mul" %{{.*}} axes [2]
// CHECK: sdx.pad
// CHECK: sdx.iota
// CHECK: sdx.map "lt"
// CHECK: sdx.reduce "mul" %{{.*}} axes [2] : <[b, {{.*}}floordiv
// CHECK: sdx.map "mul"
// CHECK: sdx.slice
// CHECK: sdx.map "mul"
// CHECK: sdx.slice %{{.*}} -> <[b, s], f32>
func.func @blocks(%x: !sdx.tensor<[b, s], f32>) -> !v {
  %a = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = onnx.node "CumProd"(%x, %a) opset 26 {exclusive = 1 : i64}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// The elements are laid out around the axis that the data name.

// CHECK-LABEL: func.func @axis_from_data
// CHECK: sdx.reduce "mul"
// CHECK: sdx.reduce "add"
// CHECK: sdx.reduce "mul"
// CHECK: sdx.bind
// CHECK: sdx.bind
// CHECK: sdx.bind
// CHECK: sdx.reshape
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add"
// CHECK: sdx.reshape %{{.*}} -> <[b, s], f32>
func.func @axis_from_data(%x: !sdx.tensor<[b, s], f32>, %a: !sdx.tensor<[], i64>) -> !v {
  %0 = onnx.node "CumSum"(%x, %a) opset 14 {reverse = 1 : i64}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], i64>) -> !v
  return %0 : !v
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps)' | FileCheck %s

// CHECK-LABEL: func.func @f
func.func @f(%x: !sdx.tensor<[b, 4], f32>) -> !sdx.tensor<[b, 4], f32> {
  %0 = sdx.map "exp"(%x) : (!sdx.tensor<[b, 4], f32>) -> !sdx.tensor<[b, 4], f32>
  %1 = sdx.map "neg"(%0) : (!sdx.tensor<[b, 4], f32>) -> !sdx.tensor<[b, 4], f32>
  return %1 : !sdx.tensor<[b, 4], f32>
}

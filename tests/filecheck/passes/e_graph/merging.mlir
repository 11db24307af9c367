// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// Linear maps of one input would be one with packed weights, which would be packed in every call: they stay three.

// CHECK-LABEL: func.func @separate
// CHECK-NOT: sdx.concat
// CHECK-COUNT-3: sdx.contract
// CHECK-NOT: sdx.contract
func.func @separate(%x: !x) -> (!x, !x, !x) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %a = sdx.param "a" : !w
  %b = sdx.param "b" : !w
  %c = sdx.param "c" : !w
  %0 = sdx.contract "bsk,kn->bsn"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.contract "bsk,kn->bsn"(%x, %b) : (!x, !w) -> !x
  %2 = sdx.contract "bsk,kn->bsn"(%x, %c) : (!x, !w) -> !x
  return %0, %1, %2 : !x, !x, !x
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

!q = !sdx.tensor<[b, 2, s, 8], f32>
!p = !sdx.tensor<[b, 2, s, s], f32>

// The same scale on the scores, on the queries, on the keys, and its root on both: one form.

// CHECK-LABEL: func.func @scales
// CHECK-COUNT-1: sdx.contract
// CHECK-NOT: sdx.contract
// CHECK: return %[[Y:.*]], %[[Y]], %[[Y]], %[[Y]]
func.func @scales(%q: !q, %k: !q) -> (!p, !p, !p, !p) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<0.25> : tensor<f32> : <[], f32>
  %r = sdx.const dense<0.5> : tensor<f32> : <[], f32>
  %sc = sdx.broadcast %c to [] : <[], f32> -> !p
  %qc = sdx.broadcast %c to [] : <[], f32> -> !q
  %root = sdx.broadcast %r to [] : <[], f32> -> !q
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.map "mul"(%0, %sc) : (!p, !p) -> !p
  %2 = sdx.map "mul"(%q, %qc) : (!q, !q) -> !q
  %3 = sdx.contract "bhsd,bhtd->bhst"(%2, %k) : (!q, !q) -> !p
  %4 = sdx.map "mul"(%k, %qc) : (!q, !q) -> !q
  %5 = sdx.contract "bhsd,bhtd->bhst"(%q, %4) : (!q, !q) -> !p
  %6 = sdx.map "mul"(%q, %root) : (!q, !q) -> !q
  %7 = sdx.map "mul"(%k, %root) : (!q, !q) -> !q
  %8 = sdx.contract "bhsd,bhtd->bhst"(%6, %7) : (!q, !q) -> !p
  return %1, %3, %5, %8 : !p, !p, !p, !p
}

// -----

!x = !sdx.tensor<[b, s, 8], f32>

// The scale of weights stays: it is not attention's.

// CHECK-LABEL: func.func @scaled_linear
// CHECK: %[[P:.*]] = sdx.contract "abc,cd->abd"(%{{.*}}, %{{.*}})
// CHECK: sdx.map "mul"
func.func @scaled_linear(%x: !x) -> !x attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %w = sdx.param "w" : <[8, 8], f32>
  %c = sdx.const dense<0.3> : tensor<f32> : <[], f32>
  %s = sdx.broadcast %c to [] : <[], f32> -> !x
  %0 = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[8, 8], f32>) -> !x
  %1 = sdx.map "mul"(%0, %s) : (!x, !x) -> !x
  return %1 : !x
}

// -----

!p = !sdx.tensor<[b, 2, s, s], f32>
!m = !sdx.tensor<[b, 2, s, s], i1>

// A mask of −∞ that is added is no choice where scores may be NaN: nothing says that they are finite.

// CHECK-LABEL: func.func @masked
// CHECK: sdx.map "select"
// CHECK: sdx.map "add"
func.func @masked(%p: !p, %m: !m) -> !p attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %l = sdx.const dense<0xFF800000> : tensor<f32> : <[], f32>
  %zero = sdx.broadcast %c to [] : <[], f32> -> !p
  %low = sdx.broadcast %l to [] : <[], f32> -> !p
  %0 = sdx.map "select"(%m, %zero, %low) : (!m, !p, !p) -> !p
  %1 = sdx.map "add"(%p, %0) : (!p, !p) -> !p
  return %1 : !p
}

// -----

!q = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>

// Queries are a part of a product, and a map of a part is a launch: the scale goes to the scores, where it is free.

// CHECK-LABEL: func.func @scaled_part
// CHECK: sdx.slice
// CHECK-NOT: sdx.map "mul"
// CHECK: %[[P:.*]] = sdx.contract "abc,adc->abd"
// CHECK: sdx.map "mul"
// CHECK: return
func.func @scaled_part(%x: !sdx.tensor<[b, s, 16], f32>, %k: !q) -> !p attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<0.25> : tensor<f32> : <[], f32>
  %qc = sdx.broadcast %c to [] : <[], f32> -> !q
  %q = sdx.slice %x from ["0", "0", "8"] step [1, 1, 1] : <[b, s, 16], f32> -> <[b, s, 8], f32>
  %0 = sdx.map "mul"(%q, %qc) : (!q, !q) -> !q
  %1 = sdx.contract "bsd,btd->bst"(%0, %k) : (!q, !q) -> !p
  return %1 : !p
}

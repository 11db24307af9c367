// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>
!v = !sdx.tensor<[8], f32>
!p = !sdx.tensor<[b, s, s], f32>

// Three linear maps of one input are one: weights and biases one behind the other, results read where they lie.

// CHECK-LABEL: func.func @attended
// CHECK-DAG: %[[W:.*]] = sdx.concat(%{{.*}}, %{{.*}}, %{{.*}}) axis 1 : {{.*}} -> !sdx.tensor<[8, 20], f32>
// CHECK-DAG: %[[V:.*]] = sdx.concat(%{{.*}}, %{{.*}}, %{{.*}}) axis 0 : {{.*}} -> !sdx.tensor<[20], f32>
// CHECK-DAG: %[[P:.*]] = sdx.contract "abc,cd->abd"(%arg0, %[[W]])
// CHECK: %[[S:.*]] = sdx.map "add"(%[[P]], %{{.*}})
// CHECK-COUNT-3: sdx.slice %[[S]]
// CHECK-COUNT-2: sdx.contract
// CHECK-NOT: sdx.contract
func.func @attended(%x: !x) -> !sdx.tensor<[b, s, 4], f32> attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %a = sdx.param "a" : !w
  %b = sdx.param "b" : !w
  %c = sdx.param "c" : !sdx.tensor<[8, 4], f32>
  %d = sdx.param "d" : !v
  %e = sdx.param "e" : !v
  %f = sdx.param "f" : !sdx.tensor<[4], f32>
  %0 = sdx.contract "bsk,kn->bsn"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.broadcast %d to [2] : !v -> !x
  %2 = sdx.map "add"(%0, %1) : (!x, !x) -> !x
  %3 = sdx.contract "bsk,kn->bsn"(%x, %b) : (!x, !w) -> !x
  %4 = sdx.broadcast %e to [2] : !v -> !x
  %5 = sdx.map "add"(%4, %3) : (!x, !x) -> !x
  %6 = sdx.contract "bsk,kn->bsn"(%x, %c) : (!x, !sdx.tensor<[8, 4], f32>) -> !sdx.tensor<[b, s, 4], f32>
  %7 = sdx.broadcast %f to [2] : <[4], f32> -> <[b, s, 4], f32>
  %8 = sdx.map "add"(%6, %7) : (!sdx.tensor<[b, s, 4], f32>, !sdx.tensor<[b, s, 4], f32>) -> !sdx.tensor<[b, s, 4], f32>
  %9 = sdx.contract "bsk,btk->bst"(%2, %5) : (!x, !x) -> !p
  %10 = sdx.contract "bst,btn->bsn"(%9, %8) : (!p, !sdx.tensor<[b, s, 4], f32>) -> !sdx.tensor<[b, s, 4], f32>
  return %10 : !sdx.tensor<[b, s, 4], f32>
}

// -----

!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// Results lie by themselves: each is written by its own product.

// CHECK-LABEL: func.func @returned
// CHECK-NOT: sdx.concat
// CHECK-COUNT-3: sdx.contract
// CHECK-NOT: sdx.contract
func.func @returned(%x: !x) -> (!x, !x, !x) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %a = sdx.param "a" : !w
  %b = sdx.param "b" : !w
  %c = sdx.param "c" : !w
  %0 = sdx.contract "bsk,kn->bsn"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.contract "bsk,kn->bsn"(%x, %b) : (!x, !w) -> !x
  %2 = sdx.contract "bsk,kn->bsn"(%x, %c) : (!x, !w) -> !x
  return %0, %1, %2 : !x, !x, !x
}

// -----

!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// The gate's activation is an epilogue of its product, and what it is multiplied with has no other part.

// CHECK-LABEL: func.func @gated
// CHECK-NOT: sdx.concat
// CHECK-COUNT-3: sdx.contract
// CHECK-NOT: sdx.contract
func.func @gated(%x: !x) -> !x attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %a = sdx.param "a" : !w
  %b = sdx.param "b" : !w
  %c = sdx.param "c" : !w
  %one = sdx.const dense<1.0> : tensor<f32> : <[], f32>
  %ones = sdx.broadcast %one to [] : <[], f32> -> !x
  %0 = sdx.contract "bsk,kn->bsn"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  %2 = sdx.map "exp"(%1) : (!x) -> !x
  %3 = sdx.map "add"(%2, %ones) : (!x, !x) -> !x
  %4 = sdx.map "div"(%0, %3) : (!x, !x) -> !x
  %5 = sdx.contract "bsk,kn->bsn"(%x, %b) : (!x, !w) -> !x
  %6 = sdx.map "mul"(%4, %5) : (!x, !x) -> !x
  %7 = sdx.contract "bsk,kn->bsn"(%6, %c) : (!x, !w) -> !x
  return %7 : !x
}

// -----

!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>
!v = !sdx.tensor<[4, 8], f32>
!y = !sdx.tensor<[b, s, 4], f32>
!p = !sdx.tensor<[b, s, s], f32>

// Weights that lie transposed, or are transposed first, and heads that are split off before they are read.

// CHECK-LABEL: func.func @transposed
// CHECK: %[[W:.*]] = sdx.concat(%{{.*}}, %{{.*}}, %{{.*}}) axis 0 : {{.*}} -> !sdx.tensor<[20, 8], f32>
// CHECK-NOT: sdx.transpose
// CHECK: sdx.contract "abc,dc->abd"(%arg0, %[[W]])
// CHECK-NOT: sdx.contract "abc,dc->abd"
func.func @transposed(%x: !x) -> !sdx.tensor<[b, s, 4], f32> attributes {sdx.symbols = ["input b 0..48", "input s 0..48"]} {
  %a = sdx.param "a" : !w
  %b = sdx.param "b" : !w
  %c = sdx.param "c" : !v
  %t = sdx.transpose %b [1, 0] : !w -> !w
  %u = sdx.transpose %c [1, 0] : !v -> !sdx.tensor<[8, 4], f32>
  %0 = sdx.contract "bsk,nk->bsn"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.contract "bsk,kn->bsn"(%x, %t) : (!x, !w) -> !x
  %2 = sdx.contract "bsk,kn->bsn"(%x, %u) : (!x, !sdx.tensor<[8, 4], f32>) -> !y
  %3 = sdx.contract "bsk,btk->bst"(%0, %1) : (!x, !x) -> !p
  %4 = sdx.contract "bst,btn->bsn"(%3, %2) : (!p, !y) -> !y
  return %4 : !y
}

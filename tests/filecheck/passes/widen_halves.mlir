// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,widen-halves)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,widen-halves,fuse,drop-roundings,pack-weights)' | FileCheck %s --check-prefix=FUSED

!x = !sdx.tensor<[b, 8], f16>
!h = !sdx.tensor<[b, 40], f16>

// Inputs, parameters and outputs stay f16; what lies between is rounded to f16 and held as f32. An input is widened once, for
// all its readers. The products of a sum are not rounded.

// CHECK-LABEL: func.func @chain
// CHECK: %[[W:.*]] = flow.param "w" : <[8, 40], f16, row_major>
// CHECK: %[[X:.*]] = flow.kernel {{.*}}(%arg0) : {{.*}} -> !flow.container<[b, 8], f32, row_major>
// CHECK: %[[H:.*]] = flow.kernel {{.*}}(%[[X]], %[[W]]) : {{.*}} -> !flow.container<[b, 40], f32, row_major>
// CHECK: flow.load 0 ["%0", "%2"] : f32
// CHECK-NEXT: %[[B:.*]] = flow.load 1 ["%2", "%1"] : f16
// CHECK-NEXT: flow.convert %[[B]] : f16 -> f32
// CHECK: %[[P:.*]] = flow.apply "mul"({{.*}}) : (f32, f32) -> f32
// CHECK-NEXT: %[[S:.*]] = flow.reduce "add" %[[P]] : f32 -> f32
// CHECK-NEXT: %[[N:.*]] = flow.convert %[[S]] : f32 -> f16
// CHECK-NEXT: %[[R:.*]] = flow.convert %[[N]] : f16 -> f32
// CHECK-NEXT: flow.store %[[R]] to 0
// CHECK: flow.kernel {{.*}}(%[[H]]) : {{.*}} -> !flow.container<[b, 40], f16, row_major>
// CHECK: %[[T:.*]] = flow.apply "tanh"({{.*}}) : (f32) -> f32
// CHECK-NEXT: %[[Y:.*]] = flow.convert %[[T]] : f32 -> f16
// CHECK-NEXT: flow.store %[[Y]] to 0

// In one kernel only the last rounding is left, and the weights lie in panels of f16.

// FUSED-LABEL: func.func @chain
// FUSED: flow.param "w" window [0, 40, 1] : <[8, 40], f16, panels32>
// FUSED: %[[S:.*]] = flow.reduce "add" {{.*}} : f32 -> f32
// FUSED-NEXT: %[[T:.*]] = flow.apply "tanh"(%[[S]]) : (f32) -> f32
// FUSED-NEXT: %[[Y:.*]] = flow.convert %[[T]] : f32 -> f16
// FUSED-NEXT: flow.store %[[Y]] to 0
module {
  func.func @chain(%x: !x) -> !h {
    %w = sdx.param "w" : !sdx.tensor<[8, 40], f16>
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !sdx.tensor<[8, 40], f16>) -> !h
    %1 = sdx.map "tanh"(%0) : (!h) -> !h
    return %1 : !h
  }
}

// -----

!x = !sdx.tensor<[b, 8], f16>
!t = !sdx.tensor<[8, b], f16>

// f32 stays as it is. What only moves f16 is one kernel again after fusion, which stores what it has loaded.

// CHECK-LABEL: func.func @moves
// CHECK: flow.load 0 ["%0"] : f32
// CHECK-NEXT: flow.apply "exp"
// CHECK-NOT: flow.convert

// FUSED-LABEL: func.func @moves
// FUSED: %[[X:.*]] = flow.load 0 ["%1", "%0"] : f16
// FUSED-NEXT: %[[WIDE:.*]] = flow.convert %[[X]] : f16 -> f32
// FUSED-NEXT: %[[Y:.*]] = flow.convert %[[WIDE]] : f32 -> f16
// FUSED-NEXT: flow.store %[[Y]] to 0
module {
  func.func @moves(%x: !x, %y: !sdx.tensor<[b], f32>) -> (!t, !sdx.tensor<[b], f32>) {
    %0 = sdx.transpose %x [1, 0] : !x -> !t
    %1 = sdx.map "exp"(%y) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
    return %0, %1 : !t, !sdx.tensor<[b], f32>
  }
}

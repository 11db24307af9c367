// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,pack-weights,lower-precision)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,pack-weights,lower-precision)' --remarks lower-precision 2>&1 >%t | FileCheck %s --check-prefix=REMARK

!x = !sdx.tensor<[b, 8], f32>
!h = !sdx.tensor<[b, 40], f32>

// An input is rounded by a kernel of its own; what only a contraction reads is written as bf16 by its maker. Weights are
// bf16 in panels of pairs. The sum, the epilogue and the output are f32.

// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[W:.*]] = flow.param "w" window [0, 40, 1] : <[8, 40], bf16, panels32x2>
// CHECK-NEXT: %[[X:.*]] = flow.kernel outer ["b", "8"] inner [](%arg0) : (!flow.container<[b, 8], f32, row_major>) -> !flow.container<[b, 8], bf16, row_major>
// CHECK: %[[H:.*]] = flow.kernel outer ["b", "40"] inner ["8"](%[[W]], %[[X]]){{.*}} -> !flow.container<[b, 40], bf16, row_major>
// CHECK: %[[A:.*]] = flow.load 1 ["%0", "%2"] : bf16
// CHECK-NEXT: %[[WIDE:.*]] = flow.convert %[[A]] : bf16 -> f32
// CHECK: flow.apply "mul"({{.*}}) : (f32, f32) -> f32
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
// CHECK: %[[E:.*]] = flow.apply "tanh"({{.*}}) : (f32) -> f32
// CHECK-NEXT: %[[N:.*]] = flow.convert %[[E]] : f32 -> bf16
// CHECK-NEXT: flow.store %[[N]] to 0 ["%0", "%1"]
// CHECK: %[[V:.*]] = flow.param "v" window [0, 8, 1] : <[40, 8], bf16, panels32x2>
// CHECK: flow.kernel outer ["b", "8"] inner ["40"](%[[V]], %[[H]]){{.*}} -> !flow.container<[b, 8], f32, row_major>
// OPTION: precision=bf16
module {
  func.func @chain(%x: !x) -> !x {
    %w = sdx.param "w" : !sdx.tensor<[8, 40], f32>
    %v = sdx.param "v" : !sdx.tensor<[40, 8], f32>
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !sdx.tensor<[8, 40], f32>) -> !h
    %1 = sdx.map "tanh"(%0) : (!h) -> !h
    %2 = sdx.contract "mk,kn->mn"(%1, %v) : (!h, !sdx.tensor<[40, 8], f32>) -> !x
    return %2 : !x
  }
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// A map whose result another kernel reads as f32 writes both; two contractions share the rounded one.

// CHECK-LABEL: func.func @beside
// CHECK: %[[R:.*]]:2 = flow.kernel outer ["b", "8"] inner [](%arg0) {{.*}} -> (!flow.container<[b, 8], f32, row_major>, !flow.container<[b, 8], bf16, row_major>)
// CHECK: flow.kernel outer ["b", "8"] inner ["8"]({{.*}}, %[[R]]#1)
// CHECK: flow.kernel outer ["b", "8"] inner ["8"]({{.*}}, %[[R]]#1)
// CHECK: return %[[R]]#0
// OPTION: precision=bf16
module {
  func.func @beside(%x: !x) -> (!x, !x, !x) {
    %w = sdx.param "w" : !w
    %v = sdx.param "v" : !w
    %r = sdx.map "exp"(%x) : (!x) -> !x
    %0 = sdx.contract "mk,kn->mn"(%r, %w) : (!x, !w) -> !x
    %1 = sdx.contract "mk,kn->mn"(%r, %v) : (!x, !w) -> !x
    return %r, %0, %1 : !x, !x, !x
  }
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// A contraction keeps its result in registers for one store: what is needed in both forms is rounded by another kernel.

// CHECK-LABEL: func.func @result
// CHECK: %[[Y:.*]] = flow.kernel outer ["b", "8"] inner ["8"]({{.*}}) {{.*}} -> !flow.container<[b, 8], f32, row_major>
// CHECK: %[[N:.*]] = flow.kernel outer ["b", "8"] inner [](%[[Y]]) {{.*}} -> !flow.container<[b, 8], bf16, row_major>
// CHECK: flow.kernel outer ["b", "8"] inner ["8"]({{.*}}, %[[N]])
// OPTION: precision=bf16
module {
  func.func @result(%x: !x) -> (!x, !x) {
    %w = sdx.param "w" : !w
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !x
    %1 = sdx.contract "mk,kn->mn"(%0, %w) : (!x, !w) -> !x
    return %0, %1 : !x, !x
  }
}

// -----

!x = !sdx.tensor<[b, 2, 4], f32>
!y = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// Through a reshape the maker still writes bf16.

// CHECK-LABEL: func.func @viewed
// CHECK: %[[E:.*]] = flow.kernel outer ["b", "2", "4"] inner [](%arg0) {{.*}} -> !flow.container<[b, 2, 4], bf16, row_major>
// CHECK: %[[V:.*]] = flow.view %[[E]] : <[b, 2, 4], bf16, row_major> -> <[b, 8], bf16, row_major>
// CHECK: flow.kernel outer ["b", "8"] inner ["8"]({{.*}}, %[[V]])
// OPTION: precision=bf16
module {
  func.func @viewed(%x: !x) -> !y {
    %w = sdx.param "w" : !w
    %0 = sdx.map "exp"(%x) : (!x) -> !x
    %1 = sdx.reshape %0 : !x -> !y
    %2 = sdx.contract "mk,kn->mn"(%1, %w) : (!y, !w) -> !y
    return %2 : !y
  }
}

// -----

!q = !sdx.tensor<[b, 8], f32>
!p = !sdx.tensor<[b, b], f32>

// No factor is a constant; the left factor lies across the sum: nothing changes, and of the second that is told.

// REMARK: remark[lower-precision]: a contraction stays in f32: neighbours along the sum are none in memory
// REMARK-NEXT:   --> across, node /mm
// REMARK-NOT: remark

// CHECK-LABEL: func.func @computed
// CHECK-NOT: bf16
// CHECK-LABEL: func.func @across
// CHECK-NOT: bf16
// OPTION: precision=bf16
module {
  func.func @computed(%q: !q, %k: !q) -> !p {
    %0 = sdx.contract "mk,nk->mn"(%q, %k) : (!q, !q) -> !p
    return %0 : !p
  }
  func.func @across(%x: !sdx.tensor<[8, b], f32>) -> !sdx.tensor<[b, 40], f32> {
    %w = sdx.param "w" : !sdx.tensor<[8, 40], f32>
    %0 = sdx.contract "km,kn->mn"(%x, %w) : (!sdx.tensor<[8, b], f32>, !sdx.tensor<[8, 40], f32>) -> !sdx.tensor<[b, 40], f32> loc("/mm")
    return %0 : !sdx.tensor<[b, 40], f32>
  }
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 8], f32>

// A module that asks for nothing stays in f32.

// CHECK-LABEL: func.func @as_it_is
// CHECK-NOT: bf16
func.func @as_it_is(%x: !x) -> !x {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !x
  return %0 : !x
}

// -----

!x = !sdx.tensor<[b, 64], f32>

// For a GPU alone, weights are in chunks of eight values along the sum, in panels as wide as the columns allow: 200 columns
// would be more than an eighth padding in panels of 128, and 40 in panels of 64.

// CHECK-LABEL: func.func @for_a_gpu
// CHECK: flow.param "w"{{.*}} : <[64, 256], bf16, panels128x8>
// CHECK: flow.param "u"{{.*}} : <[64, 200], bf16, panels32x8>
// CHECK: flow.param "v"{{.*}} : <[64, 40], bf16, panels32x8>
// OPTION: precision=bf16
// OPTION: target=cuda:sm_90a
// OPTION: own-panels=true
module {
  func.func @for_a_gpu(%x: !x) -> (!sdx.tensor<[b, 256], f32>, !sdx.tensor<[b, 200], f32>, !sdx.tensor<[b, 40], f32>) {
    %w = sdx.param "w" : !sdx.tensor<[64, 256], f32>
    %u = sdx.param "u" : !sdx.tensor<[64, 200], f32>
    %v = sdx.param "v" : !sdx.tensor<[64, 40], f32>
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !sdx.tensor<[64, 256], f32>) -> !sdx.tensor<[b, 256], f32>
    %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !sdx.tensor<[64, 200], f32>) -> !sdx.tensor<[b, 200], f32>
    %2 = sdx.contract "mk,kn->mn"(%x, %v) : (!x, !sdx.tensor<[64, 40], f32>) -> !sdx.tensor<[b, 40], f32>
    return %0, %1, %2 : !sdx.tensor<[b, 256], f32>, !sdx.tensor<[b, 200], f32>, !sdx.tensor<[b, 40], f32>
  }
}

// -----

!x = !sdx.tensor<[b, 64], f32>

// If the artifact is for CPUs too, its weights have one form for both.

// CHECK-LABEL: func.func @for_both
// CHECK: flow.param "w"{{.*}} : <[64, 256], bf16, panels32x2>
// OPTION: precision=bf16
// OPTION: target=cuda:sm_90a
module {
  func.func @for_both(%x: !x) -> !sdx.tensor<[b, 256], f32> {
    %w = sdx.param "w" : !sdx.tensor<[64, 256], f32>
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !sdx.tensor<[64, 256], f32>) -> !sdx.tensor<[b, 256], f32>
    return %0 : !sdx.tensor<[b, 256], f32>
  }
}

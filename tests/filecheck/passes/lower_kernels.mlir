// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,schedule,plan-memory,lower-kernels)' | FileCheck %s

!x = !sdx.tensor<[b, 4], f32>

// Beside the plan, which stays, a module for each CPU variant with a function for each kernel, in upstream dialects alone.

// CHECK: plan.kernel @k0
// CHECK: plan.entry @main
// CHECK: plan.launch @k0
// CHECK: module @v3
// CHECK: llvm.func @k0_v3(%{{.*}}: !llvm.ptr)
// CHECK-NOT: {{flow|sdx|plan}}.
// CHECK: llvm.func @k1_v3(%{{.*}}: !llvm.ptr)
// CHECK: module @v4
// CHECK: llvm.func @k0_v4(%{{.*}}: !llvm.ptr)
// CHECK: llvm.func @k1_v4(%{{.*}}: !llvm.ptr)
func.func @main(%x: !x) -> !sdx.tensor<[b], f32> {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.reduce "add" %0 axes [1] : !x -> !sdx.tensor<[b], f32>
  return %1 : !sdx.tensor<[b], f32>
}

// -----

!x = !sdx.tensor<[b, 4], f32>

// A plan that launches nothing has no code.

// CHECK: plan.entry @nothing
// CHECK-NOT: module @v3
func.func @nothing(%x: !x) -> !x {
  return %x : !x
}

// -----

// A module without a plan is left alone.

// CHECK: func.func @other
// CHECK-NOT: module @v3
func.func @other(%x: i64) -> i64 {
  return %x : i64
}

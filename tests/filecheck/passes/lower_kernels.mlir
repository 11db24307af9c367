// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,pack-weights,lower-precision,schedule,plan-memory,lower-kernels)' | FileCheck %s

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

!x = !sdx.tensor<[b, 40], f32>

// Narrow factors: a kernel is in the module of a variant where its code differs. Rounding does by AVX-512 BF16, products do by
// tiles too: 64 bytes of each row of A by 16 rows of the panel, the rest of 8 elements behind zeros. Sums pass through scratch.

// CHECK: module @v3
// CHECK: module @v4
// CHECK-NOT: module @v4vnni
// CHECK: module @v4bf16
// CHECK: llvm.func @k0_v4bf16(
// CHECK: llvm.func @k1_v4bf16(
// CHECK: llvm.x86.avx512bf16.dpbf16ps.512
// CHECK: module @v4amx
// CHECK-NOT: @k0_v4amx
// CHECK: llvm.func @k1_v4amx(
// CHECK: llvm.x86.ldtilecfg
// CHECK: llvm.x86.tilezero
// CHECK: llvm.x86.tileloadd64
// CHECK: llvm.x86.tileloaddt164
// CHECK: llvm.x86.tdpbf16ps
// CHECK: masked.load
// CHECK: llvm.x86.tdpbf16ps
// CHECK: llvm.x86.tilestored64
// CHECK: llvm.x86.tilerelease
// OPTION: precision=bf16
module {
  func.func @narrow(%x: !x) -> !sdx.tensor<[b, 70], f32> {
    %w = sdx.param "w" : !sdx.tensor<[40, 70], f32>
    %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !sdx.tensor<[40, 70], f32>) -> !sdx.tensor<[b, 70], f32>
    return %0 : !sdx.tensor<[b, 70], f32>
  }
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

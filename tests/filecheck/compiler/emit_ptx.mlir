// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow)' --emit ptx:sm_80 | FileCheck %s --check-prefixes=CHECK,FLOW
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,schedule)' --emit ptx:sm_80 | FileCheck %s --check-prefixes=CHECK,PLAN
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,schedule,plan-memory,lower-kernels)' --emit ptx:sm_80 | FileCheck %s --check-prefixes=CHECK,PLAN
// RUN: sardonyx-opt --help | FileCheck %s --check-prefix=HELP
// RUN: not sardonyx-opt %s --emit ptx:sm_20 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not sardonyx-opt %s --emit ptx:sm_80 2>&1 | FileCheck %s --check-prefix=NONE

// Kernels as PTX: those of functions at the level of data movement, or those of a plan, where equal ones are one.

// CHECK: .version 7.0
// CHECK-NEXT: .target sm_80
// CHECK-NEXT: .address_size 64
// CHECK: .visible .entry k0(
// CHECK-NEXT: .param .u64 b0,
// CHECK-NEXT: .param .u64 b1,
// CHECK: .param .u64 status
// CHECK: neg.f32
// CHECK: st.global
// FLOW: .visible .entry k1(
// FLOW: .visible .entry k2(
// PLAN: .visible .entry k1(
// PLAN-NOT: .entry k2

// HELP: --emit <FORM>
// HELP: ptx:sm_80
// UNKNOWN: the forms are `ptx:sm_80`
// NONE: error[E0001]: the module has no kernels to write as PTX
// NONE: help: lower it to the level of `flow` or of plans first

!x = !sdx.tensor<[n], f32>

func.func @main(%x: !x, %y: !x) -> (!x, !x, !x) {
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.map "sqrt"(%x) : (!x) -> !x
  %2 = sdx.map "neg"(%y) : (!x) -> !x
  return %0, %1, %2 : !x, !x, !x
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions)' --emit ptx:sm_80 | FileCheck %s

!x = !sdx.tensor<[b, 256], f32>
!r = !sdx.tensor<[b], f32>

// A warp has a row of 256 elements in registers: each is loaded once, in two vectors per thread, and the two reductions
// are exchanges.

// CHECK-LABEL: .entry k0(
// CHECK: .reqntid 128, 1, 1
// CHECK-NOT: .shared
// CHECK-COUNT-2: ld.global.nc.v4.f32
// CHECK-NOT: ld.global
// CHECK-COUNT-10: shfl.sync.bfly.b32
// CHECK-NOT: ld.global
// CHECK-COUNT-2: st.global.v4.f32
func.func @softmax(%x: !x) -> !x {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.map "exp"(%2) : (!x) -> !x
  %4 = sdx.reduce "add" %3 axes [1] : !x -> !r
  %5 = sdx.broadcast %4 to [0] : !r -> !x
  %6 = sdx.map "div"(%3, %5) : (!x, !x) -> !x
  return %6 : !x
}

// -----

!x = !sdx.tensor<[n], f32>

// One row is reduced by one block: the warps' results meet in shared memory.

// CHECK-LABEL: .entry k0(
// CHECK: .reqntid 256, 1, 1
// CHECK: .shared .align 8 .b8 reduced1[32];
// CHECK: shfl.sync.bfly.b32
// CHECK: st.shared.f32
// CHECK: bar.sync 0;
// CHECK: ld.shared.f32
func.func @whole(%x: !x) -> !sdx.tensor<[], f32> {
  %0 = sdx.reduce "max" %x axes [0] : !x -> !sdx.tensor<[], f32>
  return %0 : !sdx.tensor<[], f32>
}

// -----

!x = !sdx.tensor<[r, c], f32>

// Columns are reduced by lanes that are neighbours in memory; eight warps share the rows. No lane gives to another.

// CHECK-LABEL: .entry k0(
// CHECK: .shared .align 8 .b8 reduced1[1024];
// CHECK-NOT: shfl
// CHECK: st.shared.f32
// CHECK: bar.sync 0;
// CHECK-COUNT-8: ld.shared.f32
// CHECK: st.global.f32
func.func @columns(%x: !x) -> !sdx.tensor<[c], f32> {
  %0 = sdx.reduce "add" %x axes [0] : !x -> !sdx.tensor<[c], f32>
  return %0 : !sdx.tensor<[c], f32>
}

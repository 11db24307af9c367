// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow)' --emit ptx:sm_80 | FileCheck %s

!x = !sdx.tensor<[b, 64], f32>

// Rows merge into one dimension. A thread takes four neighbours where all of them exist and all addresses are aligned,
// and else its points one by one.

// CHECK-LABEL: .entry k0(
// CHECK: .reqntid 128, 1, 1
// CHECK: and.b64 %{{.*}}, %{{.*}}, 15;
// CHECK: @!%p{{[0-9]+}} bra [[ONE_BY_ONE:L[0-9]+]];
// CHECK-NEXT: mad.lo.s64
// CHECK-NEXT: ld.global.nc.v4.f32
// CHECK-COUNT-4: neg.f32
// CHECK: st.global.v4.f32
// CHECK: [[ONE_BY_ONE]]:
// CHECK: ld.global.nc.f32
// CHECK: st.global.f32
func.func @vectors(%x: !x) -> !x {
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  return %0 : !x
}

// -----

!x = !sdx.tensor<[b, 63], f32>
!row = !sdx.tensor<[63], f32>

// Rows of 63 elements do not begin on common boundaries: points go one by one. The row is told from the column by a
// multiplication instead of a division.

// CHECK-LABEL: .entry k0(
// CHECK: mul.hi.u32
// CHECK-NOT: .v4
// CHECK: ld.global.nc.f32
// CHECK: ret;
func.func @odd_rows(%x: !x, %r: !row) -> !x {
  %0 = sdx.broadcast %r to [1] : !row -> !x
  %1 = sdx.map "add"(%x, %0) : (!x, !x) -> !x
  return %1 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!y = !sdx.tensor<[s, b], f32>

// What is read along one dimension and written along another goes through a tile of 32 x 33 elements.

// CHECK-LABEL: .entry k0(
// CHECK: .reqntid 256, 1, 1
// CHECK: .shared .align 8 .b8 tile0[4224];
// CHECK-COUNT-4: st.shared.f32
// CHECK: bar.sync 0;
// CHECK: ld.shared.f32
// CHECK: st.global.f32
func.func @transpose(%x: !x) -> !y {
  %0 = sdx.transpose %x [1, 0] : !x -> !y
  return %0 : !y
}

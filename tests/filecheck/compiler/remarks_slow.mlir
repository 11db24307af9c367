// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,fuse,stage-operands)' --remarks slow-launches 2>&1 >%t | FileCheck %s

// Products of f64 have no blocks of registers: where they are most of a function's time, that is told unasked. A product of
// f32 has them, and a small one of f64 beside it is not worth a line.

// CHECK: remark[slow-launches]: products in plain loops: 100 % of the time predicted for `wide` at usual sizes, at {{[0-9.]+}} % of the rate of cpu
// CHECK-NEXT:   --> wide, node /wide
// CHECK-NEXT:   computes: /wide
// CHECK-NOT: remark

!x = !sdx.tensor<[b, 512], f64>
!w = !sdx.tensor<[512, 512], f64>
!a = !sdx.tensor<[b, 512], f32>
!m = !sdx.tensor<[512, 512], f32>
!v = !sdx.tensor<[2, 2], f64>

func.func @wide(%x: !x, %w: !w) -> !x {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !x loc("/wide")
  return %0 : !x
}

func.func @mostly_single(%a: !a, %m: !m, %v: !v) -> (!a, !v) {
  %0 = sdx.contract "bk,kn->bn"(%a, %m) : (!a, !m) -> !a loc("/single")
  %1 = sdx.contract "mk,kn->mn"(%v, %v) : (!v, !v) -> !v loc("/small")
  return %0, %1 : !a, !v
}

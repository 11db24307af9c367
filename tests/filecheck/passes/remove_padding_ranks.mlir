// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,fuse,fuse-attention,inline-maps,remove-padding)' --remarks remove-padding 2>&1 | FileCheck %s

!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// Of what ranks exchange, all rows are computed, and it is said so.

// CHECK: remark[remove-padding]: ranks exchange rows of padding too
// CHECK-NEXT: node /out
// CHECK-NOT: rows
func.func @pooled(%x: !x, %mask: !ids) -> !y {
  %seen = sdx.convert %mask : !ids -> !b
  %counts = sdx.convert %seen : !b -> !f
  %wq = sdx.param "q" : !w
  %wo = sdx.param "o" : !w
  %q = sdx.contract "bsk,kn->bsn"(%x, %wq) : (!x, !w) -> !x
  %0 = sdx.contract "bsd,btd->bst"(%q, %q) : (!x, !x) -> !p
  %none = sdx.const dense<-1.0e+9> : tensor<f32> : !sdx.tensor<[], f32>
  %1 = sdx.broadcast %none to [] : !sdx.tensor<[], f32> -> !p
  %2 = sdx.broadcast %seen to [0, 2] : !b -> !sdx.tensor<[b, s, s], i1>
  %3 = sdx.map "select"(%2, %0, %1) : (!sdx.tensor<[b, s, s], i1>, !p, !p) -> !p
  %4 = sdx.reduce "max" %3 axes [2] : !p -> !f
  %5 = sdx.broadcast %4 to [0, 1] : !f -> !p
  %6 = sdx.map "sub"(%3, %5) : (!p, !p) -> !p
  %7 = sdx.map "exp"(%6) : (!p) -> !p
  %8 = sdx.reduce "add" %7 axes [2] : !p -> !f
  %9 = sdx.broadcast %8 to [0, 1] : !f -> !p
  %10 = sdx.map "div"(%7, %9) : (!p, !p) -> !p
  %11 = sdx.contract "bst,btd->bsd"(%10, %q) : (!p, !x) -> !x
  %part = sdx.contract "bsk,kn->bsn"(%11, %wo) : (!x, !w) -> !x loc("/out")
  %12 = sdx.host "AllReduce mesh=0 by=add"(%part) result 0 of 0 binds [] calls [] : (!x) -> !x loc("/out")
  %13 = sdx.broadcast %counts to [0, 1] : !f -> !x
  %14 = sdx.map "mul"(%12, %13) : (!x, !x) -> !x
  %15 = sdx.reduce "add" %14 axes [1] : !x -> !y
  return %15 : !y
}

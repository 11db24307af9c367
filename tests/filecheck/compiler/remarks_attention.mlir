// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,fuse-attention)' --remarks fuse-attention 2>&1 >%t | FileCheck %s

// Why two contractions and a softmax between them are no attention: which node is in the way. Of those that are one nothing
// is told.

// CHECK: remark[fuse-attention]: the weights are an output of the model
// CHECK-NEXT:   --> returned, node /div
// CHECK-NEXT:   would be one: /scores /max /sub /exp /sum /div /values
// CHECK-NEXT:   help: leave the output out, if nobody needs it
// CHECK-NOT: remark

!q = !sdx.tensor<[b, h, s, 4], f32>
!k = !sdx.tensor<[b, h, t, 4], f32>
!p = !sdx.tensor<[b, h, s, t], f32>
!r = !sdx.tensor<[b, h, s], f32>

func.func @returned(%q: !q, %k: !k, %v: !k) -> (!q, !p) {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !k) -> !p loc("/scores")
  %1 = sdx.reduce "max" %0 axes [3] : !p -> !r loc("/max")
  %2 = sdx.broadcast %1 to [0, 1, 2] : !r -> !p loc("/sub")
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p loc("/sub")
  %4 = sdx.map "exp"(%3) : (!p) -> !p loc("/exp")
  %5 = sdx.reduce "add" %4 axes [3] : !p -> !r loc("/sum")
  %6 = sdx.broadcast %5 to [0, 1, 2] : !r -> !p loc("/div")
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p loc("/div")
  %8 = sdx.contract "bhst,bhtd->bhsd"(%7, %v) : (!p, !k) -> !q loc("/values")
  return %8, %7 : !q, !p
}

func.func @alone(%q: !q, %k: !k, %v: !k) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !k) -> !p loc("/scores")
  %1 = sdx.reduce "max" %0 axes [3] : !p -> !r loc("/max")
  %2 = sdx.broadcast %1 to [0, 1, 2] : !r -> !p loc("/sub")
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p loc("/sub")
  %4 = sdx.map "exp"(%3) : (!p) -> !p loc("/exp")
  %5 = sdx.reduce "add" %4 axes [3] : !p -> !r loc("/sum")
  %6 = sdx.broadcast %5 to [0, 1, 2] : !r -> !p loc("/div")
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p loc("/div")
  %8 = sdx.contract "bhst,bhtd->bhsd"(%7, %v) : (!p, !k) -> !q loc("/values")
  return %8 : !q
}

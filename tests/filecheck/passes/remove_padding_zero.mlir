// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,fuse,fuse-attention,inline-maps,remove-padding)' | FileCheck %s


!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// Nobody reads the rows of masked positions: they are 0.

// CHECK-LABEL: func.func @hidden_states
// CHECK: flow.host "NonZero"
// CHECK: flow.kernel outer ["rows", "8"] inner ["8"]
// CHECK: flow.kernel outer ["b", "s", "8"] inner []
// CHECK-NEXT: %[[MASK:.*]] = flow.load 0 ["%0", "%1"] : i64
// CHECK-NEXT: %[[SEEN:.*]] = flow.convert %[[MASK]]
// CHECK: flow.load {{.}} ["${{.}}", "%2"] if %[[SEEN]]
// OPTION: masked-rows=zero
module {
func.func @hidden_states(%x: !x, %mask: !ids) -> !x {
  %seen = sdx.convert %mask : !ids -> !b
  %wq = sdx.param "q" : !w
  %wo = sdx.param "o" : !w
  %q = sdx.contract "bsk,kn->bsn"(%x, %wq) : (!x, !w) -> !x
  %0 = sdx.contract "bsd,btd->bst"(%q, %q) : (!x, !x) -> !p
  %none = sdx.const dense<-1.0e+09> : tensor<f32> : !sdx.tensor<[], f32>
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
  %12 = sdx.contract "bsk,kn->bsn"(%11, %wo) : (!x, !w) -> !x
  return %12 : !x
}
}

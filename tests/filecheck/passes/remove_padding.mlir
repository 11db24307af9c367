// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse,fuse-attention,inline-maps,remove-padding)' | FileCheck %s

!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// The sum of the rows that the mask keeps: no other row is computed. How many there are is counted first; a row's keys are
// those of its sequence, which begins at `first` and has `length` of them.

// CHECK-LABEL: func.func @pooled
// CHECK: %[[ROWS:.*]] = flow.host "NonZero"({{.*}}) results [0] binds ["0 1 rows"] calls []
// CHECK: %[[TABLE:.*]]:2 = flow.kernel outer ["rows"] inner [](%[[ROWS]]
// CHECK: flow.kernel outer ["rows", "8"] inner ["8"]
// CHECK: flow.kernel outer ["rows", "8"] inner ["s"] deep ["8"](%[[TABLE]]#0, %[[TABLE]]#1,
// CHECK-NEXT: %[[FIRST:.*]] = flow.load 0 ["%0"]
// CHECK-NEXT: %[[LENGTH:.*]] = flow.load 1 ["%0"]
// CHECK-NEXT: %[[J:.*]] = flow.index "%2"
// CHECK-NEXT: %[[INSIDE:.*]] = flow.apply "lt"(%[[J]], %[[LENGTH]])
// CHECK: flow.load {{.}} ["$0 + %2", "%3"] if %[[INSIDE]]
// CHECK: flow.reduce "max"
// CHECK: flow.kernel outer ["b", "s", "8"] inner []
// CHECK: flow.load {{.}} ["${{.}}", "%2"] if
// CHECK: flow.kernel outer ["b", "8"] inner ["s"]
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
  %12 = sdx.contract "bsk,kn->bsn"(%11, %wo) : (!x, !w) -> !x
  %13 = sdx.broadcast %counts to [0, 1] : !f -> !x
  %14 = sdx.map "mul"(%12, %13) : (!x, !x) -> !x
  %15 = sdx.reduce "add" %14 axes [1] : !x -> !y
  return %15 : !y
}

// -----

!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// What the padding holds reaches the sum.

// CHECK-LABEL: func.func @summed
// CHECK-NOT: rows
func.func @summed(%x: !x, %mask: !ids) -> !y {
  %seen = sdx.convert %mask : !ids -> !b
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
  %12 = sdx.contract "bsk,kn->bsn"(%11, %wo) : (!x, !w) -> !x
  %15 = sdx.reduce "add" %12 axes [1] : !x -> !y
  return %15 : !y
}

// -----


!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// A bias of -100 hides a key from no score that is 100 more than the others.

// CHECK-LABEL: func.func @small_bias
// CHECK-NOT: rows
func.func @small_bias(%x: !x, %mask: !ids) -> !sdx.tensor<[b, 1, 8], f32> {
  %seen = sdx.convert %mask : !ids -> !b
  %wq = sdx.param "q" : !w
  %wo = sdx.param "o" : !w
  %q = sdx.contract "bsk,kn->bsn"(%x, %wq) : (!x, !w) -> !x
  %0 = sdx.contract "bsd,btd->bst"(%q, %q) : (!x, !x) -> !p
  %none = sdx.const dense<-1.0e+02> : tensor<f32> : !sdx.tensor<[], f32>
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
  %13 = sdx.slice %12 from ["0", "0", "0"] step [1, 1, 1] : !x -> !sdx.tensor<[b, 1, 8], f32>
  return %13 : !sdx.tensor<[b, 1, 8], f32>
}

// -----


!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// The first position is read whatever the mask says: it is one of the rows.

// CHECK-LABEL: func.func @first_position
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.apply "or"
// CHECK: flow.apply "eq"
// CHECK: flow.apply "or"
// CHECK: flow.host "NonZero"
// CHECK: flow.kernel outer ["rows", "8"] inner ["s"] deep ["8"]
func.func @first_position(%x: !x, %mask: !ids) -> (!sdx.tensor<[b, 1, 8], f32>, !y) {
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
  %13 = sdx.slice %12 from ["0", "0", "0"] step [1, 1, 1] : !x -> !sdx.tensor<[b, 1, 8], f32>
  %counts = sdx.convert %seen : !b -> !f
  %14 = sdx.broadcast %counts to [0, 1] : !f -> !x
  %15 = sdx.map "mul"(%12, %14) : (!x, !x) -> !x
  %16 = sdx.reduce "add" %15 axes [1] : !x -> !y
  return %13, %16 : !sdx.tensor<[b, 1, 8], f32>, !y
}

// -----


!ids = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s], i1>
!f = !sdx.tensor<[b, s], f32>
!x = !sdx.tensor<[b, s, 8], f32>
!p = !sdx.tensor<[b, s, s], f32>
!w = !sdx.tensor<[8, 8], f32>
!y = !sdx.tensor<[b, 8], f32>

// The hidden states of all positions are the output.

// CHECK-LABEL: func.func @hidden_states
// CHECK-NOT: rows
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

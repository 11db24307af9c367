// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,fuse-attention)' | FileCheck %s

!q = !sdx.tensor<[b, h, s, 64], f32>
!p = !sdx.tensor<[b, h, s, t], f32>
!k = !sdx.tensor<[b, h, t, 64], f32>
!r = !sdx.tensor<[b, h, s], f32>
!m = !sdx.tensor<[b, t], f32>
!y = !sdx.tensor<[b, s, h, 64], f32>

// Scores with scale and mask, softmax, sum of values: the sum of the scores is the deep space, and the row's sum divides
// last. There may be no keys where there are queries: then the sum is 0 and must not divide 0.

// CHECK-LABEL: func.func @attention
// CHECK: flow.kernel outer ["b", "h", "s", "64"] inner ["t"] deep ["64"]
// CHECK: %[[Q:.*]] = flow.load {{.*}} ["%0", "%1", "%2", "%5"]
// CHECK-NEXT: %[[K:.*]] = flow.load {{.*}} ["%0", "%1", "%4", "%5"]
// CHECK-NEXT: %[[QK:.*]] = flow.apply "mul"(%[[Q]], %[[K]])
// CHECK-NEXT: %[[S:.*]] = flow.reduce "add" %[[QK]]
// CHECK-NEXT: %[[SCALE:.*]] = flow.scalar 1.250000e-01
// CHECK-NEXT: %[[SCALED:.*]] = flow.apply "mul"(%[[S]], %[[SCALE]])
// CHECK-NEXT: %[[MASK:.*]] = flow.load {{.*}} ["%0", "%4"]
// CHECK-NEXT: %[[X:.*]] = flow.apply "add"(%[[SCALED]], %[[MASK]])
// CHECK-NEXT: %[[M:.*]] = flow.reduce "max" %[[X]]
// CHECK-NEXT: %[[D:.*]] = flow.apply "sub"(%[[X]], %[[M]])
// CHECK-NEXT: %[[P:.*]] = flow.apply "exp"(%[[D]])
// CHECK-NEXT: %[[L:.*]] = flow.reduce "add" %[[P]]
// CHECK-NEXT: %[[V:.*]] = flow.load {{.*}} ["%0", "%1", "%4", "%3"]
// CHECK-NEXT: %[[PV:.*]] = flow.apply "mul"(%[[P]], %[[V]])
// CHECK-NEXT: %[[O:.*]] = flow.reduce "add" %[[PV]]
// CHECK-NEXT: %[[ONE:.*]] = flow.scalar 1.000000e+00
// CHECK-NEXT: %[[BY:.*]] = flow.apply "max"(%[[L]], %[[ONE]])
// CHECK-NEXT: %[[Y:.*]] = flow.apply "div"(%[[O]], %[[BY]])
// CHECK-NEXT: flow.store %[[Y]] to 0 ["%0", "%2", "%1", "%3"]
// CHECK-NOT: flow.kernel
func.func @attention(%q: !q, %k: !k, %v: !k, %mask: !m) -> !y {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !k) -> !p
  %c = sdx.const dense<0.125> : tensor<f32> : !sdx.tensor<[], f32>
  %1 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !p
  %2 = sdx.map "mul"(%0, %1) : (!p, !p) -> !p
  %3 = sdx.broadcast %mask to [0, 3] : !m -> !p
  %4 = sdx.map "add"(%2, %3) : (!p, !p) -> !p
  %5 = sdx.reduce "max" %4 axes [3] : !p -> !r
  %6 = sdx.broadcast %5 to [0, 1, 2] : !r -> !p
  %7 = sdx.map "sub"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.map "exp"(%7) : (!p) -> !p
  %9 = sdx.reduce "add" %8 axes [3] : !p -> !r
  %10 = sdx.broadcast %9 to [0, 1, 2] : !r -> !p
  %11 = sdx.map "div"(%8, %10) : (!p, !p) -> !p
  %12 = sdx.contract "bhst,bhtd->bhsd"(%11, %v) : (!p, !k) -> !q
  %13 = sdx.transpose %12 [0, 2, 1, 3] : !q -> !y
  return %13 : !y
}

// -----

!g = !sdx.tensor<[2, past + s, 8], f32>
!e = !sdx.tensor<[2, 4, past + s, 8], f32>
!k = !sdx.tensor<[8, past + s, 8], f32>
!x = !sdx.tensor<[8, s, 8], f32>
!w = !sdx.tensor<[8, s, past + s], f32>
!b = !sdx.tensor<[8, s, past + s], i1>
!r = !sdx.tensor<[8, s], f32>

// Four heads of queries share one of keys. Weights that are NaN are 0, all of a row together: the row's result is then.
// Where there are queries there are keys.

// CHECK-LABEL: func.func @grouped
// CHECK: flow.kernel outer ["8", "s", "8"] inner ["past + s"] deep ["8"]
// CHECK: flow.load {{.*}} ["((%0) floordiv (4))", "%3", "%4"]
// CHECK: flow.reduce "max"
// CHECK: %[[L:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[Z:.*]] = flow.scalar 0.000000e+00
// CHECK-NEXT: flow.load {{.*}} ["((%0) floordiv (4))", "%3", "%2"]
// CHECK: %[[O:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[Y:.*]] = flow.apply "div"(%[[O]], %[[L]])
// CHECK-NEXT: %[[NAN:.*]] = flow.apply "isnan"(%[[L]])
// CHECK-NEXT: %[[S:.*]] = flow.apply "select"(%[[NAN]], %[[Z]], %[[Y]])
// CHECK-NEXT: flow.store %[[S]]
// CHECK-NOT: flow.kernel
func.func @grouped(%q: !x, %k: !g, %v: !g) -> !x {
  %0 = sdx.broadcast %k to [0, 2, 3] : !g -> !e
  %1 = sdx.reshape %0 : !e -> !k
  %2 = sdx.broadcast %v to [0, 2, 3] : !g -> !e
  %3 = sdx.reshape %2 : !e -> !k
  %4 = sdx.contract "hsd,htd->hst"(%q, %1) : (!x, !k) -> !w
  %5 = sdx.reduce "max" %4 axes [2] : !w -> !r
  %6 = sdx.broadcast %5 to [0, 1] : !r -> !w
  %7 = sdx.map "sub"(%4, %6) : (!w, !w) -> !w
  %8 = sdx.map "exp"(%7) : (!w) -> !w
  %9 = sdx.reduce "add" %8 axes [2] : !w -> !r
  %10 = sdx.broadcast %9 to [0, 1] : !r -> !w
  %11 = sdx.map "div"(%8, %10) : (!w, !w) -> !w
  %12 = sdx.map "isnan"(%11) : (!w) -> !b
  %c = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %13 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !w
  %14 = sdx.map "select"(%12, %13, %11) : (!b, !w, !w) -> !w
  %15 = sdx.contract "hst,htd->hsd"(%14, %3) : (!w, !k) -> !x
  return %15 : !x
}

// -----

!q = !sdx.tensor<[s, 8], f16>
!p = !sdx.tensor<[s, s], f16>
!r = !sdx.tensor<[s], f16>

// A sum that is divided last may be too large for f16.

// CHECK-LABEL: func.func @half
// CHECK: flow.kernel outer ["s", "8"] inner ["s"] deep ["8"]
// CHECK: flow.reduce "max"
// CHECK: %[[L:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[W:.*]] = flow.apply "div"(%{{.*}}, %[[L]])
// CHECK-NEXT: %[[V:.*]] = flow.load
// CHECK-NEXT: %[[WV:.*]] = flow.apply "mul"(%[[W]], %[[V]])
// CHECK-NEXT: %[[O:.*]] = flow.reduce "add" %[[WV]]
// CHECK-NEXT: flow.store %[[O]]
// CHECK-NOT: flow.kernel
func.func @half(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// The weights are wanted themselves: they are written, and nothing is saved.

// CHECK-LABEL: func.func @weights_are_an_output
// CHECK-NOT: deep
func.func @weights_are_an_output(%q: !q, %k: !q, %v: !q) -> (!q, !p) {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8, %7 : !q, !p
}

// -----

!x = !sdx.tensor<[s, 8], f32>
!w = !sdx.tensor<[8, 8], f32>
!r = !sdx.tensor<[s], f32>

// Rows that are normalised between two contractions are no attention.

// CHECK-LABEL: func.func @normalised_between
// CHECK-NOT: deep
func.func @normalised_between(%x: !x, %a: !w, %b: !w) -> !x {
  %0 = sdx.contract "sd,de->se"(%x, %a) : (!x, !w) -> !x
  %1 = sdx.map "mul"(%0, %0) : (!x, !x) -> !x
  %2 = sdx.reduce "add" %1 axes [1] : !x -> !r
  %3 = sdx.map "sqrt"(%2) : (!r) -> !r
  %4 = sdx.broadcast %3 to [0] : !r -> !x
  %5 = sdx.map "div"(%0, %4) : (!x, !x) -> !x
  %6 = sdx.contract "sd,de->se"(%5, %b) : (!x, !w) -> !x
  return %6 : !x
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// The scores are wanted themselves.

// CHECK-LABEL: func.func @scores_are_an_output
// CHECK-NOT: deep
func.func @scores_are_an_output(%q: !q, %k: !q, %v: !q) -> (!q, !p) {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8, %0 : !q, !p
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// Another kernel reads the weights.

// CHECK-LABEL: func.func @weights_have_two_readers
// CHECK-NOT: deep
func.func @weights_have_two_readers(%q: !q, %k: !q, %v: !q) -> (!q, !q) {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  %9 = sdx.contract "st,td->sd"(%7, %k) : (!p, !q) -> !q
  return %8, %9 : !q, !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// The weights are both factors of the last sum: no values are weighted.

// CHECK-LABEL: func.func @weights_twice
// CHECK-NOT: deep
func.func @weights_twice(%q: !q, %k: !q) -> !p {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,ut->su"(%7, %7) : (!p, !p) -> !p
  return %8 : !p
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// The sum goes over queries, not along the rows of the weights.

// CHECK-LABEL: func.func @summed_over_queries
// CHECK-NOT: deep
func.func @summed_over_queries(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "ts,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>
!b = !sdx.tensor<[s, s], i1>

// NaN becomes another number than 0: this stays with each weight.

// CHECK-LABEL: func.func @nan_is_one
// CHECK: deep ["8"]
// CHECK: %[[W:.*]] = flow.apply "select"
// CHECK-NEXT: %[[V:.*]] = flow.load
// CHECK-NEXT: flow.apply "mul"(%[[W]], %[[V]])
// CHECK-NEXT: %[[O:.*]] = flow.reduce "add"
// CHECK-NEXT: flow.store %[[O]]
func.func @nan_is_one(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %n = sdx.map "isnan"(%7) : (!p) -> !b
  %c = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %one = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !p
  %w = sdx.map "select"(%n, %one, %7) : (!b, !p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%w, %v) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// A product with the reciprocal of the sum becomes one per row too.

// CHECK-LABEL: func.func @times_reciprocal
// CHECK: deep ["8"]
// CHECK: flow.reduce "max"
// CHECK: %[[L:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[ONE:.*]] = flow.scalar 1.000000e+00
// CHECK-NEXT: %[[R:.*]] = flow.apply "div"(%[[ONE]], %[[L]])
// CHECK: %[[O:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[Y:.*]] = flow.apply "mul"(%[[O]], %[[R]])
// CHECK-NEXT: flow.store %[[Y]]
func.func @times_reciprocal(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %c = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %one = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !r
  %i = sdx.map "div"(%one, %5) : (!r, !r) -> !r
  %6 = sdx.broadcast %i to [0] : !r -> !p
  %7 = sdx.map "mul"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>
!b = !sdx.tensor<[s, s], i1>

// So does one that becomes 0 where it is NaN.

// CHECK-LABEL: func.func @times_reciprocal_or_zero
// CHECK: deep ["8"]
// CHECK: flow.reduce "max"
// CHECK: %[[L:.*]] = flow.reduce "add"
// CHECK: %[[O:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[Y:.*]] = flow.apply "div"(%[[O]], %[[L]])
// CHECK-NEXT: %[[N:.*]] = flow.apply "isnan"(%[[L]])
// CHECK: flow.apply "select"(%[[N]], {{.*}}, %[[Y]])
func.func @times_reciprocal_or_zero(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %c = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %one = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !r
  %i = sdx.map "div"(%one, %5) : (!r, !r) -> !r
  %6 = sdx.broadcast %i to [0] : !r -> !p
  %7 = sdx.map "mul"(%4, %6) : (!p, !p) -> !p
  %n = sdx.map "isnan"(%7) : (!p) -> !b
  %z = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %zero = sdx.broadcast %z to [] : !sdx.tensor<[], f32> -> !p
  %w = sdx.map "select"(%n, %zero, %7) : (!b, !p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%w, %v) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!k = !sdx.tensor<[t, 8], f32>
!p = !sdx.tensor<[s, t], f32>
!r = !sdx.tensor<[s], f32>

// There may be no keys, whose sum has no finite reciprocal: it is divided by, and is kept from 0.

// CHECK-LABEL: func.func @reciprocal_of_no_keys
// CHECK: deep ["8"]
// CHECK: %[[L:.*]] = flow.reduce "add" {{.*}}
// CHECK: %[[L:.*]] = flow.reduce "add" {{.*}}
// CHECK: %[[ONE:.*]] = flow.scalar 1.0
// CHECK: %[[O:.*]] = flow.reduce "add" {{.*}}
// CHECK-NEXT: %[[KEPT:.*]] = flow.apply "max"(%[[L]], %[[ONE]])
// CHECK-NEXT: %[[D:.*]] = flow.apply "div"(%[[O]], %[[KEPT]])
// CHECK-NEXT: flow.store %[[D]]
func.func @reciprocal_of_no_keys(%q: !q, %k: !k, %v: !k) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !k) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %c = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %one = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !r
  %i = sdx.map "div"(%one, %5) : (!r, !r) -> !r
  %6 = sdx.broadcast %i to [0] : !r -> !p
  %7 = sdx.map "mul"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !k) -> !q
  return %8 : !q
}

// -----

!i = !flow.container<[s], i64, row_major>
!w = !flow.container<[50, 8], f32, row_major>
!q = !flow.container<[s, 8], f32, row_major>
!p = !flow.container<[s, s], f32, row_major>

// Queries from a table: their indices are checked once per row with keys, and would be where there are none.

// CHECK-LABEL: func.func @queries_from_a_table
// CHECK-COUNT-3: = flow.kernel
func.func @queries_from_a_table(%i: !i, %w: !w, %k: !q, %v: !q) -> !q {
  %0 = flow.kernel outer ["s", "s"] inner ["8"] (%i, %w, %k) : (!i, !w, !q) -> !p {
    %1 = flow.load 0 ["%0"] : i64
    %2 = flow.load 1 ["$0", "%2"] : f32
    %3 = flow.load 2 ["%1", "%2"] : f32
    %4 = flow.apply "mul"(%2, %3) : (f32, f32) -> f32
    %5 = flow.reduce "add" %4 : f32 -> f32
    flow.store %5 to 0 ["%0", "%1"] : f32
  }
  %6 = flow.kernel outer ["s"] inner ["s"] (%0) : (!p) -> !p {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "max" %1 : f32 -> f32
    %3 = flow.apply "sub"(%1, %2) : (f32, f32) -> f32
    %4 = flow.apply "exp"(%3) : (f32) -> f32
    %5 = flow.reduce "add" %4 : f32 -> f32
    %7 = flow.apply "div"(%4, %5) : (f32, f32) -> f32
    flow.store %7 to 0 ["%0", "%1"] : f32
  }
  %8 = flow.kernel outer ["s", "8"] inner ["s"] (%6, %v) : (!p, !q) -> !q {
    %1 = flow.load 0 ["%0", "%2"] : f32
    %2 = flow.load 1 ["%2", "%1"] : f32
    %3 = flow.apply "mul"(%1, %2) : (f32, f32) -> f32
    %4 = flow.reduce "add" %3 : f32 -> f32
    flow.store %4 to 0 ["%0", "%1"] : f32
  }
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!c = !sdx.tensor<[s, s], ui8>
!r = !sdx.tensor<[s], f32>

// Weights that are rounded to codes are not divided last: the scores would be computed for each of the 8 elements.

// CHECK-LABEL: func.func @weights_are_codes
// CHECK-NOT: deep
func.func @weights_are_codes(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.map "round"(%7) : (!p) -> !p
  %9 = sdx.convert %8 : !p -> !c
  %10 = sdx.convert %9 : !c -> !p
  %11 = sdx.contract "st,td->sd"(%10, %v) : (!p, !q) -> !q
  return %11 : !q
}

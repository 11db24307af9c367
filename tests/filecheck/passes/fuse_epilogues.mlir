// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues)' | FileCheck %s

!x = !sdx.tensor<[b, m, k], f32>
!w = !sdx.tensor<[k, n], f32>
!v = !sdx.tensor<[n], f32>
!y = !sdx.tensor<[b, m, n], f32>

// What is elementwise on a contraction's result follows it.

// CHECK-LABEL: func.func @bias
// CHECK: flow.kernel outer ["b", "m", "n"] inner ["k"]
// CHECK: %[[P:.*]] = flow.reduce "add"
// CHECK-NEXT: %[[B:.*]] = flow.load {{.*}} ["%2"]
// CHECK-NEXT: %[[S:.*]] = flow.apply "add"(%[[P]], %[[B]])
// CHECK-NEXT: %[[E:.*]] = flow.apply "erf"(%[[S]])
// CHECK-NEXT: flow.store %[[E]] to 0 ["%0", "%1", "%2"]
// CHECK-NOT: flow.kernel
func.func @bias(%x: !x, %w: !w, %v: !v) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.broadcast %v to [2] : !v -> !y
  %2 = sdx.map "add"(%0, %1) : (!y, !y) -> !y
  %3 = sdx.map "erf"(%2) : (!y) -> !y
  return %3 : !y
}

// -----

!x = !sdx.tensor<[b, m, k], f32>
!w = !sdx.tensor<[k, n], f32>
!y = !sdx.tensor<[b, m, n], f32>

// A gate and what it gates have the left factor in common: two sums of one kernel, and what is made of both.

// CHECK-LABEL: func.func @gated
// CHECK: flow.kernel outer ["b", "m", "n"] inner ["k"](%arg0, %{{.*}}, %{{.*}})
// CHECK: %[[X:.*]] = flow.load 0 ["%0", "%1", "%3"]
// CHECK: flow.apply "mul"(%[[X]], %{{.*}})
// CHECK-NEXT: %[[ONE:.*]] = flow.reduce "add"
// CHECK: flow.apply "mul"(%[[X]], %{{.*}})
// CHECK-NEXT: %[[OTHER:.*]] = flow.reduce "add"
// CHECK: flow.apply "tanh"
// CHECK: flow.store
// CHECK-NOT: flow.kernel
func.func @gated(%x: !x, %g: !w, %u: !w) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,kn->bmn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "tanh"(%0) : (!y) -> !y
  %3 = sdx.map "mul"(%0, %2) : (!y, !y) -> !y
  %4 = sdx.map "mul"(%3, %1) : (!y, !y) -> !y
  return %4 : !y
}

// -----

!x = !sdx.tensor<[b, m, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!wt = !sdx.tensor<[40, 8], f32>
!y = !sdx.tensor<[b, m, 40], f32>
!yt = !sdx.tensor<[m, b, 40], f32>

// One that is stored too, and a result in another order, are no obstacle. Parameters may lie in different ways: they
// will be packed.

// CHECK-LABEL: func.func @gated_and_stored
// CHECK: = flow.kernel outer
// CHECK-COUNT-2: flow.reduce "add"
// CHECK-NOT: = flow.kernel
func.func @gated_and_stored(%x: !x) -> (!y, !yt) {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !wt
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,nk->bmn"(%x, %u) : (!x, !wt) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  %3 = sdx.transpose %2 [1, 0, 2] : !y -> !yt
  %4 = sdx.map "neg"(%3) : (!yt) -> !yt
  return %0, %4 : !y, !yt
}

// -----

!x = !sdx.tensor<[b, m, k], f32>
!w = !sdx.tensor<[k, n], f32>
!y = !sdx.tensor<[b, m, n], f32>

// Products of two left factors, or of three right ones, stay apart; so do matrices of inputs that lie in different ways,
// and products that have their columns in common.

// CHECK-LABEL: func.func @other_left
// CHECK-COUNT-2: = flow.kernel
func.func @other_left(%x: !x, %z: !x, %g: !w, %u: !w) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,kn->bmn"(%z, %u) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// CHECK-LABEL: func.func @lie_otherwise
// CHECK-COUNT-2: = flow.kernel
func.func @lie_otherwise(%x: !x, %g: !w, %u: !sdx.tensor<[n, k], f32>) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,nk->bmn"(%x, %u) : (!x, !sdx.tensor<[n, k], f32>) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// CHECK-LABEL: func.func @common_columns
// CHECK-COUNT-2: = flow.kernel
func.func @common_columns(%x: !x, %z: !x, %g: !w) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,kn->bmn"(%z, %g) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// CHECK-LABEL: func.func @three
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @three(%x: !x, %g: !w, %u: !w, %v: !w) -> !y {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bmk,kn->bmn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.contract "bmk,kn->bmn"(%x, %v) : (!x, !w) -> !y
  %3 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  %4 = sdx.map "mul"(%3, %2) : (!y, !y) -> !y
  return %4 : !y
}

// -----

!x = !sdx.tensor<[m, k], f32>
!w = !sdx.tensor<[k, k], f32>

// The reader's sum needs the first one whole.

// CHECK-LABEL: func.func @chain
// CHECK-COUNT-2: = flow.kernel
func.func @chain(%x: !x, %g: !w, %u: !w) -> !x {
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !x
  %1 = sdx.contract "mk,kn->mn"(%0, %u) : (!x, !w) -> !x
  %2 = sdx.map "mul"(%0, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @reduction
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.reduce "add"
// CHECK-NEXT: flow.apply "sqrt"
// CHECK-NEXT: flow.store
// CHECK-NOT: flow.kernel
func.func @reduction(%x: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.map "sqrt"(%0) : (!r) -> !r
  return %1 : !r
}

// -----

!x = !sdx.tensor<[b, s, t], f32>
!r = !sdx.tensor<[b, s], f32>
!rt = !sdx.tensor<[s, b], f32>

// A reader that permutes decides the order of the result; a dimension of 1 is in nobody's way.

// CHECK-LABEL: func.func @permuted
// CHECK: flow.kernel outer ["b", "s"] inner ["t"]
// CHECK: flow.reduce "add"
// CHECK-NEXT: flow.apply "neg"
// CHECK-NEXT: flow.store %{{.*}} to 0 ["%1", "0", "%0"]
// CHECK-NOT: flow.kernel
func.func @permuted(%x: !x) -> !sdx.tensor<[s, 1, b], f32> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !r
  %1 = sdx.transpose %0 [1, 0] : !r -> !rt
  %2 = sdx.reshape %1 : !rt -> !sdx.tensor<[s, 1, b], f32>
  %3 = sdx.map "neg"(%2) : (!sdx.tensor<[s, 1, b], f32>) -> !sdx.tensor<[s, 1, b], f32>
  return %3 : !sdx.tensor<[s, 1, b], f32>
}

// -----

!x = !sdx.tensor<[b, 1, s], f32>
!r = !sdx.tensor<[b, 1], f32>

// A result's dimension of 1 has one point, however the reader names it.

// CHECK-LABEL: func.func @unit_result
// CHECK: flow.kernel outer ["b", "1"] inner ["s"]
// CHECK: flow.reduce "add"
// CHECK-NEXT: flow.apply "neg"
// CHECK-NEXT: flow.store %{{.*}} to 0 ["%0"]
// CHECK-NOT: flow.kernel
func.func @unit_result(%x: !x) -> !sdx.tensor<[b], f32> {
  %0 = sdx.reduce "add" %x axes [2] : !x -> !r
  %1 = sdx.reshape %0 : !r -> !sdx.tensor<[b], f32>
  %2 = sdx.map "neg"(%1) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return %2 : !sdx.tensor<[b], f32>
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A result that others need is stored too.

// CHECK-LABEL: func.func @output
// CHECK: %[[K:.*]]:2 = flow.kernel outer ["b"] inner ["s"]
// CHECK: %[[SUM:.*]] = flow.reduce "add"
// CHECK: flow.store %[[SUM]] to 0
// CHECK: flow.store %{{.*}} to 1
// CHECK: return %[[K]]#0, %[[K]]#1
func.func @output(%x: !x) -> (!r, !r) {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.map "sqrt"(%0) : (!r) -> !r
  return %0, %1 : !r, !r
}

// -----

!x = !sdx.tensor<[b, s], f32>

// A map has no epilogue.

// CHECK-LABEL: func.func @map
// CHECK-COUNT-2: = flow.kernel
func.func @map(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  return %0, %1 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reduction is no epilogue, not even one over no dimensions, which has no inner space of its own.

// CHECK-LABEL: func.func @reduction_after
// CHECK-COUNT-2: = flow.kernel
func.func @reduction_after(%x: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.reduce "add" %0 axes [] : !r -> !r
  return %1 : !r
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// A map over an inner space works on points.

// CHECK-LABEL: func.func @inner_map
// CHECK-COUNT-2: = flow.kernel
func.func @inner_map(%x: !x, %y: !x) -> !x {
  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  %5 = flow.kernel outer ["b"] inner ["s"] (%0, %y) : (!r, !x) -> !x {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.load 1 ["%0", "%1"] : f32
    %3 = flow.apply "sub"(%2, %1) : (f32, f32) -> f32
    flow.store %3 to 0 ["%0", "%1"] : f32
  }
  return %5 : !x
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// What follows a point is no epilogue: it would run once per summand.

// CHECK-LABEL: func.func @points
// CHECK-COUNT-2: = flow.kernel
func.func @points(%x: !x) -> (!r, !x) {
  %0:2 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> (!r, !x) {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    %3 = flow.reduce "add" %2 : f32 -> f32
    flow.store %3 to 0 ["%0"] : f32
    flow.store %2 to 1 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b", "s"] inner [] (%0#1) : (!x) -> !x {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "neg"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  return %0#0, %5 : !r, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// The reader has more points than the reduction has results.

// CHECK-LABEL: func.func @repeated
// CHECK-COUNT-2: = flow.kernel
func.func @repeated(%x: !x, %y: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%y, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// n is 1 in every call, but nobody knows: the reader's store would be made for each of n.

// CHECK-LABEL: func.func @uncovered
// CHECK-COUNT-2: = flow.kernel
func.func @uncovered(%x: !x) -> !r {
  %0 = flow.kernel outer ["b", "n"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%2"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  %5 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.apply "neg"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!w = !sdx.tensor<[b, b], f32>
!r = !sdx.tensor<[b], f32>

// The sum reaches `add` through the product too: `add` follows the product, not the sum.

// CHECK-LABEL: func.func @around
// CHECK: %[[SUM:.*]] = flow.kernel
// CHECK-NEXT: flow.load
// CHECK-NEXT: flow.reduce
// CHECK-NEXT: flow.store
// CHECK: flow.kernel {{.*}}%[[SUM]]
// CHECK: flow.reduce
// CHECK: flow.apply "add"
// CHECK-NOT: flow.kernel
func.func @around(%x: !x, %w: !w) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.contract "b,bc->c"(%0, %w) : (!r, !w) -> !r
  %2 = sdx.map "add"(%0, %1) : (!r, !r) -> !r
  return %2 : !r
}

// -----

!x = !sdx.tensor<[1, 3], i64>
!r = !sdx.tensor<[1], i64>

// So it does where the way is a symbol that is bound to the first result.

// CHECK-LABEL: func.func @around_symbol
// CHECK: %[[MAX:.*]] = flow.kernel outer ["1"] inner ["3"]
// CHECK-NEXT: flow.load
// CHECK-NEXT: flow.reduce "max"
// CHECK-NEXT: flow.store
// CHECK: flow.bind "n" = %[[MAX]]
// CHECK: flow.kernel {{.*}} inner ["n"]
func.func @around_symbol(%x: !x, %y: !sdx.tensor<[1], i64>) -> !r attributes {sdx.symbols = ["data n 0.."]} {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !r
  %n = sdx.bind "n" = %0 : !r -> !r
  %1 = sdx.iota axis 1 : !sdx.tensor<[1, n], i64>
  %2 = sdx.reduce "add" %1 axes [1] : !sdx.tensor<[1, n], i64> -> !r
  %3 = sdx.map "add"(%0, %2) : (!r, !r) -> !r
  return %3 : !r
}

// -----

!x = !sdx.tensor<[2, 3], i64>
!r = !sdx.tensor<[2], i64>
!one = !sdx.tensor<[1], i64>

// A step that has a symbol in its body alone stays behind the binding, when what is bound moves back.

// CHECK-LABEL: func.func @bound_in_body
// CHECK: flow.apply "neg"
// CHECK: flow.bind "n"
// CHECK: flow.index "n"
func.func @bound_in_body(%x: !x, %y: !r) -> (!r, !r) attributes {sdx.symbols = ["data n 0.."]} {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !r
  %s = sdx.slice %0 from ["0"] step [1] : !r -> !one
  %n = sdx.bind "n" = %s : !one -> !one
  %d = sdx.dims ["n"] : !sdx.tensor<[], i64>
  %w = sdx.broadcast %d to [] : !sdx.tensor<[], i64> -> !r
  %1 = sdx.map "mul"(%y, %w) : (!r, !r) -> !r
  %2 = sdx.map "neg"(%0) : (!r) -> !r
  return %1, %2 : !r, !r
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// Under a guard the value is 0 where the guard is false.

// CHECK-LABEL: func.func @guarded
// CHECK-COUNT-2: = flow.kernel
func.func @guarded(%x: !x) -> !r {
  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  %5 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {
    %1 = flow.index "%0" : i64
    %2 = flow.index "2" : i64
    %3 = flow.apply "lt"(%1, %2) : (i64, i64) -> i1
    %4 = flow.load 0 ["%0"] if %3 : f32
    flow.store %4 to 0 ["%0"] : f32
  }
  return %5 : !r
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// Which of two stores the reader would see is not known.

// CHECK-LABEL: func.func @two_stores
// CHECK-COUNT-2: = flow.kernel
func.func @two_stores(%x: !x) -> !r {
  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    %3 = flow.apply "neg"(%2) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
    flow.store %3 to 0 ["%0"] : f32
  }
  %5 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reader that runs backwards is at another place than the reduction.

// CHECK-LABEL: func.func @reversed
// CHECK-COUNT-2: = flow.kernel
func.func @reversed(%x: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.slice %0 from ["b - 1"] step [-1] : !r -> !r
  %2 = sdx.map "neg"(%1) : (!r) -> !r
  return %2 : !r
}

// -----

!x = !sdx.tensor<[5, s], f32>
!r = !sdx.tensor<[5], f32>

// One that stops early would leave results out.

// CHECK-LABEL: func.func @shorter
// CHECK-COUNT-2: = flow.kernel
func.func @shorter(%x: !x) -> !sdx.tensor<[3], f32> {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.slice %0 from ["0"] step [1] : !r -> !sdx.tensor<[3], f32>
  %2 = sdx.map "neg"(%1) : (!sdx.tensor<[3], f32>) -> !sdx.tensor<[3], f32>
  return %2 : !sdx.tensor<[3], f32>
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b, 1], f32, row_major>
!i = !flow.container<[b], i64, row_major>

// An index from data into a dimension of 1 is 0, or an error that must be seen.

// CHECK-LABEL: func.func @checked_unit
// CHECK-COUNT-2: = flow.kernel
func.func @checked_unit(%x: !x, %i: !i) -> !flow.container<[b], f32, row_major> {
  %0 = flow.kernel outer ["b", "1"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%2"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b"] inner [] (%0, %i) : (!r, !i) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 1 ["%0"] : i64
    %2 = flow.load 0 ["%0", "$0"] : f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !flow.container<[b], f32, row_major>
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!q = !flow.container<[b, b], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// The diagonal: one variable of the reader for two of the producer.

// CHECK-LABEL: func.func @diagonal
// CHECK-COUNT-2: = flow.kernel
func.func @diagonal(%x: !x) -> !r {
  %0 = flow.kernel outer ["b", "b"] inner ["s"] (%x) : (!x) -> !q {
    %1 = flow.load 0 ["%0", "%2"] : f32
    %2 = flow.load 0 ["%1", "%2"] : f32
    %3 = flow.apply "mul"(%1, %2) : (f32, f32) -> f32
    %4 = flow.reduce "add" %3 : f32 -> f32
    flow.store %4 to 0 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b"] inner [] (%0) : (!q) -> !r {
    %1 = flow.load 0 ["%0", "%0"] : f32
    %2 = flow.apply "sqrt"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>
!q = !sdx.tensor<[b, b], f32>

// r[i] - r[j]: one variable of the producer for two of the reader.

// CHECK-LABEL: func.func @pairwise
// CHECK-COUNT-2: = flow.kernel
func.func @pairwise(%x: !x) -> !q {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !q
  %2 = sdx.broadcast %0 to [1] : !r -> !q
  %3 = sdx.map "sub"(%1, %2) : (!q, !q) -> !q
  return %3 : !q
}

// -----

!x = !sdx.tensor<[s], f32>
!r = !sdx.tensor<[], f32>

// No dimension connects a scalar with its reader.

// CHECK-LABEL: func.func @scalar
// CHECK-COUNT-2: = flow.kernel
func.func @scalar(%x: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [0] : !x -> !r
  %1 = sdx.map "neg"(%0) : (!r) -> !r
  return %1 : !r
}

// -----

// A state that always begins empty, on a product: the product is written to its memory. What follows is written too.

!in = !flow.container<[0, 3], f32, "capacity<0, capacity_in>">
!all = !flow.container<[s, 3], f32, "capacity<0, capacity_out>">
!x = !flow.container<[s, 4], f32, row_major>
!y = !flow.container<[s, 3], f32, row_major>

// CHECK-LABEL: func.func @empty_state
// CHECK: %[[K:.*]]:2 = flow.kernel outer ["s", "3"] inner ["4"]({{.*}}) : ({{.*}}) -> (!flow.container<[s, 3], f32, "capacity<0, capacity_out>">, !flow.container<[s, 3], f32, row_major>)
// CHECK-NOT: = flow.kernel
// CHECK: return %[[K]]#0, %[[K]]#1
func.func @empty_state(%past: !in, %x: !x, %w: !flow.container<[4, 3], f32, row_major>) -> (!all, !y) attributes {sdx.states = ["0 0"]} {
  %1 = flow.kernel outer ["s", "3"] inner ["4"] (%x, %w) : (!x, !flow.container<[4, 3], f32, row_major>) -> !all {
    %a = flow.load 0 ["%0", "%2"] : f32
    %b = flow.load 1 ["%2", "%1"] : f32
    %c = flow.apply "mul"(%a, %b) : (f32, f32) -> f32
    %d = flow.reduce "add" %c : f32 -> f32
    flow.store %d to 0 ["%0", "%1"] : f32
  }
  %2 = flow.kernel outer ["s", "3"] inner [] (%1) : (!all) -> !y {
    %v = flow.load 0 ["%0", "%1"] : f32
    %n = flow.apply "neg"(%v) : (f32) -> f32
    flow.store %n to 0 ["%0", "%1"] : f32
  }
  return %1, %2 : !all, !y
}

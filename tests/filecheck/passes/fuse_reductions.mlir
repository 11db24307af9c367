// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions)' | FileCheck %s

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @softmax
// CHECK: flow.kernel outer ["b"] inner ["s"](%arg0)
// CHECK-NEXT: %[[X:.*]] = flow.load 0 ["%0", "%1"]
// CHECK-NEXT: %[[M:.*]] = flow.reduce "max" %[[X]]
// CHECK-NEXT: %[[D:.*]] = flow.apply "sub"(%[[X]], %[[M]])
// CHECK-NEXT: %[[E:.*]] = flow.apply "exp"(%[[D]])
// CHECK-NEXT: %[[S:.*]] = flow.reduce "add" %[[E]]
// CHECK-NEXT: %[[Y:.*]] = flow.apply "div"(%[[E]], %[[S]])
// CHECK-NEXT: flow.store %[[Y]] to 0 ["%0", "%1"]
// CHECK-NOT: flow.kernel
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

!x = !sdx.tensor<[b, s, 8], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[8], f32>

// Layer normalisation: the mean, the variance and the map are one walk over each row.

// CHECK-LABEL: func.func @layer_norm
// CHECK: flow.kernel outer ["b", "s"] inner ["8"]
// CHECK: flow.reduce "add"
// CHECK: flow.reduce "add"
// CHECK: flow.apply "sqrt"
// CHECK: flow.load {{.*}} ["%2"]
// CHECK: flow.store %{{.*}} to 0 ["%0", "%1", "%2"]
// CHECK-NOT: flow.kernel
func.func @layer_norm(%x: !x, %scale: !v) -> !x {
  %c = sdx.const dense<8.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !r
  %0 = sdx.reduce "add" %x axes [2] : !x -> !r
  %1 = sdx.map "div"(%0, %n) : (!r, !r) -> !r
  %2 = sdx.broadcast %1 to [0, 1] : !r -> !x
  %3 = sdx.map "sub"(%x, %2) : (!x, !x) -> !x
  %4 = sdx.map "mul"(%3, %3) : (!x, !x) -> !x
  %5 = sdx.reduce "add" %4 axes [2] : !x -> !r
  %6 = sdx.map "div"(%5, %n) : (!r, !r) -> !r
  %7 = sdx.map "sqrt"(%6) : (!r) -> !r
  %8 = sdx.broadcast %7 to [0, 1] : !r -> !x
  %9 = sdx.map "div"(%3, %8) : (!x, !x) -> !x
  %10 = sdx.broadcast %scale to [2] : !v -> !x
  %11 = sdx.map "mul"(%9, %10) : (!x, !x) -> !x
  return %11 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A map before a reduction: where it is an output, it is stored on the way.

// CHECK-LABEL: func.func @map_before
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: %[[E:.*]] = flow.apply "exp"
// CHECK: %[[S:.*]] = flow.reduce "add" %[[E]]
// CHECK: flow.store %[[E]] to 0 ["%0", "%1"]
// CHECK: flow.store %[[S]] to 1 ["%0"]
// CHECK-NOT: flow.kernel
func.func @map_before(%x: !x) -> (!x, !r) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.reduce "add" %0 axes [1] : !x -> !r
  return %0, %1 : !x, !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>
!y = !sdx.tensor<[b, 1, s], f32>

// A dimension of 1 needs no partner.

// CHECK-LABEL: func.func @unit
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.store %{{.*}} to 0 ["%0", "0", "%1"]
// CHECK-NOT: flow.kernel
func.func @unit(%x: !x) -> !y {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.reshape %2 : !x -> !y
  %4 = sdx.map "exp"(%3) : (!y) -> !y
  return %4 : !y
}

// -----

!x = !sdx.tensor<[m, k], f32>
!v = !sdx.tensor<[k], f32>
!r = !sdx.tensor<[m], f32>

// A contraction has a generator of its own: nothing joins it, before or after.

// CHECK-LABEL: func.func @contraction_before
// CHECK-COUNT-2: = flow.kernel
func.func @contraction_before(%x: !x, %v: !v) -> !x {
  %0 = sdx.contract "mk,k->m"(%x, %v) : (!x, !v) -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !sdx.tensor<[m, k], f32>
!v = !sdx.tensor<[k], f32>
!r = !sdx.tensor<[m], f32>

// CHECK-LABEL: func.func @contraction_after
// CHECK-COUNT-2: = flow.kernel
func.func @contraction_after(%x: !x, %v: !v) -> (!x, !r) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.contract "mk,k->m"(%0, %v) : (!x, !v) -> !r
  return %0, %1 : !x, !r
}

// -----

!x = !sdx.tensor<[b, s], f32>

// Two maps are the business of inline-maps, which leaves outputs in memory.

// CHECK-LABEL: func.func @two_maps
// CHECK-COUNT-2: = flow.kernel
func.func @two_maps(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  return %0, %1 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reduction over no dimensions must not get the other's inner space, after it …

// CHECK-LABEL: func.func @no_dimensions_after
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.kernel outer ["b", "s"] inner []
func.func @no_dimensions_after(%x: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.reduce "add" %2 axes [] : !x -> !x
  %4 = sdx.map "sub"(%2, %3) : (!x, !x) -> !x
  return %4 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// … or before it.

// CHECK-LABEL: func.func @no_dimensions_before
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.kernel outer ["b"] inner ["s"]
func.func @no_dimensions_before(%x: !x) -> (!x, !r) {
  %0 = sdx.reduce "mul" %x axes [] : !x -> !x
  %1 = sdx.map "sub"(%x, %0) : (!x, !x) -> !x
  %2 = sdx.reduce "add" %1 axes [1] : !x -> !r
  return %1, %2 : !x, !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// Stored along the inner space are points; a broadcast is a value of the row.

// CHECK-LABEL: func.func @row_before
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.kernel outer ["b"] inner ["s"]
func.func @row_before(%v: !r) -> (!x, !r) {
  %0 = sdx.broadcast %v to [0] : !r -> !x
  %1 = sdx.map "exp"(%0) : (!x) -> !x
  %2 = sdx.reduce "add" %1 axes [1] : !x -> !r
  return %1, %2 : !x, !r
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// CHECK-LABEL: func.func @row_after
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.kernel outer ["b", "s"] inner []
func.func @row_after(%x: !x) -> (!x, !x) {
  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  %5:2 = flow.kernel outer ["b", "s"] inner [] (%0, %x) : (!r, !x) -> (!x, !x) {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.load 1 ["%0", "%1"] : f32
    %3 = flow.apply "sub"(%2, %1) : (f32, f32) -> f32
    flow.store %3 to 0 ["%0", "%1"] : f32
    flow.store %1 to 1 ["%0", "%1"] : f32
  }
  return %5#0, %5#1 : !x, !x
}

// -----

!t = !sdx.tensor<[n], f32>
!i = !sdx.tensor<[b], i64>
!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// Where s is 0 nothing asks for t[i[b]], which may then be out of range.

// CHECK-LABEL: func.func @empty_rows_before
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.kernel outer ["b"] inner ["s"]
func.func @empty_rows_before(%t: !t, %i: !i, %y: !x) -> (!x, !r) {
  %0 = sdx.broadcast %i to [0] : !i -> !sdx.tensor<[b, s], i64>
  %1 = sdx.gather %t[%0] axis 0 : (!t, !sdx.tensor<[b, s], i64>) -> !x
  %2 = sdx.map "add"(%1, %y) : (!x, !x) -> !x
  %3 = sdx.reduce "add" %2 axes [1] : !x -> !r
  return %2, %3 : !x, !r
}

// -----

!t = !sdx.tensor<[n], f32>
!i = !sdx.tensor<[b], i64>
!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @empty_rows_after
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.kernel outer ["b", "s"] inner []
func.func @empty_rows_after(%t: !t, %i: !i, %x: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.broadcast %i to [0] : !i -> !sdx.tensor<[b, s], i64>
  %4 = sdx.gather %t[%3] axis 0 : (!t, !sdx.tensor<[b, s], i64>) -> !x
  %5 = sdx.map "add"(%2, %4) : (!x, !x) -> !x
  return %5 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!w = !sdx.tensor<[b, b], f32>
!r = !sdx.tensor<[b], f32>

// The sum reaches the map through the product too.

// CHECK-LABEL: func.func @around
// CHECK-COUNT-3: = flow.kernel
func.func @around(%x: !x, %w: !w) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.contract "b,bc->c"(%0, %w) : (!r, !w) -> !r
  %2 = sdx.broadcast %0 to [0] : !r -> !x
  %3 = sdx.broadcast %1 to [0] : !r -> !x
  %4 = sdx.map "sub"(%x, %2) : (!x, !x) -> !x
  %5 = sdx.map "sub"(%4, %3) : (!x, !x) -> !x
  return %5 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reader of rows alone would gain nothing: it walks over other points.

// CHECK-LABEL: func.func @other_points
// CHECK-COUNT-2: = flow.kernel
func.func @other_points(%x: !x, %y: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%y, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// The same tensor backwards is other points too.

// CHECK-LABEL: func.func @backwards
// CHECK-COUNT-2: = flow.kernel
func.func @backwards(%x: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.slice %x from ["0", "s - 1"] step [1, -1] : !x -> !x
  %3 = sdx.map "sub"(%2, %1) : (!x, !x) -> !x
  return %3 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// What both read once a row are no points.

// CHECK-LABEL: func.func @shared_rows
// CHECK-COUNT-2: = flow.kernel
func.func @shared_rows(%x: !x, %y: !x, %v: !r) -> !x {
  %0 = sdx.broadcast %v to [0] : !r -> !x
  %1 = sdx.map "max"(%x, %0) : (!x, !x) -> !x
  %2 = sdx.reduce "add" %1 axes [1] : !x -> !r
  %3 = sdx.broadcast %2 to [0] : !r -> !x
  %4 = sdx.map "max"(%y, %0) : (!x, !x) -> !x
  %5 = sdx.map "sub"(%4, %3) : (!x, !x) -> !x
  return %5 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// Two reductions of different tensors, where the second reads the first one's rows, share no points either.

// CHECK-LABEL: func.func @two_reductions_other_points
// CHECK-COUNT-2: = flow.kernel
func.func @two_reductions_other_points(%x: !x, %y: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%y, %1) : (!x, !x) -> !x
  %3 = sdx.reduce "max" %2 axes [1] : !x -> !r
  return %3 : !r
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// Rows of the one are columns of the other.

// CHECK-LABEL: func.func @other_axis
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.kernel outer ["s"] inner ["b"]
func.func @other_axis(%x: !x) -> !x {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.reduce "max" %2 axes [0] : !x -> !sdx.tensor<[s], f32>
  %4 = sdx.broadcast %3 to [1] : !sdx.tensor<[s], f32> -> !x
  %5 = sdx.map "sub"(%2, %4) : (!x, !x) -> !x
  return %5 : !x
}

// -----

!x = !sdx.tensor<[b, 5], f32>
!y = !sdx.tensor<[b, 3], f32>
!r = !sdx.tensor<[b], f32>

// The reader's rows are shorter.

// CHECK-LABEL: func.func @shorter_rows
// CHECK-COUNT-2: = flow.kernel
func.func @shorter_rows(%x: !x) -> !y {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !y
  %2 = sdx.slice %x from ["0", "0"] step [1, 1] : !x -> !y
  %3 = sdx.map "sub"(%2, %1) : (!y, !y) -> !y
  return %3 : !y
}

// -----

!x = !sdx.tensor<[b, s], f32>
!y = !sdx.tensor<[b, s, t], f32>
!r = !sdx.tensor<[b], f32>

// The reader has a dimension more, after a reduction …

// CHECK-LABEL: func.func @larger_after
// CHECK-COUNT-2: = flow.kernel
func.func @larger_after(%x: !x) -> !y {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.broadcast %2 to [0, 1] : !x -> !y
  %4 = sdx.map "exp"(%3) : (!y) -> !y
  return %4 : !y
}

// -----

!x = !sdx.tensor<[b, s], f32>
!y = !sdx.tensor<[b, s, t], f32>
!z = !sdx.tensor<[b, t], f32>

// … and before one: what the map stores would be stored for each of t.

// CHECK-LABEL: func.func @larger_before
// CHECK-COUNT-2: = flow.kernel
func.func @larger_before(%x: !x, %y: !y) -> (!x, !z) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.broadcast %0 to [0, 1] : !x -> !y
  %2 = sdx.map "sub"(%1, %y) : (!y, !y) -> !y
  %3 = sdx.reduce "add" %2 axes [1] : !y -> !z
  return %0, %3 : !x, !z
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!r = !flow.container<[b], f32, row_major>

// The reader is at another point of the row than the producer.

// CHECK-LABEL: func.func @reversed_points
// CHECK-COUNT-2: = flow.kernel
func.func @reversed_points(%x: !x) -> !x {
  %0:2 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> (!r, !x) {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    %3 = flow.reduce "add" %2 : f32 -> f32
    flow.store %3 to 0 ["%0"] : f32
    flow.store %2 to 1 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b", "s"] inner [] (%0#0, %0#1) : (!r, !x) -> !x {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.load 1 ["%0", "-%1 + s - 1"] : f32
    %3 = flow.apply "div"(%2, %1) : (f32, f32) -> f32
    flow.store %3 to 0 ["%0", "%1"] : f32
  }
  return %5 : !x
}

// -----

!x = !sdx.tensor<[s], f32>
!r = !sdx.tensor<[], f32>

// One row: no dimension connects the kernels, and a walk over it would be one thread's work.

// CHECK-LABEL: func.func @one_row
// CHECK-COUNT-2: = flow.kernel
func.func @one_row(%x: !x) -> !x {
  %0 = sdx.reduce "max" %x axes [0] : !x -> !r
  %1 = sdx.broadcast %0 to [] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !flow.container<[b, 1, s], f32, row_major>
!r = !flow.container<[b, 1, 1], f32, row_major>

// A dimension of 1 in one place is one, though the reader's broadcast says 0 for it: what both load there is one point.

// CHECK-LABEL: func.func @unit_row
// CHECK-COUNT-1: = flow.kernel outer ["b", "1"] inner ["s"]
// CHECK: flow.load 0 ["%0", "%1", "%2"]
// CHECK-NOT: flow.{{kernel|load}}
// CHECK: flow.store %{{.*}} to {{.*}} ["%0", "%1", "%2"]
func.func @unit_row(%x: !x) -> !x {
  %0 = flow.kernel outer ["b", "1"] inner ["s"] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1", "%2"] : f32
    %2 = flow.reduce "max" %1 : f32 -> f32
    flow.store %2 to 0 ["%0", "0", "0"] : f32
  }
  %3 = flow.kernel outer ["b", "1", "s"] inner [] (%x, %0) : (!x, !r) -> !x {
    %1 = flow.load 0 ["%0", "%1", "%2"] : f32
    %2 = flow.load 1 ["%0", "0", "0"] : f32
    %4 = flow.apply "sub"(%1, %2) : (f32, f32) -> f32
    flow.store %4 to 0 ["%0", "%1", "%2"] : f32
  }
  return %3 : !x
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,fuse-attention,inline-maps)' | FileCheck %s

// What `inline-maps` puts into a kernel of attention.

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// What the queries alone go through is computed with them, once for all keys.

// CHECK-LABEL: func.func @queries
// CHECK: flow.kernel outer ["s", "8"] inner ["s"] deep ["8"]
// CHECK: %[[Q:.*]] = flow.load {{.*}} ["%0", "%3"]
// CHECK-NEXT: %[[E:.*]] = flow.apply "sin"(%[[Q]])
// CHECK-NEXT: %[[K:.*]] = flow.load {{.*}} ["%2", "%3"]
// CHECK-NEXT: flow.apply "mul"(%[[E]], %[[K]])
// CHECK-NOT: = flow.kernel
func.func @queries(%q: !q, %k: !q, %v: !q) -> !q {
  %m = sdx.map "sin"(%q) : (!q) -> !q
  %0 = sdx.contract "sd,td->st"(%m, %k) : (!q, !q) -> !p
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

// Keys are read by every query: a map of them is computed before.

// CHECK-LABEL: func.func @keys
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @keys(%q: !q, %k: !q, %v: !q) -> !q {
  %m = sdx.map "sin"(%k) : (!q) -> !q
  %0 = sdx.contract "sd,td->st"(%q, %m) : (!q, !q) -> !p
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

// So are values.

// CHECK-LABEL: func.func @values
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @values(%q: !q, %k: !q, %v: !q) -> !q {
  %m = sdx.map "sin"(%v) : (!q) -> !q
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %m) : (!p, !q) -> !q
  return %8 : !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>

// The queries are keys too.

// CHECK-LABEL: func.func @queries_are_keys
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @queries_are_keys(%q: !q, %v: !q) -> !q {
  %m = sdx.map "sin"(%q) : (!q) -> !q
  %0 = sdx.contract "sd,td->st"(%m, %m) : (!q, !q) -> !p
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

// They are wanted themselves.

// CHECK-LABEL: func.func @queries_are_an_output
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @queries_are_an_output(%q: !q, %k: !q, %v: !q) -> (!q, !q) {
  %m = sdx.map "sin"(%q) : (!q) -> !q
  %0 = sdx.contract "sd,td->st"(%m, %k) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8, %m : !q, !q
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>
!i = !sdx.tensor<[s, s], i64>
!b = !sdx.tensor<[s, s], i1>

// A mask of positions is computed where it is needed.

// CHECK-LABEL: func.func @positions
// CHECK: flow.kernel outer ["s", "8"] inner ["s"] deep ["8"](%arg2, %arg0, %arg1)
// CHECK: flow.index "%2"
// CHECK-NOT: = flow.kernel
func.func @positions(%q: !q, %k: !q, %v: !q) -> !q {
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %b = sdx.map "le"(%j, %i) : (!i, !i) -> !b
  %f = sdx.convert %b : !b -> !p
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %10 = sdx.map "add"(%0, %f) : (!p, !p) -> !p
  %1 = sdx.reduce "max" %10 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%10, %2) : (!p, !p) -> !p
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
!b = !sdx.tensor<[s, s], i1>

// One that is read stays: every head and every layer would compute it again.

// CHECK-LABEL: func.func @mask
// CHECK-COUNT-2: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @mask(%q: !q, %k: !q, %v: !q, %b: !b) -> (!q, !p) {
  %f = sdx.convert %b : !b -> !p
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %10 = sdx.map "add"(%0, %f) : (!p, !p) -> !p
  %1 = sdx.reduce "max" %10 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%10, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %v) : (!p, !q) -> !q
  return %8, %f : !q, !p
}

// -----

!q = !sdx.tensor<[s, 8], f32>
!p = !sdx.tensor<[s, s], f32>
!r = !sdx.tensor<[s], f32>
!t = !sdx.tensor<[8, s], f32>

// Copies go in wherever they are read.

// CHECK-LABEL: func.func @copies
// CHECK-COUNT-1: = flow.kernel
// CHECK-NOT: = flow.kernel
func.func @copies(%q: !q, %k: !t, %v: !t) -> !q {
  %kt = sdx.transpose %k [1, 0] : !t -> !q
  %vt = sdx.transpose %v [1, 0] : !t -> !q
  %0 = sdx.contract "sd,td->st"(%q, %kt) : (!q, !q) -> !p
  %1 = sdx.reduce "max" %0 axes [1] : !p -> !r
  %2 = sdx.broadcast %1 to [0] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [1] : !p -> !r
  %6 = sdx.broadcast %5 to [0] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "st,td->sd"(%7, %vt) : (!p, !q) -> !q
  return %8 : !q
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps)' | FileCheck %s

!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @map_into_map
// CHECK: flow.kernel outer ["b", "s"] inner [](%arg0)
// CHECK-NEXT: %[[X:.*]] = flow.load 0 ["%0", "%1"]
// CHECK-NEXT: %[[E:.*]] = flow.apply "exp"(%[[X]])
// CHECK-NEXT: %[[N:.*]] = flow.apply "neg"(%[[E]])
// CHECK-NEXT: flow.store %[[N]] to 0 ["%0", "%1"]
// CHECK-NOT: flow.kernel
func.func @map_into_map(%x: !x) -> !x {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  return %1 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!xt = !sdx.tensor<[s, b], f32>

// An index map goes into every reader.

// CHECK-LABEL: func.func @index_map
// CHECK: flow.kernel
// CHECK-NEXT: flow.load 0 ["%1", "%0"]
// CHECK-NEXT: flow.apply "exp"
// CHECK: flow.kernel
// CHECK-NEXT: flow.load 0 ["%1", "%0"]
// CHECK-NEXT: flow.apply "neg"
// CHECK-NOT: flow.kernel
func.func @index_map(%x: !x) -> (!xt, !xt) {
  %0 = sdx.transpose %x [1, 0] : !x -> !xt
  %1 = sdx.map "exp"(%0) : (!xt) -> !xt
  %2 = sdx.map "neg"(%0) : (!xt) -> !xt
  return %1, %2 : !xt, !xt
}

// -----

!x = !sdx.tensor<[b, s], f32>
!xt = !sdx.tensor<[s, b], f32>

// As an output it is written; its reader still looks at what it reads.

// CHECK-LABEL: func.func @index_map_output
// CHECK: flow.kernel outer ["s", "b"] inner [](%arg0)
// CHECK-NEXT: flow.load 0 ["%1", "%0"]
// CHECK-NEXT: flow.store
// CHECK: flow.kernel outer ["s", "b"] inner [](%arg0)
// CHECK-NEXT: flow.load 0 ["%1", "%0"]
// CHECK-NEXT: flow.apply "exp"
func.func @index_map_output(%x: !x) -> (!xt, !xt) {
  %0 = sdx.transpose %x [1, 0] : !x -> !xt
  %1 = sdx.map "exp"(%0) : (!xt) -> !xt
  return %0, %1 : !xt, !xt
}

// -----

!i = !sdx.tensor<[b, s], i64>

// Values that follow from the position alone are index maps up to eight statements.

// CHECK-LABEL: func.func @position
// CHECK-COUNT-2: flow.index "%1"
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @position(%x: !i) -> (!i, !i) {
  %0 = sdx.iota axis 1 : !i
  %1 = sdx.map "add"(%x, %0) : (!i, !i) -> !i
  %2 = sdx.map "mul"(%x, %0) : (!i, !i) -> !i
  return %1, %2 : !i, !i
}

// -----

!i = !sdx.tensor<[3], i64>

// Ten statements are written once rather than computed by two readers.

// CHECK-LABEL: func.func @long_position
// CHECK-COUNT-3: = flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @long_position(%x: !i) -> (!i, !i) {
  %0 = sdx.dims ["b", "s", "t"] : !i
  %1 = sdx.map "add"(%x, %0) : (!i, !i) -> !i
  %2 = sdx.map "mul"(%x, %0) : (!i, !i) -> !i
  return %1, %2 : !i, !i
}

// -----

!x = !sdx.tensor<[b, s], f32>

// A second reader would compute it again.

// CHECK-LABEL: func.func @two_readers
// CHECK-COUNT-3: = flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @two_readers(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  %2 = sdx.map "abs"(%0) : (!x) -> !x
  return %1, %2 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// An output is in memory anyway.

// CHECK-LABEL: func.func @output
// CHECK: %[[E:.*]] = flow.kernel
// CHECK: flow.kernel outer ["b", "s"] inner [](%[[E]])
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @output(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  return %0, %1 : !x, !x
}

// -----

!v = !sdx.tensor<[s], f32>
!x = !sdx.tensor<[b, s], f32>

// The sum reads each element of exp(v) b times.

// CHECK-LABEL: func.func @repeated
// CHECK: flow.apply "exp"
// CHECK: = flow.kernel
// CHECK: flow.load 1 ["%1"]
// CHECK: flow.apply "add"
func.func @repeated(%v: !v, %x: !x) -> !x {
  %0 = sdx.map "exp"(%v) : (!v) -> !v
  %1 = sdx.broadcast %0 to [1] : !v -> !x
  %2 = sdx.map "add"(%x, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!v = !sdx.tensor<[s], f32>
!x = !sdx.tensor<[1, s], f32>

// A dimension of 1 repeats nothing.

// CHECK-LABEL: func.func @not_repeated
// CHECK-NEXT: = flow.kernel outer ["1", "s"]
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @not_repeated(%v: !v, %x: !x) -> !x {
  %0 = sdx.map "exp"(%v) : (!v) -> !v
  %1 = sdx.broadcast %0 to [1] : !v -> !x
  %2 = sdx.map "add"(%x, %1) : (!x, !x) -> !x
  return %2 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reduction reads each point once, and what is the same along a row once a row.

// CHECK-LABEL: func.func @into_reduction
// CHECK-COUNT-1: = flow.kernel outer ["b"] inner ["s"]
// CHECK: flow.load {{.*}} ["%0", "%1"]
// CHECK: %[[R:.*]] = flow.load {{.*}} ["%0"]
// CHECK-NEXT: flow.apply "exp"(%[[R]])
// CHECK-NEXT: flow.apply "sub"
// CHECK-NEXT: flow.reduce "add"
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @into_reduction(%x: !x, %v: !r) -> !r {
  %0 = sdx.map "exp"(%v) : (!r) -> !r
  %1 = sdx.broadcast %0 to [0] : !r -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.reduce "add" %2 axes [1] : !x -> !r
  return %3 : !r
}

// -----

!x = !sdx.tensor<[k, m], f32>
!y = !sdx.tensor<[k, n], f32>

// A contraction reads its operands many times: it takes index maps alone.

// CHECK-LABEL: func.func @into_contraction
// CHECK: flow.apply "exp"
// CHECK: flow.kernel outer ["m", "n"] inner ["k"]
// CHECK-NEXT: flow.load {{.*}} ["%2", "%0"]
// CHECK-NEXT: flow.load {{.*}} ["%2", "%1"]
// CHECK-NEXT: flow.apply "mul"
// CHECK-NOT: flow.kernel
func.func @into_contraction(%x: !x, %y: !y) -> !sdx.tensor<[m, n], f32> {
  %0 = sdx.transpose %x [1, 0] : !x -> !sdx.tensor<[m, k], f32>
  %1 = sdx.map "exp"(%y) : (!y) -> !y
  %2 = sdx.contract "mk,kn->mn"(%0, %1) : (!sdx.tensor<[m, k], f32>, !y) -> !sdx.tensor<[m, n], f32>
  return %2 : !sdx.tensor<[m, n], f32>
}

// -----

!x = !sdx.tensor<[m, k], f32>
!v = !sdx.tensor<[k], f32>
!r = !sdx.tensor<[m], f32>

// The matrix is read once, but the vector is reused: a contraction.

// CHECK-LABEL: func.func @into_matvec
// CHECK: flow.apply "exp"
// CHECK: = flow.kernel
// CHECK: flow.reduce
func.func @into_matvec(%x: !x, %y: !v) -> !r {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.contract "mk,k->m"(%0, %y) : (!x, !v) -> !r
  return %1 : !r
}

// -----

!v = !sdx.tensor<[k], f32>

// A dot product reuses nothing: it is a reduction like others.

// CHECK-LABEL: func.func @into_dot
// CHECK: flow.apply "exp"
// CHECK-NOT: flow.kernel
// CHECK: flow.reduce
func.func @into_dot(%x: !v, %y: !v) -> !sdx.tensor<[], f32> {
  %0 = sdx.map "exp"(%x) : (!v) -> !v
  %1 = sdx.contract "k,k->"(%0, %y) : (!v, !v) -> !sdx.tensor<[], f32>
  return %1 : !sdx.tensor<[], f32>
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// A reduction is no map.

// CHECK-LABEL: func.func @reduction
// CHECK-COUNT-2: = flow.kernel
func.func @reduction(%x: !x) -> !r {
  %0 = sdx.reduce "add" %x axes [1] : !x -> !r
  %1 = sdx.map "neg"(%0) : (!r) -> !r
  return %1 : !r
}

// -----

!x = !sdx.tensor<[a], f32>

// What goes where a guard is reads under it: a guard of its own is added.

// CHECK-LABEL: func.func @guards
// CHECK: flow.kernel outer ["2*a + 1"]
// CHECK: flow.load 0 ["%0"] if %[[FIRST:.*]] : f32
// CHECK-NEXT: flow.apply "neg"
// CHECK: %[[SECOND:.*]] = flow.apply "and"
// CHECK: %[[PAD:.*]] = flow.apply "and"
// CHECK-NEXT: %[[BOTH:.*]] = flow.apply "and"(%[[SECOND]], %[[PAD]])
// CHECK-NEXT: flow.load 0 ["%0 - a - 1"] if %[[BOTH]]
// CHECK-NOT: flow.kernel
func.func @guards(%x: !x) -> !sdx.tensor<[2*a + 1], f32> {
  %c = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.pad %x with %c low ["1"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[a + 1], f32>
  %2 = sdx.concat (%0, %1) axis 0 : (!x, !sdx.tensor<[a + 1], f32>) -> !sdx.tensor<[2*a + 1], f32>
  return %2 : !sdx.tensor<[2*a + 1], f32>
}

// -----

!q = !flow.container<[b, b], f32, row_major>

// The reader would find y[i, j] where y[j, i] is.

// CHECK-LABEL: func.func @other_order
// CHECK-COUNT-2: = flow.kernel
func.func @other_order(%x: !q) -> !q {
  %0 = flow.kernel outer ["b", "b"] inner [] (%x) : (!q) -> !q {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%1", "%0"] : f32
  }
  %3 = flow.kernel outer ["b", "b"] inner [] (%0) : (!q) -> !q {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "neg"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  return %3 : !q
}

// -----

!r = !flow.container<[b], f32, row_major>

// Two results: each has readers of its own.

// CHECK-LABEL: func.func @two_results
// CHECK: flow.apply "exp"
// CHECK: = flow.kernel
// CHECK: flow.apply "neg"
func.func @two_results(%x: !r) -> (!r, !r) {
  %0:2 = flow.kernel outer ["b"] inner [] (%x) : (!r) -> (!r, !r) {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
    flow.store %1 to 1 ["%0"] : f32
  }
  %3 = flow.kernel outer ["b"] inner [] (%0#0) : (!r) -> !r {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.apply "neg"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %3, %0#1 : !r, !r
}

// -----

!r = !flow.container<[b], f32, row_major>
!x = !flow.container<[b, 1], f32, row_major>

// The result has no place for the second variable, and the reader no value.

// CHECK-LABEL: func.func @extra_variable
// CHECK-COUNT-2: = flow.kernel
func.func @extra_variable(%x: !x) -> !r {
  %0 = flow.kernel outer ["b", "1"] inner [] (%x) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.apply "exp"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  %3 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {
    %1 = flow.load 0 ["%0"] : f32
    %2 = flow.apply "neg"(%1) : (f32) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %3 : !r
}

// -----

!x = !sdx.tensor<[n, d], f32>
!i = !sdx.tensor<[k], i64>

// An index from data is checked against the dimension that it indexes. A transpose has that dimension too …

// CHECK-LABEL: func.func @gather_transpose
// CHECK: flow.kernel outer ["d", "k"]
// CHECK: flow.load {{.*}} ["$0", "%0"]
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @gather_transpose(%x: !x, %i: !i) -> !sdx.tensor<[d, k], f32> {
  %0 = sdx.transpose %x [1, 0] : !x -> !sdx.tensor<[d, n], f32>
  %1 = sdx.gather %0[%i] axis 1 : (!sdx.tensor<[d, n], f32>, !i) -> !sdx.tensor<[d, k], f32>
  return %1 : !sdx.tensor<[d, k], f32>
}

// -----

!x = !sdx.tensor<[n + 3, d], f32>
!i = !sdx.tensor<[k], i64>

// … a slice has less than lies beneath it …

// CHECK-LABEL: func.func @gather_slice
// CHECK-COUNT-2: = flow.kernel
func.func @gather_slice(%x: !x, %i: !i) -> !sdx.tensor<[k, d], f32> {
  %0 = sdx.slice %x from ["0", "0"] step [1, 1] : !x -> !sdx.tensor<[n, d], f32>
  %1 = sdx.gather %0[%i] axis 0 : (!sdx.tensor<[n, d], f32>, !i) -> !sdx.tensor<[k, d], f32>
  return %1 : !sdx.tensor<[k, d], f32>
}

// -----

!x = !sdx.tensor<[n], f32>
!i = !sdx.tensor<[k], i64>

// … and one that runs backwards looks elsewhere …

// CHECK-LABEL: func.func @gather_reversed
// CHECK-COUNT-2: = flow.kernel
func.func @gather_reversed(%x: !x, %i: !i) -> !sdx.tensor<[k], f32> {
  %0 = sdx.slice %x from ["n - 1"] step [-1] : !x -> !x
  %1 = sdx.gather %0[%i] axis 0 : (!x, !i) -> !sdx.tensor<[k], f32>
  return %1 : !sdx.tensor<[k], f32>
}

// -----

!v = !sdx.tensor<[d], f32>
!i = !sdx.tensor<[k], i64>

// … a broadcast does not look at the index at all …

// CHECK-LABEL: func.func @gather_broadcast
// CHECK-COUNT-2: = flow.kernel
func.func @gather_broadcast(%v: !v, %i: !i) -> !sdx.tensor<[k, d], f32> {
  %0 = sdx.broadcast %v to [1] : !v -> !sdx.tensor<[n, d], f32>
  %1 = sdx.gather %0[%i] axis 0 : (!sdx.tensor<[n, d], f32>, !i) -> !sdx.tensor<[k, d], f32>
  return %1 : !sdx.tensor<[k, d], f32>
}

// -----

!i = !sdx.tensor<[k], i64>

// … and neither do positions.

// CHECK-LABEL: func.func @gather_iota
// CHECK-COUNT-2: = flow.kernel
func.func @gather_iota(%i: !i) -> !i {
  %0 = sdx.iota axis 0 : !sdx.tensor<[n], i64>
  %1 = sdx.gather %0[%i] axis 0 : (!sdx.tensor<[n], i64>, !i) -> !i
  return %1 : !i
}

// -----

!x = !flow.container<[n], f32, row_major>
!i = !flow.container<[n], i64, row_major>

// A load that may not be made checks nothing.

// CHECK-LABEL: func.func @gather_guarded
// CHECK-COUNT-2: = flow.kernel
func.func @gather_guarded(%x: !x, %i: !i) -> !x {
  %0 = flow.kernel outer ["n"] inner [] (%x) : (!x) -> !x {
    %1 = flow.index "%0" : i64
    %2 = flow.index "n - 1" : i64
    %3 = flow.apply "lt"(%1, %2) : (i64, i64) -> i1
    %4 = flow.load 0 ["%0"] if %3 : f32
    flow.store %4 to 0 ["%0"] : f32
  }
  %5 = flow.kernel outer ["n"] inner [] (%i, %0) : (!i, !x) -> !x {
    %1 = flow.load 0 ["%0"] : i64
    %2 = flow.load 1 ["$0 + %0"] : f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !x
}

// -----

!r = !flow.container<[b], f32, row_major>
!x = !flow.container<[b, s], f32, row_major>

// Along the inner space points are stored; a broadcast would make them values of the row.

// CHECK-LABEL: func.func @stored_points
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.kernel outer ["b"] inner ["s"]
func.func @stored_points(%v: !r) -> !x {
  %0 = flow.kernel outer ["b", "s"] inner [] (%v) : (!r) -> !x {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b"] inner ["s"] (%0) : (!x) -> !x {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    %3 = flow.apply "sub"(%1, %2) : (f32, f32) -> f32
    flow.store %3 to 0 ["%0", "%1"] : f32
  }
  return %5 : !x
}

// -----

!x = !flow.container<[b, s], f32, row_major>
!xt = !flow.container<[s, b], f32, row_major>

// A transpose leaves them points.

// CHECK-LABEL: func.func @transposed_points
// CHECK-COUNT-1: flow.kernel outer ["b"] inner ["s"]
// CHECK-NEXT: flow.load 0 ["%1", "%0"]
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @transposed_points(%x: !xt) -> !x {
  %0 = flow.kernel outer ["b", "s"] inner [] (%x) : (!xt) -> !x {
    %1 = flow.load 0 ["%1", "%0"] : f32
    flow.store %1 to 0 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b"] inner ["s"] (%0) : (!x) -> !x {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    %3 = flow.apply "sub"(%1, %2) : (f32, f32) -> f32
    flow.store %3 to 0 ["%0", "%1"] : f32
  }
  return %5 : !x
}

// -----

!t = !flow.container<[n], f32, row_major>
!i = !flow.container<[b], i64, row_major>
!r = !flow.container<[b], f32, row_major>
!x = !flow.container<[b, s], f32, row_major>

// Once a row, t[i[b]] would be read where s is 0 and no point asks for it; i[b] may then be out of range.

// CHECK-LABEL: func.func @empty_rows
// CHECK: flow.kernel outer ["b", "s"] inner []
// CHECK: flow.kernel outer ["b"] inner ["s"]
func.func @empty_rows(%t: !t, %i: !i) -> !r {
  %0 = flow.kernel outer ["b", "s"] inner [] (%t, %i) : (!t, !i) -> !x {
    %1 = flow.load 1 ["%0"] : i64
    %2 = flow.load 0 ["$0"] : f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  %5 = flow.kernel outer ["b"] inner ["s"] (%0) : (!x) -> !r {
    %1 = flow.load 0 ["%0", "%1"] : f32
    %2 = flow.reduce "add" %1 : f32 -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return %5 : !r
}

// -----

// What becomes a state's new positions is computed where they are written, under their guard. Who reads the state needs
// all positions, also those that a call keeps and does not write.

!in = !flow.container<[past], f32, "capacity<0, capacity_in>">
!all = !flow.container<[past + s], f32, "capacity<0, capacity_out>">
!x = !flow.container<[s], f32, row_major>

// CHECK-LABEL: func.func @state
// CHECK: %[[ALL:.*]] = flow.kernel outer ["-kept + past + s"] inner [](%arg0, %arg1)
// CHECK: %[[NEW:.*]] = flow.load 1 ["%0 + kept - past"] if
// CHECK-NEXT: %[[V:.*]] = flow.apply "neg"(%[[NEW]])
// CHECK: flow.apply "select"(%{{.*}}, %{{.*}}, %[[V]])
// CHECK-NEXT: flow.store %{{.*}} to 0 ["%0 + kept"]
// CHECK: flow.kernel outer ["past + s"] inner [](%[[ALL]])
// CHECK-NEXT: flow.load
// CHECK-NEXT: flow.apply "exp"
func.func @state(%past: !in, %x: !x) -> (!all, !flow.container<[past + s], f32, row_major>) attributes {sdx.states = ["0 0 kept"], sdx.symbols = ["kept kept 0.."]} {
  %1 = flow.kernel outer ["s"] inner [] (%x) : (!x) -> !x {
    %v = flow.load 0 ["%0"] : f32
    %n = flow.apply "neg"(%v) : (f32) -> f32
    flow.store %n to 0 ["%0"] : f32
  }
  %2 = flow.kernel outer ["past + s - kept"] inner [] (%past, %1) : (!in, !x) -> !all {
    %at = flow.index "%0 + kept" : i64
    %end = flow.index "past" : i64
    %old = flow.apply "lt"(%at, %end) : (i64, i64) -> i1
    %new = flow.apply "not"(%old) : (i1) -> i1
    %a = flow.load 0 ["%0 + kept"] if %old : f32
    %b = flow.load 1 ["%0 + kept - past"] if %new : f32
    %v = flow.apply "select"(%old, %a, %b) : (i1, f32, f32) -> f32
    flow.store %v to 0 ["%0 + kept"] : f32
  }
  %3 = flow.kernel outer ["past + s"] inner [] (%2) : (!all) -> !flow.container<[past + s], f32, row_major> {
    %v = flow.load 0 ["%0"] : f32
    %e = flow.apply "exp"(%v) : (f32) -> f32
    flow.store %e to 0 ["%0"] : f32
  }
  return %2, %3 : !all, !flow.container<[past + s], f32, row_major>
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[b, 6, 3], f32>

// Windows overlap: what is computed stays in front of them, and they go into what reads them. Windows that lie side by
// side read each point once.

// CHECK-LABEL: func.func @windows
// CHECK: flow.kernel outer ["b", "8"] inner [](%arg0)
// CHECK: flow.apply "exp"
// CHECK: flow.kernel outer ["b", "6"] inner ["3"]
// CHECK-NEXT: flow.load 0 ["%0", "%1 + %2"]
// CHECK: flow.kernel outer ["b", "4"] inner ["2"](%arg0)
// CHECK-NEXT: flow.load 0 ["%0", "2*%1 + %2"]
// CHECK-NEXT: flow.apply "neg"
func.func @windows(%x: !x) -> (!sdx.tensor<[b, 6], f32>, !sdx.tensor<[b, 4], f32>) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.window %0 axis 1 size "3" stride 1 dilation 1 : !x -> !w
  %2 = sdx.reduce "max" %1 axes [2] : !w -> !sdx.tensor<[b, 6], f32>
  %3 = sdx.map "neg"(%x) : (!x) -> !x
  %4 = sdx.window %3 axis 1 size "2" stride 2 dilation 1 : !x -> !sdx.tensor<[b, 4, 2], f32>
  %5 = sdx.reduce "max" %4 axes [2] : !sdx.tensor<[b, 4, 2], f32> -> !sdx.tensor<[b, 4], f32>
  return %2, %5 : !sdx.tensor<[b, 6], f32>, !sdx.tensor<[b, 4], f32>
}

// -----

// Where the guard is false, the scale does not count: it is read without the guard, once.

!x = !flow.container<[b, 30], f32, row_major>
!s = !flow.container<[], f32, row_major>
!p = !flow.container<[b, 32], f32, row_major>

// CHECK-LABEL: func.func @padded_scale
// CHECK: flow.kernel outer ["b", "32"]
// CHECK: flow.load {{.*}} ["%0", "%1 - 1"] if %{{.*}} : f32
// CHECK: flow.load {{.*}} [] : f32
// CHECK: flow.apply "select"
func.func @padded_scale(%x: !x, %s: !s) -> !p attributes {sdx.symbols = ["input b 0.."]} {
  %v = flow.kernel outer ["b", "30"] inner [] (%x, %s) : (!x, !s) -> !x {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.load 1 [] : f32
    %2 = flow.apply "div"(%0, %1) : (f32, f32) -> f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  %p = flow.kernel outer ["b", "32"] inner [] (%v) : (!x) -> !p {
    %0 = flow.index "%1" : i64
    %1 = flow.index "1" : i64
    %2 = flow.apply "le"(%1, %0) : (i64, i64) -> i1
    %3 = flow.index "31" : i64
    %4 = flow.apply "lt"(%0, %3) : (i64, i64) -> i1
    %5 = flow.apply "and"(%2, %4) : (i1, i1) -> i1
    %6 = flow.load 0 ["%0", "%1 - 1"] if %5 : f32
    %7 = flow.scalar 0.0 : f32
    %8 = flow.apply "select"(%5, %6, %7) : (i1, f32, f32) -> f32
    flow.store %8 to 0 ["%0", "%1"] : f32
  }
  return %p : !p
}

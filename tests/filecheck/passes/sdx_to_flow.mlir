// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow)' | FileCheck %s

// An operation is a kernel over its result: loads at explicit indices, one function, a store.

!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @map
// CHECK-SAME: (%[[X:.*]]: !flow.container<[b, s], f32, row_major> {sdx.name = "left"}, %[[Y:.*]]: !flow
// CHECK-SAME: sdx.checks = ["2*h == b : /Split"], sdx.results = ["sum"], sdx.symbols = ["input b 1..8", "input s 0.."]
// CHECK-NEXT: %[[Z:.*]] = flow.kernel outer ["b", "s"] inner [](%[[X]], %[[Y]])
// CHECK-NEXT:   %[[A:.*]] = flow.load 0 ["%0", "%1"] : f32
// CHECK-NEXT:   %[[B:.*]] = flow.load 1 ["%0", "%1"] : f32
// CHECK-NEXT:   %[[C:.*]] = flow.apply "add"(%[[A]], %[[B]])
// CHECK-NEXT:   flow.store %[[C]] to 0 ["%0", "%1"]
// CHECK-NEXT: }
// CHECK-NEXT: return %[[Z]]
func.func @map(%x: !x {sdx.name = "left"}, %y: !x) -> !x attributes {
    sdx.checks = ["2*h == b : /Split"], sdx.results = ["sum"], sdx.symbols = ["input b 1..8", "input s 0.."]} {
  %0 = sdx.map "add"(%x, %y) : (!x, !x) -> !x
  return %0 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// One container is one operand, however often it is read.

// CHECK-LABEL: func.func @square
// CHECK: flow.kernel outer ["b", "s"] inner [](%{{[^,]*}}) :
// CHECK-NEXT: flow.load 0
// CHECK-NEXT: flow.load 0
// CHECK-NEXT: flow.apply "mul"
func.func @square(%x: !x) -> !x {
  %0 = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  return %0 : !x
}

// -----

// CHECK-LABEL: func.func @convert
// CHECK: %[[A:.*]] = flow.load 0 ["%0"] : f32
// CHECK-NEXT: %[[B:.*]] = flow.convert %[[A]] : f32 -> i8
// CHECK-NEXT: flow.store %[[B]] to 0 ["%0"] : i8
func.func @convert(%x: !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], i8> {
  %0 = sdx.convert %x : !sdx.tensor<[b], f32> -> !sdx.tensor<[b], i8>
  return %0 : !sdx.tensor<[b], i8>
}

// -----

// What is reduced over is the inner space; the kept dimensions are numbered first.

// CHECK-LABEL: func.func @reduce
// CHECK: flow.kernel outer ["s"] inner ["b", "t"]
// CHECK-NEXT: %[[A:.*]] = flow.load 0 ["%1", "%0", "%2"] : f32
// CHECK-NEXT: %[[B:.*]] = flow.reduce "max" %[[A]] : f32 -> f32
// CHECK-NEXT: flow.store %[[B]] to 0 ["%0"] : f32
func.func @reduce(%x: !sdx.tensor<[b, s, t], f32>) -> !sdx.tensor<[s], f32> {
  %0 = sdx.reduce "max" %x axes [0, 2] : !sdx.tensor<[b, s, t], f32> -> !sdx.tensor<[s], f32>
  return %0 : !sdx.tensor<[s], f32>
}

// -----

// CHECK-LABEL: func.func @contract
// CHECK: flow.kernel outer ["b", "m", "n"] inner ["k"]
// CHECK-NEXT: %[[A:.*]] = flow.load 0 ["%0", "%1", "%3"]
// CHECK-NEXT: %[[B:.*]] = flow.load 1 ["%3", "%2"]
// CHECK-NEXT: %[[C:.*]] = flow.apply "mul"(%[[A]], %[[B]])
// CHECK-NEXT: %[[D:.*]] = flow.reduce "add" %[[C]]
// CHECK-NEXT: flow.store %[[D]] to 0 ["%0", "%1", "%2"]
func.func @contract(%x: !sdx.tensor<[b, m, k], f32>, %y: !sdx.tensor<[k, n], f32>) -> !sdx.tensor<[b, m, n], f32> {
  %0 = sdx.contract "bmk,kn->bmn"(%x, %y) : (!sdx.tensor<[b, m, k], f32>, !sdx.tensor<[k, n], f32>) -> !sdx.tensor<[b, m, n], f32>
  return %0 : !sdx.tensor<[b, m, n], f32>
}

// -----

// An outer product sums nothing.

// CHECK-LABEL: func.func @outer_product
// CHECK: flow.kernel outer ["m", "n"] inner []
// CHECK-NEXT: %[[A:.*]] = flow.load 0 ["%0"]
// CHECK-NEXT: %[[B:.*]] = flow.load 1 ["%1"]
// CHECK-NEXT: %[[C:.*]] = flow.apply "mul"(%[[A]], %[[B]])
// CHECK-NEXT: flow.store %[[C]] to 0 ["%0", "%1"]
func.func @outer_product(%x: !sdx.tensor<[m], f32>, %y: !sdx.tensor<[n], f32>) -> !sdx.tensor<[m, n], f32> {
  %0 = sdx.contract "m,n->mn"(%x, %y) : (!sdx.tensor<[m], f32>, !sdx.tensor<[n], f32>) -> !sdx.tensor<[m, n], f32>
  return %0 : !sdx.tensor<[m, n], f32>
}

// -----

// `$0` is the value of statement 0: an index read from data.

// CHECK-LABEL: func.func @gather
// CHECK: flow.kernel outer ["a", "i", "j", "c"] inner [](%[[I:.*]], %[[X:.*]]) : (!flow.container<[i, j], i64, row_major>, !flow.container<[a, n, c], f32, row_major>)
// CHECK-NEXT: flow.load 0 ["%1", "%2"] : i64
// CHECK-NEXT: %[[V:.*]] = flow.load 1 ["%0", "$0", "%3"] : f32
// CHECK-NEXT: flow.store %[[V]] to 0 ["%0", "%1", "%2", "%3"]
func.func @gather(%x: !sdx.tensor<[a, n, c], f32>, %i: !sdx.tensor<[i, j], i64>) -> !sdx.tensor<[a, i, j, c], f32> {
  %0 = sdx.gather %x[%i] axis 1 : (!sdx.tensor<[a, n, c], f32>, !sdx.tensor<[i, j], i64>) -> !sdx.tensor<[a, i, j, c], f32>
  return %0 : !sdx.tensor<[a, i, j, c], f32>
}

// -----

// Motion is an index.

// CHECK-LABEL: func.func @slice
// CHECK: flow.kernel outer ["3", "s"]
// CHECK-NEXT: flow.load 0 ["2*%0 + b", "-%1 + s - 1"]
func.func @slice(%x: !sdx.tensor<[b + 5, s], f32>) -> !sdx.tensor<[3, s], f32> {
  %0 = sdx.slice %x from ["b", "s - 1"] step [2, -1] : !sdx.tensor<[b + 5, s], f32> -> !sdx.tensor<[3, s], f32>
  return %0 : !sdx.tensor<[3, s], f32>
}

// -----

// CHECK-LABEL: func.func @transpose
// CHECK: flow.kernel outer ["t", "b", "s"]
// CHECK-NEXT: flow.load 0 ["%1", "%2", "%0"]
func.func @transpose(%x: !sdx.tensor<[b, s, t], f32>) -> !sdx.tensor<[t, b, s], f32> {
  %0 = sdx.transpose %x [2, 0, 1] : !sdx.tensor<[b, s, t], f32> -> !sdx.tensor<[t, b, s], f32>
  return %0 : !sdx.tensor<[t, b, s], f32>
}

// -----

// CHECK-LABEL: func.func @broadcast
// CHECK: flow.kernel outer ["b", "s", "t"]
// CHECK-NEXT: flow.load 0 ["0", "%2"]
func.func @broadcast(%x: !sdx.tensor<[1, t], f32>) -> !sdx.tensor<[b, s, t], f32> {
  %0 = sdx.broadcast %x to [1, 2] : !sdx.tensor<[1, t], f32> -> !sdx.tensor<[b, s, t], f32>
  return %0 : !sdx.tensor<[b, s, t], f32>
}

// -----

// A reshape is a view; one that adds or drops dimensions of 1 is an index, which fusion sees through.

// CHECK-LABEL: func.func @reshape
// CHECK: flow.view %{{.*}} : <[b, 6], f32, row_major> -> <[b, 2, 3], f32, row_major>
// CHECK: flow.kernel outer ["b", "1", "6"]
// CHECK-NEXT: flow.load 0 ["%0", "%2"]
func.func @reshape(%x: !sdx.tensor<[b, 6], f32>) -> (!sdx.tensor<[b, 2, 3], f32>, !sdx.tensor<[b, 1, 6], f32>) {
  %0 = sdx.reshape %x : !sdx.tensor<[b, 6], f32> -> !sdx.tensor<[b, 2, 3], f32>
  %1 = sdx.reshape %x : !sdx.tensor<[b, 6], f32> -> !sdx.tensor<[b, 1, 6], f32>
  return %0, %1 : !sdx.tensor<[b, 2, 3], f32>, !sdx.tensor<[b, 1, 6], f32>
}

// -----

// Where the operand ends, nothing is read.

// CHECK-LABEL: func.func @pad
// CHECK: flow.kernel outer ["b + 3"]
// CHECK-NEXT: %[[I:.*]] = flow.index "%0 - 1"
// CHECK-NEXT: %[[LO:.*]] = flow.index "0"
// CHECK-NEXT: %[[ABOVE:.*]] = flow.apply "le"(%[[LO]], %[[I]])
// CHECK-NEXT: %[[HI:.*]] = flow.index "b"
// CHECK-NEXT: %[[BELOW:.*]] = flow.apply "lt"(%[[I]], %[[HI]])
// CHECK-NEXT: %[[IN:.*]] = flow.apply "and"(%[[ABOVE]], %[[BELOW]])
// CHECK-NEXT: %[[X:.*]] = flow.load 0 ["%0 - 1"] if %[[IN]]
// CHECK-NEXT: %[[V:.*]] = flow.load 1 [] : f32
// CHECK-NEXT: flow.apply "select"(%[[IN]], %[[X]], %[[V]])
func.func @pad(%x: !sdx.tensor<[b], f32>, %v: !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 3], f32> {
  %0 = sdx.pad %x with %v low ["1"] : (!sdx.tensor<[b], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 3], f32>
  return %0 : !sdx.tensor<[b + 3], f32>
}

// -----

// Windows are places in the operand.

// CHECK-LABEL: func.func @window
// CHECK: flow.kernel outer ["b", "3", "3", "2"]
// CHECK-NEXT: flow.load 0 ["%0", "2*%1 + 3*%3", "%2"] : f32
func.func @window(%x: !sdx.tensor<[b, 8, 3], f32>) -> !sdx.tensor<[b, 3, 3, 2], f32> {
  %0 = sdx.window %x axis 1 size "2" stride 2 dilation 3 : !sdx.tensor<[b, 8, 3], f32> -> !sdx.tensor<[b, 3, 3, 2], f32>
  return %0 : !sdx.tensor<[b, 3, 3, 2], f32>
}

// -----

// CHECK-LABEL: func.func @concat
// CHECK: flow.kernel outer ["a + b + 2"]
// CHECK: %[[A:.*]] = flow.load 0 ["%0"] if %[[INA:.*]] : f32
// CHECK: %[[B:.*]] = flow.load 1 ["%0 - a"] if %[[INB:.*]] : f32
// CHECK: %[[C:.*]] = flow.load 2 ["%0 - a - b"] if %{{.*}} : f32
// CHECK-NEXT: %[[BC:.*]] = flow.apply "select"(%[[INB]], %[[B]], %[[C]])
// CHECK-NEXT: %[[ABC:.*]] = flow.apply "select"(%[[INA]], %[[A]], %[[BC]])
// CHECK-NEXT: flow.store %[[ABC]]
func.func @concat(%x: !sdx.tensor<[a], f32>, %y: !sdx.tensor<[b], f32>, %z: !sdx.tensor<[2], f32>) -> !sdx.tensor<[a + b + 2], f32> {
  %0 = sdx.concat (%x, %y, %z) axis 0 : (!sdx.tensor<[a], f32>, !sdx.tensor<[b], f32>, !sdx.tensor<[2], f32>) -> !sdx.tensor<[a + b + 2], f32>
  return %0 : !sdx.tensor<[a + b + 2], f32>
}

// -----

// CHECK-LABEL: func.func @iota
// CHECK: flow.kernel outer ["b", "s"] inner []()
// CHECK-NEXT: %[[I:.*]] = flow.index "%1" : i64
// CHECK-NEXT: flow.store %[[I]] to 0 ["%0", "%1"]
func.func @iota() -> !sdx.tensor<[b, s], i64> {
  %0 = sdx.iota axis 1 : !sdx.tensor<[b, s], i64>
  return %0 : !sdx.tensor<[b, s], i64>
}

// -----

// CHECK-LABEL: func.func @dims
// CHECK: flow.kernel outer ["2"]
// CHECK-NEXT: %[[I:.*]] = flow.index "%0"
// CHECK-NEXT: %[[LAST:.*]] = flow.index "s"
// CHECK-NEXT: %[[ZERO:.*]] = flow.index "0"
// CHECK-NEXT: %[[HERE:.*]] = flow.apply "eq"(%[[I]], %[[ZERO]])
// CHECK-NEXT: %[[FIRST:.*]] = flow.index "2*b"
// CHECK-NEXT: flow.apply "select"(%[[HERE]], %[[FIRST]], %[[LAST]])
func.func @dims() -> !sdx.tensor<[2], i64> {
  %0 = sdx.dims ["2*b", "s"] : !sdx.tensor<[2], i64>
  return %0 : !sdx.tensor<[2], i64>
}

// -----

// No symbols are an empty constant.

// CHECK-LABEL: func.func @no_dims
// CHECK: flow.const dense<> : tensor<0xi64>
func.func @no_dims() -> !sdx.tensor<[0], i64> {
  %0 = sdx.dims [] : !sdx.tensor<[0], i64>
  return %0 : !sdx.tensor<[0], i64>
}

// -----

// A value that is the same everywhere is no container: its statements are copied to where they are used.

// CHECK-LABEL: func.func @scalars
// CHECK-NOT: flow.const
// CHECK: flow.kernel outer ["b"]
// CHECK-NEXT: %[[X:.*]] = flow.load 0 ["%0"]
// CHECK-NEXT: %[[N:.*]] = flow.index "2*b"
// CHECK-NEXT: %[[F:.*]] = flow.convert %[[N]] : i64 -> f32
// CHECK-NEXT: %[[E:.*]] = flow.scalar 5.000000e-01 : f32
// CHECK-NEXT: %[[S:.*]] = flow.apply "add"(%[[F]], %[[E]])
// CHECK-NEXT: flow.apply "div"(%[[X]], %[[S]])
func.func @scalars(%x: !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32> {
  %n = sdx.dims ["2*b"] : !sdx.tensor<[1], i64>
  %r = sdx.reshape %n : !sdx.tensor<[1], i64> -> !sdx.tensor<[], i64>
  %f = sdx.convert %r : !sdx.tensor<[], i64> -> !sdx.tensor<[], f32>
  %e = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %s = sdx.map "add"(%f, %e) : (!sdx.tensor<[], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[], f32>
  %w = sdx.broadcast %s to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[b], f32>
  %0 = sdx.map "div"(%x, %w) : (!sdx.tensor<[b], f32>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return %0 : !sdx.tensor<[b], f32>
}

// -----

// A constant whose elements differ is a container, and so is an integer that f64 does not hold.

// CHECK-LABEL: func.func @constants
// CHECK: flow.const dense<[1.000000e+00, 2.000000e+00]>
// CHECK: flow.const dense<9007199254740993>
// CHECK: flow.const dense<-9007199254740993>
// CHECK: flow.param "w" : <[3], f32, row_major>
// CHECK: flow.scalar 0x433FFFFFFFFFFFFF : i64
!i = !sdx.tensor<[], i64>
func.func @constants() -> (!sdx.tensor<[2], f32>, !i, !i, !sdx.tensor<[3], f32>, !i) {
  %0 = sdx.const dense<[1.0, 2.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %1 = sdx.const dense<9007199254740993> : tensor<i64> : !sdx.tensor<[], i64>
  %2 = sdx.const dense<-9007199254740993> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.param "w" : !sdx.tensor<[3], f32>
  %4 = sdx.const dense<9007199254740991> : tensor<i64> : !sdx.tensor<[], i64>
  return %0, %1, %2, %3, %4 : !sdx.tensor<[2], f32>, !i, !i, !sdx.tensor<[3], f32>, !i
}

// -----

// An output that is the same everywhere is written out; a reduction of such a value reads what was written.

// CHECK-LABEL: func.func @written
// CHECK: %[[C:.*]] = flow.kernel outer ["b"] inner []()
// CHECK-NEXT: %[[V:.*]] = flow.scalar 2.000000e+00
// CHECK-NEXT: flow.store %[[V]] to 0 ["%0"]
// CHECK: flow.kernel outer [] inner ["b"](%[[C]])
// CHECK-NEXT: flow.load 0 ["%0"]
// CHECK-NEXT: flow.reduce "add"
func.func @written() -> (!sdx.tensor<[], f32>, !sdx.tensor<[b], f32>) {
  %c = sdx.const dense<2.0> : tensor<f32> : !sdx.tensor<[], f32>
  %w = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[b], f32>
  %0 = sdx.reduce "add" %w axes [0] : !sdx.tensor<[b], f32> -> !sdx.tensor<[], f32>
  return %0, %w : !sdx.tensor<[], f32>, !sdx.tensor<[b], f32>
}

// -----

// A data-dependent symbol is bound before what mentions it.

// CHECK-LABEL: func.func @bind
// CHECK-SAME: (%[[N:.*]]: !flow.container<[], i64, row_major>
// CHECK: flow.bind "n" = %[[N]]
// CHECK-NEXT: flow.kernel outer ["n"]
func.func @bind(%v: !sdx.tensor<[], i64>) -> !sdx.tensor<[n], i64> attributes {sdx.symbols = ["data n 0.."]} {
  %0 = sdx.bind "n" = %v : !sdx.tensor<[], i64> -> !sdx.tensor<[], i64>
  %1 = sdx.iota axis 0 : !sdx.tensor<[n], i64>
  return %1 : !sdx.tensor<[n], i64>
}

// -----

// What nothing needs is no kernel.

// CHECK-LABEL: func.func @dead
// CHECK-NEXT: return
func.func @dead(%x: !sdx.tensor<[b], f32>) {
  %0 = sdx.map "exp"(%x) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// A state is one memory with room for more: a kernel writes the past and what is behind it, but for positions that a
// call in place keeps. A view needs the elements close together.

// CHECK-LABEL: func.func @append
// CHECK-SAME: %[[PAST:[a-z0-9]+]]: !flow.container<[b, past, 4], f32, "capacity<1, capacity_in>">
// CHECK-SAME: -> (!flow.container<[b, past + s, 4], f32, "capacity<1, capacity_out>">,
// CHECK-SAME: sdx.states = ["0 0 kept"]
// CHECK-SAME: sdx.symbols = ["capacity capacity_in 0..", "capacity capacity_out 0..", "kept kept 0.."]
// CHECK: %[[ALL:.*]] = flow.kernel outer ["b", "-kept + past + s", "4"] inner [](%[[PAST]], %{{.*}}) : {{.*}} -> !flow.container<[b, past + s, 4], f32, "capacity<1, capacity_out>">
// CHECK: flow.index "%1 + kept"
// CHECK: %[[OLD:.*]] = flow.load 0 ["%0", "%1 + kept", "%2"] if %[[IS_OLD:.*]] : f32
// CHECK: %[[NEW:.*]] = flow.load 1 ["%0", "%1 + kept - past", "%2"] if %{{.*}} : f32
// CHECK: %[[V:.*]] = flow.apply "select"(%[[IS_OLD]], %[[OLD]], %[[NEW]])
// CHECK-NEXT: flow.store %[[V]] to 0 ["%0", "%1 + kept", "%2"]
// CHECK: %[[DENSE:.*]] = flow.kernel outer ["b", "past + s", "4"] inner [](%[[ALL]]) : {{.*}} -> !flow.container<[b, past + s, 4], f32, row_major>
// CHECK: %[[VIEW:.*]] = flow.view %[[DENSE]] : <[b, past + s, 4], f32, row_major> -> <[b, 4*past + 4*s], f32, row_major>
// CHECK: return %[[ALL]], %[[VIEW]]
func.func @append(%past: !sdx.tensor<[b, past, 4], f32>, %x: !sdx.tensor<[b, s, 4], f32>) -> (!sdx.tensor<[b, past + s, 4], f32>, !sdx.tensor<[b, 4*past + 4*s], f32>) {
  %0 = sdx.append %past, %x axis 1 : (!sdx.tensor<[b, past, 4], f32>, !sdx.tensor<[b, s, 4], f32>) -> !sdx.tensor<[b, past + s, 4], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[b, past + s, 4], f32> -> !sdx.tensor<[b, 4*past + 4*s], f32>
  return %0, %1 : !sdx.tensor<[b, past + s, 4], f32>, !sdx.tensor<[b, 4*past + 4*s], f32>
}

// -----

// States of one size have one capacity, others have others; the model's own names are not taken. All functions of a
// module are asked for these: entry points share what capacities are called.

// CHECK-LABEL: func.func @other
// CHECK-LABEL: func.func @capacities
// CHECK-SAME: %{{[a-z0-9]+}}: !flow.container<[p, capacity2_in], f32, "capacity<0, capacity1_in>">
// CHECK-SAME: %{{[a-z0-9]+}}: !flow.container<[p], f32, "capacity<0, capacity1_in>">
// CHECK-SAME: %{{[a-z0-9]+}}: !flow.container<[q], f32, "capacity<0, capacity3_in>">
// CHECK-SAME: -> (!flow.container<[p + s, capacity2_in], f32, "capacity<0, capacity1_out>">, !flow.container<[p + s], f32, "capacity<0, capacity1_out>">, !flow.container<[q + s], f32, "capacity<0, capacity3_out>">)
func.func @other(%x: !sdx.tensor<[capacity_out], f32>) -> !sdx.tensor<[capacity_out], f32> {
  return %x : !sdx.tensor<[capacity_out], f32>
}
func.func @capacities(%k: !sdx.tensor<[p, capacity2_in], f32>, %l: !sdx.tensor<[p], f32>, %m: !sdx.tensor<[q], f32>, %x: !sdx.tensor<[s, capacity2_in], f32>, %y: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s, capacity2_in], f32>, !sdx.tensor<[p + s], f32>, !sdx.tensor<[q + s], f32>) {
  %0 = sdx.append %k, %x axis 0 : (!sdx.tensor<[p, capacity2_in], f32>, !sdx.tensor<[s, capacity2_in], f32>) -> !sdx.tensor<[p + s, capacity2_in], f32>
  %1 = sdx.append %l, %y axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  %2 = sdx.append %m, %y axis 0 : (!sdx.tensor<[q], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[q + s], f32>
  return %0, %1, %2 : !sdx.tensor<[p + s, capacity2_in], f32>, !sdx.tensor<[p + s], f32>, !sdx.tensor<[q + s], f32>
}

// -----

// What is always empty has nothing that could be kept.

// CHECK-LABEL: func.func @empty
// CHECK-SAME: sdx.states = ["1 0"]
// CHECK-SAME: sdx.symbols = ["capacity capacity_in 0..", "capacity capacity_out 0.."]
// CHECK: flow.kernel outer ["s"] inner [](%arg0) : {{.*}} -> !flow.container<[s], f32, "capacity<0, capacity_out>">
// CHECK-NEXT: flow.load 0 ["%0"]
// CHECK-NEXT: flow.store %{{.*}} to 0 ["%0"]
func.func @empty(%x: !sdx.tensor<[s], f32>, %past: !sdx.tensor<[0], f32>) -> !sdx.tensor<[s], f32> {
  %0 = sdx.append %past, %x axis 0 : (!sdx.tensor<[0], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[s], f32>
  return %0 : !sdx.tensor<[s], f32>
}

// -----

// An append that is no state is a concat.

// CHECK-LABEL: func.func @no_state
// CHECK-NOT: {{capacity|kept|states}}
// CHECK: flow.kernel outer ["p + s"] inner []
// CHECK: flow.load 0 ["%0"] if
// CHECK: flow.load 1 ["%0 - p"] if
func.func @no_state(%past: !sdx.tensor<[p], f32>, %x: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s], f32>, !sdx.tensor<[p], f32>) {
  %0 = sdx.append %past, %x axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  return %0, %past : !sdx.tensor<[p + s], f32>, !sdx.tensor<[p], f32>
}

// -----

// Interleaved images that a function of elements reads are not stored: it finds each element by its index.

// CHECK-LABEL: func.func @interleaved
// CHECK-NOT: flow.view
// CHECK: flow.load 0 ["%0", "%1", "((%2) floordiv (2))", "%2 - 2*((%2) floordiv (2))"]
func.func @interleaved(%x: !sdx.tensor<[b, s, 2, 4], f32>) -> !sdx.tensor<[b, 4, 2*s], f32> {
  %0 = sdx.transpose %x [0, 3, 1, 2] : <[b, s, 2, 4], f32> -> <[b, 4, s, 2], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[b, 4, s, 2], f32> -> !sdx.tensor<[b, 4, 2*s], f32>
  %2 = sdx.map "neg"(%1) : (!sdx.tensor<[b, 4, 2*s], f32>) -> !sdx.tensor<[b, 4, 2*s], f32>
  return %2 : !sdx.tensor<[b, 4, 2*s], f32>
}

// -----

// They are stored for any other reader, and where vectors can run along the innermost axis.

// CHECK-LABEL: func.func @interleaved_for_others
// CHECK: flow.view
// CHECK: flow.view
func.func @interleaved_for_others(%x: !sdx.tensor<[b, s, 2, 4], f32>, %y: !sdx.tensor<[b, s, 16, 4], f32>) -> (!sdx.tensor<[b, 4, 2*s], f32>, !sdx.tensor<[b, 4, 16*s], f32>) {
  %0 = sdx.transpose %x [0, 3, 1, 2] : <[b, s, 2, 4], f32> -> <[b, 4, s, 2], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[b, 4, s, 2], f32> -> !sdx.tensor<[b, 4, 2*s], f32>
  %2 = sdx.transpose %y [0, 3, 1, 2] : <[b, s, 16, 4], f32> -> <[b, 4, s, 16], f32>
  %3 = sdx.reshape %2 : !sdx.tensor<[b, 4, s, 16], f32> -> !sdx.tensor<[b, 4, 16*s], f32>
  %4 = sdx.map "neg"(%3) : (!sdx.tensor<[b, 4, 16*s], f32>) -> !sdx.tensor<[b, 4, 16*s], f32>
  return %1, %4 : !sdx.tensor<[b, 4, 2*s], f32>, !sdx.tensor<[b, 4, 16*s], f32>
}

// -----

// Heads that are repeated for a contraction's sake are looked up where they stand once; a reader of another kind would
// divide at every element, and gets them written out.

// CHECK-LABEL: func.func @shared_heads
// CHECK: flow.kernel outer ["b", "8", "t", "4"]
// CHECK-NEXT: flow.load 0 ["%0", "((%1) floordiv (4))", "%1 - 4*((%1) floordiv (4))", "%2", "%3"]
// CHECK-NOT: flow.view
// CHECK: flow.reduce
func.func @shared_heads(%q: !sdx.tensor<[b, 8, s, 4], f32>, %k: !sdx.tensor<[b, 2, 1, t, 4], f32>) -> !sdx.tensor<[b, 8, s, t], f32> {
  %0 = sdx.broadcast %k to [0, 1, 2, 3, 4] : !sdx.tensor<[b, 2, 1, t, 4], f32> -> !sdx.tensor<[b, 2, 4, t, 4], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[b, 2, 4, t, 4], f32> -> !sdx.tensor<[b, 8, t, 4], f32>
  %2 = sdx.contract "bhsd,bhtd->bhst"(%q, %1) : (!sdx.tensor<[b, 8, s, 4], f32>, !sdx.tensor<[b, 8, t, 4], f32>) -> !sdx.tensor<[b, 8, s, t], f32>
  return %2 : !sdx.tensor<[b, 8, s, t], f32>
}

// -----

// CHECK-LABEL: func.func @shared_heads_read_otherwise
// CHECK: flow.view
func.func @shared_heads_read_otherwise(%k: !sdx.tensor<[b, 2, 1, t], f32>) -> !sdx.tensor<[b, 8, t], f32> {
  %0 = sdx.broadcast %k to [0, 1, 2, 3] : !sdx.tensor<[b, 2, 1, t], f32> -> !sdx.tensor<[b, 2, 4, t], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[b, 2, 4, t], f32> -> !sdx.tensor<[b, 8, t], f32>
  %2 = sdx.map "neg"(%1) : (!sdx.tensor<[b, 8, t], f32>) -> !sdx.tensor<[b, 8, t], f32>
  return %2 : !sdx.tensor<[b, 8, t], f32>
}

// -----

// One that a contraction and somebody else read; and one that is not repeated.

// CHECK-LABEL: func.func @shared_heads_also_given_back
// CHECK: flow.view
// CHECK: flow.view
func.func @shared_heads_also_given_back(%k: !sdx.tensor<[2, 1, t], f32>, %l: !sdx.tensor<[2, 4, t], f32>) -> (!sdx.tensor<[8, t], f32>, !sdx.tensor<[8, t], f32>) {
  %0 = sdx.broadcast %k to [0, 1, 2] : !sdx.tensor<[2, 1, t], f32> -> !sdx.tensor<[2, 4, t], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[2, 4, t], f32> -> !sdx.tensor<[8, t], f32>
  %2 = sdx.reshape %l : !sdx.tensor<[2, 4, t], f32> -> !sdx.tensor<[8, t], f32>
  %3 = sdx.contract "ht,ht->ht"(%1, %2) : (!sdx.tensor<[8, t], f32>, !sdx.tensor<[8, t], f32>) -> !sdx.tensor<[8, t], f32>
  return %1, %3 : !sdx.tensor<[8, t], f32>, !sdx.tensor<[8, t], f32>
}

// -----

!x = !sdx.tensor<[b, s, 8], f32>

// Parameters one behind the other are one container, made when the artifact is written. The parts of a value are read
// where they lie, also under other dimensions: no view of a part is needed.

// CHECK-LABEL: func.func @joined
// CHECK: flow.param "q" and ["k"] axis 1 : <[8, 20], f32, row_major>
// CHECK: flow.load 0 ["%0", "%1", "%2 + 12"] : f32
// CHECK: flow.load 0 ["%0", "%1", "4*%2 + %3"] : f32
// CHECK-NOT: flow.view
func.func @joined(%x: !x) -> !sdx.tensor<[b, s, 2, 4], f32> {
  %q = sdx.param "q" : !sdx.tensor<[8, 12], f32>
  %k = sdx.param "k" : !sdx.tensor<[8, 8], f32>
  %w = sdx.concat(%q, %k) axis 1 : (!sdx.tensor<[8, 12], f32>, !sdx.tensor<[8, 8], f32>) -> !sdx.tensor<[8, 20], f32>
  %0 = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[8, 20], f32>) -> !sdx.tensor<[b, s, 20], f32>
  %1 = sdx.slice %0 from ["0", "0", "12"] step [1, 1, 1] : !sdx.tensor<[b, s, 20], f32> -> !x
  %2 = sdx.reshape %1 : !x -> !sdx.tensor<[b, s, 2, 4], f32>
  return %2 : !sdx.tensor<[b, s, 2, 4], f32>
}

// -----

// With anything else among them they are put together by a kernel.

// CHECK-LABEL: func.func @joined_with_an_input
// CHECK: flow.param "q" :
// CHECK: flow.kernel
func.func @joined_with_an_input(%x: !sdx.tensor<[4], f32>) -> !sdx.tensor<[7], f32> {
  %q = sdx.param "q" : !sdx.tensor<[3], f32>
  %0 = sdx.concat(%q, %x) axis 0 : (!sdx.tensor<[3], f32>, !sdx.tensor<[4], f32>) -> !sdx.tensor<[7], f32>
  return %0 : !sdx.tensor<[7], f32>
}

// -----

// The results of one run are one step; what they are read with comes after it.

// CHECK-LABEL: func.func @host
// CHECK: %[[H:.*]]:2 = flow.host "Unique sorted=1"(%{{.*}}) results [0, 2] binds ["0 0 n"] calls [] : (!flow.container<[b], f32, row_major>) -> (!flow.container<[n], i64, row_major>, !flow.container<[n], i64, row_major>)
// CHECK: flow.kernel outer ["n"] inner [](%[[H]]#0, %{{.*}}) :
// CHECK: return %{{.*}}, %[[H]]#1
func.func @host(%x: !sdx.tensor<[b], f32>) -> (!sdx.tensor<[n], f32>, !sdx.tensor<[n], i64>) attributes {sdx.symbols = ["data n 0.."]} {
  %0 = sdx.host "Unique sorted=1"(%x) result 0 of 0 binds ["0 n"] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
  %1 = sdx.gather %x[%0] axis 0 : (!sdx.tensor<[b], f32>, !sdx.tensor<[n], i64>) -> !sdx.tensor<[n], f32>
  %2 = sdx.host "Unique sorted=1"(%x) result 2 of 0 binds [] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
  return %1, %2 : !sdx.tensor<[n], f32>, !sdx.tensor<[n], i64>
}

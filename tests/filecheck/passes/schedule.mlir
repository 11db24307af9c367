// RUN: sardonyx-opt %s --split-input-file --print-locations --pass-pipeline='builtin.module(sdx-to-flow,schedule)' | FileCheck %s

!x = !sdx.tensor<[b, 4], f32>

// Kernels become code and launches; what one writes and another reads is in the arena, an output is written in place.

// CHECK: plan.kernel @k0
// CHECK: ^bb0(%{{.*}}: !flow.container<[b, 4], f32, row_major>
// CHECK: flow.apply "exp"
// CHECK: plan.kernel @k1
// CHECK: flow.reduce "add"
// CHECK: plan.entry @main symbols ["input b 1..8"] checks ["2*h == b : /Split"] arena ""
// CHECK: %[[X:.*]] = plan.input "x" !flow.container<[b, 4], f32, row_major>
// CHECK: %[[Y:.*]] = plan.output "y" !flow.container<[b], f32, row_major>
// CHECK: %[[T:.*]] = plan.arena "16*b" : !plan.buffer
// CHECK: plan.launch @k0(%[[X]], %[[T]]) grid {{.*}} params ["4*b"] loc([[EXP:#.*]])
// CHECK: plan.launch @k1(%[[T]], %[[Y]]) grid {{.*}} params ["b"] loc([[SUM:#.*]])
// CHECK-NOT: plan.copy
// CHECK-DAG: [[EXP]] = loc("/a/Exp")
// CHECK-DAG: [[SUM]] = loc("/a/ReduceSum")
func.func @main(%x: !x {sdx.name = "x"}) -> !sdx.tensor<[b], f32> attributes {
    sdx.symbols = ["input b 1..8"], sdx.checks = ["2*h == b : /Split"], sdx.results = ["y"]} {
  %0 = sdx.map "exp"(%x) : (!x) -> !x loc("/a/Exp")
  %1 = sdx.reduce "add" %0 axes [1] : !x -> !sdx.tensor<[b], f32> loc("/a/ReduceSum")
  return %1 : !sdx.tensor<[b], f32>
}

// -----

!x = !sdx.tensor<[b, 4], f32>
!y = !sdx.tensor<[c, 4], f32>

// Equal kernels are one, also where their symbols have other names: those are parameters.

// CHECK: plan.kernel @k0
// CHECK-NOT: plan.kernel
// CHECK: plan.entry
// CHECK: plan.launch @k0({{.*}}) grid {{.*}} params ["4*b"]
// CHECK: plan.launch @k0({{.*}}) grid {{.*}} params ["4*c"]
func.func @equal(%x: !x, %y: !y) -> (!x, !y) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "exp"(%y) : (!y) -> !y
  return %0, %1 : !x, !y
}

// -----

!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4], f32>

// An output that is an input, a constant or another output is copied.

// CHECK: plan.entry @copies
// CHECK: %[[X:.*]] = plan.input "arg0"
// CHECK: %[[Y0:.*]] = plan.output "result0"
// CHECK: %[[Y1:.*]] = plan.output "result1"
// CHECK: %[[Y2:.*]] = plan.output "result2"
// CHECK: %[[Y3:.*]] = plan.output "result3"
// CHECK: %[[W:.*]] = plan.param "w"
// CHECK: plan.launch @k0(%[[X]], %[[Y2]])
// CHECK: plan.copy %[[X]] to %[[Y0]]
// CHECK: plan.copy %[[W]] to %[[Y1]]
// CHECK: plan.copy %[[Y2]] to %[[Y3]]
func.func @copies(%x: !x) -> (!x, !w, !x, !x) {
  %w = sdx.param "w" : !w
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  return %x, %w, %0, %0 : !x, !w, !x, !x
}

// -----

!x = !sdx.tensor<[b, 4], f32>
!f = !sdx.tensor<[4*b], f32>

// A view has the memory of what it looks at.

// CHECK: plan.entry @view
// CHECK: %[[X:.*]] = plan.input
// CHECK: plan.launch @k0(%[[X]],
// CHECK-NOT: plan.copy
func.func @view(%x: !x) -> !f {
  %0 = sdx.reshape %x : !x -> !f
  %1 = sdx.map "exp"(%0) : (!f) -> !f
  return %1 : !f
}

// -----

// Entry points share the kernels that are alike. A state is an input that goes on as an output: one launch carries over what is not
// kept and writes what is new. Where the past is always empty, it is a copy.

// CHECK: plan.kernel @k0
// CHECK: flow.kernel outer ["-kept + past + s", "4"]
// CHECK: flow.store %{{.*}} to 0 ["%0 + kept", "%1"]
// CHECK: plan.kernel @k1
// CHECK: flow.kernel outer ["s", "4"]
// CHECK: plan.kernel @k2
// CHECK: flow.kernel outer ["-kept + past + 1", "4"]
// CHECK-NOT: plan.kernel
// CHECK: plan.entry @main {{.*}} states ["0 1 kept"] {
// CHECK: %[[PAST:.*]] = plan.input "arg0" !flow.container<[past, 4], f32, "capacity<0, capacity_in>">
// CHECK: %[[X:.*]] = plan.input "arg1"
// CHECK: %[[Y:.*]] = plan.output "result0"
// CHECK: %[[ALL:.*]] = plan.output "result1" !flow.container<[past + s, 4], f32, "capacity<0, capacity_out>">
// CHECK: plan.launch @k0(%[[PAST]], %[[X]], %[[ALL]]) {{.*}}params {{.*}}kept
// CHECK: plan.copy %[[X]] to %[[Y]]
// CHECK: plan.entry @prefill {{.*}} states ["0 1"] {
// CHECK: plan.launch @k1({{.*}} params ["4*s"]
// CHECK-NOT: plan.launch
// CHECK: plan.entry @decode {{.*}} states ["0 1 kept"] {
// CHECK: plan.launch @k2(
func.func @main(%past: !sdx.tensor<[past, 4], f32>, %x: !sdx.tensor<[s, 4], f32>) -> (!sdx.tensor<[s, 4], f32>, !sdx.tensor<[past + s, 4], f32>) {
  %0 = sdx.append %past, %x axis 0 : (!sdx.tensor<[past, 4], f32>, !sdx.tensor<[s, 4], f32>) -> !sdx.tensor<[past + s, 4], f32>
  return %x, %0 : !sdx.tensor<[s, 4], f32>, !sdx.tensor<[past + s, 4], f32>
}
func.func @prefill(%past: !sdx.tensor<[0, 4], f32>, %x: !sdx.tensor<[s, 4], f32>) -> (!sdx.tensor<[s, 4], f32>, !sdx.tensor<[s, 4], f32>) {
  %0 = sdx.append %past, %x axis 0 : (!sdx.tensor<[0, 4], f32>, !sdx.tensor<[s, 4], f32>) -> !sdx.tensor<[s, 4], f32>
  return %x, %0 : !sdx.tensor<[s, 4], f32>, !sdx.tensor<[s, 4], f32>
}
func.func @decode(%past: !sdx.tensor<[past, 4], f32>, %x: !sdx.tensor<[1, 4], f32>) -> (!sdx.tensor<[1, 4], f32>, !sdx.tensor<[past + 1, 4], f32>) {
  %0 = sdx.append %past, %x axis 0 : (!sdx.tensor<[past, 4], f32>, !sdx.tensor<[1, 4], f32>) -> !sdx.tensor<[past + 1, 4], f32>
  return %x, %0 : !sdx.tensor<[1, 4], f32>, !sdx.tensor<[past + 1, 4], f32>
}

// -----

// A symbol gets its value as soon as it can, and before what has its size.

// CHECK-LABEL: plan.entry @bound
// CHECK: plan.launch @{{.*}}(%[[V:.*]], %[[SUM:.*]]) grid "1"
// CHECK: plan.bind "n" = %[[SUM]]
// CHECK: plan.launch @{{.*}} grid "((n + 4095) floordiv (4096))" params ["n"]
func.func @bound(%v: !flow.container<[2], i64, row_major>) -> !flow.container<[n], i64, row_major> attributes {sdx.symbols = ["data n 0.."]} {
  %0 = flow.kernel outer [] inner ["2"] (%v) : (!flow.container<[2], i64, row_major>) -> !flow.container<[], i64, row_major> {
    %2 = flow.load 0 ["%0"] : i64
    %3 = flow.reduce "add" %2 : i64 -> i64
    flow.store %3 to 0 [] : i64
  }
  flow.bind "n" = %0 : !flow.container<[], i64, row_major>
  %1 = flow.kernel outer ["n"] inner [] () : () -> !flow.container<[n], i64, row_major> {
    %2 = flow.index "%0" : i64
    flow.store %2 to 0 ["%0"] : i64
  }
  return %1 : !flow.container<[n], i64, row_major>
}

// -----

// What the host gives has memory of its own; an output of it is a copy.

// CHECK-LABEL: plan.entry @host
// CHECK: %[[X:.*]] = plan.input "arg0"
// CHECK: %[[Y:.*]] = plan.output "result0"
// CHECK: %[[V:.*]] = plan.value !flow.container<[1, n], i64, row_major> : !plan.buffer
// CHECK: plan.host "NonZero"(%[[X]], %[[V]]) of [!flow.container<[b], f32, row_major>] results [0] binds ["0 1 n"] calls []
// CHECK: plan.copy %[[V]] to %[[Y]]
func.func @host(%x: !flow.container<[b], f32, row_major>) -> !flow.container<[1, n], i64, row_major> attributes {sdx.symbols = ["data n 0.."]} {
  %0 = flow.host "NonZero"(%x) results [0] binds ["0 1 n"] calls [] : (!flow.container<[b], f32, row_major>) -> !flow.container<[1, n], i64, row_major>
  return %0 : !flow.container<[1, n], i64, row_major>
}

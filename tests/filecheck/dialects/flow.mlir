// RUN: sardonyx-opt %s | FileCheck %s
// RUN: sardonyx-opt %s | sardonyx-opt - | FileCheck %s

// Each operation of the flow level in its own spelling. Where an operation can have types of one kind only, MLIR leaves
// out their name.

!row = !flow.container<[b], f32, row_major>
!points = !flow.container<[b, s], f32, row_major>
!ids = !flow.container<[b], i64, row_major>

// CHECK-LABEL: func.func @containers
// CHECK: flow.param "w" : <[3, 40], f32, row_major>
// CHECK: flow.param "w" window [0, 1, 3] : <[40, 3], f32, panels16>
// CHECK: flow.param "q" and ["k", "v"] axis 1 window [0, 9, 1] : <[3, 9], f32, panels16>
// CHECK: flow.const dense<[1, 2]> : tensor<2xi64> : <[2], i64, row_major>
// CHECK: flow.view %{{.*}} : <[b, s], f32, row_major> -> <[b*s], f32, row_major>
// CHECK: flow.bind "n" = %{{.*}} : <[b], i64, row_major>
func.func @containers(%x: !points, %n: !ids) {
  %0 = flow.param "w" : !flow.container<[3, 40], f32, row_major>
  %1 = flow.param "w" window [0, 1, 3] : !flow.container<[40, 3], f32, panels16>
  %j = flow.param "q" and ["k", "v"] axis 1 window [0, 9, 1] : !flow.container<[3, 9], f32, panels16>
  %2 = flow.const dense<[1, 2]> : tensor<2xi64> : !flow.container<[2], i64, row_major>
  %3 = flow.view %x : !points -> !flow.container<[b*s], f32, row_major>
  flow.bind "n" = %n : !ids
  return
}

// CHECK-LABEL: func.func @kernel
// CHECK: flow.kernel outer ["b"] inner ["s"](%{{.*}}, %{{.*}}) : (
// CHECK-NEXT: %[[AT:.*]] = flow.load 1 ["%0"] : i64
// CHECK-NEXT: %[[LO:.*]] = flow.index "0" : i64
// CHECK-NEXT: %[[IN:.*]] = flow.apply "le"(%[[LO]], %[[AT]]) : (i64, i64) -> i1
// CHECK-NEXT: %[[X:.*]] = flow.load 0 ["$0", "%1"] if %[[IN]] : f32
// CHECK-NEXT: %[[C:.*]] = flow.scalar 5.000000e-01 : f16
// CHECK-NEXT: %[[D:.*]] = flow.convert %[[C]] : f16 -> f32
// CHECK-NEXT: %[[Y:.*]] = flow.apply "mul"(%[[X]], %[[D]]) : (f32, f32) -> f32
// CHECK-NEXT: %[[S:.*]] = flow.reduce "add" %[[Y]] : f32 -> f32
// CHECK-NEXT: flow.store %[[S]] to 0 ["%0"] : f32
// CHECK-NEXT: flow.store %[[Y]] to 1 ["%0", "%1"] : f32
func.func @kernel(%x: !points, %n: !ids) -> (!row, !points) {
  %0:2 = flow.kernel outer ["b"] inner ["s"] (%x, %n) : (!points, !ids) -> (!row, !points) {
    %at = flow.load 1 ["%0"] : i64
    %lo = flow.index "0" : i64
    %in = flow.apply "le"(%lo, %at) : (i64, i64) -> i1
    %v = flow.load 0 ["$0", "%1"] if %in : f32
    %c = flow.scalar 0.5 : f16
    %d = flow.convert %c : f16 -> f32
    %y = flow.apply "mul"(%v, %d) : (f32, f32) -> f32
    %s = flow.reduce "add" %y : f32 -> f32
    flow.store %s to 0 ["%0"] : f32
    flow.store %y to 1 ["%0", "%1"] : f32
  }
  return %0#0, %0#1 : !row, !points
}

// A state: room for more than is there, and a kernel that writes what is not kept.

!past = !flow.container<[b, past, 4], f32, "capacity<1, room>">
!grown = !flow.container<[b, past + s, 4], f32, "capacity<1, room>">

// CHECK-LABEL: func.func @state
// CHECK-SAME: !flow.container<[b, past, 4], f32, "capacity<1, room>">
// CHECK-SAME: sdx.states = ["0 0 kept"]
// CHECK-SAME: sdx.symbols = ["capacity room 0..", "kept kept 0.."]
// CHECK: flow.kernel outer ["b", "past + s - kept", "4"] inner [](%{{.*}}) : (!flow.container<[b, s, 4], f32, row_major>) -> !flow.container<[b, past + s, 4], f32, "capacity<1, room>"> {
// CHECK: flow.store %{{.*}} to 0 ["%0", "kept + %1", "%2"]
func.func @state(%past: !past, %x: !flow.container<[b, s, 4], f32, row_major>) -> !grown attributes {sdx.states = ["0 0 kept"], sdx.symbols = ["capacity room 0..", "kept kept 0.."]} {
  %0 = flow.kernel outer ["b", "past + s - kept", "4"] inner [] (%x) : (!flow.container<[b, s, 4], f32, row_major>) -> !grown {
    %v = flow.load 0 ["%0", "%1", "%2"] : f32
    flow.store %v to 0 ["%0", "kept + %1", "%2"] : f32
  }
  return %0 : !grown
}

// A sum at each inner point, and a reduction of the sums.
// CHECK-LABEL: func.func @deep
// CHECK: flow.kernel outer ["b"] inner ["s"] deep ["4"](%{{.*}}, %{{.*}}) : (
// CHECK: flow.load 1 ["%1", "%2"] : f32
func.func @deep(%q: !flow.container<[b, 4], f32, row_major>, %k: !flow.container<[s, 4], f32, row_major>) -> !flow.container<[b], f32, row_major> attributes {sdx.results = ["y"], sdx.symbols = {b = "input 0", s = "input 0"}} {
  %0 = flow.kernel outer ["b"] inner ["s"] deep ["4"] (%q, %k) : (!flow.container<[b, 4], f32, row_major>, !flow.container<[s, 4], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %a = flow.load 0 ["%0", "%2"] : f32
    %b = flow.load 1 ["%1", "%2"] : f32
    %m = flow.apply "mul"(%a, %b) : (f32, f32) -> f32
    %d = flow.reduce "add" %m : f32 -> f32
    %x = flow.reduce "max" %d : f32 -> f32
    flow.store %x to 0 ["%0"] : f32
  }
  return %0 : !flow.container<[b], f32, row_major>
}

// CHECK-LABEL: func.func @host
// CHECK: flow.host "Unique sorted=1"(%{{.*}}) results [0, 2] binds ["0 0 n"] calls [] : (!flow.container<[4], f32, row_major>) -> (!flow.container<[n], i64, row_major>, !flow.container<[n], i64, row_major>)
func.func @host(%x: !flow.container<[4], f32, row_major>) -> !flow.container<[n], i64, row_major> attributes {sdx.symbols = ["data n 0.."]} {
  %0:2 = flow.host "Unique sorted=1"(%x) results [0, 2] binds ["0 0 n"] calls [] : (!flow.container<[4], f32, row_major>) -> (!flow.container<[n], i64, row_major>, !flow.container<[n], i64, row_major>)
  return %0#1 : !flow.container<[n], i64, row_major>
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(fuse)' | FileCheck %s

!x = !flow.container<[64, 256], f32, row_major>
!r = !flow.container<[64], f32, row_major>

// exp(x), its sum along rows, and the quotient are one kernel: nothing in between is moved.

// CHECK-LABEL: func.func @rows
// CHECK: %[[Y:.*]] = flow.kernel outer ["64"] inner ["256"](%arg0) : (!flow.container<[64, 256], f32, row_major>) -> !flow.container<[64, 256], f32, row_major> {
// CHECK-COUNT-1: "exp"
// CHECK: flow.reduce "add"
// CHECK: "div"
// CHECK-NOT: flow.kernel
// CHECK: return %[[Y]]
func.func @rows(%x: !x) -> !x attributes {sdx.results = ["y"]} {
  %e = flow.kernel outer ["64", "256"] inner [] (%x) : (!x) -> !x {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.apply "exp"(%0) : (f32) -> f32
    flow.store %1 to 0 ["%0", "%1"] : f32
  }
  %s = flow.kernel outer ["64"] inner ["256"] (%e) : (!x) -> !r {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.reduce "add" %0 : f32 -> f32
    flow.store %1 to 0 ["%0"] : f32
  }
  %y = flow.kernel outer ["64", "256"] inner [] (%e, %s) : (!x, !r) -> !x {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.load 1 ["%0"] : f32
    %2 = flow.apply "div"(%0, %1) : (f32, f32) -> f32
    flow.store %2 to 0 ["%0", "%1"] : f32
  }
  return %y : !x
}

// -----

!x = !flow.container<[64, 256], f32, row_major>
!t = !flow.container<[256], f32, row_major>

// A sum across the rows takes the map along, whose points it writes too: exp is computed once.

// CHECK-LABEL: func.func @across
// CHECK: flow.kernel outer ["256"] inner ["64"]
// CHECK-COUNT-1: "exp"
// CHECK-NOT: flow.kernel
func.func @across(%x: !x) -> (!x, !t) attributes {sdx.results = ["e", "s"]} {
  %e = flow.kernel outer ["64", "256"] inner [] (%x) : (!x) -> !x {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.apply "exp"(%0) : (f32) -> f32
    flow.store %1 to 0 ["%0", "%1"] : f32
  }
  %s = flow.kernel outer ["256"] inner ["64"] (%e) : (!x) -> !t {
    %0 = flow.load 0 ["%1", "%0"] : f32
    %1 = flow.reduce "add" %0 : f32 -> f32
    flow.store %1 to 0 ["%0"] : f32
  }
  return %e, %s : !x, !t
}

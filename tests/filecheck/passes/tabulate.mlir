// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(tabulate)' | FileCheck %s

!c = !flow.container<[b], ui8, row_major>

// Everything between the load and the store is a function of one byte.

// CHECK-LABEL: func.func @activation
// CHECK: %[[T:.*]] = flow.const
// CHECK: flow.kernel outer ["b"] inner [](%{{.*}}, %[[T]])
// CHECK-NEXT: %[[Q:.*]] = flow.load 0 ["%0"] : ui8
// CHECK-NEXT: flow.convert %[[Q]] : ui8 -> i64
// CHECK-NEXT: %[[R:.*]] = flow.load 1 ["$1"] : ui8
// CHECK-NEXT: flow.store %[[R]] to 0
func.func @activation(%x: !c) -> !c attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x) : (!c) -> !c {
    %0 = flow.load 0 ["%0"] : ui8
    %1 = flow.convert %0 : ui8 -> f32
    %2 = flow.scalar 0.0625 : f32
    %3 = flow.apply "mul"(%1, %2) : (f32, f32) -> f32
    %4 = flow.apply "erf"(%3) : (f32) -> f32
    %5 = flow.apply "exp"(%4) : (f32) -> f32
    %6 = flow.apply "mul"(%5, %1) : (f32, f32) -> f32
    %7 = flow.convert %6 : f32 -> ui8
    flow.store %7 to 0 ["%0"] : ui8
  }
  return %r : !c
}

// -----

!c = !flow.container<[b], i8, row_major>
!f = !flow.container<[b], f32, row_major>

// Signed bytes begin at -128. The function has two results of other types.

// CHECK-LABEL: func.func @signed
// CHECK: flow.load 0 ["%0"] : i8
// CHECK: flow.load 1 ["$1 + 128"] : f32
// CHECK: flow.load 2 ["$1 + 128"] : i8
func.func @signed(%x: !c) -> (!f, !c) attributes {sdx.symbols = ["input b 0.."]} {
  %r:2 = flow.kernel outer ["b"] inner [] (%x) : (!c) -> (!f, !c) {
    %0 = flow.load 0 ["%0"] : i8
    %1 = flow.convert %0 : i8 -> f32
    %2 = flow.scalar 0.0625 : f32
    %3 = flow.apply "pow"(%1, %2) : (f32, f32) -> f32
    %4 = flow.apply "tanh"(%3) : (f32) -> f32
    %5 = flow.apply "erf"(%4) : (f32) -> f32
    %6 = flow.convert %5 : f32 -> i8
    flow.store %5 to 0 ["%0"] : f32
    flow.store %6 to 1 ["%0"] : i8
  }
  return %r#0, %r#1 : !f, !c
}

// -----

!c = !flow.container<[b], ui8, row_major>

// Rounding to the same scale and zero again gives the same byte.

// CHECK-LABEL: func.func @same
// CHECK-NOT: flow.const
// CHECK: %[[Q:.*]] = flow.load 0 ["%0"] : ui8
// CHECK-NEXT: flow.store %[[Q]] to 0
func.func @same(%x: !c) -> !c attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x) : (!c) -> !c {
    %0 = flow.load 0 ["%0"] : ui8
    %1 = flow.convert %0 : ui8 -> i32
    %2 = flow.scalar 120.0 : i32
    %3 = flow.apply "sub"(%1, %2) : (i32, i32) -> i32
    %4 = flow.convert %3 : i32 -> f32
    %5 = flow.scalar 0.0135525 : f32
    %6 = flow.apply "mul"(%4, %5) : (f32, f32) -> f32
    %7 = flow.apply "div"(%6, %5) : (f32, f32) -> f32
    %8 = flow.apply "round"(%7) : (f32) -> f32
    %9 = flow.scalar 120.0 : f32
    %10 = flow.apply "add"(%8, %9) : (f32, f32) -> f32
    %11 = flow.convert %10 : f32 -> ui8
    flow.store %11 to 0 ["%0"] : ui8
  }
  return %r : !c
}

// -----

!c = !flow.container<[b], ui8, row_major>

// A rounding costs less than a lookup.

// CHECK-LABEL: func.func @cheap
// CHECK-NOT: flow.const
func.func @cheap(%x: !c) -> !c attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x) : (!c) -> !c {
    %0 = flow.load 0 ["%0"] : ui8
    %1 = flow.convert %0 : ui8 -> f32
    %2 = flow.scalar 0.0135525 : f32
    %3 = flow.apply "div"(%1, %2) : (f32, f32) -> f32
    %4 = flow.apply "round"(%3) : (f32) -> f32
    %5 = flow.convert %4 : f32 -> ui8
    flow.store %5 to 0 ["%0"] : ui8
  }
  return %r : !c
}

// -----

!c = !flow.container<[b], ui8, row_major>

// A function of two bytes has 65,536 values.

// CHECK-LABEL: func.func @two
// CHECK-NOT: flow.const
// CHECK: return
func.func @two(%x: !c, %y: !c) -> !c attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x, %y) : (!c, !c) -> !c {
    %0 = flow.load 0 ["%0"] : ui8
    %1 = flow.load 1 ["%0"] : ui8
    %2 = flow.convert %0 : ui8 -> f32
    %3 = flow.convert %1 : ui8 -> f32
    %4 = flow.apply "pow"(%2, %3) : (f32, f32) -> f32
    %5 = flow.apply "erf"(%4) : (f32) -> f32
    %6 = flow.convert %5 : f32 -> ui8
    flow.store %6 to 0 ["%0"] : ui8
  }
  return %r : !c
}

// -----

!c = !flow.container<[b, 64], ui8, row_major>
!f = !flow.container<[b], f32, row_major>

// An operand of a sum stays as it is.

// CHECK-LABEL: func.func @summed
// CHECK-NOT: flow.const
// CHECK: return
func.func @summed(%x: !c) -> !f attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner ["64"] (%x) : (!c) -> !f {
    %0 = flow.load 0 ["%0", "%1"] : ui8
    %1 = flow.convert %0 : ui8 -> f32
    %2 = flow.apply "erf"(%1) : (f32) -> f32
    %3 = flow.apply "exp"(%2) : (f32) -> f32
    %4 = flow.reduce "add" %3 : f32 -> f32
    flow.store %4 to 0 ["%0"] : f32
  }
  return %r : !f
}

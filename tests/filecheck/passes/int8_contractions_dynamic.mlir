// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(int8-contractions)' | FileCheck %s

!x = !flow.container<[m, 256], f32, row_major>
!q = !flow.container<[m, 256], i32, row_major>
!w = !flow.container<[256, 96], i8, row_major>
!wi = !flow.container<[256, 96], i32, row_major>
!y = !flow.container<[m, 96], i32, row_major>

// The zero point of each row follows from a reduction in the kernel that makes the bytes, which stores both. The
// difference has no reader any more.

// CHECK-LABEL: func.func @zero_of_row
// CHECK: %[[Q:.*]]:2 = flow.kernel outer ["m"] inner ["256"](%arg0) : {{.*}} -> (!flow.container<[m, 256], ui8, row_major>, !flow.container<[m], i32, row_major>)
// CHECK: flow.kernel outer ["m", "96"] inner ["256"]
// CHECK: %[[Z:.*]] = flow.load {{.*}} ["%0"] : i32
// CHECK: flow.load {{.*}} ["%0", "%2"] : ui8
// CHECK: flow.load {{.*}} ["%2", "%1"] : i8
// CHECK: %[[SUM:.*]] = flow.reduce "add" {{.*}} : i32 -> i32
// CHECK: %[[C:.*]] = flow.load {{.*}} ["%1"] : i32
// CHECK: %[[ZC:.*]] = flow.apply "mul"(%[[Z]], %[[C]])
// CHECK: flow.apply "sub"(%[[SUM]], %[[ZC]])
func.func @zero_of_row(%x: !x) -> !y attributes {sdx.symbols = ["input m 0.."]} {
  %w = flow.param "w" : !w
  %q = flow.kernel outer ["m"] inner ["256"] (%x) : (!x) -> !q {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.reduce "min" %0 : f32 -> f32
    %2 = flow.convert %1 : f32 -> ui8
    %3 = flow.convert %2 : ui8 -> i32
    %4 = flow.convert %0 : f32 -> ui8
    %5 = flow.convert %4 : ui8 -> i32
    %6 = flow.apply "sub"(%5, %3) : (i32, i32) -> i32
    flow.store %6 to 0 ["%0", "%1"] : i32
  }
  %wi = flow.kernel outer ["256", "96"] inner [] (%w) : (!w) -> !wi {
    %0 = flow.load 0 ["%0", "%1"] : i8
    %1 = flow.convert %0 : i8 -> i32
    flow.store %1 to 0 ["%0", "%1"] : i32
  }
  %y = flow.kernel outer ["m", "96"] inner ["256"] (%q, %wi) : (!q, !wi) -> !y {
    %0 = flow.load 0 ["%0", "%2"] : i32
    %1 = flow.load 1 ["%2", "%1"] : i32
    %2 = flow.apply "mul"(%0, %1) : (i32, i32) -> i32
    %3 = flow.reduce "add" %2 : i32 -> i32
    flow.store %3 to 0 ["%0", "%1"] : i32
  }
  return %y : !y
}

// -----

!x = !flow.container<[m, 256], ui8, row_major>
!q = !flow.container<[m, 256], i32, row_major>
!w = !flow.container<[256, 96], ui8, row_major>
!wi = !flow.container<[256, 96], i32, row_major>
!n = !flow.container<[96], ui8, row_major>
!ni = !flow.container<[96], i32, row_major>
!y = !flow.container<[m, 96], i32, row_major>

// The zero point of each column is a byte that another kernel widens.

// CHECK-LABEL: func.func @zero_of_another_kernel
// CHECK: flow.param "w" transform "signed" : <[256, 96], i8, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"]
// CHECK: flow.load {{.*}} ["%2", "%1"] : i8
func.func @zero_of_another_kernel(%x: !x) -> !y attributes {sdx.symbols = ["input m 0.."]} {
  %w = flow.param "w" : !w
  %n = flow.param "n" : !n
  %ni = flow.kernel outer ["96"] inner [] (%n) : (!n) -> !ni {
    %0 = flow.load 0 ["%0"] : ui8
    %1 = flow.convert %0 : ui8 -> i32
    flow.store %1 to 0 ["%0"] : i32
  }
  %wi = flow.kernel outer ["256", "96"] inner [] (%w, %ni) : (!w, !ni) -> !wi {
    %0 = flow.load 0 ["%0", "%1"] : ui8
    %1 = flow.convert %0 : ui8 -> i32
    %2 = flow.load 1 ["%1"] : i32
    %3 = flow.apply "sub"(%1, %2) : (i32, i32) -> i32
    flow.store %3 to 0 ["%0", "%1"] : i32
  }
  %q = flow.kernel outer ["m", "256"] inner [] (%x) : (!x) -> !q {
    %0 = flow.load 0 ["%0", "%1"] : ui8
    %1 = flow.convert %0 : ui8 -> i32
    flow.store %1 to 0 ["%0", "%1"] : i32
  }
  %y = flow.kernel outer ["m", "96"] inner ["256"] (%q, %wi) : (!q, !wi) -> !y {
    %0 = flow.load 0 ["%0", "%2"] : i32
    %1 = flow.load 1 ["%2", "%1"] : i32
    %2 = flow.apply "mul"(%0, %1) : (i32, i32) -> i32
    %3 = flow.reduce "add" %2 : i32 -> i32
    flow.store %3 to 0 ["%0", "%1"] : i32
  }
  return %y : !y
}

// -----

!x = !flow.container<[b, 8, 30], ui8, row_major>
!z = !flow.container<[], ui8, row_major>
!q = !flow.container<[b, 8, 32], i32, row_major>
!w = !flow.container<[16, 8, 3], i8, row_major>
!wi = !flow.container<[16, 8, 3], i32, row_major>
!y = !flow.container<[b, 16, 30], i32, row_major>

// What pads with 0 pads with the zero point, a byte that is known at run time only.

// CHECK-LABEL: func.func @padded
// CHECK: flow.kernel outer ["b", "8", "32"] inner []{{.*}} -> !flow.container<[b, 8, 32], ui8, row_major>
// CHECK: %[[G:.*]] = flow.apply "and"
// CHECK: %[[B:.*]] = flow.load 0 {{.*}} if %[[G]] : ui8
// CHECK: %[[Z:.*]] = flow.load 1 [] : ui8
// CHECK: %[[W:.*]] = flow.convert %[[Z]] : ui8 -> i32
// CHECK: %[[P:.*]] = flow.convert %[[W]] : i32 -> ui8
// CHECK: flow.apply "select"(%[[G]], %[[B]], %[[P]])
// CHECK: flow.kernel outer ["b", "16", "30"] inner ["8", "3"]
func.func @padded(%x: !x, %z: !z) -> !y attributes {sdx.symbols = ["input b 0.."]} {
  %w = flow.param "w" : !w
  %q = flow.kernel outer ["b", "8", "32"] inner [] (%x, %z) : (!x, !z) -> !q {
    %0 = flow.index "%2" : i64
    %1 = flow.index "1" : i64
    %2 = flow.apply "le"(%1, %0) : (i64, i64) -> i1
    %3 = flow.index "31" : i64
    %4 = flow.apply "lt"(%0, %3) : (i64, i64) -> i1
    %5 = flow.apply "and"(%2, %4) : (i1, i1) -> i1
    %6 = flow.load 0 ["%0", "%1", "%2 - 1"] if %5 : ui8
    %7 = flow.convert %6 : ui8 -> i32
    %8 = flow.load 1 [] : ui8
    %9 = flow.convert %8 : ui8 -> i32
    %10 = flow.apply "sub"(%7, %9) : (i32, i32) -> i32
    %11 = flow.scalar 0.0 : i32
    %12 = flow.apply "select"(%5, %10, %11) : (i1, i32, i32) -> i32
    flow.store %12 to 0 ["%0", "%1", "%2"] : i32
  }
  %wi = flow.kernel outer ["16", "8", "3"] inner [] (%w) : (!w) -> !wi {
    %0 = flow.load 0 ["%0", "%1", "%2"] : i8
    %1 = flow.convert %0 : i8 -> i32
    flow.store %1 to 0 ["%0", "%1", "%2"] : i32
  }
  %y = flow.kernel outer ["b", "16", "30"] inner ["8", "3"] (%q, %wi) : (!q, !wi) -> !y {
    %0 = flow.load 0 ["%0", "%3", "%2 + %4"] : i32
    %1 = flow.load 1 ["%1", "%3", "%4"] : i32
    %2 = flow.apply "mul"(%0, %1) : (i32, i32) -> i32
    %3 = flow.reduce "add" %2 : i32 -> i32
    flow.store %3 to 0 ["%0", "%1", "%2"] : i32
  }
  return %y : !y
}

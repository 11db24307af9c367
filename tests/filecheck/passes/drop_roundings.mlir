// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(drop-roundings)' | FileCheck %s

!c = !flow.container<[b], f32, row_major>
!n = !flow.container<[b], f16, row_major>

// The exponential is rounded before the sum; the sum's rounding is the last one. A value that is compared stays rounded.

// CHECK-LABEL: func.func @last
// CHECK: %[[X:.*]] = flow.load 0 ["%0"] : f32
// CHECK-NEXT: %[[E:.*]] = flow.apply "exp"(%[[X]]) : (f32) -> f32
// CHECK-NEXT: %[[S:.*]] = flow.apply "add"(%[[E]], %[[X]]) : (f32, f32) -> f32
// CHECK-NEXT: %[[N:.*]] = flow.convert %[[S]] : f32 -> f16
// CHECK-NEXT: %[[R:.*]] = flow.convert %[[N]] : f16 -> f32
// CHECK-NEXT: flow.store %[[R]] to 0
func.func @last(%x: !c) -> !c attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x) : (!c) -> !c {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.apply "exp"(%0) : (f32) -> f32
    %2 = flow.convert %1 : f32 -> f16
    %3 = flow.convert %2 : f16 -> f32
    %4 = flow.apply "add"(%3, %0) : (f32, f32) -> f32
    %5 = flow.convert %4 : f32 -> f16
    %6 = flow.convert %5 : f16 -> f32
    flow.store %6 to 0 ["%0"] : f32
  }
  return %r : !c
}

// -----

!c = !flow.container<[b], f32, row_major>
!n = !flow.container<[b], f16, row_major>

// CHECK-LABEL: func.func @compared
// CHECK: flow.apply "exp"
// CHECK-NEXT: flow.convert {{.*}} : f32 -> f16
// CHECK-NEXT: %[[R:.*]] = flow.convert {{.*}} : f16 -> f32
// CHECK-NEXT: flow.apply "lt"(%{{.*}}, %[[R]])
func.func @compared(%x: !c) -> !n attributes {sdx.symbols = ["input b 0.."]} {
  %r = flow.kernel outer ["b"] inner [] (%x) : (!c) -> !n {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.apply "exp"(%0) : (f32) -> f32
    %2 = flow.convert %1 : f32 -> f16
    %3 = flow.convert %2 : f16 -> f32
    %4 = flow.apply "lt"(%0, %3) : (f32, f32) -> i1
    %5 = flow.apply "select"(%4, %3, %0) : (i1, f32, f32) -> f32
    %6 = flow.convert %5 : f32 -> f16
    flow.store %6 to 0 ["%0"] : f16
  }
  return %r : !n
}

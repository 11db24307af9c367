// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(plan-memory)' | FileCheck %s

// A buffer lies right above the highest end of those that live with it and come before it in the order found; places are
// multiples of 64 bytes. (The kernel is of no matter here.)

// In a chain two places alternate; the arena's size is an expression.

// CHECK: plan.entry @chain {{.*}} arena "64*((8*b + 56) floordiv (64)) + 64"
// CHECK: plan.arena "4*b" at "0"
// CHECK: plan.arena "4*b" at "64*((4*b + 60) floordiv (64))"
// CHECK: plan.arena "4*b" at "0"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @chain symbols ["input b 1.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "4*b" : !plan.buffer
  %1 = plan.arena "4*b" : !plan.buffer
  %2 = plan.arena "4*b" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%0, %1) grid "b" params []
  plan.launch @k(%1, %2) grid "b" params []
  plan.launch @k(%2, %y) grid "b" params []
}

// -----

// What is still to be read keeps its place.

// CHECK: plan.entry @alive {{.*}} arena "192"
// CHECK: plan.arena "64" at "0"
// CHECK: plan.arena "64" at "64"
// CHECK: plan.arena "64" at "128"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @alive symbols ["input b 1.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "64" : !plan.buffer
  %1 = plan.arena "64" : !plan.buffer
  %2 = plan.arena "64" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%0, %1) grid "b" params []
  plan.launch @k(%1, %2) grid "b" params []
  plan.launch @k(%0, %y) grid "b" params []
  plan.launch @k(%2, %y) grid "b" params []
}

// -----

// Small and large share a place. What a proof says is never the larger of two is in no maximum.

// CHECK: plan.entry @sizes {{.*}} arena "64*((24*b + 40) floordiv (64)) + 64"
// CHECK: plan.arena "4*b" at "0"
// CHECK: plan.arena "16*b" at "64*((8*b + 56) floordiv (64))"
// CHECK: plan.arena "8*b" at "0"
// CHECK: plan.arena "4*b" at "64*((8*b + 56) floordiv (64))"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @sizes symbols ["input b 1.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "4*b" : !plan.buffer
  %1 = plan.arena "16*b" : !plan.buffer
  %2 = plan.arena "8*b" : !plan.buffer
  %3 = plan.arena "4*b" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%0, %1) grid "b" params []
  plan.launch @k(%1, %2) grid "b" params []
  plan.launch @k(%2, %3) grid "b" params []
  plan.launch @k(%3, %y) grid "b" params []
}

// -----

// Nobody knows which of b and s is larger: what lies above both lies above the larger.

// CHECK: plan.entry @unknown {{.*}} arena "64*((max(b, s) + 63) floordiv (64)) + 64"
// CHECK: plan.arena "b" at "0"
// CHECK: plan.arena "64" at "64*((max(b, s) + 63) floordiv (64))"
// CHECK: plan.arena "s" at "0"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @unknown symbols ["input b 0..", "input s 0.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "b" : !plan.buffer
  %1 = plan.arena "64" : !plan.buffer
  %2 = plan.arena "s" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%0, %1) grid "b" params []
  plan.launch @k(%1, %2) grid "b" params []
  plan.launch @k(%2, %y) grid "b" params []
}

// -----

// A lower bound decides.

// CHECK: plan.entry @bounded {{.*}} arena "64*((b + 63) floordiv (64)) + 64"
// CHECK: plan.arena "16" at "0"
// CHECK: plan.arena "64" at "64*((b + 63) floordiv (64))"
// CHECK: plan.arena "b" at "0"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @bounded symbols ["input b 16.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "16" : !plan.buffer
  %1 = plan.arena "64" : !plan.buffer
  %2 = plan.arena "b" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%0, %1) grid "b" params []
  plan.launch @k(%1, %2) grid "b" params []
  plan.launch @k(%2, %y) grid "b" params []
}

// -----

// What lives when n gets its value keeps its place: it lies below what lives with it and has n in its size.

// CHECK: plan.entry @bound {{.*}} arena "64*((8*n + max(80, 16*n) + 40) floordiv (64)) + 64"
// CHECK: plan.arena "8" at "0"
// CHECK: plan.arena "8*n" at "64*((max(80, 16*n) + 48) floordiv (64))"
// CHECK: plan.arena "64" at "64"
// CHECK: plan.arena "16*n" at "0"
plan.kernel @k {
^bb0(%x: !flow.container<[b], f32, row_major>):
  %0 = flow.kernel outer ["b"] inner [] (%x) : (!flow.container<[b], f32, row_major>) -> !flow.container<[b], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @bound symbols ["input b 1..", "data n 0.."] checks [] arena "" {
  %x = plan.input "x" !flow.container<[b], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[b], f32, row_major> : !plan.buffer
  %0 = plan.arena "8" : !plan.buffer
  %1 = plan.arena "8*n" : !plan.buffer
  %2 = plan.arena "64" : !plan.buffer
  %3 = plan.arena "16*n" : !plan.buffer
  plan.launch @k(%x, %0) grid "b" params []
  plan.launch @k(%x, %2) grid "b" params []
  plan.bind "n" = %0
  plan.launch @k(%2, %1) grid "b" params []
  plan.launch @k(%1, %3) grid "b" params []
  plan.launch @k(%3, %y) grid "b" params []
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(overlap)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(overlap)' --fuel 0 | FileCheck %s --check-prefix=NONE
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(overlap,plan-memory)' | FileCheck %s --check-prefix=MEMORY

// NONE-NOT: begin
// NONE-NOT: wait

// What follows does not need the result: it comes before what does, up to the next collective. That one begins when what it
// brings is there. What only reads the operand goes on. (The kernel is of no matter here.)

// CHECK-LABEL: plan.entry @turns
// CHECK: plan.launch @k(%[[X:.*]], %[[A:.*]]) grid
// CHECK-NEXT: plan.host "begin AllReduce mesh=0 by=add"(%[[A]], %[[SUM_A:[0-9]+]])
// CHECK-NEXT: plan.launch @k(%[[X]], %[[B:.*]]) grid
// CHECK-NEXT: plan.launch @k(%[[A]], %{{.*}}) grid
// CHECK-NEXT: plan.host "wait AllReduce mesh=0 by=add"(%[[A]], %[[SUM_A]])
// CHECK-NEXT: plan.host "begin AllReduce mesh=0 by=add"(%[[B]], %[[SUM_B:[0-9]+]])
// CHECK-NEXT: plan.launch @k(%[[SUM_A]], %{{.*}}) grid
// CHECK-NEXT: plan.host "wait AllReduce mesh=0 by=add"(%[[B]], %[[SUM_B]])
// CHECK-NEXT: plan.launch @k(%[[SUM_B]], %{{.*}}) grid

// Memory is planned for the time between: nothing lies where the operand or the result is.

// MEMORY-LABEL: plan.entry @turns {{.*}} arena "192"
plan.kernel @k {
^bb0(%x: !flow.container<[16], f32, row_major>):
  %0 = flow.kernel outer ["16"] inner [] (%x) : (!flow.container<[16], f32, row_major>) -> !flow.container<[16], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @turns symbols ["rank 0 rank0 0..1"] checks [] arena "" {
  %x = plan.input "x" !flow.container<[16], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[16], f32, row_major> : !plan.buffer
  %z = plan.output "z" !flow.container<[16], f32, row_major> : !plan.buffer
  %w = plan.output "w" !flow.container<[16], f32, row_major> : !plan.buffer
  %a = plan.arena "64" : !plan.buffer
  %sum_a = plan.arena "64" : !plan.buffer
  %b = plan.arena "64" : !plan.buffer
  %sum_b = plan.arena "64" : !plan.buffer
  plan.launch @k(%x, %a) grid "16" params []
  plan.host "AllReduce mesh=0 by=add"(%a, %sum_a) of [!flow.container<[16], f32, row_major>, !flow.container<[16], f32, row_major>] results [0] binds [] calls []
  plan.launch @k(%sum_a, %y) grid "16" params []
  plan.launch @k(%x, %b) grid "16" params []
  plan.launch @k(%a, %w) grid "16" params []
  plan.host "AllReduce mesh=0 by=add"(%b, %sum_b) of [!flow.container<[16], f32, row_major>, !flow.container<[16], f32, row_major>] results [0] binds [] calls []
  plan.launch @k(%sum_b, %z) grid "16" params []
}

// -----

// Nothing else is to be done: one step, and one look at the other ranks. What writes over the operand waits.

// CHECK-LABEL: plan.entry @chain
// CHECK-NOT: begin
// CHECK: plan.host "AllReduce mesh=0 by=add"
plan.kernel @k {
^bb0(%x: !flow.container<[16], f32, row_major>):
  %0 = flow.kernel outer ["16"] inner [] (%x) : (!flow.container<[16], f32, row_major>) -> !flow.container<[16], f32, row_major> {
    %1 = flow.load 0 ["%0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
}
plan.entry @chain symbols ["rank 0 rank0 0..1"] checks [] arena "" {
  %x = plan.input "x" !flow.container<[16], f32, row_major> : !plan.buffer
  %y = plan.output "y" !flow.container<[16], f32, row_major> : !plan.buffer
  %z = plan.output "z" !flow.container<[16], f32, row_major> : !plan.buffer
  %a = plan.arena "64" : !plan.buffer
  %sum = plan.arena "64" : !plan.buffer
  plan.launch @k(%x, %a) grid "16" params []
  plan.host "AllReduce mesh=0 by=add"(%a, %sum) of [!flow.container<[16], f32, row_major>, !flow.container<[16], f32, row_major>] results [0] binds [] calls []
  plan.launch @k(%x, %a) grid "16" params []
  plan.launch @k(%a, %z) grid "16" params []
  plan.launch @k(%sum, %y) grid "16" params []
}

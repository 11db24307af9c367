// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,fuse-siblings)' | FileCheck %s

!x = !sdx.tensor<[b, s], f32>

// Two readers of the same points read them once.

// CHECK-LABEL: func.func @maps
// CHECK: %[[K:.*]]:2 = flow.kernel outer ["b", "s"] inner [](%arg0)
// CHECK-COUNT-1: flow.load
// CHECK-NOT: flow.load
// CHECK-COUNT-2: flow.store
// CHECK-NOT: flow.kernel
// CHECK: return %[[K]]#0, %[[K]]#1
func.func @maps(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.map "neg"(%x) : (!x) -> !x
  return %0, %1 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>

// So do two reductions of the same rows: a maximum and a sum that do not need each other.

// CHECK-LABEL: func.func @reductions
// CHECK: flow.kernel outer ["b"] inner ["s"]
// CHECK-COUNT-1: flow.load
// CHECK-NOT: flow.load
// CHECK-COUNT-2: flow.reduce
// CHECK-NOT: flow.kernel
func.func @reductions(%x: !x) -> (!r, !r) {
  %0 = sdx.reduce "max" %x axes [1] : !x -> !r
  %1 = sdx.reduce "add" %x axes [1] : !x -> !r
  return %0, %1 : !r, !r
}

// -----

!in = !sdx.tensor<[b, h, past, 4], f32>
!x = !sdx.tensor<[b, h, s, 4], f32>
!all = !sdx.tensor<[b, h, past + s, 4], f32>

// A call appends keys and values by one launch.

// CHECK-LABEL: func.func @states
// CHECK: %[[K:.*]]:2 = flow.kernel outer ["b", "h", "-kept + past + s", "4"] inner [](%arg0, %arg2, %arg1, %arg3)
// CHECK: flow.store %{{.*}} to 0 ["%0", "%1", "%2 + kept", "%3"]
// CHECK: flow.store %{{.*}} to 1 ["%0", "%1", "%2 + kept", "%3"]
// CHECK-NOT: flow.kernel
// CHECK: return %[[K]]#0, %[[K]]#1
func.func @states(%k: !in, %v: !in, %x: !x, %y: !x) -> (!all, !all) {
  %n = sdx.map "neg"(%x) : (!x) -> !x
  %0 = sdx.append %k, %n axis 2 : (!in, !x) -> !all
  %1 = sdx.append %v, %y axis 2 : (!in, !x) -> !all
  return %0, %1 : !all, !all
}

// -----

!x = !sdx.tensor<[b, s], f32>
!r = !sdx.tensor<[b], f32>
!w = !sdx.tensor<[s], f32>
!t = !sdx.tensor<[s, b], f32>

// Other points, a shared operand that is small, results in different orders, one that needs the other through a
// reduction: they stay apart.

// CHECK-LABEL: func.func @other_points
// CHECK-COUNT-2: = flow.kernel
func.func @other_points(%x: !x) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.slice %x from ["b - 1", "0"] step [-1, 1] : !x -> !x
  %2 = sdx.map "neg"(%1) : (!x) -> !x
  return %0, %2 : !x, !x
}

// CHECK-LABEL: func.func @small
// CHECK-COUNT-2: = flow.kernel
func.func @small(%x: !x, %y: !x, %w: !w) -> (!x, !x) {
  %0 = sdx.broadcast %w to [1] : !w -> !x
  %1 = sdx.map "add"(%x, %0) : (!x, !x) -> !x
  %2 = sdx.map "add"(%y, %0) : (!x, !x) -> !x
  return %1, %2 : !x, !x
}

// CHECK-LABEL: func.func @other_order
// CHECK-COUNT-2: = flow.kernel
func.func @other_order(%x: !x) -> (!x, !t) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.transpose %x [1, 0] : !x -> !t
  %2 = sdx.map "neg"(%1) : (!t) -> !t
  return %0, %2 : !x, !t
}

// CHECK-LABEL: func.func @needs_the_other
// CHECK-COUNT-4: = flow.kernel
func.func @needs_the_other(%x: !x, %w: !sdx.tensor<[s, s], f32>) -> (!x, !x) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.contract "bs,st->bt"(%0, %w) : (!x, !sdx.tensor<[s, s], f32>) -> !x
  %2 = sdx.map "neg"(%1) : (!x) -> !x
  %3 = sdx.reduce "max" %2 axes [1] : !x -> !r
  %4 = sdx.broadcast %3 to [0] : !r -> !x
  %5 = sdx.map "add"(%x, %4) : (!x, !x) -> !x
  return %0, %5 : !x, !x
}

// CHECK-LABEL: func.func @map_and_reduction
// CHECK-COUNT-2: = flow.kernel
func.func @map_and_reduction(%x: !x) -> (!x, !r) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.reduce "max" %x axes [1] : !x -> !r
  return %0, %1 : !x, !r
}

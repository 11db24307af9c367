// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// Branches become functions; what they use comes in, what they give has the same dimensions or a new symbol for them.

// CHECK-LABEL: func.func @branches
// CHECK: %[[Y:.*]] = sdx.host "If then=1"(%{{.*}}, %{{.*}}, %{{.*}}) result 0 of 0 binds ["0 data0"] calls ["branches.body0", "branches.body1"] : (!sdx.tensor<[], i1>, !sdx.tensor<[b, 4], f32>, !sdx.tensor<[b, 4], f32>) -> !sdx.tensor<[data0, 4], f32>
// CHECK: return %[[Y]]
// CHECK-LABEL: func.func @branches.body0(%{{.*}}: !sdx.tensor<["b@branches.body0", 4], f32> {sdx.name = "c0"})
// CHECK-SAME: sdx.internal
// CHECK: sdx.map "neg"
// CHECK-LABEL: func.func @branches.body1
// CHECK: sdx.concat
func.func @branches(%c: !sdx.tensor<[], i1>, %x: !x) -> !v {
  %0 = onnx.node "If"(%c) opset 16 {} : (!sdx.tensor<[], i1>) -> !v with ["then_branch", "else_branch"] {
    %1 = onnx.node "Neg"(%x) opset 13 {} : (!x) -> !v
    onnx.yield %1 : !v
  }, {
    %1 = onnx.node "Concat"(%x, %x) opset 13 {axis = 0 : i64} : (!x, !x) -> !v
    onnx.yield %1 : !v
  }
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// A known condition leaves one branch.

// CHECK-LABEL: func.func @known
// CHECK-NEXT: %[[Y:.*]] = sdx.map "neg"
// CHECK-NEXT: return %[[Y]]
// CHECK-NOT: func.func
func.func @known(%x: !x) -> !v {
  %c = sdx.const dense<true> : tensor<i1> : !sdx.tensor<[], i1>
  %0 = onnx.node "If"(%c) opset 16 {} : (!sdx.tensor<[], i1>) -> !v with ["then_branch", "else_branch"] {
    %1 = onnx.node "Neg"(%x) opset 13 {} : (!x) -> !v
    onnx.yield %1 : !v
  }, {
    onnx.yield %x : !x
  }
  return %0 : !v
}

// -----

!v = !onnx.value

// What a turn makes longer has a symbol of its own in the body and outside.

// CHECK-LABEL: func.func @grows
// CHECK: sdx.host "Loop carried=1"(%{{.*}}, %{{.*}}, %{{.*}}) result 0 of 0 binds ["0 data0"] calls ["grows.body0"] : (!sdx.tensor<[], i64>, !sdx.tensor<[], i1>, !sdx.tensor<[1], f32>) -> !sdx.tensor<[data0], f32>
// CHECK: sdx.host "Loop carried=1"(%{{.*}}, %{{.*}}, %{{.*}}) result 1 of 0 binds ["0 data1"] calls ["grows.body0"] : (!sdx.tensor<[], i64>, !sdx.tensor<[], i1>, !sdx.tensor<[1], f32>) -> !sdx.tensor<[data1], i64>
// CHECK-LABEL: func.func @grows.body0
// CHECK: sdx.concat(%{{.*}}, %{{.*}}) axis 0 : (!sdx.tensor<["p2_0@grows.body0"], f32>, !sdx.tensor<["p2_0@grows.body0"], f32>) -> !sdx.tensor<[2*"p2_0@grows.body0"], f32>
func.func @grows(%n: !sdx.tensor<[], i64>, %c: !sdx.tensor<[], i1>, %x: !sdx.tensor<[1], f32>) -> (!v, !v) {
  %0:2 = onnx.node "Loop"(%n, %c, %x) opset 16 {} : (!sdx.tensor<[], i64>, !sdx.tensor<[], i1>, !sdx.tensor<[1], f32>) -> (!v, !v) with ["body"] {
  ^bb0(%i: !v, %go: !v, %s: !v):
    %1 = onnx.node "Concat"(%s, %s) opset 13 {axis = 0 : i64} : (!v, !v) -> !v
    onnx.yield %go, %1, %i : !v, !v, !v
  }
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!h = !sdx.tensor<[4], f32>

// Few turns are copies of the body; else a function takes its part of what is scanned.

// CHECK-LABEL: func.func @few
// CHECK-COUNT-2: sdx.map "add"
// CHECK: sdx.concat
// CHECK-NOT: sdx.host
func.func @few(%h: !h, %x: !sdx.tensor<[2, 4], f32>) -> (!v, !v) {
  %0:2 = onnx.node "Scan"(%h, %x) opset 16 {num_scan_inputs = 1 : i64} : (!h, !sdx.tensor<[2, 4], f32>) -> (!v, !v) with ["body"] {
  ^bb0(%s: !v, %e: !v):
    %1 = onnx.node "Add"(%s, %e) opset 13 {} : (!v, !v) -> !v
    onnx.yield %1, %1 : !v, !v
  }
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!h = !sdx.tensor<[4], f32>

// CHECK-LABEL: func.func @many
// CHECK: sdx.host "Loop carried=1"(%{{.*}}) result 0 of 0 binds [] calls ["many.body0"]
// CHECK-SAME: -> !sdx.tensor<[4], f32>
// CHECK: sdx.host "Loop carried=1"(%{{.*}}) result 1 of 0 binds [] calls ["many.body0"]
// CHECK-SAME: -> !sdx.tensor<[t, 4], f32>
// CHECK-LABEL: func.func @many.body0
// CHECK: sdx.gather %{{.*}} axis 0 : (!sdx.tensor<["t@many.body0", 4], f32>, !sdx.tensor<[], i64>) -> !sdx.tensor<[4], f32>
func.func @many(%h: !h, %x: !sdx.tensor<[t, 4], f32>) -> (!v, !v) {
  %0:2 = onnx.node "Scan"(%h, %x) opset 16 {num_scan_inputs = 1 : i64} : (!h, !sdx.tensor<[t, 4], f32>) -> (!v, !v) with ["body"] {
  ^bb0(%s: !v, %e: !v):
    %1 = onnx.node "Add"(%s, %e) opset 13 {} : (!v, !v) -> !v
    onnx.yield %1, %1 : !v, !v
  }
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// Branches of different ranks, by whether a dimension is 1: it must be, and the call checks what no symbol says.

// CHECK-LABEL: func.func @squeezed
// CHECK-SAME: (%[[X:.*]]: !sdx.tensor<[b, 1], f32>
// CHECK: sdx.reshape %[[X]] : <[b, 1], f32> -> <[b], f32>
// CHECK-NOT: sdx.host
func.func @squeezed(%x: !x) -> !v {
  %last = sdx.const dense<-1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %one = sdx.const dense<1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "Shape"(%x) opset 16 {} : (!x) -> !v
  %1 = onnx.node "Gather"(%0, %last) opset 16 {axis = 0 : i64} : (!v, !sdx.tensor<[1], i64>) -> !v
  %2 = onnx.node "Equal"(%1, %one) opset 16 {} : (!v, !sdx.tensor<[1], i64>) -> !v
  %3 = onnx.node "If"(%2) opset 16 {} : (!v) -> !v with ["then_branch", "else_branch"] {
    %4 = onnx.node "Squeeze"(%x, %last) opset 16 {} : (!x, !sdx.tensor<[1], i64>) -> !v
    onnx.yield %4 : !v
  }, {
    onnx.yield %x : !x
  }
  return %3 : !v
}

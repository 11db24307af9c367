// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// The name that stands first among the inputs stays; the other keeps its range, which both must satisfy.

// CHECK-LABEL: func.func @elementwise
// CHECK-SAME: !sdx.tensor<[z, 4], f32>
// CHECK-SAME: !sdx.tensor<[z, 4], f32>
// CHECK-SAME: sdx.checks = []
// CHECK-SAME: sdx.symbols = ["derived 2.. a = z : /add", "input z 2..8"]
func.func @elementwise(%x: !sdx.tensor<[z, 4], f32>, %y: !sdx.tensor<[a, 4], f32>) -> !v
    attributes {sdx.symbols = ["input a 2..", "input z 0..8"]} {
  %0 = onnx.node "Add"(%x, %y) opset 14 {} : (!sdx.tensor<[z, 4], f32>, !sdx.tensor<[a, 4], f32>) -> !v loc("/add")
  return %0 : !v
}

// -----

!v = !onnx.value

// Equal names change nothing.

// CHECK-LABEL: func.func @same
// CHECK-SAME: sdx.checks = []
// CHECK-SAME: sdx.symbols = ["input a 2.."]
func.func @same(%x: !sdx.tensor<[a, 4], f32>, %y: !sdx.tensor<[a, 4], f32>) -> !v
    attributes {sdx.symbols = ["input a 2.."]} {
  %0 = onnx.node "Add"(%x, %y) opset 14 {} : (!sdx.tensor<[a, 4], f32>, !sdx.tensor<[a, 4], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[p, s, 4], f32>
!y = !sdx.tensor<[q, s, 4], f32>

// 4*p*s = 4*q*s is p = q: what all terms share is left out.

// CHECK-LABEL: func.func @common_factors
// CHECK-SAME: "derived 0.. q = p : /reshape"
func.func @common_factors(%x: !x, %y: !y) -> !v
    attributes {sdx.symbols = ["input p 0..", "input q 0..", "input s 0.."]} {
  %0 = onnx.node "Shape"(%y) opset 15 {} : (!y) -> !v
  %1 = onnx.node "Reshape"(%x, %0) opset 14 {} : (!x, !v) -> !v loc("/reshape")
  return %1 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[p, 4], f32>
!y = !sdx.tensor<[q, 4], f32>

// What is not solved for a symbol is checked, and written in one way from there on.

// CHECK-LABEL: func.func @floordiv
// CHECK-SAME: -> !sdx.tensor<[((p + 1) floordiv (2)), 4], f32>
// CHECK-SAME: sdx.checks = ["((q + 1) floordiv (2)) == ((p + 1) floordiv (2)) : /add"]
// CHECK-SAME: sdx.symbols = ["input p 0..", "input q 0.."]
func.func @floordiv(%x: !x, %y: !y) -> !v attributes {sdx.symbols = ["input p 0..", "input q 0.."]} {
  %a = sdx.const dense<0> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %e = sdx.const dense<9223372036854775807> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %s = sdx.const dense<2> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "Slice"(%x, %a, %e, %a, %s) opset 13 {} : (!x, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v
  %1 = onnx.node "Slice"(%y, %a, %e, %a, %s) opset 13 {} : (!y, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v
  %2 = onnx.node "Add"(%0, %1) opset 14 {} : (!v, !v) -> !v loc("/add")
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, t], f32>
!i = !sdx.tensor<[n], i64>

// An index that counts to s is no index from data: the call is checked once, and nothing is wrapped.

// CHECK-LABEL: func.func @counting
// CHECK-SAME: sdx.checks = ["max(s, t) == t : /gather"]
// CHECK: %[[I:.*]] = sdx.iota
// CHECK-NOT: select
// CHECK: sdx.gather %arg0[%[[I]]] axis 1
func.func @counting(%x: !x, %y: !sdx.tensor<[s], f32>) -> !v
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input t 0.."]} {
  %z = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %o = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %n = onnx.node "Size"(%y) opset 13 {} : (!sdx.tensor<[s], f32>) -> !v
  %i = onnx.node "Range"(%z, %n, %o) opset 11 {} : (!sdx.tensor<[], i64>, !v, !sdx.tensor<[], i64>) -> !v
  %0 = onnx.node "Gather"(%x, %i) opset 13 {axis = 1 : i64} : (!x, !v) -> !v loc("/gather")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[512, 8], f32>

// A constant extent is the symbol's bound.

// CHECK-LABEL: func.func @positions
// CHECK-SAME: sdx.checks = []
// CHECK-SAME: sdx.symbols = ["input s 0..512"]
func.func @positions(%x: !x, %y: !sdx.tensor<[s], f32>) -> !v attributes {sdx.symbols = ["input s 0.."]} {
  %z = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %o = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %n = onnx.node "Size"(%y) opset 13 {} : (!sdx.tensor<[s], f32>) -> !v
  %i = onnx.node "Range"(%z, %n, %o) opset 11 {} : (!sdx.tensor<[], i64>, !v, !sdx.tensor<[], i64>) -> !v
  %0 = onnx.node "Gather"(%x, %i) opset 13 {} : (!x, !v) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!m = !sdx.tensor<[b, t], i1>

// Exporters index a flattened mask by row * t + column: the columns must be there.

// CHECK-LABEL: func.func @flattened
// CHECK-SAME: sdx.checks = ["max(s, t) == t : /gather"]
// CHECK-NOT: select
func.func @flattened(%m: !m, %y: !sdx.tensor<[s], f32>) -> !v
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input t 0.."]} {
  %z = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %o = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %flat = sdx.const dense<-1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %column = sdx.const dense<[-1, 1]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %shape = onnx.node "Shape"(%m) opset 15 {} : (!m) -> !v
  %b = onnx.node "Gather"(%shape, %z) opset 13 {} : (!v, !sdx.tensor<[], i64>) -> !v
  %t = onnx.node "Gather"(%shape, %o) opset 13 {} : (!v, !sdx.tensor<[], i64>) -> !v
  %n = onnx.node "Size"(%y) opset 13 {} : (!sdx.tensor<[s], f32>) -> !v
  %rows = onnx.node "Range"(%z, %b, %o) opset 11 {} : (!sdx.tensor<[], i64>, !v, !sdx.tensor<[], i64>) -> !v
  %row = onnx.node "Reshape"(%rows, %column) opset 14 {} : (!v, !sdx.tensor<[2], i64>) -> !v
  %begin = onnx.node "Mul"(%row, %t) opset 14 {} : (!v, !v) -> !v
  %columns = onnx.node "Range"(%z, %n, %o) opset 11 {} : (!sdx.tensor<[], i64>, !v, !sdx.tensor<[], i64>) -> !v
  %i = onnx.node "Add"(%begin, %columns) opset 14 {} : (!v, !v) -> !v
  %all = onnx.node "Reshape"(%m, %flat) opset 14 {} : (!m, !sdx.tensor<[1], i64>) -> !v
  %0 = onnx.node "Gather"(%all, %i) opset 13 {} : (!v, !v) -> !v loc("/gather")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[t], f32>

// i + i does not count: its elements are looked at.

// CHECK-LABEL: func.func @not_independent
// CHECK-SAME: sdx.checks = []
// CHECK: sdx.map "select"
func.func @not_independent(%x: !x, %y: !sdx.tensor<[s], f32>) -> !v
    attributes {sdx.symbols = ["input s 0..", "input t 0.."]} {
  %z = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %o = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %n = onnx.node "Size"(%y) opset 13 {} : (!sdx.tensor<[s], f32>) -> !v
  %i = onnx.node "Range"(%z, %n, %o) opset 11 {} : (!sdx.tensor<[], i64>, !v, !sdx.tensor<[], i64>) -> !v
  %j = onnx.node "Add"(%i, %i) opset 14 {} : (!v, !v) -> !v
  %0 = onnx.node "Gather"(%x, %j) opset 13 {} : (!x, !v) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, 4], f32>

// n == max(0, n - 1) + 1 holds where n is at least 1: the range says so, and the call names the node.

// CHECK-LABEL: func.func @shifted
// CHECK-SAME: -> !sdx.tensor<[n, 8], f32>
// CHECK-SAME: sdx.checks = ["max(1, n) == n : /both"]
// CHECK-SAME: sdx.symbols = ["input n 1.."]
func.func @shifted(%x: !x) -> !v attributes {sdx.symbols = ["input n 0.."]} {
  %o = sdx.const dense<1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %z = sdx.const dense<0> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %e = sdx.const dense<9223372036854775807> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %r = sdx.const dense<1.0> : tensor<1x4xf32> : !sdx.tensor<[1, 4], f32>
  %0 = onnx.node "Slice"(%x, %o, %e, %z) opset 13 {} : (!x, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v
  %1 = onnx.node "Concat"(%r, %0) opset 13 {axis = 0 : i64} : (!sdx.tensor<[1, 4], f32>, !v) -> !v
  %2 = onnx.node "Concat"(%x, %1) opset 13 {axis = 1 : i64} : (!x, !v) -> !v loc("/both")
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, h*w], f32>
!w = !sdx.tensor<[49, 5], f32>

// A product of symbols is not replaced everywhere: this operand is taken as one of the length that the weights have.

// CHECK-LABEL: func.func @product
// CHECK-SAME: sdx.checks = ["h*w == 49 : /mm"]
// CHECK: sdx.slice %arg0 {{.*}}<[n, h*w], f32> -> <[n, 49], f32>
func.func @product(%x: !x, %w: !w) -> !v attributes {sdx.symbols = ["input h 0..", "input n 0..", "input w 0.."]} {
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/mm")
  return %0 : !v
}

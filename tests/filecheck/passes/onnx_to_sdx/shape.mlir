// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// CHECK-LABEL: func.func @shape
// CHECK: %[[ALL:.*]] = sdx.dims ["b", "s", "4"] : <[3], i64>
// CHECK: %[[LAST:.*]] = sdx.dims ["s", "4"] : <[2], i64>
// CHECK: %[[FIRST:.*]] = sdx.dims ["b"] : <[1], i64>
// CHECK: %[[SIZE:.*]] = sdx.dims ["4*b*s"] : <[], i64>
// CHECK: return %[[ALL]], %[[LAST]], %[[FIRST]], %[[SIZE]]
func.func @shape(%x: !x) -> (!v, !v, !v, !v) {
  %0 = onnx.node "Shape"(%x) opset 15 {} : (!x) -> !v
  %1 = onnx.node "Shape"(%x) opset 15 {start = -2 : i64} : (!x) -> !v
  %2 = onnx.node "Shape"(%x) opset 15 {start = 0 : i64, end = 1 : i64} : (!x) -> !v
  %3 = onnx.node "Size"(%x) opset 13 {} : (!x) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>
!t = !sdx.tensor<[3], i64>

// 0 copies a dimension, -1 is what is left over.

// CHECK-LABEL: func.func @reshape
// CHECK: sdx.reshape %{{.*}} : <[b, s, 4], f32> -> <[b, 2, 2*s], f32>
func.func @reshape(%x: !x) -> !v {
  %t = sdx.const dense<[0, 2, -1]> : tensor<3xi64> : !t
  %0 = onnx.node "Reshape"(%x, %t) opset 14 {} : (!x, !t) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// The target may be computed from shapes.

// CHECK-LABEL: func.func @reshape_computed
// CHECK: sdx.reshape %{{.*}} : <[b, s, 4], f32> -> <[b, 4*s], f32>
func.func @reshape_computed(%x: !x) -> !v {
  %m = sdx.const dense<-1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %b = onnx.node "Shape"(%x) opset 15 {end = 1 : i64} : (!x) -> !v
  %t = onnx.node "Concat"(%b, %m) opset 13 {axis = 0 : i64} : (!v, !sdx.tensor<[1], i64>) -> !v
  %0 = onnx.node "Reshape"(%x, %t) opset 14 {} : (!x, !v) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>
!t = !sdx.tensor<[2], i64>

// With allowzero a 0 is 0; what is read from data becomes a symbol.

// CHECK-LABEL: func.func @reshape_data
// CHECK-SAME: sdx.checks = ["data0*data1 == n : {{.*}}"]
// CHECK: sdx.bind "data0" =
// CHECK: sdx.bind "data1" =
// CHECK: sdx.reshape %{{.*}} : <[data0*data1], f32> -> <[data0, data1], f32>
func.func @reshape_data(%x: !x, %t: !t) -> !v attributes {sdx.symbols = ["input n 0.."]} {
  %0 = onnx.node "Reshape"(%x, %t) opset 14 {allowzero = 1 : i64} : (!x, !t) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// CHECK-LABEL: func.func @flatten
// CHECK: sdx.reshape %{{.*}} -> <[b, 4*s], f32>
// CHECK: sdx.reshape %{{.*}} -> <[4*b*s, 1], f32>
func.func @flatten(%x: !x) -> (!v, !v) {
  %0 = onnx.node "Flatten"(%x) opset 13 {} : (!x) -> !v
  %1 = onnx.node "Flatten"(%x) opset 13 {axis = 3 : i64} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 1, 4, 1], f32>

// Axes are an operand since opset 13; none are all dimensions of 1.

// CHECK-LABEL: func.func @squeeze
// CHECK: sdx.reshape %{{.*}} -> <[b, 1, 4], f32>
// CHECK: sdx.reshape %{{.*}} -> <[b, 4, 1], f32>
// CHECK: sdx.reshape %{{.*}} -> <[b, 4], f32>
func.func @squeeze(%x: !x) -> (!v, !v, !v) {
  %a = sdx.const dense<-1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "Squeeze"(%x, %a) opset 13 {} : (!x, !sdx.tensor<[1], i64>) -> !v
  %1 = onnx.node "Squeeze"(%x) opset 11 {axes = [1]} : (!x) -> !v
  %2 = onnx.node "Squeeze"(%x) opset 13 {} : (!x) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK-LABEL: func.func @unsqueeze
// CHECK: sdx.reshape %{{.*}} -> <[1, b, 4, 1], f32>
// CHECK: sdx.reshape %{{.*}} -> <[b, 1, 4], f32>
func.func @unsqueeze(%x: !x) -> (!v, !v) {
  %a = sdx.const dense<[0, -1]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %0 = onnx.node "Unsqueeze"(%x, %a) opset 13 {} : (!x, !sdx.tensor<[2], i64>) -> !v
  %1 = onnx.node "Unsqueeze"(%x) opset 11 {axes = [1]} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4], f32>

// Without a permutation the dimensions are reversed.

// CHECK-LABEL: func.func @transpose
// CHECK: sdx.transpose %{{.*}} [0, 2, 1] : <[b, s, 4], f32> -> <[b, 4, s], f32>
// CHECK: sdx.transpose %{{.*}} [2, 1, 0]
func.func @transpose(%x: !x) -> (!v, !v) {
  %0 = onnx.node "Transpose"(%x) opset 13 {perm = [0, 2, 1]} : (!x) -> !v
  %1 = onnx.node "Transpose"(%x) opset 13 {} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>
!y = !sdx.tensor<[b, past], f32>

// CHECK-LABEL: func.func @concat
// CHECK: sdx.concat(%{{.*}}, %{{.*}}) axis 1 : ({{.*}}) -> !sdx.tensor<[b, past + s], f32>
func.func @concat(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Concat"(%x, %y) opset 13 {axis = -1 : i64} : (!x, !y) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[s, 1], f32>
!t = !sdx.tensor<[3], i64>

// A target of 1 keeps the operand's dimension.

// CHECK-LABEL: func.func @expand
// CHECK: sdx.broadcast %{{.*}} to [1, 2] : <[s, 1], f32> -> <[2, s, 5], f32>
func.func @expand(%x: !x) -> !v {
  %t = sdx.const dense<[2, 1, 5]> : tensor<3xi64> : !t
  %0 = onnx.node "Expand"(%x, %t) opset 13 {} : (!x, !t) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @constant_of_shape
// CHECK: %[[C:.*]] = sdx.const dense<7> : tensor<i64>
// CHECK: sdx.broadcast %[[C]] to [] : <[], i64> -> <[b, s], i64>
// CHECK: %[[Z:.*]] = sdx.const dense<0.000000e+00> : tensor<f32>
// CHECK: sdx.broadcast %[[Z]] to [] : <[], f32> -> <[b, s], f32>
func.func @constant_of_shape(%x: !x) -> (!v, !v) {
  %s = onnx.node "Shape"(%x) opset 15 {} : (!x) -> !v
  %0 = onnx.node "ConstantOfShape"(%s) opset 9 {value = dense<7> : tensor<1xi64>} : (!v) -> !v
  %1 = onnx.node "ConstantOfShape"(%s) opset 9 {} : (!v) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>
!i = !sdx.tensor<[], i64>

// start + i * delta; the count follows from the symbols.

// CHECK-LABEL: func.func @range
// CHECK: %[[I:.*]] = sdx.iota axis 0 : <[s], i64>
// CHECK: %[[J:.*]] = sdx.iota axis 0 : <[((s + 2) floordiv (3))], i64>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[J]],
// CHECK: sdx.dims ["b"]
// CHECK: %[[SHIFTED:.*]] = sdx.map "add"(%[[SCALED]],
// CHECK: return %[[I]], %[[SHIFTED]]
func.func @range(%x: !x) -> (!v, !v) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %zero = sdx.const dense<0> : tensor<i64> : !i
  %one = sdx.const dense<1> : tensor<i64> : !i
  %s = onnx.node "Shape"(%x) opset 15 {start = 1 : i64} : (!x) -> !v
  %n = onnx.node "Squeeze"(%s) opset 13 {} : (!v) -> !v
  %0 = onnx.node "Range"(%zero, %n, %one) opset 11 {} : (!i, !v, !i) -> !v
  %three = sdx.const dense<3> : tensor<i64> : !i
  %b = sdx.dims ["b"] : !i
  %end = sdx.dims ["b + s"] : !i
  %1 = onnx.node "Range"(%b, %end, %three) opset 11 {} : (!i, !i, !i) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 4*h], f32>
!y = !sdx.tensor<[g, 2*t + 1, h], f32>

// Where no equation says which sizes these are, the call compares them: the elements are taken under another name.

// CHECK-LABEL: func.func @reshape_of_products
// CHECK-SAME: sdx.checks = ["g*h + 2*g*h*t == 4*b*h*s : "]
// CHECK: %[[FLAT:.*]] = sdx.reshape %arg0
// CHECK: %[[TAKEN:.*]] = sdx.slice %[[FLAT]] from ["0"] step [1] : <[4*b*h*s], f32> -> <[g*h + 2*g*h*t], f32>
// CHECK: sdx.reshape %[[TAKEN]] {{.*}} -> <[g, 2*t + 1, h], f32>
func.func @reshape_of_products(%x: !x, %y: !y) -> !v {
  %s = onnx.node "Shape"(%y) opset 13 {} : (!y) -> !v
  %0 = onnx.node "Reshape"(%x, %s) opset 13 {} : (!x, !v) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[4*((n + 1) floordiv 2), 3], f32>
!y = !sdx.tensor<[8*((((n + 1) floordiv 2) + 1) floordiv 2), 3], f32>

// What is halved and doubled again is as long as before for some n: no substitution says for which.

// CHECK-LABEL: func.func @halved_and_doubled
// CHECK-SAME: sdx.checks = [{{.*}}floordiv{{.*}} == {{.*}}floordiv
// CHECK: %[[TAKEN:.*]] = sdx.slice %arg1
// CHECK: sdx.concat(%arg0, %[[TAKEN]])
func.func @halved_and_doubled(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Concat"(%x, %y) opset 13 {axis = 1 : i64} : (!x, !y) -> !v
  return %0 : !v
}

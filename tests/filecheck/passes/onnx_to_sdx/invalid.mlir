// RUN: not sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' 2>&1 | FileCheck %s

// A mistake names its code, the node and, where there is one, the remedy.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// All unsupported operators at once.

// CHECK: error[E0101]: unsupported operators `Eigen` (/a/Eigen), `com.acme.Foo` (/a/Foo)
// CHECK-NEXT: --> node /a/Eigen
// CHECK-NEXT: help: `sardonyx ops` lists the supported operators
func.func @unsupported(%x: !x) -> !v {
  %0 = onnx.node "Eigen"(%x) opset 13 {} : (!x) -> !v loc("/a/Eigen")
  %1 = onnx.node "Relu"(%0) opset 14 {} : (!v) -> !v loc("/a/Relu")
  %2 = onnx.node "Foo"(%1) opset 1 domain "com.acme" {} : (!v) -> !v loc("/a/Foo")
  return %2 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0101]: unsupported operator `Gelu (opset 19)`
// CHECK-NEXT: --> node /a/Gelu
func.func @opset(%x: !x) -> !v {
  %0 = onnx.node "Gelu"(%x) opset 19 {} : (!x) -> !v loc("/a/Gelu")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0103]: Add: input 1 is missing
// CHECK-NEXT: --> node /a/Add
func.func @missing(%x: !x) -> !v {
  %0 = onnx.node "Add"(%x) opset 13 {} : (!x) -> !v loc("/a/Add")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!y = !sdx.tensor<[b, 4], i32>

// CHECK: error[E0107]: Add: `add` takes operands of one type, not f32 and i32
// CHECK-NEXT: --> node /a/Add
// CHECK-NEXT: help: insert a Cast, or export the model with another element type
func.func @types(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Add"(%x, %y) opset 13 {} : (!x, !y) -> !v loc("/a/Add")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!y = !sdx.tensor<[b, 3], f32>

// CHECK: error[E0201]: the dimensions {{[34]}} and {{[34]}} must be equal
// CHECK-NEXT: --> node /a/Add
// CHECK-NEXT: help: check the shapes of the node's inputs
func.func @dims(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Add"(%x, %y) opset 13 {} : (!x, !y) -> !v loc("/a/Add")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!y = !sdx.tensor<[3], f32>

// A symbol below its least value is a contradiction.

// CHECK: error[E0201]: the dimension b, in 4.., must be 3
// CHECK-NEXT: --> node /a/Add
func.func @bound(%x: !sdx.tensor<[b], f32>, %y: !y) -> !v attributes {sdx.symbols = ["input b 4.."]} {
  %0 = onnx.node "Add"(%x, %y) opset 13 {} : (!sdx.tensor<[b], f32>, !y) -> !v loc("/a/Add")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0106]: Softmax: the axis 2 is outside a tensor of rank 2
// CHECK-NEXT: --> node /a/Softmax
func.func @axis(%x: !x) -> !v {
  %0 = onnx.node "Softmax"(%x) opset 13 {axis = 2 : i64} : (!x) -> !v loc("/a/Softmax")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0106]: Concat: the attribute `axis` is missing
func.func @attribute(%x: !x) -> !v {
  %0 = onnx.node "Concat"(%x, %x) opset 13 {} : (!x, !x) -> !v loc("/a/Concat")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0106]: Softmax: the attribute `axis` is not an integer
func.func @attribute_type(%x: !x) -> !v {
  %0 = onnx.node "Softmax"(%x) opset 13 {axis = "last"} : (!x) -> !v loc("/a/Softmax")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0101]: Relu: its output 1 is not supported
// CHECK: help: only inference outputs are computed
func.func @outputs(%x: !x) -> !v {
  %0:2 = onnx.node "Relu"(%x) opset 13 {} : (!x) -> (!v, !v) loc("/a/Relu")
  return %0#1 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[2, 4], f32>
!t = !sdx.tensor<[2], i64>

// CHECK: error[E0201]: Reshape: 8 elements cannot be divided evenly by 3
func.func @reshape(%x: !x) -> !v {
  %t = sdx.const dense<[3, -1]> : tensor<2xi64> : !t
  %0 = onnx.node "Reshape"(%x, %t) opset 14 {} : (!x, !t) -> !v loc("/a/Reshape")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!i = !sdx.tensor<[n], i64>

// CHECK: error[E0203]: Reshape: a rank is not known when the model is compiled
// CHECK-NEXT: --> node /a/Reshape
func.func @rank(%x: !x, %i: !i) -> !v {
  %0 = onnx.node "Reshape"(%x, %i) opset 14 {} : (!x, !i) -> !v loc("/a/Reshape")
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK: error[E0104]: the output `result0` is never computed
func.func @none() -> !v {
  %0 = onnx.none : !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, 8, 8], f32>

// CHECK: error[E0101]: ReorderInput: its channels are in blocks whose size is that of the machine which wrote the file
// CHECK-NEXT: --> node /a/Reorder
// CHECK-NEXT: help: `sardonyx compile --nchwc-block 16` if that machine has AVX-512
func.func @layout_of_one_machine(%x: !x) -> !v {
  %0 = onnx.node "ReorderInput"(%x) opset 1 domain "com.microsoft.nchwc" {} : (!x) -> !v loc("/a/Reorder")
  return %0 : !v
}

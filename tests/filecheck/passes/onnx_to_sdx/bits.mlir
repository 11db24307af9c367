// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[n], ui32>

// CHECK-LABEL: func.func @bitwise
// CHECK: sdx.map "bitand"
// CHECK: sdx.map "bitor"
// CHECK: sdx.map "bitxor"
// CHECK: sdx.map "neg"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "shl"
// CHECK: sdx.map "shr"
func.func @bitwise(%x: !x, %y: !x) -> (!v, !v, !v, !v, !v, !v) {
  %and = onnx.node "BitwiseAnd"(%x, %y) opset 18 {} : (!x, !x) -> !v
  %or = onnx.node "BitwiseOr"(%x, %y) opset 18 {} : (!x, !x) -> !v
  %xor = onnx.node "BitwiseXor"(%x, %y) opset 18 {} : (!x, !x) -> !v
  %not = onnx.node "BitwiseNot"(%x) opset 18 {} : (!x) -> !v
  %left = onnx.node "BitShift"(%x, %y) opset 11 {direction = "LEFT"} : (!x, !x) -> !v
  %right = onnx.node "BitShift"(%x, %y) opset 11 {direction = "RIGHT"} : (!x, !x) -> !v
  return %and, %or, %xor, %not, %left, %right : !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!i = !sdx.tensor<[n], i32>
!x = !sdx.tensor<[n], f32>

// CHECK-LABEL: func.func @remainders
// CHECK: sdx.map "rem"(%arg0, %arg1)
// CHECK: sdx.map "div"(%arg0, %arg1)
// CHECK: sdx.map "mul"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "rem"(%arg2, %arg3)
func.func @remainders(%a: !i, %b: !i, %x: !x, %y: !x) -> (!v, !v, !v) {
  %rem = onnx.node "Mod"(%a, %b) opset 13 {} : (!i, !i) -> !v
  %of_dividend = onnx.node "Mod"(%a, %b) opset 13 {fmod = 1 : i64} : (!i, !i) -> !v
  %fmod = onnx.node "Mod"(%x, %y) opset 13 {fmod = 1 : i64} : (!x, !x) -> !v
  return %rem, %of_dividend, %fmod : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>

// CHECK-LABEL: func.func @of_divisor
// CHECK: %[[R:.*]] = sdx.map "rem"
// CHECK: sdx.map "xor"
// CHECK: sdx.map "add"(%[[R]]
// CHECK: sdx.map "select"
func.func @of_divisor(%x: !x, %y: !x) -> !v {
  %mod = onnx.node "Mod"(%x, %y) opset 28 {} : (!x, !x) -> !v
  return %mod : !v
}

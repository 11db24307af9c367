// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!a = !sdx.tensor<[m, k], ui8>
!b = !sdx.tensor<[k, n], i8>
!za = !sdx.tensor<[m], ui8>
!zb = !sdx.tensor<[], i8>

// Sums of products are i32; a vector of zero points on the left is one for each row.

// CHECK-LABEL: func.func @integers
// CHECK: sdx.reshape %arg2 : <[m], ui8> -> <[m, 1], ui8>
// CHECK: %[[A:.*]] = sdx.map "sub"
// CHECK: %[[B:.*]] = sdx.map "sub"
// CHECK: sdx.contract "mk,kn->mn"(%[[A]], %[[B]]) {{.*}}<[m, n], i32>
func.func @integers(%a: !a, %b: !b, %za: !za, %zb: !zb) -> !v {
  %y = onnx.node "MatMulInteger"(%a, %b, %za, %zb) opset 10 {} : (!a, !b, !za, !zb) -> !v
  return %y : !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[m, k], ui8>
!b = !sdx.tensor<[k, n], ui8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>

// CHECK-LABEL: func.func @matrices
// CHECK: sdx.contract {{.*}} -> !sdx.tensor<[m, n], i32>
// CHECK: sdx.map "div"
// CHECK: sdx.map "round"
// CHECK: sdx.convert {{.*}} -> <[m, n], ui8>
// CHECK: sdx.contract {{.*}} -> !sdx.tensor<[m, n], i32>
// CHECK: sdx.map "mul"{{.*}} -> !sdx.tensor<[m, n], f32>
func.func @matrices(%a: !a, %b: !b, %s: !s, %z: !z) -> (!v, !v) {
  %y = onnx.node "QLinearMatMul"(%a, %s, %z, %b, %s, %z, %s, %z) opset 10 {}
    : (!a, !s, !z, !b, !s, !z, !s, !z) -> !v
  %f = onnx.node "MatMulIntegerToFloat"(%a, %b, %s, %s, %z, %z) opset 1 domain "com.microsoft" {}
    : (!a, !b, !s, !s, !z, !z) -> !v
  return %y, %f : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, c, h, w], ui8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>

// CHECK-LABEL: func.func @values
// CHECK: sdx.map "add"{{.*}}<[n, c, h, w], f32>
// CHECK: sdx.map "mul"{{.*}}<[n, c, h, w], f32>
// CHECK: sdx.map "lt"
// CHECK: sdx.map "exp"
// CHECK: sdx.reduce "max"
// CHECK: sdx.reduce "add"
// CHECK: sdx.concat
func.func @values(%x: !x, %s: !s, %z: !z) -> (!v, !v, !v, !v, !v, !v, !v) {
  %0 = onnx.node "QLinearAdd"(%x, %s, %z, %x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!x, !s, !z, !x, !s, !z, !s, !z) -> !v
  %1 = onnx.node "QLinearMul"(%x, %s, %z, %x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!x, !s, !z, !x, !s, !z, !s, !z) -> !v
  %2 = onnx.node "QLinearLeakyRelu"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!x, !s, !z, !s, !z) -> !v
  %3 = onnx.node "QLinearSigmoid"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!x, !s, !z, !s, !z) -> !v
  %4 = onnx.node "QLinearSoftmax"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {axis = -1 : i64, opset = 13 : i64}
    : (!x, !s, !z, !s, !z) -> !v
  %5 = onnx.node "QLinearGlobalAveragePool"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!x, !s, !z, !s, !z) -> !v
  %6 = onnx.node "QLinearConcat"(%s, %z, %x, %s, %z, %x, %s, %z) opset 1 domain "com.microsoft" {axis = 1 : i64}
    : (!s, !z, !x, !s, !z, !x, !s, !z) -> !v
  return %0, %1, %2, %3, %4, %5, %6 : !v, !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[m, 64], f32>
!b = !sdx.tensor<[8, 2, 16], ui8>
!s = !sdx.tensor<[16], f32>

// Two weights to a byte; eight is what they are counted from.

// CHECK-LABEL: func.func @four_bits
// CHECK: sdx.map "shr"
// CHECK: sdx.map "bitand"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "mul"
// CHECK: sdx.contract {{.*}} -> !sdx.tensor<[m, 8], f32>
func.func @four_bits(%a: !a, %b: !b, %s: !s) -> !v {
  %y = onnx.node "MatMulNBits"(%a, %b, %s) opset 1 domain "com.microsoft"
    {K = 64 : i64, N = 8 : i64, bits = 4 : i64, block_size = 32 : i64} : (!a, !b, !s) -> !v
  return %y : !v
}

// With this accuracy level, each block of the other operand is rounded to bytes.

// CHECK-LABEL: func.func @four_bits_by_bytes
// CHECK: %[[BLOCKS:.*]] = sdx.reshape
// CHECK: sdx.reduce "max" %[[BLOCKS]] axes [2]
// CHECK: sdx.reduce "min" %[[BLOCKS]] axes [2]
// CHECK: sdx.map "round"
// CHECK: sdx.convert {{.*}} <[m, 2, 32], i8>
// CHECK: sdx.contract {{.*}} -> !sdx.tensor<[m, 8], f32>
func.func @four_bits_by_bytes(%a: !a, %b: !b, %s: !s) -> !v {
  %y = onnx.node "MatMulNBits"(%a, %b, %s) opset 1 domain "com.microsoft"
    {K = 64 : i64, N = 8 : i64, bits = 4 : i64, block_size = 32 : i64, accuracy_level = 4 : i64} : (!a, !b, !s) -> !v
  return %y : !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[m, k], f32>
!b = !sdx.tensor<[k, n], ui8>
!s = !sdx.tensor<[n], f32>
!z = !sdx.tensor<[n], ui8>

// CHECK-LABEL: func.func @dynamic
// CHECK: sdx.reduce "max"
// CHECK: sdx.convert {{.*}} -> <[m, k], ui8>
// CHECK: sdx.contract {{.*}} -> !sdx.tensor<[m, n], i32>
func.func @dynamic(%a: !a, %b: !b, %s: !s, %z: !z) -> !v {
  %y = onnx.node "DynamicQuantizeMatMul"(%a, %b, %s, %z) opset 1 domain "com.microsoft" {}
    : (!a, !b, !s, !z) -> !v
  return %y : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, 3, h, w], ui8>
!w = !sdx.tensor<[8, 3, 3, 3], i8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>
!ws = !sdx.tensor<[8], f32>
!wz = !sdx.tensor<[8], i8>
!b = !sdx.tensor<[8], i32>

// What padding adds is 0 after the zero point is taken away.

// CHECK-LABEL: func.func @convolutions
// CHECK: sdx.reshape %arg{{.*}} -> <[8, 1, 1, 1], i8>
// CHECK: sdx.map "sub"
// CHECK: sdx.map "sub"
// CHECK: sdx.pad
// CHECK: sdx.contract {{.*}}i32
// CHECK: sdx.contract {{.*}}i32
// CHECK: sdx.map "add"{{.*}}i32
// CHECK: sdx.reshape {{.*}} -> <[8, 1, 1], f32>
// CHECK: sdx.convert {{.*}} -> <[n, 8, {{.*}}], ui8>
func.func @convolutions(%x: !x, %w: !w, %s: !s, %z: !z, %ws: !ws, %wz: !wz, %b: !b) -> (!v, !v) {
  %sums = onnx.node "ConvInteger"(%x, %w, %z, %wz) opset 10 {pads = [1, 1, 1, 1]} : (!x, !w, !z, !wz) -> !v
  %y = onnx.node "QLinearConv"(%x, %s, %z, %w, %ws, %wz, %s, %z, %b) opset 10 {}
    : (!x, !s, !z, !w, !ws, !wz, !s, !z, !b) -> !v
  return %sums, %y : !v, !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[m, k], ui8>
!b = !sdx.tensor<[n, k], i8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>
!zb = !sdx.tensor<[n], i8>
!sb = !sdx.tensor<[n], f32>
!c = !sdx.tensor<[n], i32>

// The bias has the scale of the product; without a scale of its own the result is f32.

// CHECK-LABEL: func.func @gemm
// CHECK: sdx.transpose %arg1 [1, 0]
// CHECK: %[[P:.*]] = sdx.contract "mk,kn->mn"{{.*}} -> !sdx.tensor<[m, n], i32>
// CHECK: sdx.map "add"(%[[P]], {{.*}}i32
// CHECK: sdx.map "mul"
// CHECK: sdx.map "round"
// CHECK: sdx.contract
// CHECK-NOT: sdx.map "round"
// CHECK: return
func.func @gemm(%a: !a, %b: !b, %s: !s, %z: !z, %sb: !sb, %zb: !zb, %c: !c) -> (!v, !v) {
  %y = onnx.node "QGemm"(%a, %s, %z, %b, %sb, %zb, %c, %s, %z) opset 1 domain "com.microsoft" {transB = 1 : i64}
    : (!a, !s, !z, !b, !sb, !zb, !c, !s, !z) -> !v
  %f = onnx.node "QGemm"(%a, %s, %z, %b, %sb, %zb) opset 1 domain "com.microsoft" {transB = 1 : i64, alpha = 0.5 : f32}
    : (!a, !s, !z, !b, !sb, !zb) -> !v
  return %y, %f : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 8, 8, 3], ui8>
!w = !sdx.tensor<[5, 3, 3, 3], i8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>
!zw = !sdx.tensor<[], i8>
!c = !sdx.tensor<[b, 8, 8, 3], i1>

// Channels that are last are moved first, and back; the weights of a convolution stay.

// CHECK-LABEL: func.func @images
// CHECK: sdx.transpose {{.*}} [0, 3, 1, 2] : <[b, 8, 8, 3], f32>
// CHECK: sdx.reduce "add"
// CHECK: sdx.transpose {{.*}} [0, 2, 3, 1]
// CHECK: sdx.map "round"
// CHECK: sdx.transpose {{.*}} [0, 3, 1, 2] : <[b, 8, 8, 3], ui8>
// CHECK: sdx.contract
// CHECK: sdx.transpose {{.*}} [0, 2, 3, 1] : <[b, 5, 6, 6], ui8>
// CHECK: sdx.reduce "add" {{.*}} axes [1, 2]
// CHECK: sdx.map "select"
func.func @images(%x: !x, %s: !s, %z: !z, %w: !w, %zw: !zw, %c: !c) -> (!v, !v, !v, !v) {
  %0 = onnx.node "QLinearAveragePool"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {channels_last = 1 : i64, kernel_shape = [2, 2]}
    : (!x, !s, !z, !s, !z) -> !v
  %1 = onnx.node "QLinearConv"(%x, %s, %z, %w, %s, %zw, %s, %z) opset 1 domain "com.microsoft" {channels_last = 1 : i64}
    : (!x, !s, !z, !w, !s, !zw, !s, !z) -> !v
  %2 = onnx.node "QLinearReduceMean"(%x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {axes = [1, 2], keepdims = 0 : i64}
    : (!x, !s, !z, !s, !z) -> !v
  %3 = onnx.node "QLinearWhere"(%c, %x, %s, %z, %x, %s, %z, %s, %z) opset 1 domain "com.microsoft" {}
    : (!c, !x, !s, !z, !x, !s, !z, !s, !z) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!t = !sdx.tensor<[99, 16], ui8>
!i = !sdx.tensor<[n], i64>
!s = !sdx.tensor<[99, 2], f32>

// Codes are looked up, unpacked, and multiplied by the scale of their block.

// CHECK-LABEL: func.func @lookup
// CHECK: sdx.gather %arg0[%{{.*}}] axis 0 {{.*}} -> !sdx.tensor<[n, 16], ui8>
// CHECK: sdx.convert {{.*}} ui4>
// CHECK: sdx.gather %arg2[%{{.*}}] axis 0 {{.*}} -> !sdx.tensor<[n, 2], f32>
// CHECK: sdx.map "mul"{{.*}} -> !sdx.tensor<[n, 2, 16], f32>
// CHECK: sdx.reshape {{.*}} -> <[n, 32], f32>
func.func @lookup(%t: !t, %i: !i, %s: !s) -> !v {
  %0 = onnx.node "GatherBlockQuantized"(%t, %i, %s) opset 1 domain "com.microsoft" {bits = 4 : i64, block_size = 16 : i64} : (!t, !i, !s) -> !v
  return %0 : !v
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(simplify)' | FileCheck %s

// same-type-motion: motion that moves nothing is its operand.

!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @still
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]], %[[X]], %[[X]]
func.func @still(%x: !x) -> (!x, !x, !x, !x, !x, !x) {
  %0 = sdx.reshape %x : !x -> !x
  %1 = sdx.transpose %x [0, 1] : !x -> !x
  %2 = sdx.broadcast %x to [0, 1] : !x -> !x
  %3 = sdx.convert %x : !x -> !x
  %4 = sdx.concat (%x) axis 1 : (!x) -> !x
  %5 = sdx.slice %x from ["0", "0"] step [1, 1] : !x -> !x
  return %0, %1, %2, %3, %4, %5 : !x, !x, !x, !x, !x, !x
}

// -----

!q = !sdx.tensor<[b, b], f32>
!one = !sdx.tensor<[b, 1], f32>

// A square's transpose has its type and moves; so do a slice backwards and one that starts elsewhere.

// CHECK-LABEL: func.func @moving
// CHECK: sdx.transpose %{{.*}} [1, 0]
// CHECK: sdx.slice %{{.*}} from ["b - 1", "0"] step [-1, 1]
// CHECK: sdx.slice %{{.*}} from ["0", "0"] step [1, 1] : <[b, b], f32> -> <[b, 1], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "n"] step [1, 1]
// CHECK: sdx.concat
func.func @moving(%x: !q) -> (!q, !q, !one, !q, !sdx.tensor<[2*b, b], f32>) {
  %0 = sdx.transpose %x [1, 0] : !q -> !q
  %1 = sdx.slice %x from ["b - 1", "0"] step [-1, 1] : !q -> !q
  %2 = sdx.slice %x from ["0", "0"] step [1, 1] : !q -> !one
  %3 = sdx.slice %x from ["0", "n"] step [1, 1] : !q -> !q
  %4 = sdx.concat (%x, %x) axis 0 : (!q, !q) -> !sdx.tensor<[2*b, b], f32>
  return %0, %1, %2, %3, %4 : !q, !q, !one, !q, !sdx.tensor<[2*b, b], f32>
}

// -----

// compose-reshapes

// CHECK-LABEL: func.func @reshapes
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: %[[Y:.*]] = sdx.reshape %[[X]] : <[b, 12], f32> -> <[b, 4, 3], f32>
// CHECK-NEXT: return %[[Y]]
func.func @reshapes(%x: !sdx.tensor<[b, 12], f32>) -> !sdx.tensor<[b, 4, 3], f32> {
  %0 = sdx.reshape %x : !sdx.tensor<[b, 12], f32> -> !sdx.tensor<[12*b], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[12*b], f32> -> !sdx.tensor<[b, 4, 3], f32>
  return %1 : !sdx.tensor<[b, 4, 3], f32>
}

// -----

// compose-reshapes, and then same-type-motion in the next round

// CHECK-LABEL: func.func @reshape_back
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: return %[[X]]
func.func @reshape_back(%x: !sdx.tensor<[b, 12], f32>) -> !sdx.tensor<[b, 12], f32> {
  %0 = sdx.reshape %x : !sdx.tensor<[b, 12], f32> -> !sdx.tensor<[12*b], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[12*b], f32> -> !sdx.tensor<[b, 12], f32>
  return %1 : !sdx.tensor<[b, 12], f32>
}

// -----

// A reshape of anything else stays.

// CHECK-LABEL: func.func @reshape_of_transpose
// CHECK: sdx.transpose
// CHECK: sdx.reshape
func.func @reshape_of_transpose(%x: !sdx.tensor<[b, 12], f32>) -> !sdx.tensor<[12*b], f32> {
  %0 = sdx.transpose %x [1, 0] : !sdx.tensor<[b, 12], f32> -> !sdx.tensor<[12, b], f32>
  %1 = sdx.reshape %0 : !sdx.tensor<[12, b], f32> -> !sdx.tensor<[12*b], f32>
  return %1 : !sdx.tensor<[12*b], f32>
}

// -----

// compose-transposes

// CHECK-LABEL: func.func @transposes
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: %[[Y:.*]] = sdx.transpose %[[X]] [1, 0, 2] : <[b, s, t], f32> -> <[s, b, t], f32>
// CHECK-NEXT: return %[[Y]]
func.func @transposes(%x: !sdx.tensor<[b, s, t], f32>) -> !sdx.tensor<[s, b, t], f32> {
  %0 = sdx.transpose %x [2, 0, 1] : !sdx.tensor<[b, s, t], f32> -> !sdx.tensor<[t, b, s], f32>
  %1 = sdx.transpose %0 [2, 1, 0] : !sdx.tensor<[t, b, s], f32> -> !sdx.tensor<[s, b, t], f32>
  return %1 : !sdx.tensor<[s, b, t], f32>
}

// -----

// compose-transposes, and then same-type-motion

// CHECK-LABEL: func.func @transpose_back
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: return %[[X]]
func.func @transpose_back(%x: !sdx.tensor<[b, s, t], f32>) -> !sdx.tensor<[b, s, t], f32> {
  %0 = sdx.transpose %x [2, 0, 1] : !sdx.tensor<[b, s, t], f32> -> !sdx.tensor<[t, b, s], f32>
  %1 = sdx.transpose %0 [1, 2, 0] : !sdx.tensor<[t, b, s], f32> -> !sdx.tensor<[b, s, t], f32>
  return %1 : !sdx.tensor<[b, s, t], f32>
}

// -----

// compose-broadcasts

// CHECK-LABEL: func.func @broadcasts
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: %[[Y:.*]] = sdx.broadcast %[[X]] to [0, 3] : <[1, t], f32> -> <[b, h, s, t], f32>
// CHECK-NEXT: return %[[Y]]
func.func @broadcasts(%x: !sdx.tensor<[1, t], f32>) -> !sdx.tensor<[b, h, s, t], f32> {
  %0 = sdx.broadcast %x to [0, 2] : !sdx.tensor<[1, t], f32> -> !sdx.tensor<[b, h, t], f32>
  %1 = sdx.broadcast %0 to [0, 1, 3] : !sdx.tensor<[b, h, t], f32> -> !sdx.tensor<[b, h, s, t], f32>
  return %1 : !sdx.tensor<[b, h, s, t], f32>
}

// -----

!x = !sdx.tensor<[b, s], f32>

// drop-neutral-operand: a constant, or one that is broadcast or reshaped.

// CHECK-LABEL: func.func @neutral
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]]
func.func @neutral(%x: !x) -> (!x, !x, !x, !x) {
  %c1 = sdx.const dense<1.0> : tensor<1xf32> : !sdx.tensor<[1], f32>
  %r1 = sdx.reshape %c1 : !sdx.tensor<[1], f32> -> !sdx.tensor<[], f32>
  %one = sdx.broadcast %r1 to [] : !sdx.tensor<[], f32> -> !x
  %c0 = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %zero = sdx.broadcast %c0 to [] : !sdx.tensor<[], f32> -> !x
  %0 = sdx.map "mul"(%x, %one) : (!x, !x) -> !x
  %1 = sdx.map "mul"(%one, %x) : (!x, !x) -> !x
  %2 = sdx.map "div"(%x, %one) : (!x, !x) -> !x
  %3 = sdx.map "sub"(%x, %zero) : (!x, !x) -> !x
  return %0, %1, %2, %3 : !x, !x, !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// x + 0 turns -0 into 0; x - (-0) does too; 1 / x and 0 - x are no x.

// CHECK-LABEL: func.func @not_neutral
// CHECK: sdx.map "add"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "div"
// CHECK: sdx.map "sub"
func.func @not_neutral(%x: !x) -> (!x, !x, !x, !x) {
  %c1 = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %one = sdx.broadcast %c1 to [] : !sdx.tensor<[], f32> -> !x
  %c0 = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %zero = sdx.broadcast %c0 to [] : !sdx.tensor<[], f32> -> !x
  %cm = sdx.const dense<-0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %minus = sdx.broadcast %cm to [] : !sdx.tensor<[], f32> -> !x
  %0 = sdx.map "add"(%x, %zero) : (!x, !x) -> !x
  %1 = sdx.map "sub"(%x, %minus) : (!x, !x) -> !x
  %2 = sdx.map "div"(%one, %x) : (!x, !x) -> !x
  %3 = sdx.map "sub"(%zero, %x) : (!x, !x) -> !x
  return %0, %1, %2, %3 : !x, !x, !x, !x
}

// -----

!i = !sdx.tensor<[2], i64>

// Integers have one zero; a constant whose elements differ is not neutral.

// CHECK-LABEL: func.func @integers
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[Y:.*]] = sdx.map "mul"
// CHECK: return %[[X]], %[[Y]]
func.func @integers(%x: !i) -> (!i, !i) {
  %zero = sdx.const dense<0> : tensor<2xi64> : !i
  %mixed = sdx.const dense<[1, 2]> : tensor<2xi64> : !i
  %0 = sdx.map "add"(%x, %zero) : (!i, !i) -> !i
  %1 = sdx.map "mul"(%x, %mixed) : (!i, !i) -> !i
  return %0, %1 : !i, !i
}

// -----

!x = !sdx.tensor<[b, s], f32>

// square: only where the exponent is 2 everywhere.

// CHECK-LABEL: func.func @square
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[Y:.*]] = sdx.map "mul"(%[[X]], %[[X]])
// CHECK: %[[Z:.*]] = sdx.map "pow"
// CHECK: return %[[Y]], %[[Z]]
func.func @square(%x: !x) -> (!x, !x) {
  %c2 = sdx.const dense<2.0> : tensor<f32> : !sdx.tensor<[], f32>
  %two = sdx.broadcast %c2 to [] : !sdx.tensor<[], f32> -> !x
  %c3 = sdx.const dense<3.0> : tensor<f32> : !sdx.tensor<[], f32>
  %three = sdx.broadcast %c3 to [] : !sdx.tensor<[], f32> -> !x
  %0 = sdx.map "pow"(%x, %two) : (!x, !x) -> !x
  %1 = sdx.map "pow"(%x, %three) : (!x, !x) -> !x
  return %0, %1 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>
!c = !sdx.tensor<[b, s], i1>

// decide-select: only where the condition is one constant.

// CHECK-LABEL: func.func @select
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: {{.*}}, %[[C:[^:]*]]: !sdx.tensor<[b, s], i1>
// CHECK-NEXT: %[[Z:.*]] = sdx.map "select"(%[[C]], %[[X]], %[[Y]])
// CHECK-NEXT: return %[[X]], %[[Y]], %[[Z]]
func.func @select(%x: !x, %y: !x, %c: !c) -> (!x, !x, !x) {
  %t = sdx.const dense<true> : tensor<i1> : !sdx.tensor<[], i1>
  %true = sdx.broadcast %t to [] : !sdx.tensor<[], i1> -> !c
  %f = sdx.const dense<false> : tensor<i1> : !sdx.tensor<[], i1>
  %false = sdx.broadcast %f to [] : !sdx.tensor<[], i1> -> !c
  %0 = sdx.map "select"(%true, %x, %y) : (!c, !x, !x) -> !x
  %1 = sdx.map "select"(%false, %x, %y) : (!c, !x, !x) -> !x
  %2 = sdx.map "select"(%c, %x, %y) : (!c, !x, !x) -> !x
  return %0, %1, %2 : !x, !x, !x
}

// -----

// map-before-motion: a function of one tensor and scalars moves before what moves the tensor, as far as it gets.

// CHECK-LABEL: func.func @map_before_motion
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[S:[^:]*]]: !sdx.tensor<[], f32>
// CHECK: %[[B:.*]] = sdx.broadcast %[[S]] to [] : <[], f32> -> <[b, 12], f32>
// CHECK: %[[M:.*]] = sdx.map "div"(%[[B]], %[[X]]) : (!sdx.tensor<[b, 12], f32>, !sdx.tensor<[b, 12], f32>)
// CHECK: %[[E:.*]] = sdx.map "exp"(%[[M]])
// CHECK: %[[R:.*]] = sdx.reshape %[[E]] : <[b, 12], f32> -> <[b, 4, 3], f32>
// CHECK: %[[T:.*]] = sdx.transpose %[[R]] [1, 0, 2]
// CHECK: return %[[T]]
!moved = !sdx.tensor<[4, b, 3], f32>
func.func @map_before_motion(%x: !sdx.tensor<[b, 12], f32>, %s: !sdx.tensor<[], f32>) -> !moved {
  %0 = sdx.reshape %x : !sdx.tensor<[b, 12], f32> -> !sdx.tensor<[b, 4, 3], f32>
  %1 = sdx.transpose %0 [1, 0, 2] : !sdx.tensor<[b, 4, 3], f32> -> !moved
  %2 = sdx.broadcast %s to [] : !sdx.tensor<[], f32> -> !moved
  %3 = sdx.map "div"(%2, %1) : (!moved, !moved) -> !moved
  %4 = sdx.map "exp"(%3) : (!moved) -> !moved
  return %4 : !moved
}

// -----

// Tensors that are moved alike, one of them twice.

// CHECK-LABEL: func.func @maps_of_one_motion
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: !sdx
// CHECK-NEXT: %[[P:.*]] = sdx.map "mul"(%[[X]], %[[X]])
// CHECK-NEXT: %[[S:.*]] = sdx.map "add"(%[[P]], %[[Y]])
// CHECK-NEXT: %[[R:.*]] = sdx.reshape %[[S]] : <[12*b], f32> -> <[b, 12], f32>
// CHECK-NEXT: return %[[R]]
!flat = !sdx.tensor<[12*b], f32>
!rows = !sdx.tensor<[b, 12], f32>
func.func @maps_of_one_motion(%x: !flat, %y: !flat) -> !rows {
  %0 = sdx.reshape %x : !flat -> !rows
  %1 = sdx.reshape %y : !flat -> !rows
  %2 = sdx.map "mul"(%0, %0) : (!rows, !rows) -> !rows
  %3 = sdx.map "add"(%2, %1) : (!rows, !rows) -> !rows
  return %3 : !rows
}

// -----

// A vector does not fit before the motion, nor do tensors that are moved otherwise or from another shape; integers, of
// which shapes are made, stay as they are written.

// CHECK-LABEL: func.func @map_behind_motion
// CHECK: sdx.transpose
// CHECK: sdx.reshape
// CHECK: sdx.transpose
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "neg"
!q = !sdx.tensor<[4, 4], f32>
!flat = !sdx.tensor<[16], f32>
!iq = !sdx.tensor<[4, 4], i64>
func.func @map_behind_motion(%x: !q, %v: !sdx.tensor<[4], f32>, %z: !flat, %i: !iq) -> (!q, !q, !q, !iq) {
  %0 = sdx.transpose %x [1, 0] : !q -> !q
  %2 = sdx.broadcast %v to [1] : !sdx.tensor<[4], f32> -> !q
  %3 = sdx.reshape %z : !flat -> !q
  %4 = sdx.transpose %i [1, 0] : !iq -> !iq
  %5 = sdx.map "mul"(%0, %2) : (!q, !q) -> !q
  %6 = sdx.map "add"(%0, %x) : (!q, !q) -> !q
  %7 = sdx.map "sub"(%0, %3) : (!q, !q) -> !q
  %8 = sdx.map "neg"(%4) : (!iq) -> !iq
  return %5, %6, %7, %8 : !q, !q, !q, !iq
}

// -----

// split-merged-transpose: what is merged only to be moved together.

// CHECK-LABEL: func.func @merged
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: %[[T:.*]] = sdx.transpose %[[X]] [3, 0, 1, 2] : <[b, 12, s, 8], f32> -> <[8, b, 12, s], f32>
// CHECK-NEXT: return %[[T]]
!m = !sdx.tensor<[b, 12, s, 8], f32>
!r = !sdx.tensor<[8, b, 12, s], f32>
func.func @merged(%x: !m) -> !r {
  %0 = sdx.reshape %x : !m -> !sdx.tensor<[12*b*s, 8], f32>
  %1 = sdx.transpose %0 [1, 0] : !sdx.tensor<[12*b*s, 8], f32> -> !sdx.tensor<[8, 12*b*s], f32>
  %2 = sdx.reshape %1 : !sdx.tensor<[8, 12*b*s], f32> -> !r
  return %2 : !r
}

// -----

// Split in other places than it was merged, or merged across what moves apart: it stays.

// CHECK-LABEL: func.func @merged_otherwise
// CHECK: sdx.reshape
// CHECK: sdx.transpose
// CHECK: sdx.reshape
// CHECK: sdx.reshape
// CHECK: sdx.transpose
// CHECK: sdx.reshape
func.func @merged_otherwise(%x: !sdx.tensor<[b, 6, 8], f32>) -> (!sdx.tensor<[8, b, 3, 2], f32>, !sdx.tensor<[b, 6, 8], f32>) {
  %0 = sdx.reshape %x : !sdx.tensor<[b, 6, 8], f32> -> !sdx.tensor<[6*b, 8], f32>
  %1 = sdx.transpose %0 [1, 0] : !sdx.tensor<[6*b, 8], f32> -> !sdx.tensor<[8, 6*b], f32>
  %2 = sdx.reshape %1 : !sdx.tensor<[8, 6*b], f32> -> !sdx.tensor<[8, b, 3, 2], f32>
  %3 = sdx.reshape %x : !sdx.tensor<[b, 6, 8], f32> -> !sdx.tensor<[3*b, 16], f32>
  %4 = sdx.transpose %3 [1, 0] : !sdx.tensor<[3*b, 16], f32> -> !sdx.tensor<[16, 3*b], f32>
  %5 = sdx.reshape %4 : !sdx.tensor<[16, 3*b], f32> -> !sdx.tensor<[b, 6, 8], f32>
  return %2, %5 : !sdx.tensor<[8, b, 3, 2], f32>, !sdx.tensor<[b, 6, 8], f32>
}

// -----

// transpose-into-contract: the left operand, the right one, both.

// CHECK-LABEL: func.func @contract
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: !sdx.tensor<[b, t, d], f32>
// CHECK-NEXT: %[[L:.*]] = sdx.contract "bkm,btk->bmt"(%[[X]], %[[Y]])
// CHECK-NEXT: %[[R:.*]] = sdx.contract "bkm,btk->bmt"(%[[X]], %[[Y]])
// CHECK-NEXT: %[[B:.*]] = sdx.contract "bkm,btk->bmt"(%[[X]], %[[Y]])
// CHECK-NEXT: return %[[L]], %[[R]], %[[B]]
!x = !sdx.tensor<[b, d, s], f32>
!xt = !sdx.tensor<[b, s, d], f32>
!y = !sdx.tensor<[b, t, d], f32>
!yt = !sdx.tensor<[d, t, b], f32>
!z = !sdx.tensor<[b, s, t], f32>
func.func @contract(%x: !x, %y: !y) -> (!z, !z, !z) {
  %xt = sdx.transpose %x [0, 2, 1] : !x -> !xt
  %yt = sdx.transpose %y [2, 1, 0] : !y -> !yt
  %0 = sdx.contract "bmk,btk->bmt"(%xt, %y) : (!xt, !y) -> !z
  %1 = sdx.contract "bkm,ktb->bmt"(%x, %yt) : (!x, !yt) -> !z
  %2 = sdx.contract "bmk,ktb->bmt"(%xt, %yt) : (!xt, !yt) -> !z
  return %0, %1, %2 : !z, !z, !z
}

// -----

// bounded-products: 255 * 255 * 258 is less than 2^24, 255 * 255 * 259 is more.

// CHECK-LABEL: func.func @bytes
// CHECK: sdx.contract "mk,kn->mn"({{.*}}) : (!sdx.tensor<[m, 258], f32>, !sdx.tensor<[258, n], f32>) -> !sdx.tensor<[m, n], f32>
// CHECK-NEXT: sdx.convert {{.*}} : <[m, n], f32> -> <[m, n], i32>
// CHECK: sdx.contract "mk,kn->mn"({{.*}}) : (!sdx.tensor<[m, 259], i32>, !sdx.tensor<[259, n], i32>) -> !sdx.tensor<[m, n], i32>
!a = !sdx.tensor<[m, 258], ui8>
!b = !sdx.tensor<[258, n], ui8>
!c = !sdx.tensor<[m, 259], ui8>
!d = !sdx.tensor<[259, n], ui8>
!r = !sdx.tensor<[m, n], i32>
func.func @bytes(%a: !a, %b: !b, %c: !c, %d: !d) -> (!r, !r) {
  %ai = sdx.convert %a : !a -> !sdx.tensor<[m, 258], i32>
  %bi = sdx.convert %b : !b -> !sdx.tensor<[258, n], i32>
  %0 = sdx.contract "mk,kn->mn"(%ai, %bi) : (!sdx.tensor<[m, 258], i32>, !sdx.tensor<[258, n], i32>) -> !r
  %ci = sdx.convert %c : !c -> !sdx.tensor<[m, 259], i32>
  %di = sdx.convert %d : !d -> !sdx.tensor<[259, n], i32>
  %1 = sdx.contract "mk,kn->mn"(%ci, %di) : (!sdx.tensor<[m, 259], i32>, !sdx.tensor<[259, n], i32>) -> !r
  return %0, %1 : !r, !r
}

// -----

// A depthwise convolution, whose weights are constant; with weights of four columns, whose bytes are neighbours, it stays.

!x = !sdx.tensor<[n, 8, 6, 3, 6, 3], ui8>
!xi = !sdx.tensor<[n, 8, 6, 3, 6, 3], i32>
!k = !sdx.tensor<[8, 3, 3], i8>
!ki = !sdx.tensor<[8, 3, 3], i32>
!z = !sdx.tensor<[n, 8, 6, 3, 6, 4], ui8>
!zi = !sdx.tensor<[n, 8, 6, 3, 6, 4], i32>
!l = !sdx.tensor<[8, 3, 4], i8>
!li = !sdx.tensor<[8, 3, 4], i32>
!y = !sdx.tensor<[n, 8, 6, 6], i32>

// CHECK-LABEL: func.func @depthwise
// CHECK: sdx.contract "nghiwj,gij->nghw"({{.*}}) : (!sdx.tensor<[n, 8, 6, 3, 6, 3], f32>, !sdx.tensor<[8, 3, 3], f32>) -> !sdx.tensor<[n, 8, 6, 6], f32>
// CHECK-NEXT: sdx.convert {{.*}} : <[n, 8, 6, 6], f32> -> <[n, 8, 6, 6], i32>
// CHECK: sdx.contract "nghiwj,gij->nghw"({{.*}}) : (!sdx.tensor<[n, 8, 6, 3, 6, 4], i32>, !sdx.tensor<[8, 3, 4], i32>) -> !sdx.tensor<[n, 8, 6, 6], i32>
func.func @depthwise(%x: !x, %z: !z) -> (!y, !y) {
  %k = sdx.param "k" : !k
  %xi = sdx.convert %x : !x -> !xi
  %ki = sdx.convert %k : !k -> !ki
  %0 = sdx.contract "nghiwj,gij->nghw"(%xi, %ki) : (!xi, !ki) -> !y
  %l = sdx.param "l" : !l
  %zi = sdx.convert %z : !z -> !zi
  %li = sdx.convert %l : !l -> !li
  %1 = sdx.contract "nghiwj,gij->nghw"(%zi, %li) : (!zi, !li) -> !y
  return %0, %1 : !y, !y
}

// -----

// What nothing needs is gone; an input stays.

// CHECK-LABEL: func.func @dead
// CHECK-SAME: (%{{.*}}: !sdx.tensor<[b], f32>
// CHECK-NEXT: return
func.func @dead(%x: !sdx.tensor<[b], f32>) {
  %0 = sdx.map "exp"(%x) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// Nothing to do: nothing changes.

// CHECK-LABEL: func.func @unchanged
// CHECK: sdx.map "exp"
// CHECK: sdx.reduce "add"
// CHECK: sdx.broadcast
// CHECK: sdx.map "div"
func.func @unchanged(%x: !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32> {
  %0 = sdx.map "exp"(%x) : (!sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
  %1 = sdx.reduce "add" %0 axes [1] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b], f32>
  %2 = sdx.broadcast %1 to [0] : !sdx.tensor<[b], f32> -> !sdx.tensor<[b, s], f32>
  %3 = sdx.map "div"(%0, %2) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
  return %3 : !sdx.tensor<[b, s], f32>
}

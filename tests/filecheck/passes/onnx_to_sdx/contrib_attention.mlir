// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s, 8], f32>
!w = !sdx.tensor<[8, 24], f32>
!c = !sdx.tensor<[24], f32>
!m = !sdx.tensor<[b, s], i32>

// com.microsoft: one projection of all three, and a mask of keys that adds -10000.

// CHECK-LABEL: func.func @stacked
// CHECK: sdx.contract "bsi,io->bso"
// CHECK: sdx.map "add"
// CHECK: sdx.slice %{{.*}} from ["0", "0", "0"] {{.*}} -> <[b, s, 8], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0", "8"] {{.*}} -> <[b, s, 8], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0", "16"] {{.*}} -> <[b, s, 8], f32>
// CHECK: sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.reshape %{{.*}} : <[b, s], i64> -> <[b, 1, 1, s], i64>
// CHECK: sdx.const dense<-1.000000e+04>
// CHECK: sdx.map "select"
// CHECK: sdx.contract "bhst,bhte->bhse"
// CHECK: sdx.reshape %{{.*}} -> <[b, s, 8], f32>
func.func @stacked(%x: !x, %w: !w, %c: !c, %m: !m) -> !v {
  %0 = onnx.node "Attention"(%x, %w, %c, %m) opset 1 domain "com.microsoft" {num_heads = 2 : i64} : (!x, !w, !c, !m) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 8], f32>
!y = !sdx.tensor<[b, t, 2, 2, 4], f32>
!c = !sdx.tensor<[24], f32>
!p = !sdx.tensor<[b, 2, past, 4], f32>
!m = !sdx.tensor<[b], i32>

// Keys and values in one tensor, a bias of all three, lengths of keys, a past.

// CHECK-LABEL: func.func @multi_head
// CHECK: sdx.slice %arg1 from ["0", "0", "0", "1", "0"]
// CHECK: sdx.slice %arg2 from ["8"]
// CHECK: %[[K:.*]] = sdx.concat(%arg4, %{{.*}}) axis 2
// CHECK: sdx.contract "bhsd,bhtd->bhst"(%{{.*}}, %[[K]])
// CHECK: sdx.map "lt"
// CHECK: sdx.const dense<-1.000000e+04>
// CHECK: sdx.contract "bhst,bhte->bhse"
func.func @multi_head(%q: !x, %kv: !y, %c: !c, %m: !m, %pk: !p, %pv: !p) -> (!v, !v, !v) {
  %none = onnx.none : !v
  %0:3 = onnx.node "MultiHeadAttention"(%q, %kv, %none, %c, %m, %none, %pk, %pv) opset 1 domain "com.microsoft" {num_heads = 2 : i64}
    : (!x, !y, !v, !c, !m, !v, !p, !p) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 32], f32>
!p = !sdx.tensor<[b, 2, past, 4], f32>
!l = !sdx.tensor<[b], i32>
!n = !sdx.tensor<[], i32>
!t = !sdx.tensor<[n, 2], f32>

// Packed operands are cut, turned by their positions, and each row of the batch is continued at its own length.

// CHECK-LABEL: func.func @group_query
// CHECK: sdx.slice %arg0 from ["0", "0", "16"] {{.*}} -> <[b, s, 8], f32>
// CHECK: %[[PAST:.*]] = sdx.map "max"
// CHECK: sdx.gather %arg5
// CHECK: %[[BOTH:.*]] = sdx.concat(%arg1, %{{.*}}) axis 2
// CHECK: sdx.map "min"
// CHECK: sdx.gather {{.*}} axis 0 : {{.*}} -> !sdx.tensor<[b, past + s, 2, 4], f32>
// CHECK: sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.reshape %[[PAST]] : <[b], i64> -> <[b, 1, 1, 1], i64>
// CHECK: sdx.map "le"
func.func @group_query(%q: !x, %pk: !p, %pv: !p, %l: !l, %n: !n, %cos: !t, %sin: !t) -> (!v, !v, !v) {
  %none = onnx.none : !v
  %0:3 = onnx.node "GroupQueryAttention"(%q, %none, %none, %pk, %pv, %l, %n, %cos, %sin) opset 1 domain "com.microsoft"
    {num_heads = 4 : i64, kv_num_heads = 2 : i64, do_rotary = 1 : i64}
    : (!x, !v, !v, !p, !p, !l, !n, !t, !t) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 32], f32>
!p = !sdx.tensor<[b, 2, past, 4], f32>
!l = !sdx.tensor<[b], i32>
!n = !sdx.tensor<[], i32>
!t = !sdx.tensor<[n, 1], f32>

// Tables with one column turn the first two of four channels.

// CHECK-LABEL: func.func @turned_in_part
// CHECK: sdx.slice {{.*}} from ["0", "0", "0", "2"] {{.*}} -> <[b, 4, s, 2], f32>
func.func @turned_in_part(%q: !x, %pk: !p, %pv: !p, %l: !l, %n: !n, %cos: !t, %sin: !t) -> (!v, !v, !v) {
  %none = onnx.none : !v
  %0:3 = onnx.node "GroupQueryAttention"(%q, %none, %none, %pk, %pv, %l, %n, %cos, %sin) opset 1 domain "com.microsoft"
    {num_heads = 4 : i64, kv_num_heads = 2 : i64, do_rotary = 1 : i64}
    : (!x, !v, !v, !p, !p, !l, !n, !t, !t) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, 8], f32>
!w = !sdx.tensor<[8, 24], f32>
!c = !sdx.tensor<[24], f32>
!o = !sdx.tensor<[b, s], i32>
!e = !sdx.tensor<[e], i32>

// A token sees those whose sequence began where its own did.

// CHECK-LABEL: func.func @packed
// CHECK: sdx.contract "bsi,io->bso"
// CHECK: %[[N:.*]] = sdx.reduce "add" %{{.*}} axes [1] : <[n, e], i64> -> <[n], i64>
// CHECK: sdx.map "eq"
// CHECK: sdx.contract "bhst,bhte->bhse"
// CHECK: sdx.reshape %{{.*}} : <[1, n, 8], f32> -> <[n, 8], f32>
func.func @packed(%x: !x, %w: !w, %c: !c, %o: !o, %e: !e) -> !v {
  %0 = onnx.node "PackedAttention"(%x, %w, %c, %o, %e) opset 1 domain "com.microsoft" {num_heads = 2 : i64} : (!x, !w, !c, !o, !e) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 8], ui8>
!w = !sdx.tensor<[8, 24], i8>
!c = !sdx.tensor<[24], f32>
!f = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>

// The projection is one of integers less their zero points.

// CHECK-LABEL: func.func @quantized
// CHECK: %[[X:.*]] = sdx.map "sub"
// CHECK: %[[P:.*]] = sdx.contract "bsi,io->bso"(%[[X]], %{{.*}} i32>
// CHECK: sdx.convert %[[P]] {{.*}} f32>
// CHECK: sdx.contract "bhsd,bhtd->bhst"
func.func @quantized(%x: !x, %w: !w, %c: !c, %f: !f, %z: !z) -> !v {
  %none = onnx.none : !v
  %0 = onnx.node "QAttention"(%x, %w, %c, %f, %f, %none, %z) opset 1 domain "com.microsoft" {num_heads = 2 : i64}
    : (!x, !w, !c, !f, !f, !v, !z) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, s, 32], f32>
!k = !sdx.tensor<[b, s, 16], f32>
!p = !sdx.tensor<[b, 2, 64, 8], f32>
!r = !sdx.tensor<[2, 5], i32>
!c = !sdx.tensor<[2, 9], i32>
!n = !sdx.tensor<[1], i32>
!l = !sdx.tensor<[b], i32>

// Heads take two layouts of four by four blocks in turn. Which blocks a layout names follows from its compressed rows;
// new keys are written into the cache where each row's positions continue.

// CHECK-LABEL: func.func @sparse
// CHECK: sdx.map "select"
// CHECK: sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.gather %{{.*}} -> !sdx.tensor<[2, 4, 4], i64>
// CHECK: sdx.reduce "max" %{{.*}} axes [3] : <[2, 4, 4, 4], i64> -> <[2, 4, 4], i64>
// CHECK: sdx.gather %{{.*}} axis 0 {{.*}} -> !sdx.tensor<[b, s, 2, 4], i1>
// CHECK: sdx.gather %{{.*}} axis 3 {{.*}} -> !sdx.tensor<[b, s, 2, 64], i1>
// CHECK: sdx.broadcast {{.*}} -> <[b, 2, 2, s, 64], i1>
// CHECK: sdx.contract "bhst,bhte->bhse"
func.func @sparse(%q: !q, %k: !k, %v: !k, %pk: !p, %pv: !p, %r: !r, %c: !c, %n: !n, %l: !l) -> (!v, !v, !v) {
  %0:3 = onnx.node "SparseAttention"(%q, %k, %v, %pk, %pv, %r, %c, %n, %l) opset 1 domain "com.microsoft"
    {num_heads = 4 : i64, kv_num_heads = 2 : i64, sparse_block_size = 16 : i64}
    : (!q, !k, !k, !p, !p, !r, !c, !n, !l) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

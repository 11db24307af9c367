// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!q = !sdx.tensor<[b, 2, s, 4], f32>
!k = !sdx.tensor<[b, 2, t, 4], f32>

// q is scaled by 1 / sqrt d; scores, softmax over t, values.

// CHECK-LABEL: func.func @attention
// CHECK: sdx.const dense<5.000000e-01>
// CHECK: %[[Q:.*]] = sdx.map "mul"(%arg0
// CHECK: %[[S:.*]] = sdx.contract "bhsd,bhtd->bhst"(%[[Q]], %arg1)
// CHECK: sdx.reduce "max" %[[S]] axes [3]
// CHECK: %[[P:.*]] = sdx.map "div"
// CHECK: %[[Y:.*]] = sdx.contract "bhst,bhte->bhse"(%[[P]], %arg2)
// CHECK: return %[[Y]]
func.func @attention(%q: !q, %k: !k, %v: !k) -> !v {
  %0 = onnx.node "Attention"(%q, %k, %v) opset 23 {} : (!q, !k, !k) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, s, 16], f32>
!k = !sdx.tensor<[b, t, 8], f32>

// Of rank 3 the heads are split first and joined last; four heads of queries share two of keys.

// CHECK-LABEL: func.func @grouped
// CHECK: sdx.reshape %arg0 : <[b, s, 16], f32> -> <[b, s, 4, 4], f32>
// CHECK: sdx.transpose %{{.*}} [0, 2, 1, 3]
// CHECK: sdx.reshape %arg1 : <[b, t, 8], f32> -> <[b, t, 2, 4], f32>
// CHECK: sdx.broadcast %{{.*}} to [0, 1, 3, 4] : <[b, 2, t, 4], f32> -> <[b, 2, 2, t, 4], f32>
// CHECK: sdx.reshape %{{.*}} : <[b, 2, 2, t, 4], f32> -> <[b, 4, t, 4], f32>
// CHECK: sdx.contract "bhsd,
// CHECK: sdx.contract "bhst,bhte->bhse"
// CHECK: sdx.transpose %{{.*}} [0, 2, 1, 3]
// CHECK: %[[Y:.*]] = sdx.reshape %{{.*}} : <[b, s, 4, 4], f32> -> <[b, s, 16], f32>
// CHECK: return %[[Y]]
func.func @grouped(%q: !q, %k: !k, %v: !k) -> !v {
  %0 = onnx.node "Attention"(%q, %k, %v) opset 23 {q_num_heads = 4 : i64, kv_num_heads = 2 : i64} : (!q, !k, !k) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, 2, s, 4], f32>
!k = !sdx.tensor<[b, 2, t, 4], f32>
!p = !sdx.tensor<[b, 2, past, 4], f32>
!m = !sdx.tensor<[s, past + t], i1>

// The past is put before the keys; a mask of truth values and the causal one are added as 0 or -inf.

// CHECK-LABEL: func.func @masked
// CHECK: %[[K:.*]] = sdx.concat(%arg4, %arg1) axis 2
// CHECK: sdx.contract "bhsd,bhtd->bhst"(%{{.*}}, %[[K]])
// CHECK: sdx.iota axis 0
// CHECK: %[[T:.*]] = sdx.iota axis 1
// CHECK: sdx.dims ["past - s + t"]
// CHECK: %[[CAUSAL:.*]] = sdx.map "le"(%[[T]],
// CHECK: sdx.const dense<0xFF800000>
// CHECK: %[[ADDED:.*]] = sdx.map "select"(%[[CAUSAL]],
// CHECK: sdx.map "select"(%arg3,
// CHECK: sdx.map "tanh"

// A query that sees nothing gets zeros: its maximum is bounded from below, and its sum.

// CHECK: %[[MAX:.*]] = sdx.reduce "max"
// CHECK: sdx.const dense<-3.40282347E+38>
// CHECK: sdx.map "max"(%[[MAX]],
// CHECK: %[[SUM:.*]] = sdx.reduce "add"
// CHECK: sdx.const dense<1.000000e+00>
// CHECK: sdx.map "max"(%[[SUM]],
func.func @masked(%q: !q, %k: !k, %v: !k, %m: !m, %pk: !p, %pv: !p) -> !v {
  %0 = onnx.node "Attention"(%q, %k, %v, %m, %pk, %pv) opset 23 {is_causal = 1 : i64, softcap = 2.0 : f32}
    : (!q, !k, !k, !m, !p, !p) -> !v
  return %0 : !v
}

// -----

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
!x = !sdx.tensor<[b, 2, s, 4], f32>
!t = !sdx.tensor<[b, s, 2], f32>

// x1 cos - x2 sin, x1 sin + x2 cos: of the two halves …

// CHECK-LABEL: func.func @rotary
// CHECK: %[[COS:.*]] = sdx.reshape %arg1 : <[b, s, 2], f32> -> <[b, 1, s, 2], f32>
// CHECK: %[[SIN:.*]] = sdx.reshape %arg2
// CHECK: %[[X1:.*]] = sdx.slice %arg0 from ["0", "0", "0", "0"] step [1, 1, 1, 1]
// CHECK: %[[X2:.*]] = sdx.slice %arg0 from ["0", "0", "0", "2"] step [1, 1, 1, 1]
// CHECK: %[[REAL:.*]] = sdx.map "sub"
// CHECK: %[[IMAGINARY:.*]] = sdx.map "add"
// CHECK: sdx.concat(%[[REAL]], %[[IMAGINARY]]) axis 3
func.func @rotary(%x: !x, %cos: !t, %sin: !t) -> !v {
  %0 = onnx.node "RotaryEmbedding"(%x, %cos, %sin) opset 23 {} : (!x, !t, !t) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, s, 6], f32>
!t = !sdx.tensor<[n, 2], f32>
!i = !sdx.tensor<[b, s], i64>

// … or of neighbours, at given positions; the channels beyond stay.

// CHECK-LABEL: func.func @rotary_interleaved
// CHECK: sdx.gather %arg1[%arg3] axis 0
// CHECK: sdx.slice %arg0 from ["0", "0", "0", "0"] step [1, 1, 1, 2] : {{.*}} -> <[b, 2, s, 2], f32>
// CHECK: sdx.slice %arg0 from ["0", "0", "0", "1"] step [1, 1, 1, 2]
// CHECK: sdx.concat(%{{.*}}, %{{.*}}) axis 4
// CHECK: %[[TURNED:.*]] = sdx.reshape %{{.*}} -> <[b, 2, s, 4], f32>
// CHECK: %[[REST:.*]] = sdx.slice %arg0 from ["0", "0", "0", "4"] {{.*}} -> <[b, 2, s, 2], f32>
// CHECK: sdx.concat(%[[TURNED]], %[[REST]]) axis 3
func.func @rotary_interleaved(%x: !x, %cos: !t, %sin: !t, %i: !i) -> !v {
  %0 = onnx.node "RotaryEmbedding"(%x, %cos, %sin, %i) opset 23 {interleaved = 1 : i64, rotary_embedding_dim = 4 : i64}
    : (!x, !t, !t, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!i = !sdx.tensor<[b, s], i32>
!w = !sdx.tensor<[100, 4], f32>
!p = !sdx.tensor<[64, 4], f32>
!c = !sdx.tensor<[4], f32>

// The embedding of the position i is row i: the sequence is no longer than the table.

// CHECK-LABEL: func.func @embed
// CHECK-SAME: sdx.symbols = ["input b 0..", "input s 0..64"]
// CHECK: %[[WORD:.*]] = sdx.gather %arg2
// CHECK: %[[POSITION:.*]] = sdx.slice %arg3 {{.*}} -> <[s, 4], f32>
// CHECK: %[[SEGMENT:.*]] = sdx.gather %arg4
// CHECK: sdx.map "add"(%[[WORD]], %[[SEGMENT]])
// CHECK: sdx.map "sqrt"
// CHECK: sdx.reduce "add" %arg7 axes [1] : <[b, s], i32> -> <[b], i32>
func.func @embed(%ids: !i, %seg: !i, %w: !w, %p: !p, %s: !w, %g: !c, %c: !c, %m: !i) -> (!v, !v)
    attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %0:2 = onnx.node "EmbedLayerNormalization"(%ids, %seg, %w, %p, %s, %g, %c, %m) opset 1 domain "com.microsoft" {}
    : (!i, !i, !w, !p, !w, !c, !c, !i) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

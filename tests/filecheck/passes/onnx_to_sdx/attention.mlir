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

// The past is put before the keys; the scores are capped; then a mask of truth values and the causal one are added as
// 0 or -inf.

// CHECK-LABEL: func.func @masked
// CHECK: %[[K:.*]] = sdx.concat(%arg4, %arg1) axis 2
// CHECK: sdx.contract "bhsd,bhtd->bhst"(%{{.*}}, %[[K]])
// CHECK: sdx.map "tanh"
// CHECK: sdx.iota axis 0
// CHECK: %[[T:.*]] = sdx.iota axis 1
// CHECK: sdx.dims ["past"]
// CHECK: %[[CAUSAL:.*]] = sdx.map "le"(%[[T]],
// CHECK: sdx.const dense<0xFF800000>
// CHECK: %[[ADDED:.*]] = sdx.map "select"(%[[CAUSAL]],
// CHECK: sdx.map "select"(%arg3,

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
!q = !sdx.tensor<[b, 2, s, 4], f32>
!k = !sdx.tensor<[b, 2, t, 4], f32>
!m = !sdx.tensor<[s, m], f32>
!n = !sdx.tensor<[b], i64>

// Each row of the batch has its own number of keys, whose last s are the queries' own; a mask that is shorter than the
// keys hides the rest, within the call's m <= t. The window reaches two keys to the left.

// CHECK-LABEL: func.func @padded
// CHECK-SAME: sdx.checks = ["max(m, t) == t : "]
// CHECK: %[[OFFSET:.*]] = sdx.map "sub"(%arg4,
// CHECK: sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.reshape %[[OFFSET]] : <[b], i64> -> <[b, 1, 1, 1], i64>
// CHECK: sdx.map "le"
// CHECK: sdx.const dense<-2>
// CHECK: sdx.map "and"
// CHECK: sdx.pad %arg3
// CHECK: sdx.map "lt"
func.func @padded(%q: !q, %k: !k, %v: !k, %m: !m, %n: !n) -> !v
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input t 0..", "input m 0.."]} {
  %none = onnx.none : !v
  %0 = onnx.node "Attention"(%q, %k, %v, %m, %none, %none, %n) opset 25 {is_causal = 1 : i64, left_window_size = 2 : i64}
    : (!q, !k, !k, !m, !v, !v, !n) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, 6, s, d], f16>
!k = !sdx.tensor<[b, g, t, d], f16>

// In half precision both operands take the root of the scale, and the softmax is in f32. Where only the call knows the
// numbers of heads, each query's head reads that of its group.

// CHECK-LABEL: func.func @half
// CHECK-SAME: "max(6, g*((6) floordiv (g))) == g*((6) floordiv (g))
// CHECK: sdx.dims ["d"]
// CHECK: sdx.convert %{{.*}} : <[], i64> -> <[], f64>
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.gather %{{.*}} axis 1
// CHECK: %[[S:.*]] = sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.convert %[[S]] : <[b, 6, s, t], f16> -> <[b, 6, s, t], f32>
// CHECK: sdx.map "exp"
func.func @half(%q: !q, %k: !k, %v: !k) -> !v
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input t 0..", "input d 0..", "input g 1.."]} {
  %0 = onnx.node "Attention"(%q, %k, %v) opset 23 {} : (!q, !k, !k) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, 2, s, 4], f32>

// The functions of a FlexAttention are on both sides of its softmax, and see the values around it.

// CHECK-LABEL: func.func @flex
// CHECK: %[[S:.*]] = sdx.contract "bhsd,bhtd->bhst"
// CHECK: %[[F:.*]] = sdx.map "tanh"(%[[S]])
// CHECK: sdx.reduce "max" %[[F]] axes [3]
// CHECK: %[[W:.*]] = sdx.map "div"
// CHECK: %[[G:.*]] = sdx.map "add"(%[[W]],
// CHECK: sdx.contract "bhst,bhte->bhse"(%[[G]], %arg2)
func.func @flex(%q: !q, %k: !q, %v: !q, %c: !sdx.tensor<[], f32>) -> !v {
  %0 = onnx.node "FlexAttention"(%q, %k, %v) opset 1 domain "ai.onnx.preview" {} : (!q, !q, !q) -> !v with ["prob_mod", "score_mod"] {
  ^bb0(%w: !v):
    %2 = onnx.node "Add"(%w, %c) opset 26 {} : (!v, !sdx.tensor<[], f32>) -> !v
    onnx.yield %2 : !v
  }, {
  ^bb0(%x: !v):
    %1 = onnx.node "Tanh"(%x) opset 26 {} : (!v) -> !v
    onnx.yield %1 : !v
  }
  return %0 : !v
}

// -----

!v = !onnx.value
!q = !sdx.tensor<[b, 2, s, 4], bf16>

// In half precision the softmax is in f32.

// CHECK-LABEL: func.func @flex_plain
// CHECK: %[[S:.*]] = sdx.contract "bhsd,bhtd->bhst"
// CHECK: sdx.convert %[[S]] {{.*}} f32>
// CHECK: sdx.map "exp"
// CHECK: sdx.convert %arg2 {{.*}} f32>
// CHECK: %[[Y:.*]] = sdx.contract "bhst,bhte->bhse"
// CHECK: sdx.convert %[[Y]] {{.*}} bf16>
func.func @flex_plain(%q: !q, %k: !q, %v: !q) -> !v {
  %0 = onnx.node "FlexAttention"(%q, %k, %v) opset 1 domain "ai.onnx.preview" {} : (!q, !q, !q) -> !v
  return %0 : !v
}

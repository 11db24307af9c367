// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, t, 8], f32>
!d = !sdx.tensor<[b, t, 2], f32>

// Without a delta rule all pairs of a sequence are one masked product; decay is summed in f64.

// CHECK-LABEL: func.func @gated
// CHECK: %[[SEEN:.*]] = sdx.map "le"
// CHECK: sdx.const dense<-1.280000e+02>
// CHECK: sdx.contract "ti,bnid->bntd"({{.*}} f64>
// CHECK: sdx.map "exp"
// CHECK: %[[S:.*]] = sdx.contract "bngtd,bnid->bngti"
// CHECK: sdx.contract "bnid,bnim->bndm"
// CHECK: sdx.contract "bngti,bnim->bngtm"
// CHECK: sdx.contract "bngtd,bndm->bngtm"
func.func @gated(%q: !x, %k: !x, %v: !x, %d: !d) -> (!v, !v) {
  %none = onnx.none : !v
  %0:2 = onnx.node "LinearAttention"(%q, %k, %v, %none, %d) opset 27 {q_num_heads = 2 : i64, kv_num_heads = 2 : i64,
    update_rule = "gated"} : (!x, !x, !x, !v, !d) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, 8], f32>
!d = !sdx.tensor<[b, 2, 2], f32>

// With one, each step asks the state what it knows of its key.

// CHECK-LABEL: func.func @delta
// CHECK: sdx.contract "bndm,bnd->bnm"
// CHECK: sdx.map "sub"
// CHECK: sdx.contract "bngd,bndm->bngm"
// CHECK: sdx.contract "bndm,bnd->bnm"
// CHECK: sdx.contract "bngd,bndm->bngm"
func.func @delta(%q: !x, %k: !x, %v: !x, %d: !d) -> (!v, !v) {
  %none = onnx.none : !v
  %0:2 = onnx.node "LinearAttention"(%q, %k, %v, %none, %none, %d) opset 27 {q_num_heads = 2 : i64, kv_num_heads = 2 : i64,
    update_rule = "delta"} : (!x, !x, !x, !v, !v, !d) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4, l], f32>
!w = !sdx.tensor<[4, 1, 3], f32>
!s = !sdx.tensor<[b, 4, 2], f32>

// The state comes before the input, and its last positions are the next one.

// CHECK-LABEL: func.func @causal_conv
// CHECK: %[[X:.*]] = sdx.concat(%arg2, %arg0) axis 2
// CHECK: sdx.slice %[[X]] from ["0", "0", "0"] {{.*}} -> <[b, 4, l], f32>
// CHECK: sdx.slice %[[X]] from ["0", "0", "2"] {{.*}} -> <[b, 4, l], f32>
// CHECK: sdx.map "exp"
// CHECK: sdx.slice %[[X]] from ["0", "0", "l"] {{.*}} -> <[b, 4, 2], f32>
func.func @causal_conv(%x: !x, %w: !w, %s: !s) -> (!v, !v) {
  %none = onnx.none : !v
  %0:2 = onnx.node "CausalConvWithState"(%x, %w, %none, %s) opset 27 {activation = "silu"} : (!x, !w, !v, !s) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, c, l], f32>
!w = !sdx.tensor<[c, 1, j], f32>

// Of unknown width, the windows are gathered.

// CHECK-LABEL: func.func @causal_conv_wide
// CHECK: %[[X:.*]] = sdx.pad %arg0
// CHECK: %[[WINDOWS:.*]] = sdx.gather %[[X]][%{{.*}}] axis 2 : {{.*}} -> !sdx.tensor<[b, c, l, j], f32>
// CHECK: sdx.contract "bclj,cj->bcl"(%[[WINDOWS]],
func.func @causal_conv_wide(%x: !x, %w: !w) -> (!v, !v) {
  %0:2 = onnx.node "CausalConvWithState"(%x, %w) opset 27 {} : (!x, !w) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

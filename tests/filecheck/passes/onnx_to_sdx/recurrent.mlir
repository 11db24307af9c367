// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[2, b, 3], f32>
!w = !sdx.tensor<[1, 16, 3], f32>
!r = !sdx.tensor<[1, 16, 4], f32>
!c = !sdx.tensor<[1, 32], f32>
!h = !sdx.tensor<[1, b, 4], f32>
!p = !sdx.tensor<[1, 12], f32>

// The inputs of all steps are one product; then each step adds the state's. Gates are i, o, f, c.

// CHECK-LABEL: func.func @lstm
// CHECK: sdx.contract "abk,nk->abn"
// CHECK: sdx.gather %{{.*}} axis 0 : {{.*}} -> !sdx.tensor<[b, 16], f32>
// CHECK: sdx.contract "ak,nk->an"
// CHECK: sdx.slice %{{.*}} from ["0", "12"] {{.*}} -> <[b, 4], f32>
// CHECK: sdx.map "tanh"
// CHECK: sdx.gather %{{.*}} axis 0 : {{.*}} -> !sdx.tensor<[b, 16], f32>
// CHECK: sdx.contract "ak,nk->an"
// CHECK: sdx.concat{{.*}} axis 0 : {{.*}} -> !sdx.tensor<[2, b, 4], f32>
// CHECK: -> <[2, 1, b, 4], f32>
func.func @lstm(%x: !x, %w: !w, %r: !r, %c: !c, %h: !h, %p: !p) -> (!v, !v, !v) {
  %none = onnx.none : !v
  %0:3 = onnx.node "LSTM"(%x, %w, %r, %c, %none, %h, %h, %p) opset 14 {hidden_size = 4 : i64, clip = 3.0 : f32}
    : (!x, !w, !r, !c, !v, !h, !h, !p) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, 3], f32>
!w = !sdx.tensor<[2, 12, 3], f32>
!r = !sdx.tensor<[2, 12, 4], f32>
!l = !sdx.tensor<[b], i32>

// Both directions, the batch first; a row of it keeps its state beyond its length, and puts out 0.

// CHECK-LABEL: func.func @gru
// CHECK: sdx.transpose %arg0 [1, 0, 2]
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.slice %{{.*}} from ["1", "0", "0"] step [-1, 1, 1] {{.*}} -> <[2, b, 12], f32>
// CHECK: sdx.slice %{{.*}} from ["1", "0"] step [-1, 1]
// CHECK: sdx.map "select"
// CHECK: sdx.concat{{.*}} axis 1 : {{.*}} -> !sdx.tensor<[2, 2, b, 4], f32>
// CHECK: sdx.transpose %{{.*}} [2, 0, 1, 3]
func.func @gru(%x: !x, %w: !w, %r: !r, %l: !l) -> (!v, !v) {
  %none = onnx.none : !v
  %0:2 = onnx.node "GRU"(%x, %w, %r, %none, %l) opset 14 {direction = "bidirectional", layout = 1 : i64}
    : (!x, !w, !r, !v, !l) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[1, b, 3], f32>
!w = !sdx.tensor<[1, 4, 3], f32>
!r = !sdx.tensor<[1, 4, 4], f32>

// CHECK-LABEL: func.func @rnn
// CHECK: sdx.const dense<5.000000e-01>
// CHECK: sdx.map "mul"
// CHECK: sdx.const dense<2.500000e-01>
func.func @rnn(%x: !x, %w: !w, %r: !r) -> (!v, !v) {
  %0:2 = onnx.node "RNN"(%x, %w, %r) opset 7 {activations = ["Affine"], activation_alpha = [0.5 : f32],
    activation_beta = [0.25 : f32], hidden_size = 4 : i64} : (!x, !w, !r) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[1, b, 3], f32>
!w = !sdx.tensor<[1, 3, 16], i8>
!r = !sdx.tensor<[1, 4, 16], i8>
!f = !sdx.tensor<[1], f32>
!i = !sdx.tensor<[1], i8>

// Inputs and states are quantised as they come; integers are multiplied exactly.

// CHECK-LABEL: func.func @quantized
// CHECK: sdx.reduce "min" %arg0 axes [0, 1, 2]
// CHECK: sdx.map "round"
// CHECK: sdx.contract "abk,kn->abn"({{.*}} i32>
// CHECK: sdx.contract "ak,kn->an"({{.*}} i32>
func.func @quantized(%x: !x, %w: !w, %r: !r, %f: !f, %i: !i) -> !v {
  %none = onnx.none : !v
  %0 = onnx.node "DynamicQuantizeLSTM"(%x, %w, %r, %none, %none, %none, %none, %none, %f, %i, %f, %i) opset 1 domain "com.microsoft" {hidden_size = 4 : i64}
    : (!x, !w, !r, !v, !v, !v, !v, !v, !f, !i, !f, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[s, b, 3], f32>
!w = !sdx.tensor<[1, 4, 3], f32>
!r = !sdx.tensor<[1, 4, 4], f32>

// A sequence of any length is a loop, whose body gets the weights.

// CHECK-LABEL: func.func @any_length
// CHECK: sdx.contract "abk,nk->abn"
// CHECK: sdx.host
// CHECK: func.func @any_length.body0
// CHECK: sdx.gather
// CHECK: sdx.contract "ak,nk->an"
// CHECK: sdx.map "tanh"
func.func @any_length(%x: !x, %w: !w, %r: !r) -> (!v, !v)
    attributes {sdx.symbols = ["input s 0..", "input b 0.."]} {
  %0:2 = onnx.node "RNN"(%x, %w, %r) opset 22 {} : (!x, !w, !r) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

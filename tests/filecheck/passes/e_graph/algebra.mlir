// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

!x = !sdx.tensor<[b, s], f32>

// Neutral operands on either side, and pairs of negations.

// CHECK-LABEL: func.func @neutral
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK-NEXT: return %[[X]]
func.func @neutral(%x: !x) -> !x attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<1.0> : tensor<f32> : <[], f32>
  %one = sdx.broadcast %c to [] : <[], f32> -> !x
  %0 = sdx.map "mul"(%one, %x) : (!x, !x) -> !x
  %1 = sdx.map "neg"(%0) : (!x) -> !x
  %2 = sdx.map "neg"(%1) : (!x) -> !x
  return %2 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// x + 0 is x but for the sign of a zero; x * 0 is 0 only where x is finite, which nothing says of an input.

// CHECK-LABEL: func.func @zeros
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[M:.*]] = sdx.map "mul"
// CHECK: return %[[X]], %[[M]]
func.func @zeros(%x: !x) -> (!x, !x) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %zero = sdx.broadcast %c to [] : <[], f32> -> !x
  %0 = sdx.map "add"(%x, %zero) : (!x, !x) -> !x
  %1 = sdx.map "mul"(%x, %zero) : (!x, !x) -> !x
  return %0, %1 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// A tanh is finite, unless it is NaN: this one is of integers of a byte.

// CHECK-LABEL: func.func @proved_finite
// CHECK-NOT: sdx.map
// CHECK: return
func.func @proved_finite(%x: !sdx.tensor<[b, s], i8>) -> !x attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %f = sdx.convert %x : <[b, s], i8> -> !x
  %0 = sdx.map "tanh"(%f) : (!x) -> !x
  %c = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %zero = sdx.broadcast %c to [] : <[], f32> -> !x
  %1 = sdx.map "mul"(%0, %zero) : (!x, !x) -> !x
  return %1 : !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// Two spellings of GELU with erf are one: x · 0.5 · (1 + erf(x / √2)) and x · (0.5 · (erf(x · 1/√2) + 1)).

// CHECK-LABEL: func.func @gelu
// CHECK: sdx.map "erf"
// CHECK-NOT: sdx.map "erf"
// CHECK: return %[[Y:.*]], %[[Y]]
func.func @gelu(%x: !x) -> (!x, !x) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c0 = sdx.const dense<0.5> : tensor<f32> : <[], f32>
  %c1 = sdx.const dense<1.0> : tensor<f32> : <[], f32>
  %c2 = sdx.const dense<1.41421354> : tensor<f32> : <[], f32>
  %c3 = sdx.const dense<0.707106769> : tensor<f32> : <[], f32>
  %half = sdx.broadcast %c0 to [] : <[], f32> -> !x
  %one = sdx.broadcast %c1 to [] : <[], f32> -> !x
  %root = sdx.broadcast %c2 to [] : <[], f32> -> !x
  %inverse = sdx.broadcast %c3 to [] : <[], f32> -> !x
  %0 = sdx.map "div"(%x, %root) : (!x, !x) -> !x
  %1 = sdx.map "erf"(%0) : (!x) -> !x
  %2 = sdx.map "add"(%one, %1) : (!x, !x) -> !x
  %3 = sdx.map "mul"(%x, %half) : (!x, !x) -> !x
  %4 = sdx.map "mul"(%3, %2) : (!x, !x) -> !x
  %5 = sdx.map "mul"(%x, %inverse) : (!x, !x) -> !x
  %6 = sdx.map "erf"(%5) : (!x) -> !x
  %7 = sdx.map "add"(%6, %one) : (!x, !x) -> !x
  %8 = sdx.map "mul"(%half, %7) : (!x, !x) -> !x
  %9 = sdx.map "mul"(%x, %8) : (!x, !x) -> !x
  return %4, %9 : !x, !x
}

// -----

!x = !sdx.tensor<[b, s], f32>

// x · 1/(1 + exp(−x)) and x / (1 + exp(−x)) are SiLU.

// CHECK-LABEL: func.func @silu
// CHECK: sdx.map "exp"
// CHECK: sdx.map "div"
// CHECK-NOT: sdx.map "div"
// CHECK: return %[[Y:.*]], %[[Y]]
func.func @silu(%x: !x) -> (!x, !x) attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<1.0> : tensor<f32> : <[], f32>
  %one = sdx.broadcast %c to [] : <[], f32> -> !x
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.map "exp"(%0) : (!x) -> !x
  %2 = sdx.map "add"(%one, %1) : (!x, !x) -> !x
  %3 = sdx.map "div"(%one, %2) : (!x, !x) -> !x
  %4 = sdx.map "mul"(%3, %x) : (!x, !x) -> !x
  %5 = sdx.map "div"(%x, %2) : (!x, !x) -> !x
  return %4, %5 : !x, !x
}

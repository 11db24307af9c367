// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(fold-constants)' | FileCheck %s

// CHECK-LABEL: func.func @numbers
// CHECK-NEXT: %[[C:.*]] = sdx.const dense<[5.000000e+00, 8.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: return %[[C]]
func.func @numbers() -> !sdx.tensor<[2], f32> {
  %a = sdx.const dense<[2.0, 4.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %b = sdx.const dense<[3.0, 4.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %0 = sdx.map "add"(%a, %b) : (!sdx.tensor<[2], f32>, !sdx.tensor<[2], f32>) -> !sdx.tensor<[2], f32>
  return %0 : !sdx.tensor<[2], f32>
}

// -----

// Every kind of operation is evaluated by the interpreter.

// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[C:.*]] = sdx.const dense<[3.700000e+01, 1.600000e+01]> : tensor<2xf32>
// CHECK-NEXT: return %[[C]]
func.func @chain() -> !sdx.tensor<[2], f32> {
  %a = sdx.const dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32> : !sdx.tensor<[2, 3], f32>
  %t = sdx.transpose %a [1, 0] : !sdx.tensor<[2, 3], f32> -> !sdx.tensor<[3, 2], f32>
  %s = sdx.slice %t from ["2", "0"] step [-1, 1] : !sdx.tensor<[3, 2], f32> -> !sdx.tensor<[2, 2], f32>
  %p = sdx.contract "mk,kn->mn"(%s, %s) : (!sdx.tensor<[2, 2], f32>, !sdx.tensor<[2, 2], f32>) -> !sdx.tensor<[2, 2], f32>
  %0 = sdx.reduce "min" %p axes [0] : !sdx.tensor<[2, 2], f32> -> !sdx.tensor<[2], f32>
  %i = sdx.const dense<[1, 0]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %1 = sdx.gather %0[%i] axis 0 : (!sdx.tensor<[2], f32>, !sdx.tensor<[2], i64>) -> !sdx.tensor<[2], f32>
  return %1 : !sdx.tensor<[2], f32>
}

// -----

// Integers that are expressions of the symbols fold as expressions: the arithmetic of shapes.

// CHECK-LABEL: func.func @shape
// CHECK-NEXT: %[[D:.*]] = sdx.dims ["2*seq"] : <[], i64>
// CHECK-NEXT: return %[[D]]
func.func @shape(%x: !sdx.tensor<[batch, seq], f32>) -> !sdx.tensor<[], i64> {
  %d = sdx.dims ["batch", "seq"] : !sdx.tensor<[2], i64>
  %i = sdx.const dense<1> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = sdx.gather %d[%i] axis 0 : (!sdx.tensor<[2], i64>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], i64>
  %2 = sdx.const dense<2> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.map "mul"(%0, %2) : (!sdx.tensor<[], i64>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], i64>
  return %3 : !sdx.tensor<[], i64>
}

// -----

// The lower bound of a symbol decides a comparison.

// CHECK-LABEL: func.func @bound
// CHECK: sdx.const dense<true>
// CHECK-NOT: sdx.map
func.func @bound() -> !sdx.tensor<[], i1> attributes {sdx.symbols = ["input n 1.."]} {
  %n = sdx.dims ["n"] : !sdx.tensor<[], i64>
  %0 = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %1 = sdx.map "lt"(%0, %n) : (!sdx.tensor<[], i64>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], i1>
  return %1 : !sdx.tensor<[], i1>
}

// -----

// Without the bound it stays.

// CHECK-LABEL: func.func @no_bound
// CHECK: sdx.map "lt"
func.func @no_bound() -> !sdx.tensor<[], i1> attributes {sdx.symbols = ["input n 0.."]} {
  %n = sdx.dims ["n"] : !sdx.tensor<[], i64>
  %0 = sdx.const dense<0> : tensor<i64> : !sdx.tensor<[], i64>
  %1 = sdx.map "lt"(%0, %n) : (!sdx.tensor<[], i64>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], i1>
  return %1 : !sdx.tensor<[], i1>
}

// -----

// An i32 expression has no operation that says it; a matrix of expressions has none either.

// CHECK-LABEL: func.func @no_literal
// CHECK: sdx.convert
// CHECK: sdx.reshape
func.func @no_literal() -> (!sdx.tensor<[2], i32>, !sdx.tensor<[1, 2], i64>) {
  %d = sdx.dims ["batch", "seq"] : !sdx.tensor<[2], i64>
  %0 = sdx.convert %d : !sdx.tensor<[2], i64> -> !sdx.tensor<[2], i32>
  %1 = sdx.reshape %d : !sdx.tensor<[2], i64> -> !sdx.tensor<[1, 2], i64>
  return %0, %1 : !sdx.tensor<[2], i32>, !sdx.tensor<[1, 2], i64>
}

// -----

// A result beyond 1024 elements stays an operation, and so does one of symbolic size.

// CHECK-LABEL: func.func @large
// CHECK: sdx.broadcast {{.*}} -> <[1025], f32>
// CHECK: sdx.broadcast {{.*}} -> <[n], f32>
func.func @large() -> (!sdx.tensor<[1025], f32>, !sdx.tensor<[n], f32>) {
  %a = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = sdx.broadcast %a to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[1025], f32>
  %1 = sdx.broadcast %a to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[n], f32>
  return %0, %1 : !sdx.tensor<[1025], f32>, !sdx.tensor<[n], f32>
}

// -----

// Up to 1024 elements it is a constant.

// CHECK-LABEL: func.func @largest
// CHECK: sdx.const dense<1.000000e+00> : tensor<1024xf32>
func.func @largest() -> !sdx.tensor<[1024], f32> {
  %a = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = sdx.broadcast %a to [] : !sdx.tensor<[], f32> -> !sdx.tensor<[1024], f32>
  return %0 : !sdx.tensor<[1024], f32>
}

// -----

// Parameters and inputs are no constants; an operation on one of each stays.

// CHECK-LABEL: func.func @unknown
// CHECK: sdx.map "add"
func.func @unknown(%x: !sdx.tensor<[], f32>) -> !sdx.tensor<[], f32> {
  %a = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = sdx.map "add"(%x, %a) : (!sdx.tensor<[], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[], f32>
  return %0 : !sdx.tensor<[], f32>
}

// -----

// The maximum of no integers is the least one, and stays a number.

// CHECK-LABEL: func.func @least
// CHECK: sdx.const dense<-9223372036854775808>
func.func @least() -> !sdx.tensor<[], i64> {
  %0 = sdx.dims [] : !sdx.tensor<[0], i64>
  %1 = sdx.reduce "max" %0 axes [0] : !sdx.tensor<[0], i64> -> !sdx.tensor<[], i64>
  %2 = sdx.map "max"(%1, %1) : (!sdx.tensor<[], i64>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], i64>
  return %2 : !sdx.tensor<[], i64>
}

// -----

// A binding keeps its operation, even where its value is known: types refer to the symbol.

// CHECK-LABEL: func.func @bind
// CHECK: %[[C:.*]] = sdx.const dense<3>
// CHECK: sdx.bind "n" = %[[C]]
func.func @bind() attributes {sdx.symbols = ["data n 0.."]} {
  %a = sdx.const dense<3> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = sdx.bind "n" = %a : !sdx.tensor<[], i64> -> !sdx.tensor<[], i64>
  return
}

// -----

// A function of another level is left alone.

// CHECK-LABEL: func.func @other
// CHECK: arith.addi
func.func @other(%x: i64) -> i64 {
  %0 = arith.addi %x, %x : i64
  return %0 : i64
}

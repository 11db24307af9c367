// RUN: sardonyx-opt %s --explain-node /silu/Mul | FileCheck %s
// RUN: not sardonyx-opt %s --explain-node /nowhere 2>&1 | FileCheck %s --check-prefix=NOWHERE

// CHECK: /silu/Mul: sdx.map "div"
// CHECK-NEXT: sdx.map "mul" => sdx.map "div" by mul-reciprocal (reassociating)

// NOWHERE: error[E0001]: no operation comes from a node `/nowhere`

!x = !sdx.tensor<[b, s], f32>

func.func @silu(%x: !x) -> !x attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %c = sdx.const dense<1.0> : tensor<f32> : <[], f32>
  %one = sdx.broadcast %c to [] : <[], f32> -> !x
  %0 = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.map "exp"(%0) : (!x) -> !x
  %2 = sdx.map "add"(%one, %1) : (!x, !x) -> !x
  %3 = sdx.map "div"(%one, %2) : (!x, !x) -> !x loc("/silu/Sigmoid")
  %4 = sdx.map "mul"(%x, %3) : (!x, !x) -> !x loc("/silu/Mul")
  return %4 : !x
}

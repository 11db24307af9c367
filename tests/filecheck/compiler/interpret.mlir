// RUN: sardonyx-opt %s --interpret | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(simplify,sdx-to-flow,inline-maps)' --interpret | FileCheck %s
// RUN: sardonyx-opt %s --interpret=2 | FileCheck %s --check-prefix=POSITIVE
// RUN: not sardonyx-opt %s --interpret=99 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,schedule)' --interpret 2>&1 | FileCheck %s --check-prefix=PLAN

// What functions compute in made-up calls is the same before and after passes: inputs and parameters go by their names.

!x = !sdx.tensor<[n, 2], f32>

// CHECK: f: y f32[1, 2] = [[A:.+]]
// POSITIVE: f: y f32[1, 2] = {{[1-9]}}
// POSITIVE-NEXT: g: result0 f32[2] = {{-?[0-9]\.[0-9]+e-?[0-9]+ -?[0-9]\.[0-9]+e-?[0-9]+$}}
// NONE: no sizes satisfy the symbols and checks of `f`
// PLAN: no function of the result has a meaning of its own
func.func @f(%x: !x {sdx.name = "x"}) -> !x attributes {sdx.symbols = ["input n 1..1"], sdx.results = ["y"]} {
  %0 = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  return %0 : !x
}

// CHECK-NEXT: g: result0 f32[2] = {{.+}}
func.func @g() -> !sdx.tensor<[2], f32> {
  %w = sdx.param "w" : !sdx.tensor<[2], f32>
  %0 = sdx.map "neg"(%w) : (!sdx.tensor<[2], f32>) -> !sdx.tensor<[2], f32>
  return %0 : !sdx.tensor<[2], f32>
}

// RUN: not sardonyx-opt %s --split-input-file 2>&1 | FileCheck %s

// Positions are those of the file, also behind the first part.
// CHECK: types_invalid.mlir:[[@LINE+1]]:{{[0-9]+}}: error: ` a  + ` is not a dimension expression: expected a number, a name or `(` at byte 6
func.func @open(%x: !sdx.tensor<[a +], f32>) { return }

// -----

// CHECK: types_invalid.mlir:[[@LINE+1]]:{{[0-9]+}}: error: ` a  b ` is not a dimension expression: expected an operator
func.func @two(%x: !sdx.tensor<[a b], f32>) { return }

// -----

// CHECK: error: ` a  floordiv 0` is not a dimension expression: expected a positive divisor
func.func @divisor(%x: !sdx.tensor<[a floordiv 0], f32>) { return }

// -----

// CHECK: error: ` max ( a )` is not a dimension expression: expected `,`
func.func @max(%x: !sdx.tensor<[max(a)], f32>) { return }

// -----

// CHECK: error: expected a dimension expression
func.func @dynamic(%x: !sdx.tensor<[?], f32>) { return }

// -----

// CHECK: error: expected a dimension expression
func.func @slash(%x: !sdx.tensor<[a/2], f32>) { return }

// -----

// CHECK: error: the dimension -1 is negative
func.func @negative(%x: !sdx.tensor<[-1], f32>) { return }

// -----

// CHECK: error: the dimension `9223372036854775807 + 1` overflows
func.func @overflow(%x: !sdx.tensor<[9223372036854775807 + 1], f32>) { return }

// -----

// A kernel's iteration variables are written so in its index expressions. In quotes it is a name.
// CHECK: error: expected a dimension expression
func.func @own(%x: !sdx.tensor<[%0], f32>) { return }

// -----

// CHECK: error: the dimension symbol "tab\tx" has control characters
func.func @control(%x: !sdx.tensor<["tab\tx"], f32>) { return }

// -----

// CHECK: error: expected ','
func.func @no_element(%x: !sdx.tensor<[a]>) { return }

// -----

// CHECK: error: expected ','
func.func @no_layout(%x: !flow.container<[a], f32>) { return }

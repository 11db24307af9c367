// RUN: sardonyx-opt %s --split-input-file | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file | sardonyx-opt - --split-input-file | FileCheck %s

// Dimensions are expressions over named symbols, normalised: equal polynomials are one type.

// CHECK-LABEL: func.func @expressions
// CHECK-SAME: !sdx.tensor<[batch, past + seq, 384], f32>
func.func @expressions(%x: !sdx.tensor<[batch, seq + past, 384], f32>) { return }

// -----

// CHECK-LABEL: func.func @polynomials
// CHECK-SAME: !sdx.tensor<[past + seq, 3*n, a*a, 0], f32>
func.func @polynomials(%x: !sdx.tensor<[seq + past, 2*n + n, (a + 1)*(a - 1) + 1, n - n], f32>) { return }

// -----

// `ceildiv` and `mod` are written with `floordiv`; what divides leaves it.

// CHECK-LABEL: func.func @divisions
// CHECK-SAME: !sdx.tensor<[((n + 1) floordiv (16)) + 1, ((n + 3) floordiv (4)), n - 3*((n) floordiv (3)), 2*n], f32>
func.func @divisions(%x: !sdx.tensor<[(n + 17) floordiv 16, n ceildiv 4, n mod 3, 6*n floordiv 3], f32>) { return }

// -----

// CHECK-LABEL: func.func @bounds
// CHECK-SAME: !sdx.tensor<[max(a, b), min(a, b), a + 2, a], f32>
func.func @bounds(%x: !sdx.tensor<[max(b, a), min(b, a), max(a + 2, a), min(a + 2, a)], f32>) { return }

// -----

// Names that are no identifiers, or are words of the notation, are quoted; others need no quotes.

// CHECK-LABEL: func.func @names
// CHECK-SAME: !sdx.tensor<[unk__1, a.b, "a b", "max", "0x", "x/y:0", "quo\"te", "%0", "$k"], f32>
func.func @names(%x: !sdx.tensor<["unk__1", a.b, "a b", "max", "0x", "x/y:0", "quo\"te", "%0", "$k"], f32>) { return }

// -----

// CHECK-LABEL: func.func @elements
// CHECK-SAME: !sdx.tensor<[], i1>
// CHECK-SAME: !sdx.tensor<[], ui8>
// CHECK-SAME: !sdx.tensor<[], i64>
// CHECK-SAME: !sdx.tensor<[], bf16>
// CHECK-SAME: !sdx.tensor<[], f8E4M3FN>
// CHECK-SAME: !sdx.tensor<[], complex<f32>>
// CHECK-SAME: !sdx.tensor<[2], !sdx.string>
func.func @elements(%a: !sdx.tensor<[], i1>, %b: !sdx.tensor<[], ui8>, %c: !sdx.tensor<[], i64>,
                    %d: !sdx.tensor<[], bf16>, %e: !sdx.tensor<[], f8E4M3FN>, %f: !sdx.tensor<[], complex<f32>>,
                    %g: !sdx.tensor<[2], !sdx.string>) { return }

// -----

// CHECK-LABEL: func.func @containers
// CHECK-SAME: !flow.container<[a + b, 4], f32, row_major>
// CHECK-SAME: !flow.container<[3, 40], f32, panels32>
// CHECK-SAME: !flow.container<[3, 40], bf16, panels32x2>
func.func @containers(%a: !flow.container<[b + a, 4], f32, row_major>, %b: !flow.container<[3, 40], f32, panels32>,
                      %c: !flow.container<[3, 40], bf16, panels32x2>) {
  return
}

// -----

// CHECK-LABEL: func.func @others
// CHECK-SAME: !plan.buffer
// CHECK-SAME: !onnx.value
func.func @others(%a: !plan.buffer, %b: !onnx.value) { return }

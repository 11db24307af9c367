// RUN: sardonyx-opt --help | FileCheck %s --check-prefix=HELP
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(fold-constant)' 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not sardonyx-opt %t.mlir 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: sardonyx-opt - < %s | FileCheck %s --check-prefix=STDIN
// RUN: echo 'func.func @open(' | not sardonyx-opt - 2>&1 | FileCheck %s --check-prefix=SYNTAX
// RUN: printf 'module {}\000' | not sardonyx-opt - 2>&1 | FileCheck %s --check-prefix=ZERO

// HELP: Passes (and all of MLIR's):
// HELP: onnx-to-sdx
// HELP: fold-constants
// HELP: simplify
// HELP: sdx-to-flow
// HELP: inline-maps
// HELP: fuse-epilogues
// HELP: fuse-reductions
// HELP: fuse-attention
// HELP: pack-weights
// HELP: schedule
// HELP: plan-memory
// HELP: lower-kernels

// UNKNOWN: error[E0001]: `builtin.module(fold-constant)` is no pass pipeline
// UNKNOWN: help: `sardonyx-opt --help` lists the passes

// MISSING: error[E0002]: cannot read {{.*}}t.mlir
// ZERO: error: the text has a zero byte
// SYNTAX: <stdin>:1:{{[0-9]+}}: error:

// STDIN: func.func @f
func.func @f() { return }

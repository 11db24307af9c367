// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(choose-layouts)' --option layouts=rows 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(choose-layouts)' --option speed=fast 2>&1 | FileCheck %s --check-prefix=NAME

// VALUE: error[E0001]: `rows` is no value of `layouts`
// NAME: error[E0001]: there is no option `speed`
// NAME: help: the options are activations, assume-finite, gathered-weights, group, kv-cache, layouts, masked-rows, mesh, nchwc-block, overlap, own-panels, precision, quantize, seeds, sparsity, stages, target, workspace-limit
module {
}

// RUN: not sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(choose-layouts)' 2>&1 | FileCheck %s --check-prefix=LAYOUTS
// RUN: not sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(choose-algorithms)' 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(lower-precision)' 2>&1 | FileCheck %s --check-prefix=PRECISION

// What a module asks for is checked by the pass that it asks.

// LAYOUTS: error[E0402]: the module's attribute `sardonyx.layouts` names no layouts
module attributes {sardonyx.layouts = "rows"} {
}

// -----

// LIMIT: error[E0402]: the module's attribute `sardonyx.workspace_limit` is no number of bytes
module attributes {sardonyx.workspace_limit = -1 : i64} {
}

// -----

// PRECISION: error[E0402]: the module's attribute `sardonyx.precision` names no precision
module attributes {sardonyx.precision = "f8"} {
}

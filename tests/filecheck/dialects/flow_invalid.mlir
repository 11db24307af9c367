// RUN: not sardonyx-opt %s --split-input-file 2>&1 | FileCheck %s

// Each rule of a kernel, broken once.

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $0 (f32): loads operand 1, of 1
func.func @operand(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 1 ["%0"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $0 (f16): loads from a container of f32
func.func @load_type(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !flow.container<[b], f16, row_major> {
    %0 = flow.load 0 ["%0"] : f16
    flow.store %0 to 0 ["%0"] : f16
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $0 (f32): 2 indices for a container of rank 1
func.func @load_rank(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0", "0"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $0 (f32): `%1` is no iteration variable and no earlier i64 statement
func.func @variable(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%1"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $0 (f32): `$1` is no iteration variable and no earlier i64 statement
func.func @later_index(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["$1"] : f32
    %1 = flow.index "0" : i64
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $1 (f32): `$0` is no iteration variable and no earlier i64 statement
func.func @float_index(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.load 0 ["$0"] : f32
    flow.store %1 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $1 (i32): an index is an i64
func.func @index_type(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    %1 = "flow.index"() {value = "0"} : () -> i32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $2 (f32): `add` takes operands of one type, not f32 and f16
func.func @apply_types(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.convert %0 : f32 -> f16
    %2 = flow.apply "add"(%0, %1) : (f32, f16) -> f32
    flow.store %2 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $1 (f32): `lt` gives bool
func.func @apply_result(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.apply "lt"(%0, %0) : (f32, f32) -> f32
    flow.store %1 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': there is no scalar function `sinh`
func.func @apply_unknown(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    %1 = flow.apply "sinh"(%0) : (f32) -> f32
    flow.store %1 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $1 (f16): a reduction keeps the element type
func.func @reduce_type(%x: !flow.container<[b, s], f32, row_major>) {
  flow.kernel outer ["b"] inner ["s"] (%x) : (!flow.container<[b, s], f32, row_major>) -> !flow.container<[b], f16, row_major> {
    %0 = flow.load 0 ["%0", "%1"] : f32
    %1 = flow.reduce "add" %0 : f32 -> f16
    flow.store %1 to 0 ["%0"] : f16
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': a store to result 1, of 1
func.func @store_result(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = flow.load 0 ["%0"] : f32
    flow.store %0 to 1 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': a store of f32 to f16
func.func @store_type(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !flow.container<[b], f16, row_major> {
    %0 = flow.load 0 ["%0"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': a row value is stored at an inner index
func.func @store_level(%x: !row) {
  flow.kernel outer ["b"] inner ["s"] (%x) : (!row) -> !flow.container<[b, s], f32, row_major> {
    %0 = flow.load 0 ["%0"] : f32
    flow.store %0 to 0 ["%0", "%1"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': result 1 is never stored
func.func @store_missing(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> (!row, !row) {
    %0 = flow.load 0 ["%0"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': `func.call` is no statement of a kernel
func.func private @g() -> f32
func.func @foreign(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %0 = func.call @g() : () -> f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': a statement uses a value from outside its kernel
func.func @outside(%x: !row, %v: f32) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    flow.store %v to 0 ["%0"] : f32
  }
  return
}

// -----

!odd = !flow.container<[b], f32, columns>

// CHECK: error: 'flow.kernel': !flow.container<[b], f32, columns> has no layout or encoding that is known
func.func @layout(%x: !odd) {
  flow.kernel outer ["b"] inner [] (%x) : (!odd) -> !odd {
    %0 = flow.load 0 ["%0"] : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

!row = !flow.container<[b], f32, row_major>

// CHECK: error: 'flow.kernel': statement $1 (f32): the guard is not a bool
func.func @guard(%x: !row) {
  flow.kernel outer ["b"] inner [] (%x) : (!row) -> !row {
    %g = flow.index "%0" : i64
    %0 = "flow.load"(%g) {arg = 0 : i64, index = ["%0"]} : (i64) -> f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

// CHECK: error: 'flow.kernel': !flow.container<[s], f32, "capacity<1, room>"> has no dimension for its capacity
func.func @capacity_of_no_dimension() {
  flow.kernel outer ["s"] inner [] () : () -> !flow.container<[s], f32, "capacity<1, room>"> {
    %0 = flow.scalar 1.0 : f32
    flow.store %0 to 0 ["%0"] : f32
  }
  return
}

// -----

// CHECK: error: 'flow.param': several parameters are one behind the other along an axis
func.func @no_axis() {
  %0 = flow.param "q" and ["k"] : !flow.container<[8], f32, row_major>
  return
}

// -----

// CHECK: error: 'flow.param': one parameter is along no axis
func.func @axis_of_one() {
  %0 = flow.param "q" axis 0 : !flow.container<[4], f32, row_major>
  return
}

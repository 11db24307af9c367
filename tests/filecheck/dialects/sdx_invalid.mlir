// RUN: not sardonyx-opt %s --split-input-file 2>&1 | FileCheck %s

// Each rule of the value level, broken once.

// CHECK: error: 'sdx.map': there is no scalar function `expo`
func.func @map_unknown(%x: !sdx.tensor<[b], f32>) {
  sdx.map "expo"(%x) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.map': takes 2 operands, not 1
func.func @map_arity(%x: !sdx.tensor<[b], f32>) {
  sdx.map "add"(%x) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.map': operands have the same dimensions: [b] against [c]
func.func @map_dims(%x: !sdx.tensor<[b], f32>, %y: !sdx.tensor<[c], f32>) {
  sdx.map "add"(%x, %y) : (!sdx.tensor<[b], f32>, !sdx.tensor<[c], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.map': `add` takes operands of one type, not f32 and f16
func.func @map_types(%x: !sdx.tensor<[b], f32>, %y: !sdx.tensor<[b], f16>) {
  sdx.map "add"(%x, %y) : (!sdx.tensor<[b], f32>, !sdx.tensor<[b], f16>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.map': `exp` does not take i32
func.func @map_domain(%x: !sdx.tensor<[b], i32>) {
  sdx.map "exp"(%x) : (!sdx.tensor<[b], i32>) -> !sdx.tensor<[b], i32>
  return
}

// -----

// CHECK: error: 'sdx.map': `select` takes a bool condition, not i8
func.func @map_condition(%c: !sdx.tensor<[b], i8>, %x: !sdx.tensor<[b], f32>) {
  sdx.map "select"(%c, %x, %x) : (!sdx.tensor<[b], i8>, !sdx.tensor<[b], f32>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.map': the result is !sdx.tensor<[b], bool>, not !sdx.tensor<[b], f32>
func.func @map_result(%x: !sdx.tensor<[b], f32>) {
  sdx.map "lt"(%x, %x) : (!sdx.tensor<[b], f32>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.convert': the result is !sdx.tensor<[b], i8>, not !sdx.tensor<[c], i8>
func.func @convert(%x: !sdx.tensor<[b], f32>) {
  sdx.convert %x : !sdx.tensor<[b], f32> -> !sdx.tensor<[c], i8>
  return
}

// -----

// CHECK: error: 'sdx.const': the result is !sdx.tensor<[2], f32>, not !sdx.tensor<[3], f32>
func.func @const() {
  sdx.const dense<[1.0, 2.0]> : tensor<2xf32> : !sdx.tensor<[3], f32>
  return
}

// -----

// CHECK: error: 'sdx.dims': 2 values do not make !sdx.tensor<[3], i64>
func.func @dims_count() {
  sdx.dims ["b", "s"] : !sdx.tensor<[3], i64>
  return
}

// -----

// CHECK: error: 'sdx.dims': 1 values do not make !sdx.tensor<[], i32>
func.func @dims_type() {
  sdx.dims ["b"] : !sdx.tensor<[], i32>
  return
}

// -----

// CHECK: error: 'sdx.dims': `b +` is not a dimension expression: expected a number, a name or `(` at byte 3
func.func @dims_text() {
  sdx.dims ["b +"] : !sdx.tensor<[], i64>
  return
}

// -----

// CHECK: error: 'sdx.reduce': there is no reduction `mean`
func.func @reduce_unknown(%x: !sdx.tensor<[b, s], f32>) {
  sdx.reduce "mean" %x axes [1] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.reduce': axes [1, 0] are not increasing and below 2
func.func @reduce_order(%x: !sdx.tensor<[b, s], f32>) {
  sdx.reduce "add" %x axes [1, 0] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[], f32>
  return
}

// -----

// CHECK: error: 'sdx.reduce': axes [2] are not increasing and below 2
func.func @reduce_range(%x: !sdx.tensor<[b, s], f32>) {
  sdx.reduce "add" %x axes [2] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.reduce': `axes` has the negative entry -1
func.func @reduce_negative(%x: !sdx.tensor<[b, s], f32>) {
  sdx.reduce "add" %x axes [-1] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.reduce': `max` does not take bool
func.func @reduce_type(%x: !sdx.tensor<[b, s], i1>) {
  sdx.reduce "max" %x axes [1] : !sdx.tensor<[b, s], i1> -> !sdx.tensor<[b], i1>
  return
}

// -----

// CHECK: error: 'sdx.contract': `mk->m` is no contraction
func.func @contract_text(%x: !sdx.tensor<[b, s], f32>) {
  sdx.contract "mk->m"(%x, %x) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.contract': `mm,mk->k` is no contraction
func.func @contract_diagonal(%x: !sdx.tensor<[b, b], f32>) {
  sdx.contract "mm,mk->k"(%x, %x) : (!sdx.tensor<[b, b], f32>, !sdx.tensor<[b, b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.contract': `mk,kn->mz` is no contraction
func.func @contract_letter(%x: !sdx.tensor<[b, b], f32>) {
  sdx.contract "mk,kn->mz"(%x, %x) : (!sdx.tensor<[b, b], f32>, !sdx.tensor<[b, b], f32>) -> !sdx.tensor<[b, b], f32>
  return
}

// -----

// CHECK: error: 'sdx.contract': `bmk,kn->bmn` does not fit !sdx.tensor<[b, s], f32>
func.func @contract_rank(%x: !sdx.tensor<[b, s], f32>) {
  sdx.contract "bmk,kn->bmn"(%x, %x) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.contract': one letter, one extent: [s] against [b]
func.func @contract_extent(%x: !sdx.tensor<[b, s], f32>) {
  sdx.contract "mk,kn->mn"(%x, %x) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.contract': operands of one element type, not f32 and f16
func.func @contract_types(%x: !sdx.tensor<[b, b], f32>, %y: !sdx.tensor<[b, b], f16>) {
  sdx.contract "mk,kn->mn"(%x, %y) : (!sdx.tensor<[b, b], f32>, !sdx.tensor<[b, b], f16>) -> !sdx.tensor<[b, b], f32>
  return
}

// -----

// CHECK: error: 'sdx.gather': needs a dimension 2 of !sdx.tensor<[b, s], f32> and i64 indices, not i64
func.func @gather_axis(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[3], i64>) {
  sdx.gather %x[%i] axis 2 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[3], i64>) -> !sdx.tensor<[b, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.gather': needs a dimension 0 of !sdx.tensor<[b, s], f32> and i64 indices, not i32
func.func @gather_indices(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[3], i32>) {
  sdx.gather %x[%i] axis 0 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[3], i32>) -> !sdx.tensor<[3, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.gather': the axis -1 is negative
func.func @gather_negative(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[3], i64>) {
  sdx.gather %x[%i] axis -1 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[3], i64>) -> !sdx.tensor<[b, 3], f32>
  return
}

// -----

// CHECK: error: 'sdx.window': needs a dimension 2 of !sdx.tensor<[b, s], f32>, and a positive stride and dilation
func.func @window_axis(%x: !sdx.tensor<[b, s], f32>) {
  sdx.window %x axis 2 size "3" stride 1 dilation 1 : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b, s - 2, 3], f32>
  return
}

// -----

// CHECK: error: 'sdx.window': the attribute `stride` is no positive number
func.func @window_stride(%x: !sdx.tensor<[s], f32>) {
  sdx.window %x axis 0 size "3" stride 0 dilation 1 : !sdx.tensor<[s], f32> -> !sdx.tensor<[s, 3], f32>
  return
}

// -----

// CHECK: error: 'sdx.window': a window of 3 by 2 does not fit dimension 0 of !sdx.tensor<[4], f32>
func.func @window_fit(%x: !sdx.tensor<[4], f32>) {
  sdx.window %x axis 0 size "3" stride 1 dilation 2 : !sdx.tensor<[4], f32> -> !sdx.tensor<[1, 3], f32>
  return
}

// -----

// CHECK: error: 'sdx.window': the window has 2 places in dimension 0 of !sdx.tensor<[6], f32>, not 3
func.func @window_places(%x: !sdx.tensor<[6], f32>) {
  sdx.window %x axis 0 size "3" stride 2 dilation 1 : !sdx.tensor<[6], f32> -> !sdx.tensor<[3, 3], f32>
  return
}

// -----

// CHECK: error: 'sdx.slice': needs a start and a non-zero step for each dimension of !sdx.tensor<[b, s], f32>
func.func @slice_rank(%x: !sdx.tensor<[b, s], f32>) {
  sdx.slice %x from ["0"] step [1, 1] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.slice': needs a start and a non-zero step for each dimension of !sdx.tensor<[b], f32>
func.func @slice_step(%x: !sdx.tensor<[b], f32>) {
  sdx.slice %x from ["0"] step [0] : !sdx.tensor<[b], f32> -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.slice': 1 to 5 is outside dimension 0 of !sdx.tensor<[5], f32>
func.func @slice_range(%x: !sdx.tensor<[5], f32>) {
  sdx.slice %x from ["1"] step [2] : !sdx.tensor<[5], f32> -> !sdx.tensor<[3], f32>
  return
}

// -----

// CHECK: error: 'sdx.pad': the padding value is a scalar: [1] against []
func.func @pad_value(%x: !sdx.tensor<[b], f32>, %v: !sdx.tensor<[1], f32>) {
  sdx.pad %x with %v low ["0"] : (!sdx.tensor<[b], f32>, !sdx.tensor<[1], f32>) -> !sdx.tensor<[b + 1], f32>
  return
}

// -----

// CHECK: error: 'sdx.pad': one `low` per dimension of !sdx.tensor<[b], f32>
func.func @pad_low(%x: !sdx.tensor<[b], f32>, %v: !sdx.tensor<[], f32>) {
  sdx.pad %x with %v low ["0", "0"] : (!sdx.tensor<[b], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 1], f32>
  return
}

// -----

// CHECK: error: 'sdx.pad': operands of one element type, not f32 and i32
func.func @pad_type(%x: !sdx.tensor<[b], f32>, %v: !sdx.tensor<[], i32>) {
  sdx.pad %x with %v low ["0"] : (!sdx.tensor<[b], f32>, !sdx.tensor<[], i32>) -> !sdx.tensor<[b + 1], f32>
  return
}

// -----

// CHECK: error: 'sdx.concat': takes at least one operand
func.func @concat_none() {
  sdx.concat () axis 0 : () -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.concat': !sdx.tensor<[b], f32> has no dimension 1
func.func @concat_axis(%x: !sdx.tensor<[b], f32>) {
  sdx.concat (%x, %x) axis 1 : (!sdx.tensor<[b], f32>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.concat': the other dimensions agree: [s] against [t]
func.func @concat_dims(%x: !sdx.tensor<[b, s], f32>, %y: !sdx.tensor<[b, t], f32>) {
  sdx.concat (%x, %y) axis 0 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, t], f32>) -> !sdx.tensor<[2*b, s], f32>
  return
}

// -----

// CHECK: error: 'sdx.concat': the result is !sdx.tensor<[2*b], f32>, not !sdx.tensor<[b], f32>
func.func @concat_result(%x: !sdx.tensor<[b], f32>) {
  sdx.concat (%x, %x) axis 0 : (!sdx.tensor<[b], f32>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.reshape': !sdx.tensor<[b, s], f32> has b*s elements, !sdx.tensor<[b, t], f32> has b*t
func.func @reshape(%x: !sdx.tensor<[b, s], f32>) {
  sdx.reshape %x : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b, t], f32>
  return
}

// -----

// CHECK: error: 'sdx.transpose': [0, 0] is no permutation of the dimensions of !sdx.tensor<[b, s], f32>
func.func @transpose(%x: !sdx.tensor<[b, s], f32>) {
  sdx.transpose %x [0, 0] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[b, b], f32>
  return
}

// -----

// CHECK: error: 'sdx.broadcast': [1, 0] does not place the dimensions of !sdx.tensor<[b, s], f32> in !sdx.tensor<[s, b], f32>
func.func @broadcast_order(%x: !sdx.tensor<[b, s], f32>) {
  sdx.broadcast %x to [1, 0] : !sdx.tensor<[b, s], f32> -> !sdx.tensor<[s, b], f32>
  return
}

// -----

// CHECK: error: 'sdx.broadcast': b does not broadcast to s
func.func @broadcast_extent(%x: !sdx.tensor<[b], f32>) {
  sdx.broadcast %x to [0] : !sdx.tensor<[b], f32> -> !sdx.tensor<[s], f32>
  return
}

// -----

// CHECK: error: 'sdx.iota': needs an i64 result with a dimension 1, not !sdx.tensor<[b], i64>
func.func @iota_axis() {
  sdx.iota axis 1 : !sdx.tensor<[b], i64>
  return
}

// -----

// CHECK: error: 'sdx.iota': needs an i64 result with a dimension 0, not !sdx.tensor<[b], f32>
func.func @iota_type() {
  sdx.iota axis 0 : !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.bind': takes one i64, not !sdx.tensor<[2], i64>
func.func @bind_count(%n: !sdx.tensor<[2], i64>) {
  sdx.bind "n" = %n : !sdx.tensor<[2], i64> -> !sdx.tensor<[2], i64>
  return
}

// -----

// CHECK: error: 'sdx.bind': takes one i64, not !sdx.tensor<[], i32>
func.func @bind_type(%n: !sdx.tensor<[], i32>) {
  sdx.bind "n" = %n : !sdx.tensor<[], i32> -> !sdx.tensor<[], i32>
  return
}

// -----

// CHECK: error: 'sdx.place': !sdx.tensor<[12], f32> has no dimension 1
func.func @place_dimension(%x: !sdx.tensor<[12], f32>) {
  sdx.place %x on 0 split ["1", "1", "1"] : !sdx.tensor<[12], f32> -> !sdx.tensor<[12], f32>
  return
}

// -----

// CHECK: error: 'sdx.place': `split` is a dimension, runs and elements of a unit, not ["0"]
func.func @place_split(%x: !sdx.tensor<[12], f32>) {
  sdx.place %x on 0 split ["0"] : !sdx.tensor<[12], f32> -> !sdx.tensor<[12], f32>
  return
}

// -----

// CHECK: error: 'sdx.host': there is no host operation `Sort`
func.func @host_unknown(%x: !sdx.tensor<[b], f32>) {
  sdx.host "Sort"(%x) result 0 of 0 binds [] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// -----

// CHECK: error: 'sdx.host': result 0 of `NonZero` is not !sdx.tensor<[1, n], i32>
func.func @host_type(%x: !sdx.tensor<[b], f32>) {
  sdx.host "NonZero"(%x) result 0 of 0 binds ["1 n"] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[1, n], i32>
  return
}

// -----

// CHECK: error: 'sdx.host': `n` is dimension 2 of !sdx.tensor<[1, n], i64>
func.func @host_axis(%x: !sdx.tensor<[b], f32>) {
  sdx.host "NonZero"(%x) result 0 of 0 binds ["2 n"] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[1, n], i64>
  return
}

// -----

// CHECK: error: 'sdx.host': `If then=0` calls 2 functions, not 1
func.func @host_bodies(%c: !sdx.tensor<[], i1>) {
  sdx.host "If then=0"(%c) result 0 of 0 binds [] calls ["yes"] : (!sdx.tensor<[], i1>) -> !sdx.tensor<[], f32>
  return
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

// Computed before it is repeated.

// CHECK-LABEL: func.func @repeated
// CHECK: sdx.map "exp"(%{{.*}}) : (!sdx.tensor<[s], f32>)
// CHECK: sdx.broadcast
func.func @repeated(%x: !sdx.tensor<[s], f32>) -> !sdx.tensor<[b, s], f32>
    attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %0 = sdx.broadcast %x to [1] : <[s], f32> -> <[b, s], f32>
  %1 = sdx.map "exp"(%0) : (!sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
  return %1 : !sdx.tensor<[b, s], f32>
}

// -----

// Two values that are moved in different ways are not moved after the function.

// CHECK-LABEL: func.func @unlike
// CHECK: sdx.transpose
// CHECK: sdx.map "add"
// CHECK-NEXT: return
func.func @unlike(%x: !sdx.tensor<[s, b], f32>, %y: !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
    attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %0 = sdx.transpose %x [1, 0] : <[s, b], f32> -> <[b, s], f32>
  %1 = sdx.map "add"(%0, %y) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
  return %1 : !sdx.tensor<[b, s], f32>
}

// -----

// A lookup of the flat mask at batch · seq + position is the mask.

// CHECK-LABEL: func.func @mask_lookup
// CHECK-NOT: sdx.gather
// CHECK: return
func.func @mask_lookup(%x: !sdx.tensor<[b, s], i1>) -> !sdx.tensor<[b, 1, s], i1>
    attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %i = sdx.iota axis 0 : <[b], i64>
  %j = sdx.iota axis 0 : <[s], i64>
  %n = sdx.dims ["s"] : <[], i64>
  %ns = sdx.broadcast %n to [] : <[], i64> -> <[b], i64>
  %0 = sdx.map "mul"(%i, %ns) : (!sdx.tensor<[b], i64>, !sdx.tensor<[b], i64>) -> !sdx.tensor<[b], i64>
  %1 = sdx.broadcast %0 to [0] : <[b], i64> -> <[b, 1, s], i64>
  %2 = sdx.broadcast %j to [2] : <[s], i64> -> <[b, 1, s], i64>
  %3 = sdx.map "add"(%1, %2) : (!sdx.tensor<[b, 1, s], i64>, !sdx.tensor<[b, 1, s], i64>) -> !sdx.tensor<[b, 1, s], i64>
  %4 = sdx.reshape %x : <[b, s], i1> -> <[b*s], i1>
  %5 = sdx.gather %4[%3] axis 0 : (!sdx.tensor<[b*s], i1>, !sdx.tensor<[b, 1, s], i64>) -> !sdx.tensor<[b, 1, s], i1>
  return %5 : !sdx.tensor<[b, 1, s], i1>
}

// -----

// With rows of another length it is not.

// CHECK-LABEL: func.func @other_rows
// CHECK: sdx.gather
func.func @other_rows(%x: !sdx.tensor<[b, s], i1>) -> !sdx.tensor<[b, t], i1>
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input t 0.."]} {
  %i = sdx.iota axis 0 : <[b], i64>
  %j = sdx.iota axis 0 : <[t], i64>
  %n = sdx.dims ["s"] : <[], i64>
  %ns = sdx.broadcast %n to [] : <[], i64> -> <[b], i64>
  %0 = sdx.map "mul"(%i, %ns) : (!sdx.tensor<[b], i64>, !sdx.tensor<[b], i64>) -> !sdx.tensor<[b], i64>
  %1 = sdx.broadcast %0 to [0] : <[b], i64> -> <[b, t], i64>
  %2 = sdx.broadcast %j to [1] : <[t], i64> -> <[b, t], i64>
  %3 = sdx.map "add"(%1, %2) : (!sdx.tensor<[b, t], i64>, !sdx.tensor<[b, t], i64>) -> !sdx.tensor<[b, t], i64>
  %4 = sdx.reshape %x : <[b, s], i1> -> <[b*s], i1>
  %5 = sdx.gather %4[%3] axis 0 : (!sdx.tensor<[b*s], i1>, !sdx.tensor<[b, t], i64>) -> !sdx.tensor<[b, t], i1>
  return %5 : !sdx.tensor<[b, t], i1>
}

// -----

// What grows in place is left alone: the past is used once, and its concatenation is no other.

// CHECK-LABEL: func.func @cache
// CHECK: %[[K:.*]] = sdx.append %{{.*}}, %{{.*}} axis 0
// CHECK: return %[[K]]
func.func @cache(%past: !sdx.tensor<[p, 4], f32>, %new: !sdx.tensor<[s, 4], f32>) -> !sdx.tensor<[p + s, 4], f32>
    attributes {sdx.symbols = ["input p 0..", "input s 0.."]} {
  %0 = sdx.append %past, %new axis 0 : (!sdx.tensor<[p, 4], f32>, !sdx.tensor<[s, 4], f32>) -> !sdx.tensor<[p + s, 4], f32>
  return %0 : !sdx.tensor<[p + s, 4], f32>
}

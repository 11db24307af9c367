// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(find-caches)' | FileCheck %s

// What comes in and goes out longer is a state: an input that nothing else uses, and one output.

!past = !sdx.tensor<[b, 2, past, 4], f32>
!new = !sdx.tensor<[b, 2, seq, 4], f32>
!all = !sdx.tensor<[b, 2, past + seq, 4], f32>

// CHECK-LABEL: func.func @cache(
// CHECK-SAME: %[[PAST:[a-z0-9]+]]: {{[^%]*}}, %[[NEW:[a-z0-9]+]]:
// CHECK: %[[ALL:.*]] = sdx.append %[[PAST]], %[[NEW]] axis 2 : (!sdx.tensor<[b, 2, past, 4], f32>, !sdx.tensor<[b, 2, seq, 4], f32>) -> !sdx.tensor<[b, 2, past + seq, 4], f32>
// CHECK: sdx.map "neg"(%[[ALL]])
// CHECK: return %[[ALL]]
func.func @cache(%past: !past, %new: !new) -> (!all, !all) {
  %0 = sdx.concat (%past, %new) axis 2 : (!past, !new) -> !all
  %1 = sdx.map "neg"(%0) : (!all) -> !all
  return %0, %1 : !all, !all
}

// -----

// One that always begins empty, one that grows by what is known.

// CHECK-LABEL: func.func @empty
// CHECK: sdx.append %arg0, %arg1 axis 0
// CHECK: sdx.append %arg2, %{{.*}} axis 1
func.func @empty(%past: !sdx.tensor<[0, 4], f32>, %new: !sdx.tensor<[s, 4], f32>, %k: !sdx.tensor<[2, t], i64>) -> (!sdx.tensor<[s, 4], f32>, !sdx.tensor<[2, t + 1], i64>) {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[0, 4], f32>, !sdx.tensor<[s, 4], f32>) -> !sdx.tensor<[s, 4], f32>
  %1 = sdx.const dense<[[1], [2]]> : tensor<2x1xi64> : !sdx.tensor<[2, 1], i64>
  %2 = sdx.concat (%k, %1) axis 1 : (!sdx.tensor<[2, t], i64>, !sdx.tensor<[2, 1], i64>) -> !sdx.tensor<[2, t + 1], i64>
  return %0, %2 : !sdx.tensor<[s, 4], f32>, !sdx.tensor<[2, t + 1], i64>
}

// -----

// What is dead does not read the past.

// CHECK-LABEL: func.func @dead
// CHECK: sdx.append
func.func @dead(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32> {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  %1 = sdx.map "neg"(%past) : (!sdx.tensor<[p], f32>) -> !sdx.tensor<[p], f32>
  return %0 : !sdx.tensor<[p + s], f32>
}

// -----

// Nobody gets the result, somebody gets it twice.

// CHECK-LABEL: func.func @no_output
// CHECK-NOT: sdx.append
func.func @no_output(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32> {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  %1 = sdx.map "neg"(%0) : (!sdx.tensor<[p + s], f32>) -> !sdx.tensor<[p + s], f32>
  return %1 : !sdx.tensor<[p + s], f32>
}

// -----

// CHECK-LABEL: func.func @two_outputs
// CHECK-NOT: sdx.append
func.func @two_outputs(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s], f32>, !sdx.tensor<[p + s], f32>) {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  return %0, %0 : !sdx.tensor<[p + s], f32>, !sdx.tensor<[p + s], f32>
}

// -----

// The past is read elsewhere, where its memory would hold more by then; or is itself an output; or goes into two.

// CHECK-LABEL: func.func @read_twice
// CHECK-NOT: sdx.append
func.func @read_twice(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s], f32>, !sdx.tensor<[], f32>) {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  %1 = sdx.reduce "add" %past axes [0] : !sdx.tensor<[p], f32> -> !sdx.tensor<[], f32>
  return %0, %1 : !sdx.tensor<[p + s], f32>, !sdx.tensor<[], f32>
}

// -----

// CHECK-LABEL: func.func @given_back
// CHECK-NOT: sdx.append
func.func @given_back(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s], f32>, !sdx.tensor<[p], f32>) {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  return %0, %past : !sdx.tensor<[p + s], f32>, !sdx.tensor<[p], f32>
}

// -----

// CHECK-LABEL: func.func @two_results
// CHECK-NOT: sdx.append
func.func @two_results(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> (!sdx.tensor<[p + s], f32>, !sdx.tensor<[2*p], f32>) {
  %0 = sdx.concat (%past, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  %1 = sdx.concat (%past, %past) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[p], f32>) -> !sdx.tensor<[2*p], f32>
  return %0, %1 : !sdx.tensor<[p + s], f32>, !sdx.tensor<[2*p], f32>
}

// -----

// The past comes first, alone, and from outside.

// CHECK-LABEL: func.func @behind
// CHECK-NOT: sdx.append
func.func @behind(%past: !sdx.tensor<[p], f32>) -> !sdx.tensor<[p + 2], f32> {
  %0 = sdx.const dense<[1.0, 2.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %1 = sdx.concat (%0, %past) axis 0 : (!sdx.tensor<[2], f32>, !sdx.tensor<[p], f32>) -> !sdx.tensor<[p + 2], f32>
  return %1 : !sdx.tensor<[p + 2], f32>
}

// -----

// CHECK-LABEL: func.func @three
// CHECK-NOT: sdx.append
func.func @three(%past: !sdx.tensor<[p], f32>, %x: !sdx.tensor<[s], f32>, %y: !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + 2*s], f32> {
  %0 = sdx.concat (%past, %x, %y) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + 2*s], f32>
  return %0 : !sdx.tensor<[p + 2*s], f32>
}

// -----

// CHECK-LABEL: func.func @computed
// CHECK-NOT: sdx.append
func.func @computed(%past: !sdx.tensor<[p], f32>, %new: !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32> {
  %0 = sdx.map "neg"(%past) : (!sdx.tensor<[p], f32>) -> !sdx.tensor<[p], f32>
  %1 = sdx.concat (%0, %new) axis 0 : (!sdx.tensor<[p], f32>, !sdx.tensor<[s], f32>) -> !sdx.tensor<[p + s], f32>
  return %1 : !sdx.tensor<[p + s], f32>
}

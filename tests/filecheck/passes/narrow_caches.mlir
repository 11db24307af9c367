// RUN: sardonyx-opt %s --split-input-file --option kv-cache=bf16 --pass-pipeline='builtin.module(find-caches,narrow-caches)' | FileCheck %s --check-prefix=BF16
// RUN: sardonyx-opt %s --split-input-file --option kv-cache=int8 --pass-pipeline='builtin.module(find-caches,narrow-caches)' | FileCheck %s --check-prefix=INT8
// RUN: sardonyx-opt %s --split-input-file --option kv-cache=bfp8 --pass-pipeline='builtin.module(find-caches,narrow-caches)' | FileCheck %s --check-prefix=BFP8
// RUN: sardonyx-opt %s --split-input-file --option kv-cache=bfp4 --pass-pipeline='builtin.module(find-caches,narrow-caches)' | FileCheck %s --check-prefix=BFP4
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(find-caches,narrow-caches)' | FileCheck %s --check-prefix=NONE
// RUN: sardonyx-opt %s --split-input-file --option kv-cache=bfp8 --pass-pipeline='builtin.module(find-caches,narrow-caches,simplify,sdx-to-flow,fuse,fuse-attention,inline-maps)' | FileCheck %s --check-prefix=FLOW

// New rows are rounded before they are appended; what reads the cache reads what they were rounded to. Scales and exponents are
// states beside that of the codes.

!past = !sdx.tensor<[b, 2, past, 64], f32>
!new = !sdx.tensor<[b, 2, seq, 64], f32>
!all = !sdx.tensor<[b, 2, past + seq, 64], f32>

// BF16-LABEL: func.func @cache(
// BF16-SAME: %[[PAST:[a-z0-9]+]]: !sdx.tensor<[b, 2, past, 64], bf16> {sdx.name = "past"}, %[[NEW:[a-z0-9]+]]:
// BF16: %[[R:.*]] = sdx.convert %[[NEW]] : <[b, 2, seq, 64], f32> -> <[b, 2, seq, 64], bf16>
// BF16: %[[ALL:.*]] = sdx.append %[[PAST]], %[[R]] axis 2
// BF16: %[[X:.*]] = sdx.convert %[[ALL]] : <[b, 2, past + seq, 64], bf16> -> <[b, 2, past + seq, 64], f32>
// BF16: %[[Y:.*]] = sdx.map "neg"(%[[X]])
// BF16: return %[[ALL]], %[[Y]]

// INT8-LABEL: func.func @cache(
// INT8-SAME: !sdx.tensor<[b, 2, past, 64], i8> {sdx.name = "past"}, %{{[a-z0-9]+}}: !sdx.tensor<[b, 2, past, 1], f32> {sdx.name = "past.scale"}
// INT8: %[[C:.*]] = sdx.append %arg0, %{{.*}} axis 2 : (!sdx.tensor<[b, 2, past, 64], i8>,
// INT8: %[[S:.*]] = sdx.append %arg1, %{{.*}} axis 2 : (!sdx.tensor<[b, 2, past, 1], f32>,
// INT8: return %[[C]], %[[S]],

// An exponent for 32 elements.

// BFP8-LABEL: func.func @cache(
// BFP8-SAME: !sdx.tensor<[b, 2, past, 64], i8> {sdx.name = "past"}, %{{[a-z0-9]+}}: !sdx.tensor<[b, 2, past, 2], ui8> {sdx.name = "past.exponent"}
// BFP8: sdx.reshape %arg2 : <[b, 2, seq, 64], f32> -> <[b, 2, seq, 2, 32], f32>
// BFP8: sdx.reduce "max" %{{.*}} axes [4]
// BFP8: sdx.append %arg0, %{{.*}} axis 2 : (!sdx.tensor<[b, 2, past, 64], i8>,
// BFP8: sdx.append %arg1, %{{.*}} axis 2 : (!sdx.tensor<[b, 2, past, 2], ui8>,

// BFP4-LABEL: func.func @cache(
// BFP4-SAME: !sdx.tensor<[b, 2, past, 32], ui8> {sdx.name = "past"}, %{{[a-z0-9]+}}: !sdx.tensor<[b, 2, past, 2], ui8> {sdx.name = "past.exponent"}
// BFP4: sdx.append %arg0, %{{.*}} axis 2 : (!sdx.tensor<[b, 2, past, 32], ui8>,

// NONE-LABEL: func.func @cache(
// NONE-NOT: sdx.convert
// NONE: sdx.append %arg0, %arg1 axis 2 : (!sdx.tensor<[b, 2, past, 64], f32>,
func.func @cache(%past: !past {sdx.name = "past"}, %new: !new {sdx.name = "new"}) -> (!all {sdx.name = "present"}, !all {sdx.name = "y"}) {
  %0 = sdx.concat (%past, %new) axis 2 : (!past, !new) -> !all
  %1 = sdx.map "neg"(%0) : (!all) -> !all
  return %0, %1 : !all, !all
}

// -----

// Integers stay as they are, where another cache is narrowed. Rows whose axis is the last but one have their scales there.

// INT8-LABEL: func.func @mixed
// INT8: sdx.append %arg0, %{{.*}} axis 1 : (!sdx.tensor<[64, t], i8>,
// INT8: sdx.append %arg1, %{{.*}} axis 1 : (!sdx.tensor<[1, t], f32>,
// INT8: sdx.append %arg3, %arg4 axis 0 : (!sdx.tensor<[n], i64>,
func.func @mixed(%k: !sdx.tensor<[64, t], f32>, %x: !sdx.tensor<[64, 1], f32>, %i: !sdx.tensor<[n], i64>, %j: !sdx.tensor<[1], i64>) -> (!sdx.tensor<[64, t + 1], f32>, !sdx.tensor<[n + 1], i64>) {
  %0 = sdx.concat (%k, %x) axis 1 : (!sdx.tensor<[64, t], f32>, !sdx.tensor<[64, 1], f32>) -> !sdx.tensor<[64, t + 1], f32>
  %1 = sdx.concat (%i, %j) axis 0 : (!sdx.tensor<[n], i64>, !sdx.tensor<[1], i64>) -> !sdx.tensor<[n + 1], i64>
  return %0, %1 : !sdx.tensor<[64, t + 1], f32>, !sdx.tensor<[n + 1], i64>
}

// -----

// Attention widens what it reads of the caches: no kernel writes one as f32. Its exponents are read one for 32 elements.

// FLOW-LABEL: func.func @attention
// FLOW-NOT: !flow.container<[b, 2, past + seq, 64], f32
// FLOW: flow.kernel outer ["b", "2", "seq", "64"] inner ["past + seq"] deep ["64"]({{.*}}[b, 2, past + seq, 64], i8, "capacity
// FLOW: flow.load {{[0-9]+}} ["%0", "%1", "%4", "((%5) floordiv (32))"] : ui8
// FLOW: flow.load {{[0-9]+}} ["%0", "%1", "%4", "((%3) floordiv (32))"] : ui8
// FLOW-NOT: flow.kernel
func.func @attention(%k: !sdx.tensor<[b, 2, past, 64], f32>, %v: !sdx.tensor<[b, 2, past, 64], f32>, %q: !sdx.tensor<[b, 2, seq, 64], f32>, %x: !sdx.tensor<[b, 2, seq, 64], f32>) -> (!sdx.tensor<[b, 2, past + seq, 64], f32>, !sdx.tensor<[b, 2, past + seq, 64], f32>, !sdx.tensor<[b, 2, seq, 64], f32>) {
  %0 = sdx.concat (%k, %x) axis 2 : (!sdx.tensor<[b, 2, past, 64], f32>, !sdx.tensor<[b, 2, seq, 64], f32>) -> !sdx.tensor<[b, 2, past + seq, 64], f32>
  %1 = sdx.concat (%v, %x) axis 2 : (!sdx.tensor<[b, 2, past, 64], f32>, !sdx.tensor<[b, 2, seq, 64], f32>) -> !sdx.tensor<[b, 2, past + seq, 64], f32>
  %2 = sdx.contract "bhsd,bhtd->bhst"(%q, %0) : (!sdx.tensor<[b, 2, seq, 64], f32>, !sdx.tensor<[b, 2, past + seq, 64], f32>) -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %3 = sdx.reduce "max" %2 axes [3] : !sdx.tensor<[b, 2, seq, past + seq], f32> -> !sdx.tensor<[b, 2, seq], f32>
  %4 = sdx.broadcast %3 to [0, 1, 2] : !sdx.tensor<[b, 2, seq], f32> -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %5 = sdx.map "sub"(%2, %4) : (!sdx.tensor<[b, 2, seq, past + seq], f32>, !sdx.tensor<[b, 2, seq, past + seq], f32>) -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %6 = sdx.map "exp"(%5) : (!sdx.tensor<[b, 2, seq, past + seq], f32>) -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %7 = sdx.reduce "add" %6 axes [3] : !sdx.tensor<[b, 2, seq, past + seq], f32> -> !sdx.tensor<[b, 2, seq], f32>
  %8 = sdx.broadcast %7 to [0, 1, 2] : !sdx.tensor<[b, 2, seq], f32> -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %9 = sdx.map "div"(%6, %8) : (!sdx.tensor<[b, 2, seq, past + seq], f32>, !sdx.tensor<[b, 2, seq, past + seq], f32>) -> !sdx.tensor<[b, 2, seq, past + seq], f32>
  %10 = sdx.contract "bhst,bhte->bhse"(%9, %1) : (!sdx.tensor<[b, 2, seq, past + seq], f32>, !sdx.tensor<[b, 2, past + seq, 64], f32>) -> !sdx.tensor<[b, 2, seq, 64], f32>
  return %0, %1, %10 : !sdx.tensor<[b, 2, past + seq, 64], f32>, !sdx.tensor<[b, 2, past + seq, 64], f32>, !sdx.tensor<[b, 2, seq, 64], f32>
}

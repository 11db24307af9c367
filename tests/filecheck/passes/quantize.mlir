// RUN: sardonyx-opt %s --split-input-file --option quantize=int8 --pass-pipeline='builtin.module(quantize)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --option quantize=int8 --pass-pipeline='builtin.module(quantize,sdx-to-flow,prepare-weights,fuse,int8-contractions)' | FileCheck %s --check-prefix=BYTES
// RUN: sardonyx-opt %s --split-input-file --option quantize=int4 --option group=64 --option activations=f32 --pass-pipeline='builtin.module(quantize)' | FileCheck %s --check-prefix=GROUPS
// RUN: sardonyx-opt %s --split-input-file --option quantize=fp8 --pass-pipeline='builtin.module(quantize,sdx-to-flow,prepare-weights,fuse,int8-contractions)' | FileCheck %s --check-prefix=FLOATS
// RUN: sardonyx-opt %s --split-input-file --option quantize=int8 --pass-pipeline='builtin.module(quantize)' --remarks quantize 2>&1 >%t | FileCheck %s --check-prefix=REMARK

!x = !sdx.tensor<[m, 256], f32>
!w = !sdx.tensor<[256, 96], f32>
!y = !sdx.tensor<[m, 96], f32>

// What is multiplied has a scale for each row, weights one for each column; a row of zeros the scale of 1. Two products of
// one value share its codes.

// CHECK-LABEL: func.func @linear
// CHECK: %[[W:.*]] = sdx.param "w"
// CHECK: %[[A:.*]] = sdx.map "abs"(%arg0)
// CHECK-NEXT: %[[M:.*]] = sdx.reduce "max" %[[A]] axes [1] : {{.*}} -> <[m], f32>
// CHECK: %[[S:.*]] = sdx.map "div"({{.*}}) : {{.*}} -> !sdx.tensor<[m], f32>
// CHECK: %[[R:.*]] = sdx.map "round"
// CHECK-NEXT: %[[C:.*]] = sdx.convert %[[R]] : <[m, 256], f32> -> <[m, 256], i8>
// CHECK-NEXT: %[[F:.*]] = sdx.convert %[[C]] : <[m, 256], i8> -> <[m, 256], f32>
// CHECK: %[[X:.*]] = sdx.map "mul"(%[[F]], {{.*}})
// CHECK: sdx.map "abs"(%[[W]])
// CHECK-NEXT: sdx.reduce "max" {{.*}} axes [0] : {{.*}} -> <[96], f32>
// CHECK: %[[D:.*]] = sdx.convert {{.*}} : <[256, 96], i8> -> <[256, 96], f32>
// CHECK: %[[V:.*]] = sdx.map "mul"(%[[D]], {{.*}})
// CHECK-NEXT: sdx.contract "mk,kn->mn"(%[[X]], %[[V]])
// CHECK-NOT: sdx.map "abs"(%arg0)
// CHECK: sdx.contract "mk,kn->mn"(%[[X]], {{.*}})

// The codes of the weights are in the file; the kernel that finds the scales of rows writes them beside the bytes.

// BYTES-LABEL: func.func @linear
// BYTES: %[[Q:.*]]:2 = flow.kernel outer ["m"] inner ["256"](%arg0) : {{.*}} -> (!flow.container<[m, 256], ui8, row_major>, !flow.container<[m], f32, row_major>)
// BYTES-DAG: flow.param "@w{{[0-9a-f]+}}" : <[256, 96], i8, row_major>
// BYTES-DAG: flow.param "@w{{[0-9a-f]+}}" : <[96], f32, row_major>
// BYTES-DAG: flow.param "@w{{[0-9a-f]+}}" transform "column_sums" : <[96], i32, row_major>
// BYTES: flow.kernel outer ["m", "96"] inner ["256"](%[[Q]]#1, %[[Q]]#0,
// BYTES: flow.reduce "add" {{.*}} : i32 -> i32

// Floats of 8 bits have a scale for each column too; what is multiplied with them stays as it is.

// FLOATS-LABEL: func.func @linear
// FLOATS-SAME: (%[[X:.*]]: !flow.container<[m, 256], f32, row_major>
// FLOATS-DAG: %[[C:.*]] = flow.param "@w{{[0-9a-f]+}}" : <[256, 96], f8E4M3FN, row_major>
// FLOATS-DAG: flow.param "@w{{[0-9a-f]+}}" : <[96], f32, row_major>
// FLOATS-NOT: f32, row_major> -> !flow.container<[256, 96], f32
// FLOATS: flow.kernel outer ["m", "96"] inner ["1"] deep ["256"](%[[X]],
// FLOATS: flow.load 1 ["256*%2 + %3", "%1"] : f8E4M3FN
func.func @linear(%x: !x) -> (!y, !y) {
  %w = sdx.param "w" : !w
  %v = sdx.param "v" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %v) : (!x, !w) -> !y
  return %0, %1 : !y, !y
}

// -----

!x = !sdx.tensor<[m, 16], f32>
!w = !sdx.tensor<[16, 16], f32>

// Few weights stay as they are, and so do products of what is computed.

// CHECK-LABEL: func.func @few
// CHECK-NOT: sdx.reduce
// FLOATS-LABEL: func.func @few
// FLOATS-NOT: f8E4M3FN
// REMARK: remark[quantize]: weights stay in f32: its weights are few
func.func @few(%x: !x) -> !w {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !x
  %1 = sdx.contract "mk,mn->kn"(%0, %x) : (!x, !x) -> !w
  return %1 : !w
}

// -----

!x = !sdx.tensor<[8, m, 64], f32>
!w = !sdx.tensor<[8, 64, 64], f32>

// CHECK-LABEL: func.func @several
// CHECK-NOT: sdx.reduce
// REMARK: remark[quantize]: weights stay in f32: it is several products, of weights of their own each
func.func @several(%x: !x) -> !x {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "emk,ekn->emn"(%x, %w) : (!x, !w) -> !x
  return %0 : !x
}

// -----

!t = !sdx.tensor<[1000, 64], f32>
!i = !sdx.tensor<[m], i64>
!y = !sdx.tensor<[m, 64], f32>

// Codes of rows are looked up, and their scales. The table is not there as it was.

// CHECK-LABEL: func.func @rows
// CHECK: %[[C:.*]] = sdx.gather %{{.*}}[%arg0] axis 0 : (!sdx.tensor<[1000, 64], i8>, !sdx.tensor<[m], i64>) -> !sdx.tensor<[m, 64], i8>
// CHECK-NEXT: %[[S:.*]] = sdx.gather %{{.*}}[%arg0] axis 0 : (!sdx.tensor<[1000], f32>, !sdx.tensor<[m], i64>) -> !sdx.tensor<[m], f32>
// CHECK-NEXT: %[[F:.*]] = sdx.convert %[[C]]
// CHECK-NEXT: %[[B:.*]] = sdx.broadcast %[[S]] to [0]
// CHECK-NEXT: sdx.map "mul"(%[[F]], %[[B]])
// BYTES-LABEL: func.func @rows
// BYTES-DAG: flow.param "@w{{[0-9a-f]+}}" : <[1000, 64], i8, row_major>
// BYTES-DAG: flow.param "@w{{[0-9a-f]+}}" : <[1000], f32, row_major>
// BYTES: flow.kernel outer ["m", "64"] inner []
// BYTES-NOT: flow.kernel
// BYTES: return
// FLOATS-LABEL: func.func @rows
// FLOATS: flow.param "@w{{[0-9a-f]+}}" : <[1000, 64], f8E4M3FN, row_major>
func.func @rows(%i: !i) -> !y {
  %t = sdx.param "t" : !t
  %0 = sdx.gather %t[%i] axis 0 : (!t, !i) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[m, 256], f32>
!h = !sdx.tensor<[m, 96], f32>
!w = !sdx.tensor<[256, 96], f32>
!v = !sdx.tensor<[96, 64], f32>
!y = !sdx.tensor<[m, 64], f32>

// Codes of 4 bits have a scale for each group along the sum: what has the largest size in it is the code -8. 96 are no whole
// groups of 64, and the last product keeps 8 bits: nothing behind it makes good what it loses.

// GROUPS-LABEL: func.func @groups
// GROUPS: %[[W:.*]] = sdx.reshape %{{.*}} : <[256, 96], f32> -> <[4, 64, 96], f32>
// GROUPS-DAG: %[[H:.*]] = sdx.reduce "max" %[[W]] axes [1] : {{.*}} -> <[4, 96], f32>
// GROUPS-DAG: %[[L:.*]] = sdx.reduce "min" %[[W]] axes [1] : {{.*}} -> <[4, 96], f32>
// GROUPS: sdx.const dense<-8.0
// GROUPS: %[[S:.*]] = sdx.map "div"
// GROUPS: sdx.map "round"
// GROUPS: sdx.map "min"
// GROUPS: %[[C:.*]] = sdx.convert %{{.*}} : <[4, 64, 96], f32> -> <[4, 64, 96], i4>
// GROUPS: %[[V:.*]] = sdx.reshape %{{.*}} : <[4, 64, 96], f32> -> <[256, 96], f32>
// GROUPS: sdx.contract "mk,kn->mn"(%arg0, %[[V]])
// GROUPS: sdx.convert %{{.*}} -> <[1, 96, 64], i8>

// FLOATS-LABEL: func.func @groups
// FLOATS: flow.param "@w{{[0-9a-f]+}}" : <[96, 64], f8E4M3FN, row_major>
func.func @groups(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %v = sdx.param "v" : !v
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !h
  %1 = sdx.map "tanh"(%0) : (!h) -> !h
  %2 = sdx.contract "mk,kn->mn"(%1, %v) : (!h, !v) -> !y
  return %2 : !y
}

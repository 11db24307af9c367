// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --option assume-finite=true --option precision=bf16 --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,skip-zeros)' 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=CHECKED < %t
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --option assume-finite=true --option precision=bf16 --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,skip-zeros,pack-weights,lower-precision)' 2>/dev/null | FileCheck %s --check-prefix=NARROW
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --option assume-finite=true --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' --remarks skip-zeros 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --option precision=bf16 --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' --remarks skip-zeros 2>&1 | FileCheck %s --check-prefix=HELD
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,int8-contractions,skip-zeros)' 2>/dev/null | FileCheck %s --check-prefix=BYTES
// RUN: sardonyx-opt %s --split-input-file --one-in 97 --option target=cuda:sm_80 --option sparsity=always --option assume-finite=true --option precision=bf16 --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,skip-zeros,pack-weights,lower-precision)' 2>/dev/null | FileCheck %s --check-prefix=VECTORS
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option target=cuda:sm_80 --option sparsity=always --option assume-finite=true --option precision=bf16 --validate --pass-pipeline='builtin.module(sdx-to-flow,fuse,skip-zeros)' 2>/dev/null | FileCheck %s --check-prefix=GATES
// RUN: sardonyx-opt %s --split-input-file --one-in 1 --option target=cuda:sm_80 --option assume-finite=true --option precision=bf16 --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' | FileCheck %s --check-prefix=DENSE

// DENSE-NOT: sparse_

!x = !sdx.tensor<[b, 192], f32>
!w = !sdx.tensor<[192, 160], f32>
!y = !sdx.tensor<[b, 160], f32>

// Of each four weights along k at most two are not 0. Their positions are two bits each, in words as the lanes of a warp have
// them.

// CHECK-LABEL: func.func @product
// CHECK-DAG: %[[VALUES:.*]] = flow.param "w" transform "sparse_values 160x192 strides 1,160 two_of_four f32" : <[160, 96], f32, row_major>
// CHECK-DAG: %[[POSITIONS:.*]] = flow.param "w" transform "sparse_positions 160x192 strides 1,160 two_of_four f32" : <[10, 3, 8, 4], ui32, row_major>
// CHECK: flow.kernel outer ["b", "160"] inner ["3", "4", "4", "2"]
// CHECK: flow.apply "shr"
// CHECK: flow.apply "bitand"
// CHECK: %[[SUM:.*]] = flow.reduce "add"
// CHECK: flow.apply "max"(%[[SUM]]
// CHECKED: rewrites checked

// lower-precision makes the factors bf16; the positions stay.

// NARROW-LABEL: func.func @product
// NARROW-DAG: flow.param "w" transform "sparse_values 160x192 strides 1,160 two_of_four bf16" : <[160, 96], bf16, row_major>
// NARROW-DAG: flow.param "w" transform "sparse_positions {{.*}}" : <[10, 3, 8, 4], ui32, row_major>

// WIDE: remark[skip-zeros]: zeros are multiplied: sparse tensor cores multiply no f32: 66.7 % of `w` are 0, estimated
// WIDE: help: `--precision bf16`
// HELD: remark[skip-zeros]: zeros are multiplied: 0 times infinity is no 0: 1 products with weights that are mostly 0, estimated
func.func @product(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %1 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !y
  %2 = sdx.map "max"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// -----

!x = !sdx.tensor<[b, 200], f32>
!w = !sdx.tensor<[200, 160], f32>
!y = !sdx.tensor<[b, 160], f32>

// 200 columns are no whole number of tiles of 64.

// CHECK-LABEL: func.func @no_tiles
// CHECK-NOT: sparse_
// CHECK: return
func.func @no_tiles(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[192, b], f32>
!w = !sdx.tensor<[192, 160], f32>
!y = !sdx.tensor<[b, 160], f32>

// Tensor cores read the other factor along k.

// CHECK-LABEL: func.func @apart
// CHECK-NOT: sparse_
// CHECK: return
func.func @apart(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "km,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 192], f32>
!w = !sdx.tensor<[159, 192], f32>
!y = !sdx.tensor<[b, 159], f32>

// 159 rows are no whole number of tiles of 16.

// CHECK-LABEL: func.func @no_rows
// CHECK-NOT: sparse_
// CHECK: return
func.func @no_rows(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,nk->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 256], ui8>
!xi = !sdx.tensor<[b, 256], i32>
!w = !sdx.tensor<[160, 256], i8>
!wi = !sdx.tensor<[160, 256], i32>
!y = !sdx.tensor<[b, 160], i32>

// Bytes are multiplied as they are, and integers are finite.

// BYTES-LABEL: func.func @bytes
// BYTES-DAG: flow.param "w" transform "sparse_values 160x256 strides 256,1 two_of_four i8" : <[160, 128], i8, row_major>
// BYTES-DAG: flow.param "w" transform "sparse_positions 160x256 strides 256,1 two_of_four i8" : <[10, 4, 8, 2, 2], ui32, row_major>
// BYTES: flow.kernel outer ["b", "160"] inner ["4", "2", "8", "2"]
func.func @bytes(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.convert %w : !w -> !wi
  %2 = sdx.contract "mk,nk->mn"(%0, %1) : (!xi, !wi) -> !y
  return %2 : !y
}

// -----

!x = !sdx.tensor<[b, 768], f32>
!w = !sdx.tensor<[768, 808], f32>
!y = !sdx.tensor<[b, 808], f32>

// Of 620,544 weights 6,398 are not 0: vectors of eight rows are a twelfth of the matrix, and 808 rows are no whole number of tiles of 16. x is copied, so that the tokens of a column
// are contiguous.

// VECTORS-LABEL: func.func @vectors
// VECTORS-DAG: %[[COLUMNS:.*]] = flow.param "w" transform "sparse_columns 808x768 strides 1,808 windows [[N:[0-9]+]] longest [[L:[0-9]+]] f32" : <[[[N]]], ui16, row_major>
// VECTORS-DAG: %[[STARTS:.*]] = flow.param "w" transform "sparse_starts {{.*}}" : <[102], i32, row_major>
// VECTORS-DAG: %[[VALUES:.*]] = flow.param "w" transform "sparse_values {{.*}} bf16" : <[{{[0-9]+}}], bf16, row_major>
// VECTORS-DAG: %[[X:.*]] = flow.kernel outer ["768", "b"] inner [](%arg0) {{.*}} bf16, "order<1, 0>">
// VECTORS: flow.kernel outer ["b", "808"] inner [{{.*}}]({{.*}}%[[STARTS]]{{.*}})
// VECTORS: flow.load {{[0-9]}} ["((%1) floordiv (8))"] : i32
func.func @vectors(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 192], f32>
!w = !sdx.tensor<[192, 160], f32>
!y = !sdx.tensor<[b, 160], f32>

// Gates are two sums of one kernel. Tensor cores multiply one sparse matrix at a time: the first sum gets a kernel of its own.

// GATES-LABEL: func.func @gates
// GATES: %[[SUM:.*]] = flow.kernel outer ["b", "160"] inner ["3", "4", "4", "2"]
// GATES: flow.kernel outer ["b", "160"] inner ["3", "4", "4", "2"]({{.*}}%[[SUM]]{{.*}})
// GATES: flow.reduce
// GATES-NOT: flow.reduce
// GATES: return
func.func @gates(%x: !x) -> !y {
  %u = sdx.param "u" : !w
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

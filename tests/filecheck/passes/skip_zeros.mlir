// RUN: sardonyx-opt %s --split-input-file --one-in 97 --option assume-finite=true --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,skip-zeros,skip-zeros)' 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=CHECKED < %t
// RUN: sardonyx-opt %s --split-input-file --one-in 97 --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,int8-contractions,skip-zeros)' 2>/dev/null | FileCheck %s --check-prefix=BYTES
// RUN: sardonyx-opt %s --split-input-file --one-in 19 --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' --remarks skip-zeros 2>&1 | FileCheck %s --check-prefix=HELD
// RUN: sardonyx-opt %s --split-input-file --one-in 2 --option assume-finite=true --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' --remarks skip-zeros 2>&1 | FileCheck %s --check-prefix=DEAR
// RUN: sardonyx-opt %s --split-input-file --one-in 3 --option assume-finite=true --validate --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,skip-zeros)' 2>/dev/null | FileCheck %s --check-prefix=GROUPS
// RUN: sardonyx-opt %s --split-input-file --one-in 1 --option assume-finite=true --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' | FileCheck %s --check-prefix=DENSE
// RUN: sardonyx-opt %s --split-input-file --one-in 19 --option assume-finite=true --option sparsity=off --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' | FileCheck %s --check-prefix=DENSE
// RUN: sardonyx-opt %s --split-input-file --option assume-finite=true --pass-pipeline='builtin.module(sdx-to-flow,skip-zeros)' | FileCheck %s --check-prefix=DENSE

// DENSE-NOT: sparse_

!x = !sdx.tensor<[b, 200], f32>
!w = !sdx.tensor<[200, 160], f32>
!y = !sdx.tensor<[b, 160], f32>

// Of 32,000 weights 330 are not 0: they lie row by row of the result's columns, beside the number of the row of x that each is
// multiplied with. x is copied, so that what is multiplied with one word lies in one vector. What followed the sum follows.

// CHECK-LABEL: func.func @product
// CHECK-DAG: %[[VALUES:.*]] = flow.param "w" transform "sparse_values 160x200 strides 1,160 words 330 longest 3" : <[330], f32, row_major>
// CHECK-DAG: %[[COLUMNS:.*]] = flow.param "w" transform "sparse_columns 160x200 strides 1,160 words 330 longest 3" : <[330], ui16, row_major>
// CHECK-DAG: %[[STARTS:.*]] = flow.param "w" transform "sparse_starts 160x200 strides 1,160 words 330 longest 3" : <[161], i32, row_major>
// CHECK: %[[X:.*]] = flow.kernel outer ["200", "b"] inner [](%arg0) {{.*}}"order<1, 0>">
// CHECK: flow.kernel outer ["b", "160"] inner ["32"](%[[X]], %[[STARTS]], %[[COLUMNS]], %[[VALUES]])
// CHECK: %[[FIRST:.*]] = flow.load 1 ["%1"] : i32
// CHECK: flow.load 1 ["%1 + 1"] : i32
// CHECK: %[[INSIDE:.*]] = flow.apply "lt"
// CHECK-NEXT: flow.load 2 ["$1 + %2"] if %[[INSIDE]] : ui16
// CHECK: flow.load 3 ["$1 + %2"] if %[[INSIDE]] : f32
// CHECK: flow.load 0 ["%0", "$8"] if %[[INSIDE]] : f32
// CHECK: flow.apply "select"
// CHECK-NEXT: %[[SUM:.*]] = flow.reduce "add"
// CHECK: flow.apply "max"(%[[SUM]]
// CHECKED: 2 rewrites checked
// HELD: remark[skip-zeros]: zeros are multiplied: 0 times infinity is no 0: 1 products with weights that are mostly 0, estimated
// HELD: help: `--assume-finite`
// DEAR: remark[skip-zeros]: leaving out the zeros would take longer: 50.0 % of `w` are 0, estimated

// Each column has one of three rows, and each choice is that of as many columns: what is stored has the same place for each row.

// GROUPS-LABEL: func.func @product
// GROUPS-DAG: %[[VALUES:.*]] = flow.param "w" transform "sparse_values 160x200 strides 1,160 groups 1:3:14 of 40" : <[5, 54, 3, 14], f32, row_major>
// GROUPS-DAG: %[[COLUMNS:.*]] = flow.param "w" transform "sparse_columns 160x200 strides 1,160 groups 1:3:14 of 40" : <[5, 54, 3, 14], ui8, row_major>
// GROUPS-DAG: %[[PATTERNS:.*]] = flow.param "w" transform "sparse_patterns 160x200 strides 1,160 groups 1:3:14 of 40" : <[3, 1], ui8, row_major>
// GROUPS: %[[X:.*]] = flow.kernel outer ["200", "b"] inner [](%arg0) {{.*}}"order<1, 0>">
// GROUPS: flow.kernel outer ["b", "160"] inner ["5", "1", "14"](%[[X]], %[[PATTERNS]], %[[VALUES]], %[[COLUMNS]])
// GROUPS: flow.load 1 {{.*}} : ui8
// GROUPS: flow.load 2 ["%2", "((%1) floordiv (3))", "$1", "%4"] : f32
// GROUPS: flow.load 3 ["%2", "((%1) floordiv (3))", "$1", "%4"] : ui8
// GROUPS: flow.load 0 ["%0", "$4 + 40*%2"] : f32
// GROUPS: %[[SUM:.*]] = flow.reduce "add"
// GROUPS: flow.apply "max"(%[[SUM]]
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
!v = !sdx.tensor<[160, 200], f32>
!h = !sdx.tensor<[b, 160], f32>

// Two in a row: the first stores its result as the second one reads it, and one copy of x serves two readers.

// CHECK-LABEL: func.func @chain
// CHECK: flow.kernel outer ["200", "b"] inner []
// CHECK-NOT: flow.kernel outer ["160", "b"] inner []
// CHECK: flow.kernel outer ["b", "160"] inner {{.*}} -> !flow.container<[b, 160], f32, "order<1, 0>">
// CHECK-NOT: inner []
// CHECK: return
func.func @chain(%x: !x) -> (!x, !h) {
  %v = sdx.param "v" : !v
  %w = sdx.param "w" : !v
  %u = sdx.param "u" : !v
  %0 = sdx.contract "mk,nk->mn"(%x, %v) : (!x, !v) -> !h
  %1 = sdx.contract "mn,nk->mk"(%0, %w) : (!h, !v) -> !x
  %2 = sdx.contract "mk,nk->mn"(%x, %u) : (!x, !v) -> !h
  return %1, %2 : !x, !h
}

// -----

!x = !sdx.tensor<[1, 200], f32>
!w = !sdx.tensor<[200, 160], f32>
!y = !sdx.tensor<[1, 160], f32>

// One row has no vector of numbers that one word is multiplied with.

// CHECK-LABEL: func.func @one_row
// CHECK-NOT: sparse_
// CHECK: return
func.func @one_row(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 20, 200], f32>
!w = !sdx.tensor<[20, 200, 160], f32>
!y = !sdx.tensor<[b, 20, 160], f32>

// Weights that move with a row of x are many matrices.

// CHECK-LABEL: func.func @many
// CHECK-NOT: sparse_
// CHECK: return
func.func @many(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "bmk,mkn->bmn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 200], ui8>
!xi = !sdx.tensor<[b, 200], i32>
!w = !sdx.tensor<[200, 160], i8>
!wi = !sdx.tensor<[200, 160], i32>
!y = !sdx.tensor<[b, 160], i32>

// Four bytes of a column are a word. Integers are finite, so nobody has to say so, and x is read where it is.

// BYTES-LABEL: func.func @bytes
// BYTES-DAG: %[[VALUES:.*]] = flow.param "w" transform "sparse_values 160x200 strides 1,160 quads [[N:[0-9]+]] longest [[L:[0-9]+]]" : <[{{.*}}], i8, row_major>
// BYTES-DAG: %[[COLUMNS:.*]] = flow.param "w" transform "sparse_columns {{.*}}" : <[[[N]]], ui16, row_major>
// BYTES-DAG: %[[STARTS:.*]] = flow.param "w" transform "sparse_starts {{.*}}" : <[161], i32, row_major>
// BYTES: flow.kernel outer ["b", "160"] inner ["{{32|50}}", "4"](%arg0, %[[STARTS]], %[[COLUMNS]], %[[VALUES]])
// BYTES: flow.load 3 ["{{.*}}"] if %{{.*}} : i8
// BYTES: flow.load 0 ["%0", "{{.*}}"] if %{{.*}} : ui8
// BYTES: flow.apply "select"
// BYTES-NEXT: flow.reduce "add" {{.*}} : i32 -> i32
func.func @bytes(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.convert %w : !w -> !wi
  %2 = sdx.contract "mk,kn->mn"(%0, %1) : (!xi, !wi) -> !y
  return %2 : !y
}

// -----

!x = !sdx.tensor<[b, 202], ui8>
!xi = !sdx.tensor<[b, 202], i32>
!w = !sdx.tensor<[202, 160], i8>
!wi = !sdx.tensor<[202, 160], i32>
!y = !sdx.tensor<[b, 160], i32>

// The last word would have two bytes.

// BYTES-LABEL: func.func @no_words
// BYTES-NOT: sparse_
// BYTES: return
func.func @no_words(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.convert %w : !w -> !wi
  %2 = sdx.contract "mk,kn->mn"(%0, %1) : (!xi, !wi) -> !y
  return %2 : !y
}

// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option seeds=false --option gathered-weights=0 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option seeds=false | FileCheck %s --check-prefix=KEPT

// Each rank keeps half of the matrix, and the whole is gathered for the product; few bytes are not worth an exchange.

// CHECK-LABEL: func.func @product
// CHECK: %[[FEW:.*]] = sdx.param "few" : <[256, 8], f32>
// CHECK: %[[PART:.*]] = sdx.param "w" {parts = ["0", "1", "2", "128", "rank0", "1"]} : <[128, 256], f32>
// CHECK: %[[W:.*]] = sdx.host "AllGather mesh=0 dim=0"(%[[PART]]){{.*}}-> !sdx.tensor<[256, 256], f32>
// CHECK: sdx.contract "nk,kj->nj"(%arg0, %[[W]])
// CHECK: sdx.contract "nk,kj->nj"(%{{.*}}, %[[FEW]])
// CHECK-NOT: sdx.host
// KEPT-LABEL: func.func @product
// KEPT-NOT: sdx.host
func.func @product(%x: !sdx.tensor<[n, 256], f32> {sdx.name = "x"}) -> !sdx.tensor<[n, 8], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %w = sdx.param "w" : <[256, 256], f32>
  %few = sdx.param "few" : <[256, 8], f32>
  %h = sdx.contract "nk,kj->nj"(%x, %w) : (!sdx.tensor<[n, 256], f32>, !sdx.tensor<[256, 256], f32>) -> !sdx.tensor<[n, 256], f32>
  %y = sdx.contract "nk,kj->nj"(%h, %few) : (!sdx.tensor<[n, 256], f32>, !sdx.tensor<[256, 8], f32>) -> !sdx.tensor<[n, 8], f32>
  return %y : !sdx.tensor<[n, 8], f32>
}

// What turns a matrix turns the parts; a matrix that two products read is gathered once.

// CHECK-LABEL: func.func @turned
// CHECK: %[[PART:.*]] = sdx.param "w" {parts = ["1", "1", "2", "128", "rank0", "1"]} : <[256, 128], f32>
// CHECK: %[[T:.*]] = sdx.transpose %[[PART]] [1, 0]
// CHECK: %[[W:.*]] = sdx.host "AllGather mesh=0 dim=0"(%[[T]])
// CHECK: %[[H:.*]] = sdx.contract "nk,kj->nj"(%arg0, %[[W]])
// CHECK: sdx.contract "nk,kj->nj"(%[[H]], %[[W]])
// CHECK-NOT: sdx.host
func.func @turned(%x: !sdx.tensor<[n, 256], f32> {sdx.name = "x"}) -> !sdx.tensor<[n, 256], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %w = sdx.param "w" : <[256, 256], f32>
  %t = sdx.transpose %w [1, 0] : !sdx.tensor<[256, 256], f32> -> !sdx.tensor<[256, 256], f32>
  %h = sdx.contract "nk,kj->nj"(%x, %t) : (!sdx.tensor<[n, 256], f32>, !sdx.tensor<[256, 256], f32>) -> !sdx.tensor<[n, 256], f32>
  %y = sdx.contract "nk,kj->nj"(%h, %t) : (!sdx.tensor<[n, 256], f32>, !sdx.tensor<[256, 256], f32>) -> !sdx.tensor<[n, 256], f32>
  return %y : !sdx.tensor<[n, 256], f32>
}

// Of a table, each rank keeps rows, looks up those, and the results are added.

// CHECK-LABEL: func.func @table
// CHECK: sdx.param "table" {parts = ["0", "1", "2", "1024", "rank0", "1"]}
// CHECK: sdx.gather
// CHECK: sdx.host "AllReduce mesh=0 by=add"
// CHECK-NOT: AllGather
func.func @table(%ids: !sdx.tensor<[n], i64> {sdx.name = "ids"}) -> !sdx.tensor<[n, 16], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %t = sdx.param "table" : <[2048, 16], f32>
  %y = sdx.gather %t[%ids] axis 0 : (!sdx.tensor<[2048, 16], f32>, !sdx.tensor<[n], i64>) -> !sdx.tensor<[n, 16], f32>
  return %y : !sdx.tensor<[n, 16], f32>
}

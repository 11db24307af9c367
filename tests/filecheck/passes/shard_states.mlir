// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=3 | FileCheck %s --check-prefix=FEWER
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard,sdx-to-flow,schedule)' --option mesh=2 | FileCheck %s --check-prefix=PLAN

!x = !sdx.tensor<[n, 512], f32>
!w = !sdx.tensor<[512, 512], f32>
!v = !sdx.tensor<[512, 256], f32>
!past = !sdx.tensor<[4, p, 64], f32>
!present = !sdx.tensor<[4, n + p, 64], f32>

// Four heads of keys, which each serve two heads of queries, on two ranks: each rank keeps two in its cache. On three, one
// rank would have none: all keep all.

// CHECK-LABEL: func.func @attention
// CHECK-SAME: !sdx.tensor<[2, p, 64], f32> {sdx.name = "past", sdx.parts = ["0", "1", "2", "2", "rank0", "1"]}
// CHECK: %[[K:.*]] = sdx.append
// CHECK-NOT: AllGather
// CHECK: AllReduce
// CHECK-NOT: AllGather
// CHECK: return %{{.*}}, %[[K]] : {{.*}}, !sdx.tensor<[2, n + p, 64], f32>
// FEWER-LABEL: func.func @attention
// FEWER-SAME: !sdx.tensor<[4, p, 64], f32> {sdx.name = "past"}
// PLAN: states ["1 1 kept", ["0", "1", "2", "2", "rank0", "1"]]
func.func @attention(%x: !x {sdx.name = "x"}, %past: !past {sdx.name = "past"}) -> (!x, !present)
    attributes {sdx.results = ["y", "present"], sdx.symbols = ["input n 0..", "input p 0.."]} {
  %wq = sdx.param "q" : <[512, 512], f32>
  %wk = sdx.param "k" : <[512, 256], f32>
  %wo = sdx.param "o" : <[512, 512], f32>
  %q = sdx.contract "nk,kj->nj"(%x, %wq) : (!x, !w) -> !x
  %q3 = sdx.reshape %q : !x -> !sdx.tensor<[n, 8, 64], f32>
  %k = sdx.contract "nk,kj->nj"(%x, %wk) : (!x, !v) -> !sdx.tensor<[n, 256], f32>
  %k3 = sdx.reshape %k : !sdx.tensor<[n, 256], f32> -> !sdx.tensor<[n, 4, 64], f32>
  %kt = sdx.transpose %k3 [1, 0, 2] : !sdx.tensor<[n, 4, 64], f32> -> !sdx.tensor<[4, n, 64], f32>
  %all = sdx.append %past, %kt axis 1 : (!past, !sdx.tensor<[4, n, 64], f32>) -> !present
  %two = sdx.broadcast %all to [0, 2, 3] : !present -> !sdx.tensor<[4, 2, n + p, 64], f32>
  %keys = sdx.reshape %two : !sdx.tensor<[4, 2, n + p, 64], f32> -> !sdx.tensor<[8, n + p, 64], f32>
  %s = sdx.contract "nhd,htd->hnt"(%q3, %keys) : (!sdx.tensor<[n, 8, 64], f32>, !sdx.tensor<[8, n + p, 64], f32>) -> !sdx.tensor<[8, n, n + p], f32>
  %o = sdx.contract "hnt,htd->nhd"(%s, %keys) : (!sdx.tensor<[8, n, n + p], f32>, !sdx.tensor<[8, n + p, 64], f32>) -> !sdx.tensor<[n, 8, 64], f32>
  %o2 = sdx.reshape %o : !sdx.tensor<[n, 8, 64], f32> -> !x
  %y = sdx.contract "nk,kj->nj"(%o2, %wo) : (!x, !w) -> !x
  return %y, %all : !x, !present
}

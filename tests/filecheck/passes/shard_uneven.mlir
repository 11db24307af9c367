// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=8 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2x2 | FileCheck %s --check-prefix=GRID

!x = !sdx.tensor<[n, 384], f32>
!h = !sdx.tensor<[n, 12, 32], f32>

// Twelve heads on eight ranks: six have two, two have none. Of a grid each axis splits what the one before has left.

// CHECK-LABEL: func.func @uneven
// CHECK: sdx.param "w" {parts = ["1", "1", "12", "32", "min(12, 2*rank0)", "min(2, max(0, -2*rank0 + 12))"]}
// CHECK: sdx.reshape %{{.*}} -> <[n, min(2, max(0, -2*rank0 + 12)), 32], f32>
// CHECK: sdx.host "AllReduce mesh=0 by=add"
// GRID-LABEL: func.func @uneven
// GRID: sdx.param "w" {parts = ["1", "1", "2", "192", "rank0", "1", "1", "1", "2", "96", "rank1", "1"]}
// GRID: sdx.reshape %{{.*}} -> <[n, 3, 32], f32>
// GRID: sdx.host "AllReduce mesh=1 by=add"
// GRID: sdx.host "AllReduce mesh=0 by=add"
func.func @uneven(%x: !x {sdx.name = "x"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %w = sdx.param "w" : <[384, 384], f32>
  %o = sdx.param "o" : <[384, 384], f32>
  %a = sdx.contract "nk,kj->nj"(%x, %w) : (!x, !sdx.tensor<[384, 384], f32>) -> !x
  %b = sdx.reshape %a : !x -> !h
  %c = sdx.map "tanh"(%b) : (!h) -> !h
  %d = sdx.reshape %c : !h -> !x
  %y = sdx.contract "nk,kj->nj"(%d, %o) : (!x, !sdx.tensor<[384, 384], f32>) -> !x
  return %y : !x
}

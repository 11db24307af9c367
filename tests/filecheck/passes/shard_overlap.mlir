// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option overlap=2:down,last | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option overlap=1x2 | FileCheck %s --check-prefix=TURNS
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option overlap=2:up 2>&1 | FileCheck %s --check-prefix=ABSENT
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option overlap=0 2>&1 | FileCheck %s --check-prefix=ZERO

// ABSENT: error[E0108]: nothing of `up` can be computed while ranks exchange: no product with rows has a collective
// ZERO: error[E0001]: `0` is no value of `overlap`

!x = !sdx.tensor<[n, 256], f32>
!h = !sdx.tensor<[n, 1024], f32>

// Of the rows, one half is exchanged while the other one is computed; the weights are one. Where the ranks gather columns, the
// parts are joined along the rows.

// CHECK-LABEL: func.func @main
// CHECK: %[[G:.*]] = sdx.map "tanh"
// CHECK: %[[DOWN:.*]] = sdx.param "down"
// CHECK: %[[G0:.*]] = sdx.slice %[[G]] from ["0", "0"] {{.*}} -> <[((n) floordiv (2)), 512], f32>
// CHECK-NEXT: %[[Y0:.*]] = sdx.contract "nj,ji->ni"(%[[G0]], %[[DOWN]])
// CHECK-NEXT: %[[S0:.*]] = sdx.host "AllReduce mesh=0 by=add"(%[[Y0]])
// CHECK-NEXT: %[[G1:.*]] = sdx.slice %[[G]] from ["((n) floordiv (2))", "0"] {{.*}} -> <[n - ((n) floordiv (2)), 512], f32>
// CHECK-NEXT: %[[Y1:.*]] = sdx.contract "nj,ji->ni"(%[[G1]], %[[DOWN]])
// CHECK-NEXT: %[[S1:.*]] = sdx.host "AllReduce mesh=0 by=add"(%[[Y1]])
// CHECK-NEXT: %[[SUM:.*]] = sdx.concat(%[[S0]], %[[S1]]) axis 0
// CHECK: sdx.map "add"(%arg0, %[[SUM]])
// CHECK: %[[L0:.*]] = sdx.host "AllGather mesh=0 dim=1"{{.*}}-> !sdx.tensor<[((n) floordiv (2)), 1024], f32>
// CHECK: %[[L1:.*]] = sdx.host "AllGather mesh=0 dim=1"{{.*}}-> !sdx.tensor<[n - ((n) floordiv (2)), 1024], f32>
// CHECK: sdx.concat(%[[L0]], %[[L1]]) axis 0

// Two micro-batches take turns: what the first one reads of its sum comes after what the second one brings to its own.

// TURNS-LABEL: func.func @main
// TURNS: %[[A0:.*]] = sdx.host "AllReduce mesh=0 by=add"{{.*}}-> !sdx.tensor<[((n) floordiv (2)), 256], f32>
// TURNS: %[[A1:.*]] = sdx.host "AllReduce mesh=0 by=add"{{.*}}-> !sdx.tensor<[n - ((n) floordiv (2)), 256], f32>
// TURNS: sdx.map "add"(%{{.*}}, %[[A0]])
// TURNS: %[[B0:.*]] = sdx.host "AllGather mesh=0 dim=1"
// TURNS: sdx.map "add"(%{{.*}}, %[[A1]])
// TURNS: %[[B1:.*]] = sdx.host "AllGather mesh=0 dim=1"
// TURNS: sdx.concat
func.func @main(%x: !x {sdx.name = "x"}) -> !h attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %up = sdx.param "up" : <[256, 1024], f32>
  %down = sdx.param "down" : <[1024, 256], f32>
  %h = sdx.contract "nk,kj->nj"(%x, %up) : (!x, !sdx.tensor<[256, 1024], f32>) -> !h loc("up")
  %g = sdx.map "tanh"(%h) : (!h) -> !h
  %y = sdx.contract "nj,ji->ni"(%g, %down) : (!h, !sdx.tensor<[1024, 256], f32>) -> !x loc("down")
  %r = sdx.map "add"(%x, %y) : (!x, !x) -> !x
  %last = sdx.contract "nk,kj->nj"(%r, %up) : (!x, !sdx.tensor<[256, 1024], f32>) -> !h loc("last")
  %out = sdx.map "tanh"(%last) : (!h) -> !h
  return %out : !h
}

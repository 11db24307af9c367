// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' | FileCheck %s --check-prefix=ONE

// One rank has no collectives, and no places.

// ONE-NOT: mesh=
// ONE-NOT: sdx.place

!x = !sdx.tensor<[n, 256], f32>
!h = !sdx.tensor<[n, 1024], f32>

// The columns of the first matrix and the rows of the second: one exchange for the pair.

// CHECK-LABEL: func.func @pair
// CHECK: %[[UP:.*]] = sdx.param "up" {parts = ["1", "1", "2", "512", "rank0", "1"]} : <[256, 512], f32>
// CHECK: %[[H:.*]] = sdx.contract "nk,kj->nj"(%arg0, %[[UP]])
// CHECK: %[[G:.*]] = sdx.map "tanh"(%[[H]])
// CHECK: %[[DOWN:.*]] = sdx.param "down" {parts = ["0", "1", "2", "512", "rank0", "1"]} : <[512, 256], f32>
// CHECK: %[[Y:.*]] = sdx.contract "nj,ji->ni"(%[[G]], %[[DOWN]])
// CHECK: %[[SUM:.*]] = sdx.host "AllReduce mesh=0 by=add"(%[[Y]])
// CHECK: sdx.map "add"(%arg0, %[[SUM]])
func.func @pair(%x: !x {sdx.name = "x"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %up = sdx.param "up" : <[256, 1024], f32>
  %down = sdx.param "down" : <[1024, 256], f32>
  %h = sdx.contract "nk,kj->nj"(%x, %up) : (!x, !sdx.tensor<[256, 1024], f32>) -> !h
  %g = sdx.map "tanh"(%h) : (!h) -> !h
  %y = sdx.contract "nj,ji->ni"(%g, %down) : (!h, !sdx.tensor<[1024, 256], f32>) -> !x
  %out = sdx.map "add"(%x, %y) : (!x, !x) -> !x
  return %out : !x
}

// What nothing sums over later is gathered at once.

// CHECK-LABEL: func.func @last
// CHECK: %[[Y:.*]] = sdx.contract
// CHECK-NEXT: %[[ALL:.*]] = sdx.host "AllGather mesh=0 dim=1"(%[[Y]]){{.*}}-> !sdx.tensor<[n, 1024], f32>
// CHECK-NEXT: sdx.map "tanh"(%[[ALL]])
func.func @last(%x: !x {sdx.name = "x"}) -> !h attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %up = sdx.param "up" : <[256, 1024], f32>
  %h = sdx.contract "nk,kj->nj"(%x, %up) : (!x, !sdx.tensor<[256, 1024], f32>) -> !h
  %g = sdx.map "tanh"(%h) : (!h) -> !h
  return %g : !h
}

!qkv = !sdx.tensor<[n, 384], f32>
!q = !sdx.tensor<[n, 128], f32>
!heads = !sdx.tensor<[n, 4, 32], f32>
!scores = !sdx.tensor<[4, n, n], f32>

// Queries, keys and values of one product are runs of it, heads their units.

// CHECK-LABEL: func.func @heads
// CHECK: sdx.param "qkv" {parts = ["1", "3", "2", "64", "rank0", "1"]} : <[256, 192], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "64"]{{.*}}-> <[n, 64], f32>
// CHECK: sdx.reshape %{{.*}} -> <[n, 2, 32], f32>
// CHECK: sdx.contract "qhd,khd->hqk"{{.*}}-> !sdx.tensor<[2, n, n], f32>
// CHECK: sdx.param "out" {parts = ["0", "1", "2", "64", "rank0", "1"]}
// CHECK: sdx.host "AllReduce mesh=0 by=add"
// CHECK-NOT: sdx.host
func.func @heads(%x: !x {sdx.name = "x"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %w = sdx.param "qkv" : <[256, 384], f32>
  %out = sdx.param "out" : <[128, 256], f32>
  %qkv = sdx.contract "nk,kj->nj"(%x, %w) : (!x, !sdx.tensor<[256, 384], f32>) -> !qkv
  %q1 = sdx.slice %qkv from ["0", "0"] step [1, 1] : !qkv -> !q
  %k1 = sdx.slice %qkv from ["0", "128"] step [1, 1] : !qkv -> !q
  %v1 = sdx.slice %qkv from ["0", "256"] step [1, 1] : !qkv -> !q
  %q = sdx.reshape %q1 : !q -> !heads
  %k = sdx.reshape %k1 : !q -> !heads
  %v = sdx.reshape %v1 : !q -> !heads
  %s = sdx.contract "qhd,khd->hqk"(%q, %k) : (!heads, !heads) -> !scores
  %a = sdx.contract "hqk,khd->qhd"(%s, %v) : (!scores, !heads) -> !heads
  %m = sdx.reshape %a : !heads -> !q
  %y = sdx.contract "nj,ji->ni"(%m, %out) : (!q, !sdx.tensor<[128, 256], f32>) -> !x
  return %y : !x
}

// A table has its rows split: what another rank has is 0 here, and the sum has it.

// CHECK-LABEL: func.func @embedding
// CHECK: sdx.param "table" {parts = ["0", "1", "2", "16384", "rank0", "1"]}
// CHECK: %[[ROWS:.*]] = sdx.gather
// CHECK: %[[OWN:.*]] = sdx.map "select"(%{{.*}}, %[[ROWS]], %{{.*}})
// CHECK: sdx.host "AllReduce mesh=0 by=add"(%[[OWN]])
func.func @embedding(%ids: !sdx.tensor<[n], i64> {sdx.name = "ids"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %table = sdx.param "table" : <[32768, 256], f32>
  %y = sdx.gather %table[%ids] axis 0 : (!sdx.tensor<[32768, 256], f32>, !sdx.tensor<[n], i64>) -> !x
  return %y : !x
}

!t = !sdx.tensor<[6, n], f32>

// A place says what ranks have; reductions over it are partial, and one split becomes another by way of the whole.

// CHECK-LABEL: func.func @placed
// CHECK: %[[PART:.*]] = sdx.slice %arg0 from ["3*rank0", "0"]{{.*}}-> <[3, n], f32>
// CHECK: %[[MAX:.*]] = sdx.reduce "max" %[[PART]] axes [0]
// CHECK: sdx.host "AllReduce mesh=0 by=max"(%[[MAX]])
func.func @placed(%x: !t {sdx.name = "x"}) -> !sdx.tensor<[n], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %p = sdx.place %x on 0 split ["0", "1", "1"] : !t -> !t
  %m = sdx.reduce "max" %p axes [0] : !t -> <[n], f32>
  return %m : !sdx.tensor<[n], f32>
}

// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=3 --option stages=0:second,third | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=3x2 --option stages=0:second,third | FileCheck %s --check-prefix=BOTH
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' | FileCheck %s --check-prefix=ONE
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=3 --option stages=0:second,fourth 2>&1 | FileCheck %s --check-prefix=ABSENT
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=3 --option stages=0:third,second 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option stages=0:second,third 2>&1 | FileCheck %s --check-prefix=RANKS

// ONE-NOT: Send
// ABSENT: error[E0108]: no operation of the program stands for the node `fourth`
// ORDER: error[E0108]: `second` does not come after the node with which the stage before it begins
// RANKS: error[E0108]: the pipeline has 3 stages, axis 0 of the mesh 2 ranks

!x = !sdx.tensor<[n, 256], f32>
!w = !sdx.tensor<[256, 256], f32>

// What follows from inputs without a product is computed by each stage that reads it; what two stages read is sent to both;
// what is repeated is repeated where it is read.

// CHECK-LABEL: func.func @main
// CHECK: %[[MASK:.*]] = sdx.map "neg"(%arg1)
// CHECK: %[[A:.*]] = sdx.contract "nk,kj->nj"(%arg0
// CHECK: %[[A1:.*]] = sdx.host "Send mesh=0 from=0 to=1"(%[[A]])
// CHECK: %[[B:.*]] = sdx.contract "nk,kj->nj"(%[[A1]]
// CHECK: sdx.broadcast %[[MASK]] to [0]
// CHECK: %[[SUM1:.*]] = sdx.host "Send mesh=0 from=1 to=2"
// CHECK: %[[A2:.*]] = sdx.host "Send mesh=0 from=0 to=2"(%[[A]])
// CHECK: sdx.map "add"(%{{.*}}, %[[A2]])
// CHECK: %[[OUT:.*]] = sdx.host "Send mesh=0 from=2 to=0"
// CHECK: return %[[OUT]]

// A stage of several ranks splits its products over them, and both exchange what they have.

// BOTH-LABEL: func.func @main
// BOTH: sdx.param "a" {parts = ["1", "1", "2", "128", "rank1", "1"]}
// BOTH: %[[G:.*]] = sdx.host "Send mesh=0 from=0 to=1"{{.*}} -> !sdx.tensor<[n, 128], f32>
// BOTH: sdx.contract "nk,kj->nj"(%[[G]]
// BOTH: "AllReduce mesh=1 by=add"
// BOTH: "Send mesh=0 from=1 to=2"
func.func @main(%x: !x {sdx.name = "x"}, %m: !sdx.tensor<[n], f32> {sdx.name = "m"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %a = sdx.param "a" : <[256, 256], f32>
  %b = sdx.param "b" : <[256, 256], f32>
  %c = sdx.param "c" : <[256, 256], f32>
  %mask = sdx.map "neg"(%m) : (!sdx.tensor<[n], f32>) -> !sdx.tensor<[n], f32> loc("first")
  %h = sdx.contract "nk,kj->nj"(%x, %a) : (!x, !w) -> !x loc("first")
  %g = sdx.contract "nk,kj->nj"(%h, %b) : (!x, !w) -> !x loc("second")
  %wide = sdx.broadcast %mask to [0] : !sdx.tensor<[n], f32> -> !x loc("second")
  %sum = sdx.map "add"(%g, %wide) : (!x, !x) -> !x loc("second")
  %f = sdx.contract "nk,kj->nj"(%sum, %c) : (!x, !w) -> !x loc("third")
  %y = sdx.map "add"(%f, %h) : (!x, !x) -> !x loc("third")
  return %y : !x
}

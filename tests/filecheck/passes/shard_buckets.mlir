// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 --option overlap=2 | FileCheck %s --check-prefix=CHUNKS

!x = !sdx.tensor<[4, 16], f32>

// Small sums that do not depend on each other are exchanged together; the one that depends on them is not.
// Chunks and micro-batches are exchanged each by itself.

// CHECK-LABEL: func.func @three
// CHECK: %[[A:.*]] = sdx.contract
// CHECK: %[[B:.*]] = sdx.contract
// CHECK: %[[AF:.*]] = sdx.reshape %[[A]] : <[4, 16], f32> -> <[64], f32>
// CHECK: %[[BF:.*]] = sdx.reshape %[[B]] : <[4, 16], f32> -> <[64], f32>
// CHECK: %[[BOTH:.*]] = sdx.concat(%[[AF]], %[[BF]]) axis 0
// CHECK: %[[ALL:.*]] = sdx.host "AllReduce mesh=0 by=add"(%[[BOTH]])
// CHECK: sdx.slice %[[ALL]] from ["0"]
// CHECK: sdx.slice %[[ALL]] from ["64"]
// CHECK: sdx.map "mul"
// CHECK: sdx.host "AllReduce mesh=0 by=add"
// CHECK-NOT: sdx.host "AllReduce
// CHUNKS-LABEL: func.func @three
// CHUNKS-COUNT-4: sdx.host "AllReduce mesh=0 by=add"(%{{.*}} : (!sdx.tensor<[2, 16], f32>)
func.func @three(%x: !x {sdx.name = "x"}) -> !x attributes {sdx.results = ["y"], sdx.symbols = []} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !x -> !x
  %v = sdx.param "v" : <[16, 16], f32>
  %w = sdx.param "w" : <[16, 16], f32>
  %a = sdx.contract "nk,kj->nj"(%p, %v) : (!x, !sdx.tensor<[16, 16], f32>) -> !x
  %b = sdx.contract "nk,kj->nj"(%p, %w) : (!x, !sdx.tensor<[16, 16], f32>) -> !x
  %ta = sdx.map "tanh"(%a) : (!x) -> !x
  %tb = sdx.map "tanh"(%b) : (!x) -> !x
  %c = sdx.map "mul"(%ta, %tb) : (!x, !x) -> !x
  %r = sdx.reduce "add" %c axes [0] : !x -> <[16], f32>
  %q = sdx.place %r on 0 split ["0", "1", "1"] : !sdx.tensor<[16], f32> -> !sdx.tensor<[16], f32>
  %d = sdx.contract "k,kj->j"(%q, %v) : (!sdx.tensor<[16], f32>, !sdx.tensor<[16, 16], f32>) -> !sdx.tensor<[16], f32>
  %y = sdx.broadcast %d to [1] : <[16], f32> -> <[4, 16], f32>
  %z = sdx.map "add"(%y, %c) : (!x, !x) -> !x
  return %z : !x
}

// Many bytes are not worth copying.

!big = !sdx.tensor<[512, 1024], f32>

// CHECK-LABEL: func.func @large
// CHECK-NOT: sdx.concat
// CHECK-COUNT-2: sdx.host "AllReduce mesh=0 by=add"
func.func @large(%x: !big {sdx.name = "x"}) -> (!big, !big) attributes {sdx.results = ["y", "z"], sdx.symbols = []} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !big -> !big
  %v = sdx.param "v" : <[1024, 1024], f32>
  %w = sdx.param "w" : <[1024, 1024], f32>
  %a = sdx.contract "nk,kj->nj"(%p, %v) : (!big, !sdx.tensor<[1024, 1024], f32>) -> !big
  %b = sdx.contract "nk,kj->nj"(%p, %w) : (!big, !sdx.tensor<[1024, 1024], f32>) -> !big
  return %a, %b : !big, !big
}

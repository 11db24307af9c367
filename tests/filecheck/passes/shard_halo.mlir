// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=2 | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(shard)' --option mesh=4 | FileCheck %s --check-prefix=FOUR

// A picture split by rows: each rank gets the rows of its neighbours that its windows read, and pads at the border only.

!x = !sdx.tensor<[n, 8, 8], f32>

// CHECK-LABEL: func.func @same
// CHECK: %[[OWN:.*]] = sdx.slice %arg0 from ["0", "4*rank0", "0"]{{.*}}-> <[n, 4, 8], f32>
// CHECK: %[[ALL:.*]] = sdx.host "Halo mesh=0 dim=1 before=1 after=1"(%[[OWN]])
// CHECK-SAME: -> !sdx.tensor<[n, min(1, -4*rank0 + 4) + min(1, 4*rank0) + 4, 8], f32>
// CHECK: %[[PADDED:.*]] = sdx.pad %[[ALL]] with %{{.*}} low ["0", "max(0, -4*rank0 + 1)", "1"]{{.*}}-> !sdx.tensor<[n, 6, 10], f32>
// CHECK: sdx.window %[[PADDED]] axis 1 size "3" stride 1 dilation 1 : <[n, 6, 10], f32> -> <[n, 4, 10, 3], f32>
func.func @same(%x: !x {sdx.name = "x"}) -> !sdx.tensor<[n, 8, 8], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !x -> !x
  %z = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %q = sdx.pad %p with %z low ["0", "1", "1"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[n, 10, 10], f32>
  %v = sdx.window %q axis 1 size "3" stride 1 dilation 1 : <[n, 10, 10], f32> -> <[n, 8, 10, 3], f32>
  %w = sdx.window %v axis 2 size "3" stride 1 dilation 1 : <[n, 8, 10, 3], f32> -> <[n, 8, 8, 3, 3], f32>
  %m = sdx.reduce "max" %w axes [3, 4] : <[n, 8, 8, 3, 3], f32> -> <[n, 8, 8], f32>
  return %m : !sdx.tensor<[n, 8, 8], f32>
}

// Windows that read a rank's own rows only, and the rows of points with a stride: nothing is exchanged before the end.

// CHECK-LABEL: func.func @blocks
// CHECK-NOT: Halo
// CHECK: sdx.window %{{.*}} axis 1 size "2" stride 2 dilation 1 : <[n, 4, 8], f32> -> <[n, 2, 8, 2], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0", "0"] step [1, 2, 1] : <[n, 4, 8], f32> -> <[n, 2, 8], f32>
// CHECK: sdx.host "AllGather mesh=0 dim=1"
func.func @blocks(%x: !x {sdx.name = "x"}) -> !sdx.tensor<[n, 4, 8], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !x -> !x
  %w = sdx.window %p axis 1 size "2" stride 2 dilation 1 : <[n, 8, 8], f32> -> <[n, 4, 8, 2], f32>
  %m = sdx.reduce "max" %w axes [3] : <[n, 4, 8, 2], f32> -> <[n, 4, 8], f32>
  %s = sdx.slice %p from ["0", "0", "0"] step [1, 2, 1] : <[n, 8, 8], f32> -> <[n, 4, 8], f32>
  %y = sdx.map "add"(%m, %s) : (!sdx.tensor<[n, 4, 8], f32>, !sdx.tensor<[n, 4, 8], f32>) -> !sdx.tensor<[n, 4, 8], f32>
  return %y : !sdx.tensor<[n, 4, 8], f32>
}

// With two ranks the neighbour has all that the windows read; with four they reach beyond it, so the whole is gathered.

// CHECK-LABEL: func.func @far
// CHECK: sdx.host "Halo mesh=0 dim=1 before=4 after=4"
// FOUR-LABEL: func.func @far
// FOUR-NOT: Halo
// FOUR: sdx.host "AllGather mesh=0 dim=1"
func.func @far(%x: !x {sdx.name = "x"}) -> !sdx.tensor<[n, 8, 8], f32> attributes {sdx.results = ["y"], sdx.symbols = ["input n 0.."]} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !x -> !x
  %g = sdx.map "tanh"(%p) : (!x) -> !x
  %z = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %q = sdx.pad %g with %z low ["0", "5", "0"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[n, 18, 8], f32>
  %w = sdx.window %q axis 1 size "11" stride 1 dilation 1 : <[n, 18, 8], f32> -> <[n, 8, 8, 11], f32>
  %m = sdx.reduce "max" %w axes [3] : <[n, 8, 8, 11], f32> -> <[n, 8, 8], f32>
  return %m : !sdx.tensor<[n, 8, 8], f32>
}

// A padded value that is an output too is gathered.

// CHECK-LABEL: func.func @seen
// CHECK-NOT: Halo
// CHECK: sdx.host "AllGather mesh=0 dim=1"
func.func @seen(%x: !x {sdx.name = "x"}) -> (!sdx.tensor<[n, 8, 8], f32>, !sdx.tensor<[n, 10, 8], f32>) attributes {sdx.results = ["y", "z"], sdx.symbols = ["input n 0.."]} {
  %p = sdx.place %x on 0 split ["1", "1", "1"] : !x -> !x
  %g = sdx.map "tanh"(%p) : (!x) -> !x
  %z = sdx.const dense<0.0> : tensor<f32> : <[], f32>
  %q = sdx.pad %g with %z low ["0", "1", "0"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[n, 10, 8], f32>
  %w = sdx.window %q axis 1 size "3" stride 1 dilation 1 : <[n, 10, 8], f32> -> <[n, 8, 8, 3], f32>
  %m = sdx.reduce "max" %w axes [3] : <[n, 8, 8, 3], f32> -> <[n, 8, 8], f32>
  return %m, %q : !sdx.tensor<[n, 8, 8], f32>, !sdx.tensor<[n, 10, 8], f32>
}

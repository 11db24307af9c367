// RUN: sardonyx-opt %s | FileCheck %s
// RUN: sardonyx-opt %s | sardonyx-opt - | FileCheck %s
// RUN: sardonyx-opt %s --print-locations | FileCheck %s --check-prefix=LOC

// Each operation of the value level in its own spelling. Where an operation can have types of one kind only, MLIR
// leaves out their name.

!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @leaves
// CHECK: sdx.param "w" : <[384, 1536], f32>
// CHECK: sdx.const dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32> : <[2], f32>
// CHECK: sdx.const dense<true> : tensor<i1> : <[], i1>
// CHECK: sdx.dims ["b", "2*s"] : <[2], i64>
// CHECK: sdx.iota axis 1 : <[b, s], i64>
func.func @leaves() {
  %0 = sdx.param "w" : !sdx.tensor<[384, 1536], f32>
  %1 = sdx.const dense<[1.0, 2.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %2 = sdx.const dense<true> : tensor<i1> : !sdx.tensor<[], i1>
  %3 = sdx.dims ["b", "2*s"] : !sdx.tensor<[2], i64>
  %4 = sdx.iota axis 1 : !sdx.tensor<[b, s], i64>
  return
}

// CHECK-LABEL: func.func @computing
// CHECK: sdx.map "add"(%{{.*}}, %{{.*}}) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, s], f32>
// CHECK: sdx.convert %{{.*}} : <[b, s], f32> -> <[b, s], i8>
// CHECK: sdx.reduce "max" %{{.*}} axes [1] : <[b, s], f32> -> <[b], f32>
// CHECK: sdx.contract "bs,bt->st"(%{{.*}}, %{{.*}}) : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[s, s], f32>
func.func @computing(%x: !x) {
  %0 = sdx.map "add"(%x, %x) : (!x, !x) -> !x
  %1 = sdx.convert %0 : !x -> !sdx.tensor<[b, s], i8>
  %2 = sdx.reduce "max" %0 axes [1] : !x -> !sdx.tensor<[b], f32>
  %3 = sdx.contract "bs,bt->st"(%0, %x) : (!x, !x) -> !sdx.tensor<[s, s], f32>
  return
}

// CHECK-LABEL: func.func @moving
// CHECK: sdx.gather %{{.*}}[%{{.*}}] axis 0 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[3], i64>) -> !sdx.tensor<[3, s], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "s - 1"] step [1, -1] : <[b, s], f32> -> <[b, s], f32>
// CHECK: sdx.pad %{{.*}} with %{{.*}} low ["1", "0"] : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 2, s], f32>
// CHECK: sdx.window %{{.*}} axis 1 size "k" stride 2 dilation 3 : <[b, s], f32> -> <[b, ((-3*k + s) floordiv (2)) + 2, k], f32>
// CHECK: sdx.concat(%{{.*}}, %{{.*}}) axis 1 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[b, 2*s], f32>
// CHECK: sdx.append %{{.*}}, %{{.*}} axis 0 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s], f32>) -> !sdx.tensor<[2*b, s], f32>
// CHECK: sdx.reshape %{{.*}} : <[b, s], f32> -> <[b*s], f32>
// CHECK: sdx.transpose %{{.*}} [1, 0] : <[b, s], f32> -> <[s, b], f32>
// CHECK: sdx.broadcast %{{.*}} to [1, 2] : <[b, s], f32> -> <[4, b, s], f32>
func.func @moving(%x: !x, %i: !sdx.tensor<[3], i64>, %v: !sdx.tensor<[], f32>) {
  %0 = sdx.gather %x[%i] axis 0 : (!x, !sdx.tensor<[3], i64>) -> !sdx.tensor<[3, s], f32>
  %1 = sdx.slice %x from ["0", "s - 1"] step [1, -1] : !x -> !x
  %2 = sdx.pad %x with %v low ["1", "0"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 2, s], f32>
  %w = sdx.window %x axis 1 size "k" stride 2 dilation 3 : !x -> !sdx.tensor<[b, (s - 3*k + 4) floordiv 2, k], f32>
  %3 = sdx.concat (%x, %x) axis 1 : (!x, !x) -> !sdx.tensor<[b, 2*s], f32>
  %a = sdx.append %x, %x axis 0 : (!x, !x) -> !sdx.tensor<[2*b, s], f32>
  %4 = sdx.reshape %x : !x -> !sdx.tensor<[b*s], f32>
  %5 = sdx.transpose %x [1, 0] : !x -> !sdx.tensor<[s, b], f32>
  %6 = sdx.broadcast %x to [1, 2] : !x -> !sdx.tensor<[4, b, s], f32>
  return
}

// CHECK-LABEL: func.func @binding
// CHECK-SAME: sdx.symbols = ["input b 1..8", "data n 0.."]
// CHECK: sdx.bind "n" = %{{.*}} : <[], i64> -> <[], i64>
func.func @binding(%n: !sdx.tensor<[], i64>) attributes {sdx.symbols = ["input b 1..8", "data n 0.."]} {
  %0 = sdx.bind "n" = %n : !sdx.tensor<[], i64> -> !sdx.tensor<[], i64>
  return
}

// Ranks, and what they have of a value.

// CHECK-LABEL: func.func @ranks
// CHECK-SAME: sdx.symbols = ["rank 1 r 0..3"]
// CHECK: sdx.place %{{.*}} on 1 split ["0", "2", "3"] : <[12], f32> -> <[12], f32>
// CHECK: sdx.place %{{.*}} on 0 split [] : <[12], f32> -> <[12], f32>
// CHECK: sdx.param "w" {parts = ["0", "1", "4", "3", "r", "1"]} : <[3], f32>
// CHECK: sdx.host "AllGather mesh=1 dim=0"(%{{.*}}) result 0 of 0 binds [] calls [] : (!sdx.tensor<[3], f32>) -> !sdx.tensor<[12], f32>
func.func @ranks(%x: !sdx.tensor<[12], f32>) attributes {sdx.symbols = ["rank 1 r 0..3"]} {
  %0 = sdx.place %x on 1 split ["0", "2", "3"] : !sdx.tensor<[12], f32> -> !sdx.tensor<[12], f32>
  %1 = sdx.place %0 on 0 split [] : !sdx.tensor<[12], f32> -> !sdx.tensor<[12], f32>
  %2 = sdx.param "w" {parts = ["0", "1", "4", "3", "r", "1"]} : <[3], f32>
  %3 = sdx.host "AllGather mesh=1 dim=0"(%2) result 0 of 0 binds [] calls [] : (!sdx.tensor<[3], f32>) -> !sdx.tensor<[12], f32>
  return
}

// Two results of one run; the first gives the symbol its value. A call names the functions.

// CHECK-LABEL: func.func @host
// CHECK: sdx.host "Unique sorted=1"(%{{.*}}) result 0 of 3 binds ["0 n"] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
// CHECK: sdx.host "Unique sorted=1"(%{{.*}}) result 2 of 3 binds [] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
// CHECK: sdx.host "If then=1"(%{{.*}}, %{{.*}}) result 0 of 4 binds [] calls ["yes", "no"] : (!sdx.tensor<[], i1>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
func.func @host(%x: !sdx.tensor<[b], f32>, %c: !sdx.tensor<[], i1>) attributes {sdx.symbols = ["input b 1..8", "data n 0.."]} {
  %0 = sdx.host "Unique sorted=1"(%x) result 0 of 3 binds ["0 n"] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
  %1 = sdx.host "Unique sorted=1"(%x) result 2 of 3 binds [] calls [] : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[n], i64>
  %2 = sdx.host "If then=1"(%c, %x) result 0 of 4 binds [] calls ["yes", "no"] : (!sdx.tensor<[], i1>, !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>
  return
}

// The names of the ONNX nodes are the locations.

// CHECK-LABEL: func.func @origins
// LOC-LABEL: func.func @origins
// LOC: sdx.map "neg"{{.*}} loc([[AT:#.*]])
// LOC-DAG: [[AT]] = loc("/encoder/layer.0/Neg")
func.func @origins(%x: !x) -> !x {
  %0 = sdx.map "neg"(%x) : (!x) -> !x loc("/encoder/layer.0/Neg")
  return %0 : !x
}

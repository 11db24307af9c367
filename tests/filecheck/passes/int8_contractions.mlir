// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,int8-contractions)' | FileCheck %s

!x = !sdx.tensor<[m, 256], ui8>
!xi = !sdx.tensor<[m, 256], i32>
!w = !sdx.tensor<[256, 96], i8>
!wi = !sdx.tensor<[256, 96], i32>
!y = !sdx.tensor<[m, 96], i32>
!z = !sdx.tensor<[], i32>

// The zero point's part of the sums is known by the column. The bytes are read where they are.

// CHECK-LABEL: func.func @integers
// CHECK-DAG: %[[W:.*]] = flow.param "w" : <[256, 96], i8, row_major>
// CHECK-DAG: %[[S:.*]] = flow.param "w" transform "column_sums" : <[96], i32, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%arg0, %[[W]], %[[S]])
// CHECK-DAG: %[[Z:.*]] = flow.scalar 7.000000e+00 : i32
// CHECK: flow.load 0 ["%0", "%2"] : ui8
// CHECK: flow.load 1 ["%2", "%1"] : i8
// CHECK: %[[SUM:.*]] = flow.reduce "add" {{.*}} : i32 -> i32
// CHECK: %[[C:.*]] = flow.load 2 ["%1"] : i32
// CHECK: %[[ZC:.*]] = flow.apply "mul"(%[[Z]], %[[C]])
// CHECK: flow.apply "sub"(%[[SUM]], %[[ZC]])
func.func @integers(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %seven = sdx.const dense<7> : tensor<i32> : !z
  %z = sdx.broadcast %seven to [] : !z -> !xi
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.map "sub"(%0, %z) : (!xi, !xi) -> !xi
  %2 = sdx.convert %w : !w -> !wi
  %3 = sdx.contract "mk,kn->mn"(%1, %2) : (!xi, !wi) -> !y
  return %3 : !y
}

// -----

// Bytes with a sign on the left, without one on the right, whose zero point is 119.

!x = !sdx.tensor<[m, 256], i8>
!xi = !sdx.tensor<[m, 256], i32>
!w = !sdx.tensor<[256, 96], ui8>
!wi = !sdx.tensor<[256, 96], i32>
!y = !sdx.tensor<[m, 96], i32>
!z = !sdx.tensor<[], i32>

// CHECK-LABEL: func.func @signs
// CHECK: %[[X:.*]] = flow.kernel outer ["m", "256"] inner [](%arg0) : {{.*}} -> !flow.container<[m, 256], ui8, row_major>
// CHECK: flow.scalar 1.280000e+02 : i32
// CHECK: %[[R:.*]] = flow.kernel outer ["m"] inner ["256"](%[[X]])
// CHECK-DAG: %[[W:.*]] = flow.param "w" transform "signed" : <[256, 96], i8, row_major>
// CHECK-DAG: %[[S:.*]] = flow.param "w" transform "column_sums" : <[96], i32, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%[[R]], %[[X]], %[[W]], %[[S]])
// CHECK: %[[ROWS:.*]] = flow.apply "sub"
// CHECK: %[[SUM:.*]] = flow.reduce "add"
// CHECK: %[[LESS:.*]] = flow.apply "sub"(%[[SUM]],
// CHECK: %[[Y:.*]] = flow.scalar -9.000000e+00 : i32
// CHECK: %[[MORE:.*]] = flow.apply "mul"(%[[Y]], %[[ROWS]])
// CHECK: flow.apply "sub"(%[[LESS]], %[[MORE]])
func.func @signs(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %c = sdx.const dense<119> : tensor<i32> : !z
  %z = sdx.broadcast %c to [] : !z -> !wi
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.convert %w : !w -> !wi
  %2 = sdx.map "sub"(%1, %z) : (!wi, !wi) -> !wi
  %3 = sdx.contract "mk,kn->mn"(%0, %2) : (!xi, !wi) -> !y
  return %3 : !y
}

// -----

// Scales follow the sum: one of the left factor, one of each column of the right one. What else reads the left factor
// goes on to read it as it was.

!x = !sdx.tensor<[m, 256], ui8>
!xf = !sdx.tensor<[m, 256], f32>
!w = !sdx.tensor<[256, 96], i8>
!wf = !sdx.tensor<[256, 96], f32>
!y = !sdx.tensor<[m, 96], f32>
!s = !sdx.tensor<[], f32>
!n = !sdx.tensor<[96], f32>

// CHECK-LABEL: func.func @scales
// CHECK: flow.kernel outer ["m", "256"] inner [](%arg0, %arg1) : {{.*}} -> !flow.container<[m, 256], f32, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%arg0, %arg1, {{.*}}) : (!flow.container<[m, 256], ui8, row_major>, !flow.container<[], f32, row_major>, !flow.container<[256, 96], i8, row_major>
// CHECK-NOT: flow.apply "sub"
// CHECK: %[[SUM:.*]] = flow.convert {{.*}} : i32 -> f32
// CHECK: %[[ST:.*]] = flow.apply "mul"
// CHECK: flow.apply "mul"(%[[SUM]], %[[ST]])
func.func @scales(%x: !x, %s: !s) -> (!y, !xf) {
  %w = sdx.param "w" : !w
  %t = sdx.param "t" : !n
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.broadcast %s to [] : !s -> !xf
  %2 = sdx.map "mul"(%0, %1) : (!xf, !xf) -> !xf
  %3 = sdx.convert %w : !w -> !wf
  %4 = sdx.broadcast %t to [1] : !n -> !wf
  %5 = sdx.map "mul"(%3, %4) : (!wf, !wf) -> !wf
  %6 = sdx.contract "mk,kn->mn"(%2, %5) : (!xf, !wf) -> !y
  return %6, %2 : !y, !xf
}

// -----

// A scale of each row of the right factor is another one along the sum.

!x = !sdx.tensor<[m, 256], ui8>
!xf = !sdx.tensor<[m, 256], f32>
!w = !sdx.tensor<[256, 96], i8>
!wf = !sdx.tensor<[256, 96], f32>
!y = !sdx.tensor<[m, 96], f32>
!k = !sdx.tensor<[256], f32>

// CHECK-LABEL: func.func @along
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
func.func @along(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %t = sdx.param "t" : !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %w : !w -> !wf
  %2 = sdx.broadcast %t to [0] : !k -> !wf
  %3 = sdx.map "mul"(%1, %2) : (!wf, !wf) -> !wf
  %4 = sdx.contract "mk,kn->mn"(%0, %3) : (!xf, !wf) -> !y
  return %4 : !y
}

// -----

// So many products may be more than i32 holds.

!x = !sdx.tensor<[m, 70000], ui8>
!xf = !sdx.tensor<[m, 70000], f32>
!w = !sdx.tensor<[70000, 8], i8>
!wf = !sdx.tensor<[70000, 8], f32>
!y = !sdx.tensor<[m, 8], f32>

// CHECK-LABEL: func.func @long
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
func.func @long(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %w : !w -> !wf
  %2 = sdx.contract "mk,kn->mn"(%0, %1) : (!xf, !wf) -> !y
  return %2 : !y
}

// -----

// Three channels are padded to four, which lie side by side.

!x = !sdx.tensor<[n, 16, 16, 3], ui8>
!xf = !sdx.tensor<[n, 16, 16, 3], f32>
!k = !sdx.tensor<[32, 3, 3, 3], i8>
!kf = !sdx.tensor<[32, 3, 3, 3], f32>
!h = !sdx.tensor<[n, 14, 16, 3, 3], f32>
!v = !sdx.tensor<[n, 14, 14, 3, 3, 3], f32>
!y = !sdx.tensor<[n, 14, 14, 32], f32>

// CHECK-LABEL: func.func @channels
// CHECK-DAG: %[[W:.*]] = flow.param "k" transform "padded" : <[32, 4, 3, 3], i8, row_major>
// CHECK-DAG: %[[X:.*]] = flow.kernel outer ["n", "16", "16", "4"] inner [](%arg0)
// CHECK: flow.kernel outer ["n", "14", "14", "32"] inner ["4", "3", "3"](%[[X]], %[[W]])
// CHECK: flow.reduce "add" {{.*}} : i32 -> i32
func.func @channels(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %k : !k -> !kf
  %h = sdx.window %0 axis 1 size "3" stride 1 dilation 1 : !xf -> !h
  %v = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !v
  %2 = sdx.contract "nhwcij,ocij->nhwo"(%v, %1) : (!v, !kf) -> !y
  return %2 : !y
}

// -----

// Of five channels padded to eight, more than a quarter would be zeros.

!x = !sdx.tensor<[n, 16, 16, 5], ui8>
!xf = !sdx.tensor<[n, 16, 16, 5], f32>
!k = !sdx.tensor<[32, 5, 3, 3], i8>
!kf = !sdx.tensor<[32, 5, 3, 3], f32>
!h = !sdx.tensor<[n, 14, 16, 5, 3], f32>
!v = !sdx.tensor<[n, 14, 14, 5, 3, 3], f32>
!y = !sdx.tensor<[n, 14, 14, 32], f32>

// CHECK-LABEL: func.func @few_channels
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
func.func @few_channels(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %k : !k -> !kf
  %h = sdx.window %0 axis 1 size "3" stride 1 dilation 1 : !xf -> !h
  %v = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !v
  %2 = sdx.contract "nhwcij,ocij->nhwo"(%v, %1) : (!v, !kf) -> !y
  return %2 : !y
}

// -----

// Weights that are a view of a parameter with other channels stay.

!x = !sdx.tensor<[n, 16, 16, 3], ui8>
!xf = !sdx.tensor<[n, 16, 16, 3], f32>
!k = !sdx.tensor<[32, 3, 3, 3], i8>
!kf = !sdx.tensor<[32, 3, 3, 3], f32>
!h = !sdx.tensor<[n, 14, 16, 3, 3], f32>
!v = !sdx.tensor<[n, 14, 14, 3, 3, 3], f32>
!y = !sdx.tensor<[n, 14, 14, 32], f32>

// CHECK-LABEL: func.func @viewed_channels
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
func.func @viewed_channels(%x: !x) -> !y {
  %p = sdx.param "k" : !sdx.tensor<[96, 3, 3], i8>
  %k = sdx.reshape %p : !sdx.tensor<[96, 3, 3], i8> -> !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %k : !k -> !kf
  %h = sdx.window %0 axis 1 size "3" stride 1 dilation 1 : !xf -> !h
  %v = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !v
  %2 = sdx.contract "nhwcij,ocij->nhwo"(%v, %1) : (!v, !kf) -> !y
  return %2 : !y
}

// -----

// Channels of an image are no neighbours: a copy of the bytes may be written in another order.

!x = !sdx.tensor<[n, 16, 8, 8], ui8>
!xf = !sdx.tensor<[n, 16, 8, 8], f32>
!k = !sdx.tensor<[32, 16], i8>
!kf = !sdx.tensor<[32, 16], f32>
!y = !sdx.tensor<[n, 32, 8, 8], f32>

// CHECK-LABEL: func.func @image
// CHECK: %[[X:.*]] = flow.kernel outer ["n", "16", "8", "8"] inner [](%arg0) : {{.*}} -> !flow.container<[n, 16, 8, 8], ui8, row_major>
// CHECK: flow.kernel outer ["n", "32", "8", "8"] inner ["16"](%[[X]],
// CHECK: flow.reduce "add" {{.*}} : i32 -> i32
func.func @image(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %k : !k -> !kf
  %2 = sdx.contract "nchw,oc->nohw"(%0, %1) : (!xf, !kf) -> !y
  return %2 : !y
}

// -----

// With a scale for each channel of weights they are codes in groups too, but such a sum reads neighbours.

!x = !sdx.tensor<[n, 16, 8, 8], ui8>
!xf = !sdx.tensor<[n, 16, 8, 8], f32>
!k = !sdx.tensor<[32, 16], i8>
!kf = !sdx.tensor<[32, 16], f32>
!y = !sdx.tensor<[n, 32, 8, 8], f32>

// CHECK-LABEL: func.func @scaled_image
// CHECK: %[[X:.*]] = flow.kernel outer ["n", "16", "8", "8"] inner [](%arg0) : {{.*}} -> !flow.container<[n, 16, 8, 8], ui8, row_major>
// CHECK: flow.kernel outer ["n", "32", "8", "8"] inner ["16"]({{.*}}%[[X]],
// CHECK: flow.reduce "add" {{.*}} : i32 -> i32
func.func @scaled_image(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %s = sdx.param "s" : !sdx.tensor<[32], f32>
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %k : !k -> !kf
  %2 = sdx.broadcast %s to [0] : !sdx.tensor<[32], f32> -> !kf
  %3 = sdx.map "mul"(%1, %2) : (!kf, !kf) -> !kf
  %4 = sdx.contract "nchw,oc->nohw"(%0, %3) : (!xf, !kf) -> !y
  return %4 : !y
}

// -----

// Codes that have a scale for each group along the sum, and a zero point: a sum of each group, scaled, and what the zero point
// takes off it, which is a number for each group and the sum of its row.

!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[2, 32, 48], ui4>
!wf = !sdx.tensor<[2, 32, 48], f32>
!s = !sdx.tensor<[2, 48], f32>
!y = !sdx.tensor<[m, 48], f32>

// CHECK-LABEL: func.func @groups
// CHECK-DAG: %[[W:.*]] = flow.param "w" transform "signed" : <[2, 32, 48], i4, row_major>
// CHECK-DAG: %[[R:.*]] = flow.kernel outer ["m", "2"] inner ["32"](%arg0) : {{.*}} -> !flow.container<[m, 2], f32, row_major>
// CHECK: flow.kernel outer ["m", "48"] inner ["2"] deep ["32"]
// CHECK-DAG: flow.load {{.*}} ["%0", "32*%2 + %3"] : f32
// CHECK-DAG: flow.load {{.*}} ["%2", "%3", "%1"] : i4
// CHECK: flow.reduce "add"
// CHECK: flow.reduce "add"
// CHECK-NOT: flow.reduce
func.func @groups(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !s
  %0 = sdx.convert %w : !w -> !wf
  %c = sdx.const dense<3.0> : tensor<f32> : !sdx.tensor<[], f32>
  %z = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !wf
  %1 = sdx.map "sub"(%0, %z) : (!wf, !wf) -> !wf
  %2 = sdx.broadcast %s to [0, 2] : !s -> !wf
  %3 = sdx.map "mul"(%1, %2) : (!wf, !wf) -> !wf
  %4 = sdx.reshape %3 : !wf -> !sdx.tensor<[64, 48], f32>
  %5 = sdx.contract "mk,kn->mn"(%x, %4) : (!x, !sdx.tensor<[64, 48], f32>) -> !y
  return %5 : !y
}

// -----

// A scale that is another one within each group.

!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[2, 32, 48], i4>
!wf = !sdx.tensor<[2, 32, 48], f32>
!y = !sdx.tensor<[m, 48], f32>

// CHECK-LABEL: func.func @rows
// CHECK-NOT: deep
// CHECK: flow.kernel outer ["m", "48"] inner ["64"]
func.func @rows(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !sdx.tensor<[32, 48], f32>
  %0 = sdx.convert %w : !w -> !wf
  %2 = sdx.broadcast %s to [1, 2] : !sdx.tensor<[32, 48], f32> -> !wf
  %3 = sdx.map "mul"(%0, %2) : (!wf, !wf) -> !wf
  %4 = sdx.reshape %3 : !wf -> !sdx.tensor<[64, 48], f32>
  %5 = sdx.contract "mk,kn->mn"(%x, %4) : (!x, !sdx.tensor<[64, 48], f32>) -> !y
  return %5 : !y
}

// -----

// GPUs multiply bytes with a sign and without one as they are: nothing is written again. The right factor's zero point takes the
// sums of the left one's rows.

// OPTION: target=cuda:sm_80

!x = !sdx.tensor<[m, 256], i8>
!xi = !sdx.tensor<[m, 256], i32>
!w = !sdx.tensor<[256, 96], ui8>
!wi = !sdx.tensor<[256, 96], i32>
!y = !sdx.tensor<[m, 96], i32>
!z = !sdx.tensor<[], i32>

// CHECK-LABEL: func.func @gpu_signs
// CHECK-NOT: transform
// CHECK-DAG: %[[W:.*]] = flow.param "w" : <[256, 96], ui8, row_major>
// CHECK-DAG: %[[R:.*]] = flow.kernel outer ["m"] inner ["256"](%arg0)
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%[[R]], %arg0, %[[W]])
// CHECK-NOT: 1.280000e+02
// CHECK: flow.load {{.*}} ["%0", "%2"] : i8
// CHECK: flow.load {{.*}} ["%2", "%1"] : ui8
// CHECK: %[[SUM:.*]] = flow.reduce "add" {{.*}} : i32 -> i32
// CHECK: %[[Y:.*]] = flow.scalar 1.190000e+02 : i32
// CHECK: %[[MORE:.*]] = flow.apply "mul"(%[[Y]],
// CHECK: flow.apply "sub"(%[[SUM]], %[[MORE]])
func.func @gpu_signs(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %c = sdx.const dense<119> : tensor<i32> : !z
  %z = sdx.broadcast %c to [] : !z -> !wi
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.convert %w : !w -> !wi
  %2 = sdx.map "sub"(%1, %z) : (!wi, !wi) -> !wi
  %3 = sdx.contract "mk,kn->mn"(%0, %2) : (!xi, !wi) -> !y
  return %3 : !y
}

// -----

// The sums of the columns are those of bytes with a sign, each 128 less: 256 of them.

// OPTION: target=cuda:sm_80

!x = !sdx.tensor<[m, 256], ui8>
!xi = !sdx.tensor<[m, 256], i32>
!w = !sdx.tensor<[256, 96], ui8>
!wi = !sdx.tensor<[256, 96], i32>
!y = !sdx.tensor<[m, 96], i32>
!z = !sdx.tensor<[], i32>

// CHECK-LABEL: func.func @gpu_columns
// CHECK-DAG: flow.param "w" : <[256, 96], ui8, row_major>
// CHECK-DAG: %[[S:.*]] = flow.param "w" transform "column_sums" : <[96], i32, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%arg0,
// CHECK: %[[C:.*]] = flow.load {{.*}} ["%1"] : i32
// CHECK: %[[ALL:.*]] = flow.scalar 3.276800e+04 : i32
// CHECK: flow.apply "add"(%[[C]], %[[ALL]])
func.func @gpu_columns(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %seven = sdx.const dense<7> : tensor<i32> : !z
  %z = sdx.broadcast %seven to [] : !z -> !xi
  %0 = sdx.convert %x : !x -> !xi
  %1 = sdx.map "sub"(%0, %z) : (!xi, !xi) -> !xi
  %2 = sdx.convert %w : !w -> !wi
  %3 = sdx.contract "mk,kn->mn"(%1, %2) : (!xi, !wi) -> !y
  return %3 : !y
}

// -----

// Codes in groups stay codes on GPUs too.

// OPTION: target=cuda:sm_80

!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[2, 32, 48], i4>
!wf = !sdx.tensor<[2, 32, 48], f32>
!s = !sdx.tensor<[2, 48], f32>
!y = !sdx.tensor<[m, 48], f32>

// CHECK-LABEL: func.func @gpu_groups
// CHECK: flow.kernel outer ["m", "48"] inner ["2"] deep ["32"]
// CHECK-DAG: flow.load {{.*}} ["%0", "32*%2 + %3"] : f32
// CHECK-DAG: flow.load {{.*}} ["%2", "%3", "%1"] : i4
func.func @gpu_groups(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !s
  %0 = sdx.convert %w : !w -> !wf
  %1 = sdx.broadcast %s to [0, 2] : !s -> !wf
  %2 = sdx.map "mul"(%0, %1) : (!wf, !wf) -> !wf
  %3 = sdx.reshape %2 : !wf -> !sdx.tensor<[64, 48], f32>
  %4 = sdx.contract "mk,kn->mn"(%x, %3) : (!x, !sdx.tensor<[64, 48], f32>) -> !y
  return %4 : !y
}

// -----

// Floats of 8 bits are codes as well, whatever is on their left; scales that are powers of two, of 8 bits too, stay as they are.

!b = !sdx.tensor<[m, 64], i8>
!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[2, 32, 48], f8E5M2>
!wf = !sdx.tensor<[2, 32, 48], f32>
!s = !sdx.tensor<[2, 48], f8E8M0FNU>
!y = !sdx.tensor<[m, 48], f32>

// CHECK-LABEL: func.func @floats
// CHECK-DAG: %[[W:.*]] = flow.param "w" : <[2, 32, 48], f8E5M2, row_major>
// CHECK-DAG: %[[S:.*]] = flow.param "s" : <[2, 48], f8E8M0FNU, row_major>
// CHECK: flow.kernel outer ["m", "48"] inner ["2"] deep ["32"]
// CHECK-DAG: flow.load {{.*}} ["%0", "32*%2 + %3"] : f32
// CHECK-DAG: flow.load {{.*}} ["%2", "%3", "%1"] : f8E5M2
// CHECK: %[[SUM:.*]] = flow.reduce "add" {{.*}} : f32 -> f32
// CHECK: flow.load {{.*}} ["%2", "%1"] : f8E8M0FNU
func.func @floats(%q: !b, %r: !sdx.tensor<[m], f32>) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !s
  %q0 = sdx.convert %q : !b -> !x
  %r0 = sdx.broadcast %r to [0] : !sdx.tensor<[m], f32> -> !x
  %x = sdx.map "mul"(%q0, %r0) : (!x, !x) -> !x
  %0 = sdx.convert %w : !w -> !wf
  %1 = sdx.broadcast %s to [0, 2] : !s -> !sdx.tensor<[2, 32, 48], f8E8M0FNU>
  %2 = sdx.convert %1 : !sdx.tensor<[2, 32, 48], f8E8M0FNU> -> !wf
  %3 = sdx.map "mul"(%0, %2) : (!wf, !wf) -> !wf
  %4 = sdx.reshape %3 : !wf -> !sdx.tensor<[64, 48], f32>
  %5 = sdx.contract "mk,kn->mn"(%x, %4) : (!x, !sdx.tensor<[64, 48], f32>) -> !y
  return %5 : !y
}

// -----

// A scale of each row of the right factor is another one along the sum, on a GPU as well.

// OPTION: target=cuda:sm_80

!x = !sdx.tensor<[m, 256], i8>
!xf = !sdx.tensor<[m, 256], f32>
!w = !sdx.tensor<[256, 96], i8>
!wf = !sdx.tensor<[256, 96], f32>
!y = !sdx.tensor<[m, 96], f32>
!k = !sdx.tensor<[256], f32>

// CHECK-LABEL: func.func @gpu_along
// CHECK: flow.reduce "add" {{.*}} : f32 -> f32
func.func @gpu_along(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %t = sdx.param "t" : !k
  %0 = sdx.convert %x : !x -> !xf
  %1 = sdx.convert %w : !w -> !wf
  %2 = sdx.broadcast %t to [0] : !k -> !wf
  %3 = sdx.map "mul"(%1, %2) : (!wf, !wf) -> !wf
  %4 = sdx.contract "mk,kn->mn"(%0, %3) : (!xf, !wf) -> !y
  return %4 : !y
}

// -----

// Numbers of 16 bits are no codes.

!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[64, 48], bf16>
!wf = !sdx.tensor<[64, 48], f32>
!y = !sdx.tensor<[m, 48], f32>

// CHECK-LABEL: func.func @halves
// CHECK-NOT: deep
// CHECK: flow.kernel outer ["m", "48"] inner ["64"]
func.func @halves(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !sdx.tensor<[48], f32>
  %0 = sdx.convert %w : !w -> !wf
  %1 = sdx.broadcast %s to [1] : !sdx.tensor<[48], f32> -> !wf
  %2 = sdx.map "mul"(%0, %1) : (!wf, !wf) -> !wf
  %3 = sdx.contract "mk,kn->mn"(%x, %2) : (!x, !wf) -> !y
  return %3 : !y
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse,stage-operands)' | FileCheck %s

!x = !sdx.tensor<[b, 9, 9, 8], f32>
!v = !sdx.tensor<[8, 24], f32>
!h = !sdx.tensor<[b, 9, 9, 24], f32>
!q = !sdx.tensor<[b, 9, 9, 24], ui8>
!p = !sdx.tensor<[b, 11, 11, 24], f32>
!l = !sdx.tensor<[b, 9, 11, 24, 3], f32>
!i = !sdx.tensor<[b, 9, 9, 24, 3, 3], f32>
!w = !sdx.tensor<[3, 3, 24], f32>

// What is computed of a sum is stored as bytes before it is padded, and a window of channels reads them where they are: no image
// with a border is written.

// CHECK-LABEL: func.func @depthwise
// CHECK: %[[H:.*]] = flow.kernel outer ["b", "9", "9", "24"] inner ["8"]({{.*}} -> !flow.container<[b, 9, 9, 24], ui8, row_major>
// CHECK: flow.reduce "add"
// CHECK: flow.apply "max"
// CHECK: %[[BYTE:.*]] = flow.convert %{{.*}} : f32 -> ui8
// CHECK-NEXT: flow.store %[[BYTE]] to 0
// CHECK: flow.kernel outer ["b", "9", "9", "24"] inner ["3", "3"]
// CHECK: %[[X:.*]] = flow.load {{.*}} ["%0", "%1 + %4 - 1", "%2 + %5 - 1", "%3"] if %[[IN:.*]] : ui8
// CHECK: %[[WIDE:.*]] = flow.convert %[[X]] : ui8 -> f32
// CHECK: %[[PADDED:.*]] = flow.apply "select"(%[[IN]], %[[WIDE]], %{{.*}})
// CHECK: flow.apply "mul"(%[[PADDED]], %{{.*}})
// CHECK-NOT: flow.kernel
module {
  func.func @depthwise(%x: !x) -> !h {
    %v = sdx.param "v" : !v
    %w = sdx.param "w" : !w
    %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
    %0 = sdx.contract "bhwi,io->bhwo"(%x, %v) : (!x, !v) -> !h
    %1 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !h
    %2 = sdx.map "max"(%0, %1) : (!h, !h) -> !h
    %3 = sdx.convert %2 : !h -> !q
    %4 = sdx.convert %3 : !q -> !h
    %5 = sdx.pad %4 with %zero low ["0", "1", "1", "0"] : (!h, !sdx.tensor<[], f32>) -> !p
    %6 = sdx.window %5 axis 1 size "3" stride 1 dilation 1 : !p -> !sdx.tensor<[b, 9, 11, 24, 3], f32>
    %7 = sdx.window %6 axis 2 size "3" stride 1 dilation 1 : !l -> !i
    %8 = sdx.contract "bhwcij,ijc->bhwc"(%7, %w) : (!i, !w) -> !h
    return %8 : !h
  }
}

// -----

!q = !sdx.tensor<[b, 9, 9, 24], ui8>
!h = !sdx.tensor<[b, 9, 9, 24], f32>
!p = !sdx.tensor<[b, 11, 11, 24], f32>
!l = !sdx.tensor<[b, 9, 11, 24, 3], f32>
!i = !sdx.tensor<[b, 9, 9, 24, 3, 3], f32>
!w = !sdx.tensor<[3, 3, 24], f32>

// An image whose border others read too is written.

// CHECK-LABEL: func.func @read_twice
// CHECK: %[[P:.*]] = flow.kernel outer ["b", "11", "11", "24"]
// CHECK: flow.kernel outer ["b", "9", "9", "24"] inner ["3", "3"]({{.*}}%[[P]]
// CHECK: return %{{.*}}, %[[P]]
module {
  func.func @read_twice(%q: !q) -> (!h, !p) {
    %w = sdx.param "w" : !w
    %x = sdx.convert %q : !q -> !h
    %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
    %5 = sdx.pad %x with %zero low ["0", "1", "1", "0"] : (!h, !sdx.tensor<[], f32>) -> !p
    %6 = sdx.window %5 axis 1 size "3" stride 1 dilation 1 : !p -> !l
    %7 = sdx.window %6 axis 2 size "3" stride 1 dilation 1 : !l -> !i
    %8 = sdx.contract "bhwcij,ijc->bhwc"(%7, %w) : (!i, !w) -> !h
    return %8, %5 : !h, !p
  }
}

// -----

!h = !sdx.tensor<[b, 9, 9, 24], f32>
!p = !sdx.tensor<[b, 11, 11, 24], f32>
!l = !sdx.tensor<[b, 9, 11, 24, 3], f32>
!i = !sdx.tensor<[b, 9, 9, 24, 3, 3], f32>
!w = !sdx.tensor<[3, 3, 24], f32>

// An image of the type that is multiplied is copied.

// CHECK-LABEL: func.func @as_wide
// CHECK: %[[P:.*]] = flow.kernel outer ["b", "11", "11", "24"]
// CHECK: flow.kernel outer ["b", "9", "9", "24"] inner ["3", "3"]({{.*}}%[[P]]
module {
  func.func @as_wide(%x: !h) -> !h {
    %w = sdx.param "w" : !w
    %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
    %5 = sdx.pad %x with %zero low ["0", "1", "1", "0"] : (!h, !sdx.tensor<[], f32>) -> !p
    %6 = sdx.window %5 axis 1 size "3" stride 1 dilation 1 : !p -> !l
    %7 = sdx.window %6 axis 2 size "3" stride 1 dilation 1 : !l -> !i
    %8 = sdx.contract "bhwcij,ijc->bhwc"(%7, %w) : (!i, !w) -> !h
    return %8 : !h
  }
}

// RUN: sardonyx-opt %s --split-input-file --validate --pass-pipeline='builtin.module(sdx-to-flow,fuse,fuse-attention,inline-maps,skip-masked-keys,skip-masked-keys)' 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=CHECKED < %t
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse,fuse-attention,inline-maps,skip-masked-keys)' --remarks skip-masked-keys 2>&1 | FileCheck %s --check-prefix=TOLD

!q = !sdx.tensor<[b, 2, 200, 8], f32>
!p = !sdx.tensor<[b, 2, 200, 200], f32>
!r = !sdx.tensor<[b, 2, 200], f32>
!i = !sdx.tensor<[200, 200], i64>
!m = !sdx.tensor<[200, 200], f32>
!b = !sdx.tensor<[200, 200], i1>
!n = !sdx.tensor<[200], i64>

// Each row sees the 8 keys on either side and the first four. 96 rows share a list: that of the last eight has the first four
// keys and those from 184 on, two runs. What the mask is made of is still there, with the key from the list.

// CHECK-LABEL: func.func @window
// CHECK-DAG: %[[STARTS:.*]] = flow.const dense<[0, 104, 220, 240]>
// CHECK-DAG: %[[KEYS:.*]] = flow.const
// CHECK: flow.kernel outer ["b", "2", "200", "8"] inner ["116"] deep ["8"](%arg2, %arg0, %arg1, %[[STARTS]], %[[KEYS]])
// CHECK-NEXT: %[[FIRST:.*]] = flow.load 3 ["((%2) floordiv (96))"]
// CHECK-NEXT: %[[END:.*]] = flow.load 3 ["((%2) floordiv (96)) + 1"]
// CHECK-NEXT: %[[LENGTH:.*]] = flow.apply "sub"(%[[END]], %[[FIRST]])
// CHECK-NEXT: %[[PLACE:.*]] = flow.index "%4"
// CHECK-NEXT: %[[INSIDE:.*]] = flow.apply "lt"(%[[PLACE]], %[[LENGTH]])
// CHECK-NEXT: %[[KEY:.*]] = flow.load 4 ["$0 + %4"] if %[[INSIDE]] : i64
// CHECK: flow.load {{.}} ["%0", "%1", "$5", "%5"] if %[[INSIDE]]
// CHECK: flow.reduce "add"
// CHECK: flow.apply "abs"
// CHECK: %[[X:.*]] = flow.apply "select"
// CHECK: %[[LISTED:.*]] = flow.apply "select"(%[[INSIDE]], %[[X]],
// CHECK-NEXT: flow.reduce "max" %[[LISTED]]
// CHECK: flow.load {{.}} ["%0", "%1", "$5", "%3"] if %[[INSIDE]]
func.func @window(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %7 = sdx.broadcast %seen to [2, 3] : !b -> !sdx.tensor<[b, 2, 200, 200], i1>
  %low = sdx.const dense<-1.0e+9> : tensor<f32> : !sdx.tensor<[], f32>
  %8 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !p
  %30 = sdx.map "select"(%7, %0, %8) : (!sdx.tensor<[b, 2, 200, 200], i1>, !p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[b, 2, 200, 8], f32>
!p = !sdx.tensor<[b, 2, 200, 200], f32>
!r = !sdx.tensor<[b, 2, 200], f32>
!i = !sdx.tensor<[200, 200], i64>
!m = !sdx.tensor<[200, 200], f32>
!b = !sdx.tensor<[200, 200], i1>
!n = !sdx.tensor<[200], i64>

// The same mask, added.

// CHECK-LABEL: func.func @added
// CHECK: flow.kernel outer ["b", "2", "200", "8"] inner ["116"] deep ["8"]
// CHECK: flow.apply "add"
func.func @added(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %10 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !m
  %low = sdx.const dense<-3.4e+38> : tensor<f32> : !sdx.tensor<[], f32>
  %11 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !m
  %12 = sdx.map "select"(%seen, %10, %11) : (!b, !m, !m) -> !m
  %13 = sdx.broadcast %12 to [2, 3] : !m -> !p
  %30 = sdx.map "add"(%0, %13) : (!p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[b, 2, 200, 8], f32>
!p = !sdx.tensor<[b, 2, 200, 200], f32>
!r = !sdx.tensor<[b, 2, 200], f32>
!i = !sdx.tensor<[200, 200], i64>
!m = !sdx.tensor<[200, 200], f32>
!b = !sdx.tensor<[200, 200], i1>
!n = !sdx.tensor<[200], i64>

// A bias of -100 hides a key from no score that is 100 more than the others.

// CHECK-LABEL: func.func @small_bias
// CHECK-NOT: flow.const
// TOLD: remark[skip-masked-keys]: the constant mask hides few keys from whole blocks of rows: estimated
func.func @small_bias(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %10 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !m
  %low = sdx.const dense<-100.0> : tensor<f32> : !sdx.tensor<[], f32>
  %11 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !m
  %12 = sdx.map "select"(%seen, %10, %11) : (!b, !m, !m) -> !m
  %13 = sdx.broadcast %12 to [2, 3] : !m -> !p
  %30 = sdx.map "add"(%0, %13) : (!p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[b, 2, 200, 8], f32>
!p = !sdx.tensor<[b, 2, 200, 200], f32>
!r = !sdx.tensor<[b, 2, 200], f32>
!i = !sdx.tensor<[200, 200], i64>
!m = !sdx.tensor<[200, 200], f32>
!b = !sdx.tensor<[200, 200], i1>
!n = !sdx.tensor<[200], i64>

// An input says which keys there are: a row may see none of those that the constant mask lets it see.

// CHECK-LABEL: func.func @with_padding
// CHECK-NOT: flow.const
func.func @with_padding(%q: !q, %k: !q, %v: !q, %padding: !sdx.tensor<[b, 200], f32>) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %10 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !m
  %low = sdx.const dense<-3.4e+38> : tensor<f32> : !sdx.tensor<[], f32>
  %11 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !m
  %12 = sdx.map "select"(%seen, %10, %11) : (!b, !m, !m) -> !m
  %13 = sdx.broadcast %12 to [2, 3] : !m -> !p
  %14 = sdx.map "add"(%0, %13) : (!p, !p) -> !p
  %15 = sdx.broadcast %padding to [0, 3] : !sdx.tensor<[b, 200], f32> -> !p
  %30 = sdx.map "add"(%14, %15) : (!p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[b, 2, 90, 8], f32>
!p = !sdx.tensor<[b, 2, 90, 90], f32>
!r = !sdx.tensor<[b, 2, 90], f32>
!i = !sdx.tensor<[90, 90], i64>
!m = !sdx.tensor<[90, 90], f32>
!b = !sdx.tensor<[90, 90], i1>
!n = !sdx.tensor<[90], i64>

// All rows are one block.

// CHECK-LABEL: func.func @one_block
// CHECK-NOT: flow.const
func.func @one_block(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %7 = sdx.broadcast %seen to [2, 3] : !b -> !sdx.tensor<[b, 2, 90, 90], i1>
  %low = sdx.const dense<-1.0e+9> : tensor<f32> : !sdx.tensor<[], f32>
  %8 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !p
  %30 = sdx.map "select"(%7, %0, %8) : (!sdx.tensor<[b, 2, 90, 90], i1>, !p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[b, 2, 200, 8], f32>
!p = !sdx.tensor<[b, 2, 200, 200], f32>
!r = !sdx.tensor<[b, 2, 200], f32>
!i = !sdx.tensor<[200, 200], i64>
!m = !sdx.tensor<[200, 200], f32>
!b = !sdx.tensor<[200, 200], i1>
!n = !sdx.tensor<[200], i64>

// A score behind a function is no score to which a mask is added.

// CHECK-LABEL: func.func @bounded
// CHECK-NOT: flow.const
func.func @bounded(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %2 = sdx.map "abs"(%1) : (!i) -> !i
  %w = sdx.const dense<8> : tensor<i64> : !sdx.tensor<[], i64>
  %3 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %4 = sdx.map "le"(%2, %3) : (!i, !i) -> !b
  %g = sdx.const dense<4> : tensor<i64> : !sdx.tensor<[], i64>
  %5 = sdx.broadcast %g to [] : !sdx.tensor<[], i64> -> !i
  %6 = sdx.map "lt"(%j, %5) : (!i, !i) -> !b
  %seen = sdx.map "or"(%4, %6) : (!b, !b) -> !b
  %zero = sdx.const dense<0.0> : tensor<f32> : !sdx.tensor<[], f32>
  %10 = sdx.broadcast %zero to [] : !sdx.tensor<[], f32> -> !m
  %low = sdx.const dense<-3.4e+38> : tensor<f32> : !sdx.tensor<[], f32>
  %11 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !m
  %12 = sdx.map "select"(%seen, %10, %11) : (!b, !m, !m) -> !m
  %13 = sdx.broadcast %12 to [2, 3] : !m -> !p
  %14 = sdx.map "add"(%0, %13) : (!p, !p) -> !p
  %30 = sdx.map "tanh"(%14) : (!p) -> !p
  %40 = sdx.reduce "max" %30 axes [3] : !p -> !r
  %41 = sdx.broadcast %40 to [0, 1, 2] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [3] : !p -> !r
  %45 = sdx.broadcast %44 to [0, 1, 2] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "bhst,bhtd->bhsd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

// -----

!q = !sdx.tensor<[200, 4], f32>
!p = !sdx.tensor<[200, 200], f32>
!r = !sdx.tensor<[200], f32>
!i = !sdx.tensor<[200, 200], i64>
!b = !sdx.tensor<[200, 200], i1>

// Ten keys at most before the row, none behind it; the interpreter says that it is the same.

// CHECK-LABEL: func.func @causal
// CHECK: flow.const dense<[0, 96, 202, 220]>
// CHECK: flow.kernel outer ["200", "4"] inner ["106"] deep ["4"]
// CHECKED: rewrites checked (0 of them repeat another){{$}}
func.func @causal(%q: !q, %k: !q, %v: !q) -> !q {
  %0 = sdx.contract "sd,td->st"(%q, %k) : (!q, !q) -> !p
  %i = sdx.iota axis 0 : !i
  %j = sdx.iota axis 1 : !i
  %1 = sdx.map "sub"(%i, %j) : (!i, !i) -> !i
  %w = sdx.const dense<10> : tensor<i64> : !sdx.tensor<[], i64>
  %2 = sdx.broadcast %w to [] : !sdx.tensor<[], i64> -> !i
  %3 = sdx.map "le"(%1, %2) : (!i, !i) -> !b
  %4 = sdx.map "le"(%j, %i) : (!i, !i) -> !b
  %5 = sdx.map "and"(%3, %4) : (!b, !b) -> !b
  %low = sdx.const dense<-3.4e+38> : tensor<f32> : !sdx.tensor<[], f32>
  %6 = sdx.broadcast %low to [] : !sdx.tensor<[], f32> -> !p
  %30 = sdx.map "select"(%5, %0, %6) : (!b, !p, !p) -> !p
  %40 = sdx.reduce "max" %30 axes [1] : !p -> !r
  %41 = sdx.broadcast %40 to [0] : !r -> !p
  %42 = sdx.map "sub"(%30, %41) : (!p, !p) -> !p
  %43 = sdx.map "exp"(%42) : (!p) -> !p
  %44 = sdx.reduce "add" %43 axes [1] : !p -> !r
  %45 = sdx.broadcast %44 to [0] : !r -> !p
  %46 = sdx.map "div"(%43, %45) : (!p, !p) -> !p
  %47 = sdx.contract "st,td->sd"(%46, %v) : (!p, !q) -> !q
  return %47 : !q
}

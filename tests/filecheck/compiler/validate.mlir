// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(simplify,e-graph,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,inline-maps,fuse-attention,inline-maps,fuse-siblings,pack-weights)' --validate 2>&1 >%t | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse)' --validate 2>&1 >%t | FileCheck %s --check-prefix=FUSE
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps)' --fuel 0 --validate 2>&1 >%t | FileCheck %s --check-prefix=NONE

// Each rewrite is run before and after; a line for each module says how many were, and that none was skipped.

// Two sums, what is made of both, panels.

// CHECK: {{^}}7 rewrites checked (1 of them repeat another){{$}}
// FUSE: {{^}}3 rewrites checked (0 of them repeat another){{$}}
// NONE: {{^}}0 rewrites checked (0 of them repeat another){{$}}

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

func.func @gated(%x: !x) -> !y {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "tanh"(%0) : (!y) -> !y
  %3 = sdx.map "mul"(%2, %1) : (!y, !y) -> !y
  return %3 : !y
}

// -----

!q = !sdx.tensor<[b, h, s, 4], f32>
!k = !sdx.tensor<[b, h, t, 4], f32>
!p = !sdx.tensor<[b, h, s, t], f32>
!r = !sdx.tensor<[b, h, s], f32>

// Attention.

// CHECK-NEXT: {{^}}11 rewrites checked (0 of them repeat another){{$}}
// FUSE-NEXT: {{^}}7 rewrites checked (0 of them repeat another){{$}}
// NONE-NEXT: {{^}}0 rewrites checked (0 of them repeat another){{$}}

func.func @attention(%q: !q, %k: !k, %v: !k) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !k) -> !p
  %1 = sdx.reduce "max" %0 axes [3] : !p -> !r
  %2 = sdx.broadcast %1 to [0, 1, 2] : !r -> !p
  %3 = sdx.map "sub"(%0, %2) : (!p, !p) -> !p
  %4 = sdx.map "exp"(%3) : (!p) -> !p
  %5 = sdx.reduce "add" %4 axes [3] : !p -> !r
  %6 = sdx.broadcast %5 to [0, 1, 2] : !r -> !p
  %7 = sdx.map "div"(%4, %6) : (!p, !p) -> !p
  %8 = sdx.contract "bhst,bhtd->bhsd"(%7, %v) : (!p, !k) -> !q
  return %8 : !q
}

// -----

!past = !sdx.tensor<[b, past, 4], f32>
!x = !sdx.tensor<[b, s, 4], f32>
!all = !sdx.tensor<[b, past + s, 4], f32>
!y = !sdx.tensor<[b, past + s], f32>

// States that grow, siblings, what reduces the same rows.

// CHECK-NEXT: {{^}}4 rewrites checked (0 of them repeat another){{$}}
// FUSE-NEXT: {{^}}2 rewrites checked (0 of them repeat another){{$}}
// NONE-NEXT: {{^}}0 rewrites checked (0 of them repeat another){{$}}

func.func @states(%k: !past, %v: !past, %x: !x) -> (!all, !all, !y, !y) {
  %n = sdx.map "neg"(%x) : (!x) -> !x
  %0 = sdx.append %k, %n axis 1 : (!past, !x) -> !all
  %1 = sdx.append %v, %x axis 1 : (!past, !x) -> !all
  %e = sdx.map "exp"(%0) : (!all) -> !all
  %2 = sdx.reduce "add" %e axes [2] : !all -> !y
  %3 = sdx.reduce "max" %0 axes [2] : !all -> !y
  return %0, %1, %2, %3 : !all, !all, !y, !y
}

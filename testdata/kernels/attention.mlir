// Attention, and caches that it appends to.
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 1 40, 1 17 33, 1 70 65

!q = !sdx.tensor<[b, 2, s, 8], f32>
!k = !sdx.tensor<[b, 2, t, 8], f32>
!p = !sdx.tensor<[b, 2, s, t], f32>
!r = !sdx.tensor<[b, 2, s], f32>

func.func @attention(%q: !q, %k: !k, %v: !k, %mask: !sdx.tensor<[b, t], f32>) -> !q {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%q, %k) : (!q, !k) -> !p
  %c = sdx.const dense<0.353553385> : tensor<f32> : !sdx.tensor<[], f32>
  %c1 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !p
  %1 = sdx.map "mul"(%0, %c1) : (!p, !p) -> !p
  %k1 = sdx.broadcast %mask to [0, 3] : !sdx.tensor<[b, t], f32> -> !p
  %q2 = sdx.map "add"(%1, %k1) : (!p, !p) -> !p
  %m = sdx.reduce "max" %q2 axes [3] : !p -> !r
  %m1 = sdx.broadcast %m to [0, 1, 2] : !r -> !p
  %d = sdx.map "sub"(%q2, %m1) : (!p, !p) -> !p
  %e = sdx.map "exp"(%d) : (!p) -> !p
  %s = sdx.reduce "add" %e axes [3] : !p -> !r
  %s1 = sdx.broadcast %s to [0, 1, 2] : !r -> !p
  %w = sdx.map "div"(%e, %s1) : (!p, !p) -> !p
  %o = sdx.contract "bhst,bhtd->bhsd"(%w, %v) : (!p, !k) -> !q
  return %o : !q
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 1 4 0, 3 1 7, 1 1 40, 1 17 33

!n = !sdx.tensor<[b, 2, s, 8], f32>
!o = !sdx.tensor<[b, 2, t, 8], f32>
!a = !sdx.tensor<[b, 2, t + s, 8], f32>
!p = !sdx.tensor<[b, 2, s, t + s], f32>
!r = !sdx.tensor<[b, 2, s], f32>

// Keys and values of earlier positions, the new ones behind them, and what the new ones ask of all.
func.func @cached(%q: !n, %k: !n, %v: !n, %past_k: !o, %past_v: !o) -> (!n, !a, !a) {
  %turned = sdx.map "neg"(%k) : (!n) -> !n
  %ka = sdx.append %past_k, %turned axis 2 : (!o, !n) -> !a
  %va = sdx.append %past_v, %v axis 2 : (!o, !n) -> !a
  %q2 = sdx.contract "bhsd,bhtd->bhst"(%q, %ka) : (!n, !a) -> !p
  %m = sdx.reduce "max" %q2 axes [3] : !p -> !r
  %m1 = sdx.broadcast %m to [0, 1, 2] : !r -> !p
  %d = sdx.map "sub"(%q2, %m1) : (!p, !p) -> !p
  %e = sdx.map "exp"(%d) : (!p) -> !p
  %s = sdx.reduce "add" %e axes [3] : !p -> !r
  %s1 = sdx.broadcast %s to [0, 1, 2] : !r -> !p
  %w = sdx.map "div"(%e, %s1) : (!p, !p) -> !p
  %o = sdx.contract "bhst,bhtd->bhsd"(%w, %va) : (!p, !a) -> !n
  return %o, %ka, %va : !n, !a, !a
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 1 4 0, 3 1 7, 2 5 33

!n = !sdx.tensor<[b, s, 5], f32>
!o = !sdx.tensor<[b, t, 5], f32>
!a = !sdx.tensor<[b, t + s, 5], f32>

func.func @running_sum(%x: !n, %past: !o) -> (!sdx.tensor<[b, 5], f32>, !a) {
  %all = sdx.append %past, %x axis 1 : (!o, !n) -> !a
  %0 = sdx.reduce "add" %all axes [1] : !a -> !sdx.tensor<[b, 5], f32>
  return %0, %all : !sdx.tensor<[b, 5], f32>, !a
}

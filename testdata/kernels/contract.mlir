// Sums of products: sizes around tiles, of nothing, batched, turned, with packed weights and what follows them.
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 16 8 8, 17 9 9, 31 33 15, 64 64 32, 65 63 33, 1 100 70, 100 1 70, 128 16 7

!l = !sdx.tensor<[m, k], f32>
!r = !sdx.tensor<[k, n], f32>
!o = !sdx.tensor<[m, n], f32>

func.func @product(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 16 8 8, 17 9 9, 31 33 15, 64 64 32, 65 63 33, 1 100 70, 100 1 70, 128 16 7

!l = !sdx.tensor<[m, k], f32>
!r = !sdx.tensor<[n, k], f32>
!o = !sdx.tensor<[m, n], f32>

func.func @right_turned(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,nk->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 17 9 9, 65 33 31

!l = !sdx.tensor<[k, m], f32>
!r = !sdx.tensor<[k, n], f32>
!o = !sdx.tensor<[m, n], f32>

func.func @left_turned(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "km,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 17 9 9, 33 65 31

!l = !sdx.tensor<[m, k], f32>
!r = !sdx.tensor<[k, n], f32>
!o = !sdx.tensor<[n, m], f32>

func.func @result_turned(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->nm"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m k: 2 4, 1 1, 0 3, 2 0, 33 257

!l = !sdx.tensor<[m, k], f32>
!r = !sdx.tensor<[k], f32>
!o = !sdx.tensor<[m], f32>

func.func @vector(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,k->m"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n: 2 4, 1 1, 0 3, 33 65

!l = !sdx.tensor<[m], f32>
!r = !sdx.tensor<[n], f32>
!o = !sdx.tensor<[m, n], f32>

func.func @outer(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "m,n->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS k: 0, 1, 31, 257

!l = !sdx.tensor<[k], f32>
!r = !sdx.tensor<[k], f32>
!o = !sdx.tensor<[], f32>

func.func @dot(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "k,k->"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 16 8 16, 17 9 33, 65 33 31

!l = !sdx.tensor<[m, k], f64>
!r = !sdx.tensor<[k, n], f64>
!o = !sdx.tensor<[m, n], f64>

func.func @product_f64(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 16 8 16, 17 9 33, 65 33 31

!l = !sdx.tensor<[m, k], f16>
!r = !sdx.tensor<[k, n], f16>
!o = !sdx.tensor<[m, n], f16>

func.func @product_f16(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 16 8 16, 17 9 33, 65 33 31

!l = !sdx.tensor<[m, k], bf16>
!r = !sdx.tensor<[k, n], bf16>
!o = !sdx.tensor<[m, n], bf16>

func.func @product_bf16(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 16 8 16, 17 9 33, 65 33 31

!l = !sdx.tensor<[m, k], i32>
!r = !sdx.tensor<[k, n], i32>
!o = !sdx.tensor<[m, n], i32>

func.func @product_i32(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 3 0, 16 8 16, 17 9 33, 65 33 31

!l = !sdx.tensor<[m, k], i64>
!r = !sdx.tensor<[k, n], i64>
!o = !sdx.tensor<[m, n], i64>

func.func @product_i64(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "mk,kn->mn"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 17 33, 1 1 70, 2 64 65

!l = !sdx.tensor<[b, 2, s, 8], f32>
!r = !sdx.tensor<[b, 2, t, 8], f32>
!o = !sdx.tensor<[b, 2, s, t], f32>

func.func @scores(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "bhsd,bhtd->bhst"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 17 33, 1 1 70, 2 64 65

!l = !sdx.tensor<[b, 2, s, t], f32>
!r = !sdx.tensor<[b, 2, t, 8], f32>
!o = !sdx.tensor<[b, 2, s, 8], f32>

func.func @mixed(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "bhst,bhtd->bhsd"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 1 17 33

!l = !sdx.tensor<[b, s, 2, 12], f32>
!r = !sdx.tensor<[b, t, 2, 12], f32>
!o = !sdx.tensor<[b, 2, s, t], f32>

func.func @heads_inside(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "bshd,bthd->bhst"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 1 5 33

!l = !sdx.tensor<[b, 2, 3, s, 8], f32>
!r = !sdx.tensor<[b, 2, t, 8], f32>
!o = !sdx.tensor<[b, 2, 3, s, t], f32>

func.func @grouped(%l: !l, %r: !r) -> !o {
  %0 = sdx.contract "bghsd,bgtd->bghst"(%l, %r) : (!l, !r) -> !o
  return %0 : !o
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 1 17, 3 23, 1 64, 1 130

!x = !sdx.tensor<[b, s, 16], f32>
!y = !sdx.tensor<[b, s, 48], f32>
!v = !sdx.tensor<[48], f32>

func.func @linear(%x: !x) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[16, 48], f32>
  %p = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[16, 48], f32>) -> !y
  %v = sdx.param "v" : !v
  %v1 = sdx.broadcast %v to [2] : !v -> !y
  %q = sdx.map "add"(%p, %v1) : (!y, !y) -> !y
  return %q : !y
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 1 17, 3 23, 1 64, 1 130

!x = !sdx.tensor<[b, s, 37], f32>
!y = !sdx.tensor<[b, s, 19], f32>
!v = !sdx.tensor<[19], f32>

func.func @linear_odd(%x: !x) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[37, 19], f32>
  %p = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[37, 19], f32>) -> !y
  %v = sdx.param "v" : !v
  %v1 = sdx.broadcast %v to [2] : !v -> !y
  %q = sdx.map "add"(%p, %v1) : (!y, !y) -> !y
  return %q : !y
}
// -----
// CALLS b s: 1 1, 1 9, 2 33

!x = !sdx.tensor<[b, s, 64], f32>
!y = !sdx.tensor<[b, s, 200], f32>
!v = !sdx.tensor<[200], f32>

func.func @linear_wide(%x: !x) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[64, 200], f32>
  %p = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[64, 200], f32>) -> !y
  %v = sdx.param "v" : !v
  %v1 = sdx.broadcast %v to [2] : !v -> !y
  %q = sdx.map "add"(%p, %v1) : (!y, !y) -> !y
  return %q : !y
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 1 17, 3 23, 1 64, 1 130

!x = !sdx.tensor<[b, s, 24], f32>
!y = !sdx.tensor<[b, s, 24], f32>
!v = !sdx.tensor<[24], f32>

func.func @residual(%x: !x, %r: !y) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[24, 24], f32>
  %p = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[24, 24], f32>) -> !y
  %v = sdx.param "v" : !v
  %v1 = sdx.broadcast %v to [2] : !v -> !y
  %q = sdx.map "add"(%p, %v1) : (!y, !y) -> !y
  %z = sdx.map "add"(%q, %r) : (!y, !y) -> !y
  return %z : !y
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 1 17, 3 23, 1 64, 1 130

!x = !sdx.tensor<[b, s, 24], f32>
!y = !sdx.tensor<[b, s, 40], f32>
!v = !sdx.tensor<[40], f32>

func.func @linear_gelu(%x: !x) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[24, 40], f32>
  %p = sdx.contract "bsk,kn->bsn"(%x, %w) : (!x, !sdx.tensor<[24, 40], f32>) -> !y
  %v = sdx.param "v" : !v
  %v1 = sdx.broadcast %v to [2] : !v -> !y
  %q = sdx.map "add"(%p, %v1) : (!y, !y) -> !y
  %c = sdx.const dense<0.707106769> : tensor<f32> : !sdx.tensor<[], f32>
  %h = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %o = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %c1 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !y
  %h1 = sdx.broadcast %h to [] : !sdx.tensor<[], f32> -> !y
  %o1 = sdx.broadcast %o to [] : !sdx.tensor<[], f32> -> !y
  %0 = sdx.map "mul"(%q, %c1) : (!y, !y) -> !y
  %1 = sdx.map "erf"(%0) : (!y) -> !y
  %2 = sdx.map "add"(%1, %o1) : (!y, !y) -> !y
  %3 = sdx.map "mul"(%q, %h1) : (!y, !y) -> !y
  %4 = sdx.map "mul"(%3, %2) : (!y, !y) -> !y
  return %4 : !y
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 1 9, 1 33

!x = !sdx.tensor<[b, s, 16], f32>
!y = !sdx.tensor<[b, s, 40], f32>
!w = !sdx.tensor<[16, 40], f32>

func.func @gated(%x: !x) -> !y {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !w
  %0 = sdx.contract "bsk,kn->bsn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "bsk,kn->bsn"(%x, %u) : (!x, !w) -> !y
  %one = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %ones = sdx.broadcast %one to [] : !sdx.tensor<[], f32> -> !y
  %2 = sdx.map "neg"(%0) : (!y) -> !y
  %3 = sdx.map "exp"(%2) : (!y) -> !y
  %4 = sdx.map "add"(%3, %ones) : (!y, !y) -> !y
  %5 = sdx.map "div"(%0, %4) : (!y, !y) -> !y
  %6 = sdx.map "mul"(%5, %1) : (!y, !y) -> !y
  return %6 : !y
}
// -----
// CALLS m n k: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 16 16 8, 17 17 9, 15 31 16, 33 33 31, 48 64 33, 49 65 15

!x = !sdx.tensor<[m, k], f32>
!w = !sdx.tensor<[k, n], f32>
!y = !sdx.tensor<[m, n], f32>

// Two sums; the first one is a result, too.
func.func @two_sums(%x: !x, %g: !w, %u: !w) -> (!y, !y) {
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "tanh"(%0) : (!y) -> !y
  %3 = sdx.map "mul"(%2, %1) : (!y, !y) -> !y
  return %0, %3 : !y, !y
}
// -----
// CALLS m: 0, 1, 2, 3, 16, 17, 33, 47, 48, 49, 65

!x = !sdx.tensor<[m, 33], f32>
!w = !sdx.tensor<[33, 70], f32>
!s = !sdx.tensor<[140, 33], f32>
!h = !sdx.tensor<[70, 33], f32>
!y = !sdx.tensor<[m, 70], f32>

// Both factors are parts of one parameter.
func.func @parts(%x: !x) -> !y {
  %s = sdx.param "s" : !s
  %g = sdx.slice %s from ["0", "0"] step [1, 1] : !s -> !h
  %u = sdx.slice %s from ["70", "0"] step [1, 1] : !s -> !h
  %0 = sdx.contract "mk,nk->mn"(%x, %g) : (!x, !h) -> !y
  %1 = sdx.contract "mk,nk->mn"(%x, %u) : (!x, !h) -> !y
  %2 = sdx.map "max"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}
// -----
// CALLS m: 0, 1, 2, 17, 50

!x = !sdx.tensor<[m, 24], f32>
!w = !sdx.tensor<[24, 64], f32>
!t = !sdx.tensor<[64, 24], f32>
!y = !sdx.tensor<[m, 64], f32>

// One parameter lies across.
func.func @two_ways(%x: !x) -> !y {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !t
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,nk->mn"(%x, %u) : (!x, !t) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}
// -----
// CALLS m: 0, 1, 2, 17
// INDEX i: 3

!x = !sdx.tensor<[m, 24], f32>
!y = !sdx.tensor<[m, 64], f32>

// The data have one dimension more than what is contracted.
func.func @one_of_three(%x: !sdx.tensor<[m, 24, 3], f32>, %i: !sdx.tensor<[], i64> {sdx.name = "i"}) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[24, 64], f32>
  %0 = sdx.gather %x[%i] axis 2 : (!sdx.tensor<[m, 24, 3], f32>, !sdx.tensor<[], i64>) -> !x
  %1 = sdx.contract "mk,kn->mn"(%0, %w) : (!x, !sdx.tensor<[24, 64], f32>) -> !y
  return %1 : !y
}

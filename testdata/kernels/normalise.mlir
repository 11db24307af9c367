// Softmax and normalisation of rows: of nothing, of one element, around the threads of a warp and of a block.
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 5 31, 1 2 32, 2 1 33, 1 1 255, 1 3 257, 1 1 1025

!x = !sdx.tensor<[b, s, t], f32>
!r = !sdx.tensor<[b, s], f32>

func.func @softmax_f32(%x: !x) -> !x {
  %m = sdx.reduce "max" %x axes [2] : !x -> !r
  %m1 = sdx.broadcast %m to [0, 1] : !r -> !x
  %d = sdx.map "sub"(%x, %m1) : (!x, !x) -> !x
  %e = sdx.map "exp"(%d) : (!x) -> !x
  %s = sdx.reduce "add" %e axes [2] : !x -> !r
  %s1 = sdx.broadcast %s to [0, 1] : !r -> !x
  %y = sdx.map "div"(%e, %s1) : (!x, !x) -> !x
  return %y : !x
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 5 31, 1 2 32, 2 1 33, 1 1 255, 1 3 257, 1 1 1025

!x = !sdx.tensor<[b, s, t], f64>
!r = !sdx.tensor<[b, s], f64>

func.func @softmax_f64(%x: !x) -> !x {
  %m = sdx.reduce "max" %x axes [2] : !x -> !r
  %m1 = sdx.broadcast %m to [0, 1] : !r -> !x
  %d = sdx.map "sub"(%x, %m1) : (!x, !x) -> !x
  %e = sdx.map "exp"(%d) : (!x) -> !x
  %s = sdx.reduce "add" %e axes [2] : !x -> !r
  %s1 = sdx.broadcast %s to [0, 1] : !r -> !x
  %y = sdx.map "div"(%e, %s1) : (!x, !x) -> !x
  return %y : !x
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 5 31, 1 2 32, 2 1 33, 1 1 255, 1 3 257, 1 1 1025

!x = !sdx.tensor<[b, s, t], bf16>
!r = !sdx.tensor<[b, s], bf16>

func.func @softmax_bf16(%x: !x) -> !x {
  %m = sdx.reduce "max" %x axes [2] : !x -> !r
  %m1 = sdx.broadcast %m to [0, 1] : !r -> !x
  %d = sdx.map "sub"(%x, %m1) : (!x, !x) -> !x
  %e = sdx.map "exp"(%d) : (!x) -> !x
  %s = sdx.reduce "add" %e axes [2] : !x -> !r
  %s1 = sdx.broadcast %s to [0, 1] : !r -> !x
  %y = sdx.map "div"(%e, %s1) : (!x, !x) -> !x
  return %y : !x
}
// -----
// CALLS b s t: 2 3 4, 1 1 1, 0 2 3, 2 0 3, 2 3 0, 1 5 31, 1 2 32, 2 1 33, 1 1 255, 1 3 257, 1 1 1025

!x = !sdx.tensor<[b, s, t], f32>
!r = !sdx.tensor<[b, s], f32>

// Scores are scaled and masked before; what is masked everywhere gives equal shares.
func.func @masked_softmax(%x: !x, %mask: !sdx.tensor<[b, t], i1>) -> !x {
  %c = sdx.const dense<0.25> : tensor<f32> : !sdx.tensor<[], f32>
  %c1 = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !x
  %l = sdx.const dense<-1.0e4> : tensor<f32> : !sdx.tensor<[], f32>
  %l1 = sdx.broadcast %l to [] : !sdx.tensor<[], f32> -> !x
  %k = sdx.broadcast %mask to [0, 2] : !sdx.tensor<[b, t], i1> -> !sdx.tensor<[b, s, t], i1>
  %0 = sdx.map "mul"(%x, %c1) : (!x, !x) -> !x
  %1 = sdx.map "select"(%k, %0, %l1) : (!sdx.tensor<[b, s, t], i1>, !x, !x) -> !x
  %m = sdx.reduce "max" %1 axes [2] : !x -> !r
  %m1 = sdx.broadcast %m to [0, 1] : !r -> !x
  %d = sdx.map "sub"(%1, %m1) : (!x, !x) -> !x
  %e = sdx.map "exp"(%d) : (!x) -> !x
  %s = sdx.reduce "add" %e axes [2] : !x -> !r
  %s1 = sdx.broadcast %s to [0, 1] : !r -> !x
  %y = sdx.map "div"(%e, %s1) : (!x, !x) -> !x
  return %y : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 1], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[1], f32>

func.func @layer_norm_1(%x: !x) -> !x {
  %n = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %a = sdx.reduce "add" %x axes [2] : !x -> !r
  %mean = sdx.map "div"(%a, %n1) : (!r, !r) -> !r
  %mean1 = sdx.broadcast %mean to [0, 1] : !r -> !x
  %c = sdx.map "sub"(%x, %mean1) : (!x, !x) -> !x
  %sq = sdx.map "mul"(%c, %c) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%c, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  %shift = sdx.param "shift" : !v
  %shift1 = sdx.broadcast %shift to [2] : !v -> !x
  %o = sdx.map "add"(%z, %shift1) : (!x, !x) -> !x
  return %o : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 1], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[1], f32>

func.func @rms_norm_1(%x: !x) -> !x {
  %n = sdx.const dense<1.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %sq = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%x, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  return %z : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 8], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[8], f32>

func.func @layer_norm_8(%x: !x) -> !x {
  %n = sdx.const dense<8.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %a = sdx.reduce "add" %x axes [2] : !x -> !r
  %mean = sdx.map "div"(%a, %n1) : (!r, !r) -> !r
  %mean1 = sdx.broadcast %mean to [0, 1] : !r -> !x
  %c = sdx.map "sub"(%x, %mean1) : (!x, !x) -> !x
  %sq = sdx.map "mul"(%c, %c) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%c, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  %shift = sdx.param "shift" : !v
  %shift1 = sdx.broadcast %shift to [2] : !v -> !x
  %o = sdx.map "add"(%z, %shift1) : (!x, !x) -> !x
  return %o : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 8], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[8], f32>

func.func @rms_norm_8(%x: !x) -> !x {
  %n = sdx.const dense<8.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %sq = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%x, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  return %z : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 33], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[33], f32>

func.func @layer_norm_33(%x: !x) -> !x {
  %n = sdx.const dense<33.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %a = sdx.reduce "add" %x axes [2] : !x -> !r
  %mean = sdx.map "div"(%a, %n1) : (!r, !r) -> !r
  %mean1 = sdx.broadcast %mean to [0, 1] : !r -> !x
  %c = sdx.map "sub"(%x, %mean1) : (!x, !x) -> !x
  %sq = sdx.map "mul"(%c, %c) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%c, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  %shift = sdx.param "shift" : !v
  %shift1 = sdx.broadcast %shift to [2] : !v -> !x
  %o = sdx.map "add"(%z, %shift1) : (!x, !x) -> !x
  return %o : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 33], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[33], f32>

func.func @rms_norm_33(%x: !x) -> !x {
  %n = sdx.const dense<33.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %sq = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%x, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  return %z : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 384], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[384], f32>

func.func @layer_norm_384(%x: !x) -> !x {
  %n = sdx.const dense<384.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %a = sdx.reduce "add" %x axes [2] : !x -> !r
  %mean = sdx.map "div"(%a, %n1) : (!r, !r) -> !r
  %mean1 = sdx.broadcast %mean to [0, 1] : !r -> !x
  %c = sdx.map "sub"(%x, %mean1) : (!x, !x) -> !x
  %sq = sdx.map "mul"(%c, %c) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%c, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  %shift = sdx.param "shift" : !v
  %shift1 = sdx.broadcast %shift to [2] : !v -> !x
  %o = sdx.map "add"(%z, %shift1) : (!x, !x) -> !x
  return %o : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 384], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[384], f32>

func.func @rms_norm_384(%x: !x) -> !x {
  %n = sdx.const dense<384.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %sq = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%x, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  return %z : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 2, 2 0, 1 9, 3 17

!x = !sdx.tensor<[b, s, 40], f32>
!r = !sdx.tensor<[b, s], f32>
!v = !sdx.tensor<[40], f32>

func.func @residual_layer_norm(%x: !x, %r: !x) -> !x {
  %sum = sdx.map "add"(%x, %r) : (!x, !x) -> !x
  %n = sdx.const dense<40.0> : tensor<f32> : !sdx.tensor<[], f32>
  %n1 = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !r
  %e = sdx.const dense<1.0e-5> : tensor<f32> : !sdx.tensor<[], f32>
  %e1 = sdx.broadcast %e to [] : !sdx.tensor<[], f32> -> !r
  %scale = sdx.param "scale" : !v
  %scale1 = sdx.broadcast %scale to [2] : !v -> !x
  %a = sdx.reduce "add" %sum axes [2] : !x -> !r
  %mean = sdx.map "div"(%a, %n1) : (!r, !r) -> !r
  %mean1 = sdx.broadcast %mean to [0, 1] : !r -> !x
  %c = sdx.map "sub"(%sum, %mean1) : (!x, !x) -> !x
  %sq = sdx.map "mul"(%c, %c) : (!x, !x) -> !x
  %q = sdx.reduce "add" %sq axes [2] : !x -> !r
  %var = sdx.map "div"(%q, %n1) : (!r, !r) -> !r
  %pad = sdx.map "add"(%var, %e1) : (!r, !r) -> !r
  %dev = sdx.map "sqrt"(%pad) : (!r) -> !r
  %dev1 = sdx.broadcast %dev to [0, 1] : !r -> !x
  %y = sdx.map "div"(%c, %dev1) : (!x, !x) -> !x
  %z = sdx.map "mul"(%y, %scale1) : (!x, !x) -> !x
  %shift = sdx.param "shift" : !v
  %shift1 = sdx.broadcast %shift to [2] : !v -> !x
  %o = sdx.map "add"(%z, %shift1) : (!x, !x) -> !x
  return %o : !x
}

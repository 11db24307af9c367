// Elements that move: turned, cut, padded, joined, looked up.
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33, 33 17

!x = !sdx.tensor<[b, s], f32>

func.func @transpose(%x: !x) -> !sdx.tensor<[s, b], f32> {
  %0 = sdx.transpose %x [1, 0] : !x -> !sdx.tensor<[s, b], f32>
  return %0 : !sdx.tensor<[s, b], f32>
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s, 24], f32>
!h = !sdx.tensor<[b, s, 2, 12], f32>
!t = !sdx.tensor<[b, 2, s, 12], f32>

func.func @heads(%x: !x) -> (!t, !sdx.tensor<[b, 2, 12, s], f32>) {
  %0 = sdx.reshape %x : !x -> !h
  %1 = sdx.transpose %0 [0, 2, 1, 3] : !h -> !t
  %2 = sdx.transpose %0 [0, 2, 3, 1] : !h -> !sdx.tensor<[b, 2, 12, s], f32>
  return %1, %2 : !t, !sdx.tensor<[b, 2, 12, s], f32>
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33, 4 260

!x = !sdx.tensor<[b, s + 3], f32>

func.func @slices(%x: !x) -> (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s + 3], f32>, !sdx.tensor<[b, (s + 3) ceildiv 2], f32>) {
  %0 = sdx.slice %x from ["0", "2"] step [1, 1] : !x -> !sdx.tensor<[b, s], f32>
  %1 = sdx.slice %x from ["b - 1", "s + 2"] step [-1, -1] : !x -> !sdx.tensor<[b, s + 3], f32>
  %2 = sdx.slice %x from ["0", "0"] step [1, 2] : !x -> !sdx.tensor<[b, (s + 3) ceildiv 2], f32>
  return %0, %1, %2 : !sdx.tensor<[b, s], f32>, !sdx.tensor<[b, s + 3], f32>, !sdx.tensor<[b, (s + 3) ceildiv 2], f32>
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s], f32>

// Rows around the operand are not there: a load with a guard.
func.func @pad(%x: !x, %v: !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 3, s + 2], f32> {
  %0 = sdx.pad %x with %v low ["1", "2"] : (!x, !sdx.tensor<[], f32>) -> !sdx.tensor<[b + 3, s + 2], f32>
  return %0 : !sdx.tensor<[b + 3, s + 2], f32>
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s, 4], f32>
!y = !sdx.tensor<[b, 5, 4], f32>

func.func @concat(%x: !x, %y: !y) -> (!sdx.tensor<[b, s + 5, 4], f32>, !sdx.tensor<[b, s, 8], f32>, !sdx.tensor<[2*b, s, 4], f32>) {
  %0 = sdx.concat (%x, %y) axis 1 : (!x, !y) -> !sdx.tensor<[b, s + 5, 4], f32>
  %n = sdx.map "neg"(%x) : (!x) -> !x
  %1 = sdx.concat (%x, %n) axis 2 : (!x, !x) -> !sdx.tensor<[b, s, 8], f32>
  %2 = sdx.concat (%n, %x) axis 0 : (!x, !x) -> !sdx.tensor<[2*b, s, 4], f32>
  return %0, %1, %2 : !sdx.tensor<[b, s + 5, 4], f32>, !sdx.tensor<[b, s, 8], f32>, !sdx.tensor<[2*b, s, 4], f32>
}
// -----
// The halves of a row are turned against one another, as rotary positions are applied.
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s, 12], f32>
!h = !sdx.tensor<[b, s, 6], f32>
!c = !sdx.tensor<[s, 12], f32>

func.func @rotary(%x: !x, %cos: !c, %sin: !c) -> !x {
  %0 = sdx.slice %x from ["0", "0", "0"] step [1, 1, 1] : !x -> !h
  %1 = sdx.slice %x from ["0", "0", "6"] step [1, 1, 1] : !x -> !h
  %2 = sdx.map "neg"(%1) : (!h) -> !h
  %3 = sdx.concat (%2, %0) axis 2 : (!h, !h) -> !x
  %4 = sdx.broadcast %cos to [1, 2] : !c -> !x
  %5 = sdx.broadcast %sin to [1, 2] : !c -> !x
  %6 = sdx.map "mul"(%x, %4) : (!x, !x) -> !x
  %7 = sdx.map "mul"(%3, %5) : (!x, !x) -> !x
  %8 = sdx.map "add"(%6, %7) : (!x, !x) -> !x
  return %8 : !x
}
// -----
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33
// INDEX i: 50
// INDEX j: 3

!i = !sdx.tensor<[b, s], i64>
!y = !sdx.tensor<[b, s, 20], f32>

func.func @embedding(%i: !i {sdx.name = "i"}, %j: !i {sdx.name = "j"}) -> !y {
  %words = sdx.param "words" : !sdx.tensor<[50, 20], f32>
  %kinds = sdx.param "kinds" : !sdx.tensor<[3, 20], f32>
  %0 = sdx.gather %words[%i] axis 0 : (!sdx.tensor<[50, 20], f32>, !i) -> !y
  %1 = sdx.gather %kinds[%j] axis 0 : (!sdx.tensor<[3, 20], f32>, !i) -> !y
  %2 = sdx.map "add"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}
// -----
// CALLS b s n: 2 3 4, 1 1 1, 0 4 2, 3 2 0, 2 33 9
// INDEX i: s

!x = !sdx.tensor<[b, s, 3], f32>

func.func @gather_inside(%x: !x, %i: !sdx.tensor<[n], i64> {sdx.name = "i"}) -> !sdx.tensor<[b, n, 3], f32> {
  %0 = sdx.gather %x[%i] axis 1 : (!x, !sdx.tensor<[n], i64>) -> !sdx.tensor<[b, n, 3], f32>
  return %0 : !sdx.tensor<[b, n, 3], f32>
}
// -----
// Windows: alone, under a reduction, and in a convolution, where nothing but the places in the operand is left of them.
// CALLS b s: 2 3, 1 1, 0 4, 3 0, 2 33

!x = !sdx.tensor<[b, s + 4, 3], f32>
!w = !sdx.tensor<[b, (s + 1) floordiv 2, 3, 2], f32>

func.func @windows(%x: !x, %k: !sdx.tensor<[5, 3, 2], f32>) -> (!w, !sdx.tensor<[b, (s + 1) floordiv 2, 3], f32>, !sdx.tensor<[b, 5, (s + 1) floordiv 2], f32>) {
  %0 = sdx.window %x axis 1 size "2" stride 2 dilation 3 : !x -> !w
  %1 = sdx.window %x axis 1 size "2" stride 2 dilation 3 : !x -> !w
  %2 = sdx.reduce "max" %1 axes [3] : !w -> !sdx.tensor<[b, (s + 1) floordiv 2, 3], f32>
  %3 = sdx.contract "bpci,oci->bop"(%1, %k) : (!w, !sdx.tensor<[5, 3, 2], f32>) -> !sdx.tensor<[b, 5, (s + 1) floordiv 2], f32>
  return %0, %2, %3 : !w, !sdx.tensor<[b, (s + 1) floordiv 2, 3], f32>, !sdx.tensor<[b, 5, (s + 1) floordiv 2], f32>
}

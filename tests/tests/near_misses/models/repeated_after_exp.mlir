// An exponential of each row meets a whole sequence: in one kernel it would be computed at every position.

!v = !onnx.value
!x = !sdx.tensor<[b, 1, 16], f32>
!y = !sdx.tensor<[b, s, 16], f32>

func.func @near(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%y, %0) opset 14 {} : (!y, !v) -> !v loc("/Add")
  return %1 : !v
}

func.func @good(%x: !y, %y: !y) -> !v {
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!y) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%y, %0) opset 14 {} : (!y, !v) -> !v loc("/Add")
  return %1 : !v
}

// What a chain passes through is an output as well: it must be in memory, so it is read from there.

!v = !onnx.value
!x = !sdx.tensor<[b, 16], f32>

func.func @near(%x: !x) -> (!v, !v) {
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%0, %x) opset 14 {} : (!v, !x) -> !v loc("/Add")
  return %0, %1 : !v, !v
}

func.func @good(%x: !x) -> !v {
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%0, %x) opset 14 {} : (!v, !x) -> !v loc("/Add")
  return %1 : !v
}

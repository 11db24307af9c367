// A product reads what the addition reads: to have it in one kernel would compute it twice.

!v = !onnx.value
!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 32], f32>

func.func @near(%x: !x) -> (!v, !v) {
  %w = sdx.param "w" : !w
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%0, %x) opset 14 {} : (!v, !x) -> !v loc("/Add")
  %2 = onnx.node "MatMul"(%0, %w) opset 13 {} : (!v, !w) -> !v loc("/MatMul")
  return %1, %2 : !v, !v
}

func.func @good(%x: !x) -> (!v, !v) {
  %w = sdx.param "w" : !w
  %0 = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v loc("/Exp")
  %1 = onnx.node "Add"(%0, %x) opset 14 {} : (!v, !x) -> !v loc("/Add")
  %2 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  return %1, %2 : !v, !v
}

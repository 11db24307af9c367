// Weights are stored in f16 and multiplied in f32: the conversion is a kernel of its own.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>
!h = !sdx.tensor<[4, 16], f16>

func.func @near(%x: !x) -> !v {
  %w = sdx.param "w" : !h
  %0 = onnx.node "Cast"(%w) opset 13 {to = 1 : i64} : (!h) -> !v loc("/Cast")
  %1 = onnx.node "MatMul"(%x, %0) opset 13 {} : (!x, !v) -> !v loc("/MatMul")
  return %1 : !v
}

func.func @good(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %1 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  return %1 : !v
}

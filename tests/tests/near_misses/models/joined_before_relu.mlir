// A product is put beside another input: what follows the joint reads one or the other.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>

func.func @near(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %1 = onnx.node "Concat"(%0, %x) opset 13 {axis = 1 : i64} : (!v, !x) -> !v loc("/Concat")
  %2 = onnx.node "Sigmoid"(%1) opset 13 {} : (!v) -> !v loc("/Sigmoid")
  return %2 : !v
}

func.func @good(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %2 = onnx.node "Sigmoid"(%0) opset 13 {} : (!v) -> !v loc("/Sigmoid")
  return %2 : !v
}

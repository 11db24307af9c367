// Squeeze and excite: a product is scaled by what another product makes of it. That one needs all of the first.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>
!u = !sdx.tensor<[16, 1], f32>

func.func @near(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %u = sdx.param "u" : !u
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %1 = onnx.node "MatMul"(%0, %u) opset 13 {} : (!v, !u) -> !v loc("/gate/MatMul")
  %2 = onnx.node "Sigmoid"(%1) opset 13 {} : (!v) -> !v loc("/gate/Sigmoid")
  %3 = onnx.node "Mul"(%0, %2) opset 14 {} : (!v, !v) -> !v loc("/Mul")
  return %3 : !v
}

func.func @good(%x: !x, %gate: !sdx.tensor<[b, 1], f32>) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %3 = onnx.node "Mul"(%0, %gate) opset 14 {} : (!v, !sdx.tensor<[b, 1], f32>) -> !v loc("/Mul")
  return %3 : !v
}

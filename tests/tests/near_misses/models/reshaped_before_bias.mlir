// A product is split into heads before its bias is added: the addition walks other dimensions.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>

func.func @near(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %bias = sdx.param "bias" : !sdx.tensor<[8], f32>
  %heads = sdx.const dense<[0, 2, 8]> : tensor<3xi64> : !sdx.tensor<[3], i64>
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %1 = onnx.node "Reshape"(%0, %heads) opset 14 {} : (!v, !sdx.tensor<[3], i64>) -> !v loc("/Reshape")
  %2 = onnx.node "Add"(%1, %bias) opset 14 {} : (!v, !sdx.tensor<[8], f32>) -> !v loc("/Add")
  return %2 : !v
}

func.func @good(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %bias = sdx.param "bias" : !sdx.tensor<[16], f32>
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %2 = onnx.node "Add"(%0, %bias) opset 14 {} : (!v, !sdx.tensor<[16], f32>) -> !v loc("/Add")
  return %2 : !v
}

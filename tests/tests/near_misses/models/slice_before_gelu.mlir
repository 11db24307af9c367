// Half of a product goes on: the slice stands between the sums and what follows them.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>

func.func @near(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %starts = sdx.const dense<8> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %ends = sdx.const dense<16> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %axes = sdx.const dense<1> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %1 = onnx.node "Slice"(%0, %starts, %ends, %axes) opset 13 {} : (!v, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v loc("/Slice")
  %2 = onnx.node "Gelu"(%1) opset 20 {} : (!v) -> !v loc("/Gelu")
  return %2 : !v
}

func.func @good(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %2 = onnx.node "Gelu"(%0) opset 20 {} : (!v) -> !v loc("/Gelu")
  return %2 : !v
}

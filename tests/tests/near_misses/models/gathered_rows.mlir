// Rows of a product are picked by an input: where they are is not known before the call.

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>
!i = !sdx.tensor<[n], i64>

func.func @near(%x: !x, %rows: !i) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %1 = onnx.node "Gather"(%0, %rows) opset 13 {axis = 0 : i64} : (!v, !i) -> !v loc("/Gather")
  %2 = onnx.node "Relu"(%1) opset 14 {} : (!v) -> !v loc("/Relu")
  return %2 : !v
}

func.func @good(%x: !x) -> !v {
  %w = sdx.param "w" : !w
  %0 = onnx.node "MatMul"(%x, %w) opset 13 {} : (!x, !w) -> !v loc("/MatMul")
  %2 = onnx.node "Relu"(%0) opset 14 {} : (!v) -> !v loc("/Relu")
  return %2 : !v
}

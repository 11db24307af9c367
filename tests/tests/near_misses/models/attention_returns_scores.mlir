// The scores are an output as well: they are in memory whatever is made of them.

!v = !onnx.value
!q = !sdx.tensor<[b, 4, s, 8], f32>
!k = !sdx.tensor<[b, 4, t, 8], f32>

func.func @near(%q: !q, %k: !k, %v: !k) -> (!v, !v) {
  %c = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = onnx.node "Transpose"(%k) opset 13 {perm = [0, 1, 3, 2]} : (!k) -> !v loc("/Transpose")
  %1 = onnx.node "MatMul"(%q, %0) opset 13 {} : (!q, !v) -> !v loc("/scores")
  %2 = onnx.node "Mul"(%1, %c) opset 14 {} : (!v, !sdx.tensor<[], f32>) -> !v loc("/scale")
  %3 = onnx.node "Softmax"(%2) opset 13 {axis = -1 : i64} : (!v) -> !v loc("/Softmax")
  %4 = onnx.node "MatMul"(%3, %v) opset 13 {} : (!v, !k) -> !v loc("/sum")
  return %4, %2 : !v, !v
}

func.func @good(%q: !q, %k: !k, %v: !k) -> !v {
  %c = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = onnx.node "Transpose"(%k) opset 13 {perm = [0, 1, 3, 2]} : (!k) -> !v loc("/Transpose")
  %1 = onnx.node "MatMul"(%q, %0) opset 13 {} : (!q, !v) -> !v loc("/scores")
  %2 = onnx.node "Mul"(%1, %c) opset 14 {} : (!v, !sdx.tensor<[], f32>) -> !v loc("/scale")
  %3 = onnx.node "Softmax"(%2) opset 13 {axis = -1 : i64} : (!v) -> !v loc("/Softmax")
  %4 = onnx.node "MatMul"(%3, %v) opset 13 {} : (!v, !k) -> !v loc("/sum")
  return %4 : !v
}

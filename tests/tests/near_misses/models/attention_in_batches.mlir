// The softmax sees heads and batches as one dimension, as in models that once used batched products.

!v = !onnx.value
!q = !sdx.tensor<[b, 4, 16, 8], f32>
!k = !sdx.tensor<[b, 4, 16, 8], f32>

func.func @near(%q: !q, %k: !k, %v: !k) -> !v {
  %flat = sdx.const dense<[-1, 16, 16]> : tensor<3xi64> : !sdx.tensor<[3], i64>
  %deep = sdx.const dense<[-1, 4, 16, 16]> : tensor<4xi64> : !sdx.tensor<[4], i64>
  %c = sdx.const dense<0.5> : tensor<f32> : !sdx.tensor<[], f32>
  %0 = onnx.node "Transpose"(%k) opset 13 {perm = [0, 1, 3, 2]} : (!k) -> !v loc("/Transpose")
  %1 = onnx.node "MatMul"(%q, %0) opset 13 {} : (!q, !v) -> !v loc("/scores")
  %2 = onnx.node "Mul"(%1, %c) opset 14 {} : (!v, !sdx.tensor<[], f32>) -> !v loc("/scale")
  %5 = onnx.node "Reshape"(%2, %flat) opset 14 {} : (!v, !sdx.tensor<[3], i64>) -> !v loc("/flatten")
  %3 = onnx.node "Softmax"(%5) opset 13 {axis = -1 : i64} : (!v) -> !v loc("/Softmax")
  %6 = onnx.node "Reshape"(%3, %deep) opset 14 {} : (!v, !sdx.tensor<[4], i64>) -> !v loc("/unflatten")
  %4 = onnx.node "MatMul"(%6, %v) opset 13 {} : (!v, !k) -> !v loc("/sum")
  return %4 : !v
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

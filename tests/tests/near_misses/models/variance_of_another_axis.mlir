// Layer normalisation, but for the axis of the variance: its rows are not those of the mean.

!v = !onnx.value
!x = !sdx.tensor<[b, 4, 16], f32>

func.func @near(%x: !x) -> !v {
  %0 = onnx.node "ReduceMean"(%x) opset 13 {axes = [2], keepdims = 1 : i64} : (!x) -> !v loc("/mean")
  %1 = onnx.node "Sub"(%x, %0) opset 14 {} : (!x, !v) -> !v loc("/Sub")
  %2 = onnx.node "Mul"(%1, %1) opset 14 {} : (!v, !v) -> !v loc("/square")
  %3 = onnx.node "ReduceMean"(%2) opset 13 {axes = [1], keepdims = 1 : i64} : (!v) -> !v loc("/variance")
  %4 = onnx.node "Sqrt"(%3) opset 13 {} : (!v) -> !v loc("/Sqrt")
  %5 = onnx.node "Div"(%1, %4) opset 14 {} : (!v, !v) -> !v loc("/Div")
  return %5 : !v
}

func.func @good(%x: !x) -> !v {
  %0 = onnx.node "ReduceMean"(%x) opset 13 {axes = [2], keepdims = 1 : i64} : (!x) -> !v loc("/mean")
  %1 = onnx.node "Sub"(%x, %0) opset 14 {} : (!x, !v) -> !v loc("/Sub")
  %2 = onnx.node "Mul"(%1, %1) opset 14 {} : (!v, !v) -> !v loc("/square")
  %3 = onnx.node "ReduceMean"(%2) opset 13 {axes = [2], keepdims = 1 : i64} : (!v) -> !v loc("/variance")
  %4 = onnx.node "Sqrt"(%3) opset 13 {} : (!v) -> !v loc("/Sqrt")
  %5 = onnx.node "Div"(%1, %4) opset 14 {} : (!v, !v) -> !v loc("/Div")
  return %5 : !v
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// One scalar function each.

// CHECK-LABEL: func.func @unary
// CHECK: sdx.map "abs"
// CHECK: sdx.map "ceil"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "erf"
// CHECK: sdx.map "exp"
// CHECK: sdx.map "floor"
// CHECK: sdx.map "isnan"({{.*}}) : ({{.*}}) -> !sdx.tensor<[b, s], i1>
// CHECK: sdx.map "log"
// CHECK: sdx.map "neg"
// CHECK: sdx.map "round"
// CHECK: sdx.map "sign"
// CHECK: sdx.map "sin"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "tanh"
func.func @unary(%x: !x) -> (!v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v) {
  %abs = onnx.node "Abs"(%x) opset 13 {} : (!x) -> !v
  %ceil = onnx.node "Ceil"(%x) opset 13 {} : (!x) -> !v
  %cos = onnx.node "Cos"(%x) opset 13 {} : (!x) -> !v
  %erf = onnx.node "Erf"(%x) opset 13 {} : (!x) -> !v
  %exp = onnx.node "Exp"(%x) opset 13 {} : (!x) -> !v
  %floor = onnx.node "Floor"(%x) opset 13 {} : (!x) -> !v
  %isnan = onnx.node "IsNaN"(%x) opset 13 {} : (!x) -> !v
  %log = onnx.node "Log"(%x) opset 13 {} : (!x) -> !v
  %neg = onnx.node "Neg"(%x) opset 13 {} : (!x) -> !v
  %round = onnx.node "Round"(%x) opset 13 {} : (!x) -> !v
  %sign = onnx.node "Sign"(%x) opset 13 {} : (!x) -> !v
  %sin = onnx.node "Sin"(%x) opset 13 {} : (!x) -> !v
  %sqrt = onnx.node "Sqrt"(%x) opset 13 {} : (!x) -> !v
  %tanh = onnx.node "Tanh"(%x) opset 13 {} : (!x) -> !v
  return %abs, %ceil, %cos, %erf, %exp, %floor, %isnan, %log, %neg, %round, %sign, %sin, %sqrt, %tanh
    : !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// `Greater` is `Less` with swapped operands.

// CHECK-LABEL: func.func @binary
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: !sdx
// CHECK: sdx.map "add"(%[[X]], %[[Y]])
// CHECK: sdx.map "div"(%[[X]], %[[Y]])
// CHECK: sdx.map "eq"(%[[X]], %[[Y]]) : ({{.*}}) -> !sdx.tensor<[b, s], i1>
// CHECK: sdx.map "lt"(%[[Y]], %[[X]])
// CHECK: sdx.map "le"(%[[Y]], %[[X]])
// CHECK: sdx.map "lt"(%[[X]], %[[Y]])
// CHECK: sdx.map "le"(%[[X]], %[[Y]])
// CHECK: sdx.map "mul"(%[[X]], %[[Y]])
// CHECK: sdx.map "pow"(%[[X]], %[[Y]])
// CHECK: sdx.map "sub"(%[[X]], %[[Y]])
func.func @binary(%x: !x, %y: !x) -> (!v, !v, !v, !v, !v, !v, !v, !v, !v, !v) {
  %add = onnx.node "Add"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %div = onnx.node "Div"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %eq = onnx.node "Equal"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %gt = onnx.node "Greater"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %ge = onnx.node "GreaterOrEqual"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %lt = onnx.node "Less"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %le = onnx.node "LessOrEqual"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %mul = onnx.node "Mul"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %pow = onnx.node "Pow"(%x, %y) opset 14 {} : (!x, !x) -> !v
  %sub = onnx.node "Sub"(%x, %y) opset 14 {} : (!x, !x) -> !v
  return %add, %div, %eq, %gt, %ge, %lt, %le, %mul, %pow, %sub : !v, !v, !v, !v, !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!c = !sdx.tensor<[b], i1>

// CHECK-LABEL: func.func @logic
// CHECK: sdx.map "and"
// CHECK: sdx.map "or"
// CHECK: sdx.map "xor"
// CHECK: sdx.map "not"
func.func @logic(%x: !c, %y: !c) -> (!v, !v, !v, !v) {
  %and = onnx.node "And"(%x, %y) opset 7 {} : (!c, !c) -> !v
  %or = onnx.node "Or"(%x, %y) opset 7 {} : (!c, !c) -> !v
  %xor = onnx.node "Xor"(%x, %y) opset 7 {} : (!c, !c) -> !v
  %not = onnx.node "Not"(%x) opset 7 {} : (!c) -> !v
  return %and, %or, %xor, %not : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 1, s], f32>
!y = !sdx.tensor<[h, 1], f32>

// Operands are aligned at the end and broadcast in both directions.

// CHECK-LABEL: func.func @broadcast
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: !sdx
// CHECK: %[[A:.*]] = sdx.broadcast %[[X]] to [0, 1, 2] : <[b, 1, s], f32> -> <[b, h, s], f32>
// CHECK: %[[B:.*]] = sdx.broadcast %[[Y]] to [1, 2] : <[h, 1], f32> -> <[b, h, s], f32>
// CHECK: sdx.map "add"(%[[A]], %[[B]])
func.func @broadcast(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "Add"(%x, %y) opset 14 {} : (!x, !y) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// From left to right; a mean is divided by the number of operands.

// CHECK-LABEL: func.func @variadic
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[Y:[^:]*]]: !sdx.tensor<[b], f32> {{.*}}, %[[Z:[^:]*]]: !sdx
// CHECK: %[[XY:.*]] = sdx.map "max"(%[[X]], %[[Y]])
// CHECK: sdx.map "max"(%[[XY]], %[[Z]])
// CHECK: sdx.map "min"
// CHECK: %[[S2:.*]] = sdx.map "add"
// CHECK: %[[S3:.*]] = sdx.map "add"(%[[S2]], %[[Z]])
// CHECK: %[[M2:.*]] = sdx.map "add"
// CHECK: %[[M3:.*]] = sdx.map "add"(%[[M2]], %[[Z]])
// CHECK: sdx.const dense<3.000000e+00>
// CHECK: %[[THREE:.*]] = sdx.broadcast
// CHECK: %[[MEAN:.*]] = sdx.map "div"(%[[M3]], %[[THREE]])
// CHECK: return %{{.*}}, %{{.*}}, %[[S3]], %[[MEAN]], %[[X]]
func.func @variadic(%x: !x, %y: !x, %z: !x) -> (!v, !v, !v, !v, !v) {
  %max = onnx.node "Max"(%x, %y, %z) opset 13 {} : (!x, !x, !x) -> !v
  %min = onnx.node "Min"(%x, %y) opset 13 {} : (!x, !x) -> !v
  %sum = onnx.node "Sum"(%x, %y, %z) opset 13 {} : (!x, !x, !x) -> !v
  %mean = onnx.node "Mean"(%x, %y, %z) opset 13 {} : (!x, !x, !x) -> !v
  %one = onnx.node "Sum"(%x) opset 13 {} : (!x) -> !v
  return %max, %min, %sum, %mean, %one : !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// The exponent takes the type of the base.

// CHECK-LABEL: func.func @pow_types
// CHECK: %[[Y:.*]] = sdx.convert %{{.*}} : <[b], i64> -> <[b], f32>
// CHECK: sdx.map "pow"(%{{.*}}, %[[Y]])
func.func @pow_types(%x: !x, %y: !sdx.tensor<[b], i64>) -> !v {
  %0 = onnx.node "Pow"(%x, %y) opset 13 {} : (!x, !sdx.tensor<[b], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @cast
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[I:.*]] = sdx.convert %[[X]] : <[b], f32> -> <[b], i64>
// CHECK: %[[H:.*]] = sdx.convert %[[X]] : <[b], f32> -> <[b], f16>
// CHECK: return %[[I]], %[[H]], %[[X]], %[[X]], %[[X]]
func.func @cast(%x: !x) -> (!v, !v, !v, !v, !v) {
  %i = onnx.node "Cast"(%x) opset 13 {to = 7 : i64} : (!x) -> !v
  %h = onnx.node "Cast"(%x) opset 13 {to = 10 : i64} : (!x) -> !v
  %same = onnx.node "Cast"(%x) opset 13 {to = 1 : i64} : (!x) -> !v
  %identity = onnx.node "Identity"(%x) opset 13 {} : (!x) -> !v
  %dropout = onnx.node "Dropout"(%x) opset 13 {} : (!x) -> !v
  return %i, %h, %same, %identity, %dropout : !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @where
// CHECK: %[[C:.*]] = sdx.broadcast %{{.*}} to [1] : <[s], i1> -> <[b, s], i1>
// CHECK: %[[Y:.*]] = sdx.broadcast %{{.*}} to [] : <[], f32> -> <[b, s], f32>
// CHECK: sdx.map "select"(%[[C]], %{{.*}}, %[[Y]])
func.func @where(%c: !sdx.tensor<[s], i1>, %x: !x, %y: !sdx.tensor<[], f32>) -> !v {
  %0 = onnx.node "Where"(%c, %x, %y) opset 16 {} : (!sdx.tensor<[s], i1>, !x, !sdx.tensor<[], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @relu
// CHECK: %[[C:.*]] = sdx.const dense<0.000000e+00>
// CHECK: %[[ZERO:.*]] = sdx.broadcast %[[C]]
// CHECK: sdx.map "max"(%{{.*}}, %[[ZERO]])
func.func @relu(%x: !x) -> !v {
  %0 = onnx.node "Relu"(%x) opset 14 {} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// CHECK-LABEL: func.func @leaky_relu
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: sdx.const dense<2.500000e-01>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[X]]
// CHECK: sdx.const dense<0.000000e+00>
// CHECK: %[[NEGATIVE:.*]] = sdx.map "lt"(%[[X]]
// CHECK: sdx.map "select"(%[[NEGATIVE]], %[[SCALED]], %[[X]])
func.func @leaky_relu(%x: !x) -> !v {
  %0 = onnx.node "LeakyRelu"(%x) opset 16 {alpha = 0.25 : f32} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// 1 / (1 + exp(-x)) and 1 / x

// CHECK-LABEL: func.func @sigmoid
// CHECK: %[[N:.*]] = sdx.map "neg"
// CHECK: %[[E:.*]] = sdx.map "exp"(%[[N]])
// CHECK: %[[S:.*]] = sdx.map "add"(%[[E]], %{{.*}})
// CHECK: sdx.map "div"(%{{.*}}, %[[S]])
// CHECK: sdx.const dense<1.000000e+00>
// CHECK: sdx.map "div"(%{{.*}}, %arg0)
func.func @sigmoid(%x: !x) -> (!v, !v) {
  %0 = onnx.node "Sigmoid"(%x) opset 13 {} : (!x) -> !v
  %1 = onnx.node "Reciprocal"(%x) opset 13 {} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// 0.5 x (1 + erf(x / sqrt 2))

// CHECK-LABEL: func.func @gelu
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: sdx.const dense<0.707106769>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[X]]
// CHECK: %[[ERF:.*]] = sdx.map "erf"(%[[SCALED]])
// CHECK: sdx.const dense<1.000000e+00>
// CHECK: %[[SUM:.*]] = sdx.map "add"(%[[ERF]]
// CHECK: sdx.const dense<5.000000e-01>
// CHECK: %[[HALF:.*]] = sdx.map "mul"(%[[X]]
// CHECK: sdx.map "mul"(%[[HALF]], %[[SUM]])
func.func @gelu(%x: !x) -> !v {
  %0 = onnx.node "Gelu"(%x) opset 20 {} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))

// CHECK-LABEL: func.func @gelu_tanh
// CHECK-SAME: (%[[X:.*]]: !sdx
// CHECK: %[[SQUARE:.*]] = sdx.map "mul"(%[[X]], %[[X]])
// CHECK: %[[CUBE:.*]] = sdx.map "mul"(%[[SQUARE]], %[[X]])
// CHECK: sdx.const dense<4.471500e-02>
// CHECK: %[[SMALL:.*]] = sdx.map "mul"(%[[CUBE]]
// CHECK: %[[SUM:.*]] = sdx.map "add"(%[[X]], %[[SMALL]])
// CHECK: sdx.const dense<0.797884583>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[SUM]]
// CHECK: sdx.map "tanh"(%[[SCALED]])
func.func @gelu_tanh(%x: !x) -> !v {
  %0 = onnx.node "Gelu"(%x) opset 20 {approximate = "tanh"} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b], f32>
!s = !sdx.tensor<[], f32>

// Bounds are operands, either of which may be absent; before opset 11 they are attributes.

// CHECK-LABEL: func.func @clip
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[LO:[^:]*]]: !sdx
// CHECK: %[[B:.*]] = sdx.broadcast %[[LO]]
// CHECK: %[[LOWER:.*]] = sdx.map "max"(%[[X]], %[[B]])
// CHECK: %[[UPPER:.*]] = sdx.map "min"(%[[X]],
// CHECK: sdx.const dense<-1.000000e+00>
// CHECK: %[[MAX:.*]] = sdx.map "max"(%[[X]],
// CHECK: sdx.const dense<1.000000e+00>
// CHECK: %[[BOTH:.*]] = sdx.map "min"(%[[MAX]],
// CHECK: return %[[LOWER]], %[[UPPER]], %[[BOTH]]
func.func @clip(%x: !x, %lo: !s) -> (!v, !v, !v) {
  %none = onnx.none : !v
  %0 = onnx.node "Clip"(%x, %lo) opset 13 {} : (!x, !s) -> !v
  %1 = onnx.node "Clip"(%x, %none, %lo) opset 13 {} : (!x, !v, !s) -> !v
  %2 = onnx.node "Clip"(%x) opset 7 {min = -1.0 : f32, max = 1.0 : f32} : (!x) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>
!c = !sdx.tensor<[4], f32>

// com.microsoft: gelu(x + bias), exactly or by tanh; the bias may be absent.

// CHECK-LABEL: func.func @bias_gelu
// CHECK: %[[SUM:.*]] = sdx.map "add"(%arg0,
// CHECK: sdx.map "mul"(%[[SUM]],
// CHECK: sdx.map "erf"
// CHECK: sdx.map "add"(%arg0,
// CHECK: sdx.map "tanh"
// CHECK: sdx.map "mul"(%arg0,
// CHECK: sdx.map "erf"
func.func @bias_gelu(%x: !x, %c: !c) -> (!v, !v, !v) {
  %0 = onnx.node "BiasGelu"(%x, %c) opset 1 domain "com.microsoft" {} : (!x, !c) -> !v
  %1 = onnx.node "FastGelu"(%x, %c) opset 1 domain "com.microsoft" {} : (!x, !c) -> !v
  %2 = onnx.node "Gelu"(%x) opset 1 domain "com.microsoft" {} : (!x) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n], f32>

// CHECK-LABEL: func.func @infinities
// CHECK: sdx.map "abs"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "neg"
// CHECK: sdx.map "eq"
func.func @infinities(%x: !x) -> (!v, !v) {
  %both = onnx.node "IsInf"(%x) opset 20 {} : (!x) -> !v
  %below = onnx.node "IsInf"(%x) opset 20 {detect_positive = 0 : i64} : (!x) -> !v
  return %both, %below : !v, !v
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// One number per feature.

// CHECK-LABEL: func.func @scaled
// CHECK: sdx.const dense<[1.000000e+00, 2.000000e+00]>
// CHECK: sdx.map "sub"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "lt"
// CHECK: sdx.reduce "max"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.map "div"
// CHECK: sdx.map "isnan"
// CHECK: sdx.map "select"
func.func @scaled(%x: !sdx.tensor<[b, 2], f32>) -> (!v, !v, !v, !v) {
  %0 = onnx.node "Scaler"(%x) opset 1 domain "ai.onnx.ml" {offset = [1.0 : f32, 2.0 : f32], scale = [0.5 : f32]}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  %1 = onnx.node "Binarizer"(%x) opset 1 domain "ai.onnx.ml" {threshold = 1.0 : f32}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  %2 = onnx.node "Normalizer"(%x) opset 1 domain "ai.onnx.ml" {norm = "MAX"} : (!sdx.tensor<[b, 2], f32>) -> !v
  %3 = onnx.node "Imputer"(%x) opset 1 domain "ai.onnx.ml" {imputed_value_floats = [1.0 : f32], replaced_value_float = 0x7FC00000 : f32}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value

// Features by index, side by side, and one column per category.

// CHECK-LABEL: func.func @columns
// CHECK: sdx.gather
// CHECK: sdx.slice
// CHECK: sdx.pad
// CHECK: sdx.concat
// CHECK: sdx.const dense<[3, 5]>
// CHECK: sdx.map "eq"
// CHECK: sdx.convert
func.func @columns(%x: !sdx.tensor<[b, 4], f32>, %i: !sdx.tensor<[n], i64>, %y: !sdx.tensor<[b, 3], i64>) -> (!v, !v, !v) {
  %0 = onnx.node "ArrayFeatureExtractor"(%x, %i) opset 1 domain "ai.onnx.ml" {}
    : (!sdx.tensor<[b, 4], f32>, !sdx.tensor<[n], i64>) -> !v
  %1 = onnx.node "FeatureVectorizer"(%x, %y) opset 1 domain "ai.onnx.ml" {inputdimensions = [2, 5]}
    : (!sdx.tensor<[b, 4], f32>, !sdx.tensor<[b, 3], i64>) -> !v
  %2 = onnx.node "OneHotEncoder"(%i) opset 1 domain "ai.onnx.ml" {cats_int64s = [3, 5]}
    : (!sdx.tensor<[n], i64>) -> !v
  return %0, %1, %2 : !v, !v, !v
}

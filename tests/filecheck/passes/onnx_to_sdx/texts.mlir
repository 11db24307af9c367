// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!s = !sdx.tensor<[n], !sdx.string>

// CHECK-LABEL: func.func @strings
// CHECK: sdx.host "StringConcat"
// CHECK: sdx.host "StringSplit limit=-1"(%{{.*}}) result 0 of {{.*}} binds ["1 data0"]
// CHECK: sdx.host "StringSplit limit=-1"(%{{.*}}) result 1
// CHECK: sdx.host "StringNormalizer case=1 sensitive=0"
// CHECK: sdx.host "RegexFullMatch"
// CHECK: sdx.host "StringEqual"
func.func @strings(%x: !s, %y: !s) -> (!v, !v, !v, !v, !v, !v) {
  %0 = onnx.node "StringConcat"(%x, %y) opset 20 {} : (!s, !s) -> !v
  %1:2 = onnx.node "StringSplit"(%x) opset 20 {delimiter = ","} : (!s) -> (!v, !v)
  %2 = onnx.node "StringNormalizer"(%x) opset 10 {case_change_action = "LOWER", stopwords = ["a"]} : (!s) -> !v
  %3 = onnx.node "RegexFullMatch"(%x) opset 20 {pattern = "a+"} : (!s) -> !v
  %4 = onnx.node "Equal"(%x, %y) opset 19 {} : (!s, !s) -> !v
  return %0, %1#0, %1#1, %2, %3, %4 : !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!s = !sdx.tensor<[n], !sdx.string>
!i = !sdx.tensor<[n], i64>

// Strings are looked up by the host, numbers by a kernel; a kernel fetches the values where they are numbers.

// CHECK-LABEL: func.func @labels
// CHECK: %[[P:.*]] = sdx.host "LookUp"
// CHECK: sdx.gather %{{.*}}[%[[P]]] axis 0
// CHECK: sdx.reduce "min"
// CHECK: sdx.host "Pick"
func.func @labels(%x: !s, %y: !i) -> (!v, !v) {
  %0 = onnx.node "LabelEncoder"(%x) opset 4 domain "ai.onnx.ml" {keys_strings = ["a", "b"], values_int64s = [1, 2]} : (!s) -> !v
  %1 = onnx.node "LabelEncoder"(%y) opset 4 domain "ai.onnx.ml" {keys_int64s = [1, 2], values_strings = ["a", "b"]} : (!i) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!i = !sdx.tensor<[n, 6], i32>
!u = !sdx.tensor<[n], ui8>

// CHECK-LABEL: func.func @counts
// CHECK: sdx.host "TfIdf least=1 most=2 skip=1 weighing=0"({{.*}}) -> !sdx.tensor<[n, 3], f32>
// CHECK: sdx.host "ImageDecoder pixels=2"({{.*}}) result 0 of {{.*}} binds ["0 data0", "1 data1"] {{.*}} -> !sdx.tensor<[data0, data1, 1], ui8>
func.func @counts(%x: !i, %y: !u) -> (!v, !v) {
  %0 = onnx.node "TfIdfVectorizer"(%x) opset 9 {min_gram_length = 1 : i64, max_gram_length = 2 : i64, max_skip_count = 1 : i64, mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 1, 2], pool_int64s = [2, 3, 5, 4]} : (!i) -> !v
  %1 = onnx.node "ImageDecoder"(%y) opset 20 {pixel_format = "Grayscale"} : (!u) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!s = !sdx.tensor<[n], !sdx.string>

// CHECK-LABEL: func.func @categories
// CHECK: sdx.host "LookUp"
// CHECK: sdx.gather
func.func @categories(%x: !s) -> !v {
  %0 = onnx.node "CategoryMapper"(%x) opset 1 domain "ai.onnx.ml" {cats_strings = ["a", "b"], cats_int64s = [5, 6], default_int64 = 0 : i64} : (!s) -> !v
  return %0 : !v
}

// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>
!i = !sdx.tensor<[], i64>

// What is known to be in a sequence is taken out of it when compiling.

// CHECK-LABEL: func.func @known
// CHECK-SAME: %[[X:[^:]*]]: {{.*}}"x"}, %[[Y:[^:]*]]: {{.*}}"y"}
// CHECK-NOT: sdx.host
// CHECK: %[[ALL:.*]] = sdx.concat(%[[Y]], %[[X]]) axis 0
// CHECK: return %[[Y]], %[[ALL]]
func.func @known(%x: !x {sdx.name = "x"}, %y: !x {sdx.name = "y"}) -> (!v, !v) {
  %one = sdx.const dense<1> : tensor<i64> : !i
  %zero = sdx.const dense<0> : tensor<i64> : !i
  %e = onnx.node "SequenceEmpty"() opset 11 {} : () -> !v
  %s0 = onnx.node "SequenceInsert"(%e, %x) opset 11 {} : (!v, !x) -> !v
  %s1 = onnx.node "SequenceInsert"(%s0, %y, %zero) opset 11 {} : (!v, !x, !i) -> !v
  %t = onnx.node "SequenceConstruct"(%x, %y, %x) opset 11 {} : (!x, !x, !x) -> !v
  %u = onnx.node "SequenceErase"(%t, %zero) opset 11 {} : (!v, !i) -> !v
  %n = onnx.node "SequenceLength"(%u) opset 11 {} : (!v) -> !v
  %p = onnx.node "Sub"(%n, %one) opset 13 {} : (!v, !i) -> !v
  %0 = onnx.node "SequenceAt"(%u, %zero) opset 11 {} : (!v, !i) -> !v
  %1 = onnx.node "ConcatFromSequence"(%s1) opset 11 {axis = 0 : i64} : (!v) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>
!i = !sdx.tensor<[], i64>

// What is not known the host takes, and says how large it is.

// CHECK-LABEL: func.func @unknown
// CHECK: %[[S:.*]] = sdx.host "SplitToSequence axis=0 keep=1"(%{{.*}}, %{{.*}}) result 0 {{.*}} -> !sdx.tensor<[], !sdx.value>
// CHECK: sdx.host "SequenceAt"(%[[S]], %{{.*}}) result 0 of {{.*}} binds ["0 data0", "1 data1"] {{.*}} -> !sdx.tensor<[data0, data1], f32>
// CHECK: sdx.host "SequenceLength"(%[[S]])
func.func @unknown(%x: !x, %i: !i) -> (!v, !v) {
  %s = onnx.node "SplitToSequence"(%x, %i) opset 11 {} : (!x, !i) -> !v
  %0 = onnx.node "SequenceAt"(%s, %i) opset 11 {} : (!v, !i) -> !v
  %1 = onnx.node "SequenceLength"(%s) opset 11 {} : (!v) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>

// CHECK-LABEL: func.func @optional
// CHECK-SAME: %[[X:[^:]*]]: {{.*}}"x"}
// CHECK: %[[IS:.*]] = sdx.const dense<true>
// CHECK: return %[[IS]], %[[X]]
func.func @optional(%x: !x {sdx.name = "x"}) -> (!v, !v) {
  %o = onnx.node "Optional"(%x) opset 15 {} : (!x) -> !v
  %0 = onnx.node "OptionalHasElement"(%o) opset 18 {} : (!v) -> !v
  %1 = onnx.node "OptionalGetElement"(%o) opset 18 {} : (!v) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>

// CHECK-LABEL: func.func @map
// CHECK: sdx.host "SequenceConstruct"
// CHECK: sdx.host "SequenceInsert"
func.func @map(%x: !x) -> !v {
  %s = onnx.node "SequenceConstruct"(%x, %x) opset 11 {} : (!x, !x) -> !v
  %0 = onnx.node "SequenceMap"(%s) opset 17 {} : (!v) -> !v with ["body"] {
  ^bb0(%e: !v):
    %1 = onnx.node "Neg"(%e) opset 13 {} : (!v) -> !v
    onnx.yield %1 : !v
  }
  return %0 : !v
}

// -----

!v = !onnx.value

// The rows are as long as there are keys.

// CHECK-LABEL: func.func @zip_map
// CHECK: %[[KEYS:.*]] = sdx.const
// CHECK: sdx.host "ZipMap"(%{{.*}}, %[[KEYS]])
func.func @zip_map(%x: !sdx.tensor<[n, k], f32>) -> !v {
  %0 = onnx.node "ZipMap"(%x) opset 1 domain "ai.onnx.ml" {classlabels_int64s = [3, 5]} : (!sdx.tensor<[n, k], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// CHECK-LABEL: func.func @dict_vectorizer
// CHECK: %[[WORDS:.*]] = sdx.const
// CHECK: sdx.host "DictVectorizer"(%{{.*}}, %[[WORDS]], %{{.*}}) {{.*}} !sdx.tensor<[1, 2], f32>
func.func @dict_vectorizer(%map: !sdx.tensor<[], !sdx.value>) -> !v attributes {onnx.held = ["map(f32:0)"]} {
  %0 = onnx.node "DictVectorizer"(%map) opset 1 domain "ai.onnx.ml" {int64_vocabulary = [7, 9]}
    : (!sdx.tensor<[], !sdx.value>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Keys are columns; a number in text becomes one.

// CHECK-LABEL: func.func @cast_map
// CHECK: sdx.host "DictVectorizer"{{.*}} !sdx.tensor<[1, 3], !sdx.string>
// CHECK: sdx.host "StringToNumbers
func.func @cast_map(%map: !sdx.tensor<[], !sdx.value>) -> !v attributes {onnx.held = ["map(string:0)"]} {
  %0 = onnx.node "CastMap"(%map) opset 1 domain "ai.onnx.ml" {map_form = "SPARSE", max_map = 3} : (!sdx.tensor<[], !sdx.value>) -> !v
  return %0 : !v
}

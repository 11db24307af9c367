// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// One level: a node's threshold, feature and children are gathered as one number, then the feature, and the children
// follow each other; then the leaves' weights.

// CHECK-LABEL: func.func @ensemble
// CHECK: %[[AT:.*]] = sdx.broadcast {{.*}} -> <[b, 1], i64>
// CHECK: %[[NODE:.*]] = sdx.gather %{{.*}}[%[[AT]]] axis 0
// CHECK: %[[LOW:.*]] = sdx.convert %[[NODE]] : {{.*}} -> <[b, 1], i32>
// CHECK: %[[THRESHOLD:.*]] = sdx.convert %[[LOW]] {bits}
// CHECK: sdx.map "shr"
// CHECK: sdx.map "bitand"
// CHECK: %[[CHILD:.*]] = sdx.map "shr"
// CHECK: %[[INNER:.*]] = sdx.map "bitand"
// CHECK: %[[NEXT:.*]] = sdx.map "add"(%[[CHILD]], %[[INNER]])
// CHECK: %[[X:.*]] = sdx.gather
// CHECK: %[[HOLDS:.*]] = sdx.map "le"(%[[X]], %[[THRESHOLD]])
// CHECK: sdx.map "select"(%[[HOLDS]], %[[CHILD]], %[[NEXT]])
// CHECK: dense<{{\[\[}}0.000000e+00, 0.000000e+00], [1.000000e+00, 0.000000e+00], [0.000000e+00, 2.000000e+00]]>
// CHECK: sdx.gather
// CHECK: sdx.reduce "add" %{{.*}} axes [1]
func.func @ensemble(%x: !sdx.tensor<[b, 2], f32>) -> !v {
  %0 = onnx.node "TreeEnsemble"(%x) opset 5 domain "ai.onnx.ml" {tree_roots = [0], n_targets = 2 : i64, nodes_featureids = [0], nodes_splits = dense<0.5> : tensor<1xf32>, nodes_modes = dense<0> : tensor<1xui8>, nodes_truenodeids = [0], nodes_falsenodeids = [1], nodes_trueleafs = [1], nodes_falseleafs = [1], leaf_targetids = [0, 1], leaf_weights = dense<[1.0, 2.0]> : tensor<2xf32>}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A node of two trees can follow only one parent: thresholds, features and both children are tables of their own.

// CHECK-LABEL: func.func @shared
// CHECK: sdx.gather
// CHECK: sdx.gather
// CHECK: sdx.map "le"
// CHECK: sdx.gather
// CHECK: sdx.gather
// CHECK: sdx.map "select"
func.func @shared(%x: !sdx.tensor<[b, 2], f32>) -> !v {
  %0 = onnx.node "TreeEnsemble"(%x) opset 5 domain "ai.onnx.ml" {tree_roots = [0, 0], n_targets = 2 : i64, nodes_featureids = [0], nodes_splits = dense<0.5> : tensor<1xf32>, nodes_modes = dense<0> : tensor<1xui8>, nodes_truenodeids = [0], nodes_falsenodeids = [1], nodes_trueleafs = [1], nodes_falseleafs = [1], leaf_targetids = [0, 1], leaf_weights = dense<[1.0, 2.0]> : tensor<2xf32>}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Nodes that are named by tree and number; where all leaves vote for one class, the other has the rest.

// CHECK-LABEL: func.func @named
// CHECK: sdx.map "le"
// CHECK: sdx.reduce "max"
// CHECK: sdx.concat
// CHECK: sdx.const dense<[4, 5]>
func.func @named(%x: !sdx.tensor<[b, 2], f32>) -> (!v, !v, !v) {
  %0 = onnx.node "TreeEnsembleRegressor"(%x) opset 3 domain "ai.onnx.ml" {nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_values = [0.5 : f32, 0.0 : f32, 0.0 : f32], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], n_targets = 1 : i64, aggregate_function = "MAX", target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0], target_weights = [1.0 : f32, 2.0 : f32]}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  %1:2 = onnx.node "TreeEnsembleClassifier"(%x) opset 3 domain "ai.onnx.ml" {nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_values = [0.5 : f32, 0.0 : f32, 0.0 : f32], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0], nodes_falsenodeids = [2, 0, 0], classlabels_int64s = [4, 5], class_treeids = [0, 0], class_nodeids = [1, 2], class_ids = [0, 0], class_weights = [0.25 : f32, 0.75 : f32]}
    : (!sdx.tensor<[b, 2], f32>) -> (!v, !v)
  return %0, %1#0, %1#1 : !v, !v, !v
}

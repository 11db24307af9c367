// onnx: what the file said. One operation per node; the operator is data, so that the table of operators (in
// `passes`) is the only place that lists them.
#ifndef SARDONYX_ONNX
#define SARDONYX_ONNX
include "Base.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::sardonyx::onnx";
  let summary = "What the model file said: one operation per node, opset resolved";
  let useDefaultTypePrinterParser = 1;
}
def Onnx_Value : TypeDef<Onnx_Dialect, "Value"> {
  let mnemonic = "value";
  let summary = "The type of a node's result before inference";
}
def Onnx_Node : Op<Onnx_Dialect, "node", [RustVerified]> {
  let summary = "One node of the model";
  let description = [{
    `%y = onnx.node "Gemm"(%a, %b) opset 13 {transB = 1 : i64} : (…) -> !onnx.value`. Attributes keep ONNX's names:
    integers are i64, floats f32, strings strings, lists arrays of these, tensors elements attributes.
    The domain is the attribute `domain` of `opset`, absent for ai.onnx. Attributes that are graphs are regions of one
    block, named by `with`; they use values of the graphs around them. `places` ["in 1 0 2 1 32"] is what
    the ranks along axis 0 of a mesh are to have: of input 1 dimension 2, one run of units of 32; "out 0 0" is all. `rank` is what the file declares of the first
    output, where the length of an operand would decide it.
  }];
  let arguments = (ins StrAttr:$op_type, I64Attr:$opset, OptionalAttr<StrAttr>:$op_domain,
                       DictionaryAttr:$node_attributes, OptionalAttr<StrArrayAttr>:$body_names,
                       OptionalAttr<I64Attr>:$rank,
                       OptionalAttr<StrArrayAttr>:$places,
                       Variadic<AnyType>:$args);
  let results = (outs Variadic<AnyType>:$outs);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let assemblyFormat = [{
    $op_type `(` $args `)` `opset` $opset (`domain` $op_domain^)? $node_attributes (`rank` $rank^)? (`places` $places^)? attr-dict `:` functional-type($args, $outs)
    (`with` $body_names^ $bodies)?
  }];
}
def Onnx_Yield : Op<Onnx_Dialect, "yield", [Terminator]> {
  let summary = "The outputs of a graph that is an attribute";
  let arguments = (ins Variadic<AnyType>:$args);
  let assemblyFormat = "($args^ `:` type($args))? attr-dict";
}
def Onnx_None : Op<Onnx_Dialect, "none", [Pure]> {
  let summary = "An optional input that is absent";
  let results = (outs Onnx_Value:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}
#endif

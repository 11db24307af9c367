// onnx: the model as its file describes it. One operation per node; the operator is an attribute, so that only the
// table of operators (in `passes`) lists them.
#ifndef SARDONYX_ONNX
#define SARDONYX_ONNX
include "Base.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::sardonyx::onnx";
  let summary = "The model as its file describes it: one operation per node, opset resolved";
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
    integers are i64, floats are f32, strings are strings, lists are arrays of these, and tensors are elements
    attributes. `opset` is the version in force in the operator's domain, which `domain` names if it is not ai.onnx.

    Graph attributes are regions of one block, whose names follow `with`; they may use values of the enclosing graphs.

    `places` declares how operands and results are to be distributed over the ranks along an axis of the mesh (see
    sdx.place). "in 1 0 2 1 32": of input 1, along axis 0 of the mesh, dimension 2 is split; it is 1 run of units of 32
    elements. "out 0 0": every rank along axis 0 is to hold all of output 0.

    `rank` is the rank that the file declares for the first output; it is present if the length of an operand would
    otherwise decide the rank.
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
  let summary = "The outputs of a graph attribute";
  let arguments = (ins Variadic<AnyType>:$args);
  let assemblyFormat = "($args^ `:` type($args))? attr-dict";
}
def Onnx_None : Op<Onnx_Dialect, "none", [Pure]> {
  let summary = "An optional input that is absent";
  let results = (outs Onnx_Value:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}
#endif

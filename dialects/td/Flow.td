// flow: data movement. Containers, kernels with a fused scalar body, explicit memlets.
#ifndef SARDONYX_FLOW
#define SARDONYX_FLOW
include "Base.td"

def Flow_Dialect : Dialect {
  let name = "flow";
  let cppNamespace = "::sardonyx::flow";
  let summary = "Data movement: containers with a layout, kernels with explicit memlets";
  let description = [{
    A kernel's iteration space is `outer` x `inner` x `deep`; iteration variables are `%0`, `%1`, … (outer ones first)
    in index expressions, and `$k` there is the value of statement k of the body. See `dialects/src/flow/kernel.rs`.
  }];
  let useDefaultTypePrinterParser = 1;
}
def Flow_Container : TypeDef<Flow_Dialect, "Container"> {
  let mnemonic = "container";
  let summary = "Where a tensor's elements are: dimensions, element type, layout, encoding";
  let description = [{
    `!flow.container<[batch, 384], f32, row_major>`. The last part is the layout, `row_major`, `"order<1, 0>"`, or
    `"capacity<2, room>"`: row-major, but in memory dimension 2 has as many positions as the symbol `room` says, of which
    the dimension counts those that are filled. Behind it, or in the place of `row_major`, is the encoding, where it is not
    `plain`: `panels32` is a constant matrix [k, n] stored as [ceil(n / 32)][k][32], zero padded; `panels32x2` as
    [ceil(n / 32)][ceil(k / 2)][32][2], two rows of a column side by side.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::Type":$elem, "::mlir::StringAttr":$layout);
  let assemblyFormat = "`<` custom<Dims>($dims) `,` $elem `,` custom<Word>($layout) `>`";
}
class Flow_Op<string mnemonic, list<Trait> traits = []> : Op<Flow_Dialect, mnemonic, traits # [RustVerified]>;

def Flow_Param : Flow_Op<"param", [Pure]> {
  let summary = "A container of constants from the parameter store";
  let description = [{
    With `window` [offset, stride_k, stride_n] the packed container holds src[offset + k*stride_k + n*stride_n], rounded
    to nearest (ties to even) where its elements are bf16 and the parameter's f32. Several
    parameters lie one behind the other along an axis; they are put together when the artifact is written.
    `transform` says what is computed from them then: `"winograd"` makes w[o, c, 3, 3] the filters u[16, o / b, c, b] of
    F(2x2, 3x3), in blocks of b channels: 32 where that divides them, else all. `"signed"` makes u8 i8, each 128 less;
    of these, or of i8, `"row_sums"` are Σ w[n, ...] for each n in i32, `"column_sums"` Σ w[..., n].
    `parts` says for each parameter what a rank has of it (see sdx.param).
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<StrArrayAttr>:$others, OptionalAttr<I64Attr>:$axis,
                       OptionalAttr<StrAttr>:$transform, OptionalAttr<DenseI64ArrayAttr>:$window,
                       OptionalAttr<ArrayAttr>:$parts);
  let results = (outs Flow_Container:$result);
  let assemblyFormat = "$name (`and` $others^)? (`axis` $axis^)? (`transform` $transform^)? (`window` $window^)? attr-dict `:` type($result)";
}
def Flow_Const : Flow_Op<"const", [Pure]> {
  let summary = "A container of small constants";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Flow_Container:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}
def Flow_View : Flow_Op<"view", [Pure]> {
  let summary = "The same memory under other dimensions (row-major both)";
  let arguments = (ins Flow_Container:$arg);
  let results = (outs Flow_Container:$result);
  let assemblyFormat = "$arg attr-dict `:` type($arg) `->` type($result)";
}
def Flow_Bind : Flow_Op<"bind"> {
  let summary = "Gives a data-dependent symbol the first i64 of a container";
  let arguments = (ins StrAttr:$symbol, Flow_Container:$arg);
  let assemblyFormat = "$symbol `=` $arg attr-dict `:` type($arg)";
}
def Flow_Host : Flow_Op<"host"> {
  let summary = "Results of Rust code of the runtime, or of the functions that it calls";
  let description = [{
    `numbers` says which results of the operation these are; `binds` ["0 1 n"]: the symbol n gets the size of dimension 1
    of the first of them.
  }];
  let arguments = (ins StrAttr:$op, Variadic<Flow_Container>:$args, DenseI64ArrayAttr:$numbers, StrArrayAttr:$binds,
                       StrArrayAttr:$bodies);
  let results = (outs Variadic<Flow_Container>:$outs);
  let assemblyFormat = [{
    $op `(` $args `)` `results` $numbers `binds` $binds `calls` $bodies attr-dict `:` functional-type($args, $outs)
  }];
}
def Flow_Kernel : Flow_Op<"kernel", [Pure, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "One kernel: loads, scalar statements, reductions, stores over outer x inner x deep";
  let arguments = (ins StrArrayAttr:$outer, StrArrayAttr:$inner, OptionalAttr<StrArrayAttr>:$deep, Variadic<Flow_Container>:$args);
  let results = (outs Variadic<Flow_Container>:$outs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `outer` $outer `inner` $inner (`deep` $deep^)? `(` $args `)` attr-dict `:`
    functional-type($args, $outs) $body
  }];
}
def Flow_Load : Flow_Op<"load", [Pure]> {
  let summary = "Reads a point of operand `arg` of the kernel; reads nothing and gives 0 where the guard is false";
  let arguments = (ins I64Attr:$arg, StrArrayAttr:$index, Optional<I1>:$guard);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$arg $index (`if` $guard^)? attr-dict `:` type($result)";
}
def Flow_Scalar : Flow_Op<"scalar", [Pure]> {
  let summary = "A constant";
  let arguments = (ins F64Attr:$value);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}
def Flow_Index : Flow_Op<"index", [Pure]> {
  let summary = "The value of an integer expression over symbols and iteration variables";
  let arguments = (ins StrAttr:$value);
  let results = (outs I64:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}
def Flow_Apply : Flow_Op<"apply", [Pure]> {
  let summary = "A scalar function";
  let arguments = (ins StrAttr:$fn, Variadic<AnyType>:$args);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$fn `(` $args `)` attr-dict `:` functional-type($args, $result)";
}
def Flow_Convert : Flow_Op<"convert", [Pure]> {
  let summary = "Converts to the result's type, as `sdx.convert` does";
  let arguments = (ins AnyType:$arg, UnitAttr:$bits);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$arg attr-dict `:` type($arg) `->` type($result)";
}
def Flow_Reduce : Flow_Op<"reduce", [Pure]> {
  let summary = "Combines a deep value over the deep space, a point value over the inner space";
  let arguments = (ins StrAttr:$fn, AnyType:$arg);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$fn $arg attr-dict `:` type($arg)  `->` type($result)";
}
def Flow_Store : Flow_Op<"store"> {
  let summary = "Writes a point of result `out` of the kernel";
  let arguments = (ins AnyType:$value, I64Attr:$out, StrArrayAttr:$index);
  let assemblyFormat = "$value `to` $out $index attr-dict `:` type($value)";
}
#endif

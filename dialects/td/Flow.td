// flow: data movement. Containers, kernels with a fused scalar body, and explicit memlets.
#ifndef SARDONYX_FLOW
#define SARDONYX_FLOW
include "Base.td"

def Flow_Dialect : Dialect {
  let name = "flow";
  let cppNamespace = "::sardonyx::flow";
  let summary = "Data movement: containers with a layout, kernels with explicit memlets";
  let description = [{
    A kernel's iteration space is `outer` x `inner` x `deep`. In index expressions, `%0`, `%1`, … are the iteration
    variables (outer ones first, then inner, then deep ones), and `$k` is the value of statement k of the body. See
    `dialects/src/flow/kernel.rs`.
  }];
  let useDefaultTypePrinterParser = 1;
}
def Flow_Container : TypeDef<Flow_Dialect, "Container"> {
  let mnemonic = "container";
  let summary = "A tensor in memory: dimensions, element type, layout, encoding";
  let description = [{
    `!flow.container<[batch, 384], f32, row_major>`. The last part is the layout. An encoding other than `plain` follows
    it, or replaces `row_major`.

    Layouts:

    * `row_major`;
    * `"order<1, 0>"`: row-major in this order of the dimensions, outermost first;
    * `"capacity<2, room>"`: row-major with spare capacity. In memory the extent of dimension 2 is the symbol `room`,
      while the dimension itself counts the filled positions.

    Encodings other than `plain` store a matrix [k, n] of constant size in zero-padded panels, here of 32 columns:

    * `panels32`: [ceil(n / 32)][k][32];
    * `panels32x2`: [ceil(n / 32)][ceil(k / 2)][32][2], with two rows of a column side by side (pairs of bf16);
    * `panels32x4`: [ceil(n / 32)][ceil(k / 4)][32][4], for elements of 8 bits;
    * `panels32x8`: [ceil(n / 32)][ceil(k / 8)][32][8]. Eight elements of 4 bits take four bytes: row i of the eight is
      the low half of byte i if i < 4, otherwise the high half of byte i - 4.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::Type":$elem, "::mlir::StringAttr":$layout);
  let assemblyFormat = "`<` custom<Dims>($dims) `,` $elem `,` custom<Word>($layout) `>`";
}
class Flow_Op<string mnemonic, list<Trait> traits = []> : Op<Flow_Dialect, mnemonic, traits # [RustVerified]>;

def Flow_Param : Flow_Op<"param", [Pure]> {
  let summary = "A container of constants from the parameter store";
  let description = [{
    Several parameters are concatenated along `axis`. `transform` is a function of the result, and `window` selects the
    elements of the container from that. All of this is computed when the artifact is written. `parts` lists, for each
    parameter, the parts that a rank holds of it (see sdx.param).

    Transforms:

    * `"winograd"`: f32 filters w[o, c, 3, 3] become u[16, o / b, c, b], the transformed filters of F(2x2, 3x3) in
      blocks of b output channels: 32 if that divides their number, otherwise all.
    * `"winograd_f16"`: the same for f16 filters; the result is f32.
    * `"signed"`: u8 becomes i8 by subtracting 128, and u4 becomes i4 by subtracting 8.
    * `"padded"`: like `"signed"` for bytes, with zeros behind the second dimension up to a multiple of 4.
    * `"row_sums"`: Σ w[n, ...] in i32 for each n; w is i8, or u8 from which 128 is subtracted.
    * `"column_sums"`: Σ w[..., n] of the same types.
    * `"sparse_values FORMAT"`, `"sparse_columns FORMAT"`, `"sparse_starts FORMAT"`, `"sparse_patterns FORMAT"`: one
      container of a sparse matrix.

    FORMAT starts with the size of the matrix and its strides in the parameter, in elements: `64x128 strides 128,1`. One
    of these follows:

    * `words 900 longest 17`: `sparse_values` are the nonzero f32 row by row, at most 17 in a row; zeros fill up the
      total of 900. `sparse_columns` holds the column of each, and `sparse_starts` the number of each row's first word,
      followed by the number of all words.
    * `quads 900 longest 17`: the same for words of four adjacent i8 of a row, with columns counted in words.
    * `groups 2:4:11 of 64`: f32 columns in chunks of 64, each with at most 2 nonzeros in every block of 4 rows. A
      pattern is a choice of 2 of these rows, and has slots for 11 columns of a chunk. `sparse_values` is
      [chunk, block, value of the patterns, slot], `sparse_columns` is [chunk, block, pattern, slot] and counts from the
      chunk's first column, and `sparse_patterns` lists, for each of the 4 rows, its positions among the values of the
      patterns.

    `window` [offset, stride_k, stride_n] makes the container a matrix [k, n] of the elements
    src[offset + k*stride_k + n*stride_n]. Further pairs of extent and stride are digits of the row number k, outer ones
    first; stride_k then belongs to the digit before them. f32 elements of a bf16 container are rounded to nearest, ties
    to even; f16 elements of an f32 container are widened.
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
  let summary = "The same memory with other dimensions; both containers are row-major";
  let arguments = (ins Flow_Container:$arg);
  let results = (outs Flow_Container:$result);
  let assemblyFormat = "$arg attr-dict `:` type($arg) `->` type($result)";
}
def Flow_Bind : Flow_Op<"bind"> {
  let summary = "Binds a data-dependent symbol to the first i64 of a container";
  let arguments = (ins StrAttr:$symbol, Flow_Container:$arg);
  let assemblyFormat = "$symbol `=` $arg attr-dict `:` type($arg)";
}
def Flow_Host : Flow_Op<"host"> {
  let summary = "Results of a host operation: runtime code, calls of functions, or an exchange between ranks";
  let description = [{
    `numbers` are the indices of these results among those of the operation. `binds` ["0 1 n"] binds the symbol n to the
    size of dimension 1 of the first of them. `bodies` are the functions that it calls.
  }];
  let arguments = (ins StrAttr:$op, Variadic<Flow_Container>:$args, DenseI64ArrayAttr:$numbers, StrArrayAttr:$binds,
                       StrArrayAttr:$bodies);
  let results = (outs Variadic<Flow_Container>:$outs);
  let assemblyFormat = [{
    $op `(` $args `)` `results` $numbers `binds` $binds `calls` $bodies attr-dict `:` functional-type($args, $outs)
  }];
}
def Flow_Kernel : Flow_Op<"kernel", [Pure, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "One kernel: loads, scalar statements, reductions and stores over outer x inner x deep";
  let arguments = (ins StrArrayAttr:$outer, StrArrayAttr:$inner, OptionalAttr<StrArrayAttr>:$deep, Variadic<Flow_Container>:$args);
  let results = (outs Variadic<Flow_Container>:$outs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `outer` $outer `inner` $inner (`deep` $deep^)? `(` $args `)` attr-dict `:`
    functional-type($args, $outs) $body
  }];
}
def Flow_Load : Flow_Op<"load", [Pure]> {
  let summary = "Loads an element of operand `arg`; where the guard is false, nothing is read and the value is 0";
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
  let summary = "Combines a deep value over the deep space, or a point value over the inner space";
  let arguments = (ins StrAttr:$fn, AnyType:$arg);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$fn $arg attr-dict `:` type($arg)  `->` type($result)";
}
def Flow_Store : Flow_Op<"store"> {
  let summary = "Stores an element of result `out` of the kernel";
  let arguments = (ins AnyType:$value, I64Attr:$out, StrArrayAttr:$index);
  let assemblyFormat = "$value `to` $out $index attr-dict `:` type($value)";
}
#endif

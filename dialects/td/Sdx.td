// sdx: values. A closed basis of operations on tensors with symbolic dimensions.
#ifndef SARDONYX_SDX
#define SARDONYX_SDX
include "Base.td"

def Sdx_Dialect : Dialect {
  let name = "sdx";
  let cppNamespace = "::sardonyx::sdx";
  let summary = "Values: a closed basis of operations on tensors with symbolic dimensions";
  let description = [{
    This level defines the meaning of a program: the interpreter (`dialects/src/interp`) implements every operation.

    A function's attributes `sdx.symbols` and `sdx.checks` declare its dimension symbols, and the equalities that
    inference assumed. The argument attribute `sdx.name` and the function attribute `sdx.results` name inputs and
    outputs. With the argument attribute `sdx.parts`, a rank holds a part of the argument, as of a parameter, and the
    same part of the output that continues it; callers pass and receive the whole tensors.

    Declarations of symbols; HI is left out if there is no upper bound:

    * `input NAME LO..HI`: a dimension of an input;
    * `data NAME LO..HI`: read from data at run time;
    * `rank AXIS NAME LO..HI`: the coordinate of a rank along an axis of the mesh;
    * `derived LO..HI NAME = EXPRESSION : NODE`: a name of the model that a node requires to equal an expression of
      other symbols; no type uses it, but a call must respect its range;
    * `capacity NAME LO..HI` and `kept NAME LO..HI`, at the next levels: the capacity of a state's memory, and the
      number of positions of a state that a call leaves unchanged.

    The location of an operation holds the names of the ONNX nodes that it originates from.
  }];
  let useDefaultTypePrinterParser = 1;
}

class Sdx_Type<string name, string kw> : TypeDef<Sdx_Dialect, name> { let mnemonic = kw; }

def Sdx_Tensor : Sdx_Type<"Tensor", "tensor"> {
  let summary = "A tensor type: symbolic dimensions and an element type";
  let description = [{
    `!sdx.tensor<[batch, seq + past, 384], f32>`. A dimension is an expression over named symbols with `+ - *`,
    `floordiv`, `ceildiv`, `mod`, `max(a, b)`, `min(a, b)`; names that are no identifiers are quoted. Expressions are
    normalised, so that equal polynomials give the same type. Storage and layout are not part of the type.
    Element types: `f16 bf16 f32 f64`, the 8-bit floats, `f4E2M1FN`, `i1` (bool), `i2 … i64` (signed), `ui2 … ui64`,
    `complex<f32>`, `complex<f64>`, `!sdx.string`, and `!sdx.value` for a sequence, an optional or a map.
  }];
  // `dims` contains normalised expressions as strings.
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::Type":$elem);
  let assemblyFormat = "`<` custom<Dims>($dims) `,` $elem `>`";
}

def Sdx_String : Sdx_Type<"String", "string"> { let summary = "The element type of string tensors"; }
def Sdx_Value : Sdx_Type<"Value", "value"> { let summary = "The element type of a sequence, an optional or a map"; }

class Sdx_Op<string mnemonic, list<Trait> traits = []> : Op<Sdx_Dialect, mnemonic, traits # [Pure, RustVerified]>;

class Sdx_Unary<string mnemonic> : Sdx_Op<mnemonic> {
  let results = (outs Sdx_Tensor:$result);
}

def Sdx_Param : Sdx_Op<"param"> {
  let summary = "A named tensor of the parameter store (a weight)";
  let description = [{
    `bounded`: every element is finite and at most 2^64 in magnitude.
    `parts` ["0", "1", "12", "32", "6*r", "6"]: axis 0 is 1 run of 12 units of 32 elements, and a rank holds 6 units of
    each run, beginning at unit 6*r. Each further group of six strings cuts what the previous ones left.
  }];
  let arguments = (ins StrAttr:$name, UnitAttr:$bounded, OptionalAttr<StrArrayAttr>:$parts);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$name (`bounded` $bounded^)? attr-dict `:` type($result)";
}
def Sdx_Const : Sdx_Op<"const"> {
  let summary = "A small constant";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
}
def Sdx_Dims : Sdx_Op<"dims"> {
  let summary = "i64 values that are expressions of the symbols: a scalar or a vector";
  let arguments = (ins StrArrayAttr:$values);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$values attr-dict `:` type($result)";
}
def Sdx_Map : Sdx_Op<"map"> {
  let summary = "Applies a scalar function to every element; operands and result have the same dimensions";
  let arguments = (ins StrAttr:$fn, Variadic<Sdx_Tensor>:$args);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$fn `(` $args `)` attr-dict `:` functional-type($args, $result)";
}
def Sdx_Convert : Sdx_Op<"convert"> {
  let summary = "Converts the elements to the result's element type";
  let description = [{Float to integer truncates and saturates, and NaN gives 0; to bool: `!= 0`. Floats of 8 and 4 bits
  are rounded to nearest; a value that is too large becomes infinity, NaN or the largest number, depending on the type.
  With `bits` the elements keep their bits; both types have the same width.}];
  let arguments = (ins Sdx_Tensor:$arg, UnitAttr:$bits);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Reduce : Sdx_Op<"reduce"> {
  let summary = "Combines the elements along axes, which the result lacks";
  let arguments = (ins StrAttr:$fn, Sdx_Tensor:$arg, DenseI64ArrayAttr:$axes);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$fn $arg `axes` $axes attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Contract : Sdx_Op<"contract"> {
  let summary = "Sum of products over the dimensions that the result lacks, as an einsum: `bmk,bkn->bmn`";
  let arguments = (ins StrAttr:$spec, Sdx_Tensor:$left, Sdx_Tensor:$right);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$spec `(` $left `,` $right `)` attr-dict `:` functional-type(operands, $result)";
}
def Sdx_Gather : Sdx_Op<"gather"> {
  let summary = "data, i64 indices => data.dims[..axis] ++ indices.dims ++ data.dims[axis+1..]";
  let arguments = (ins Sdx_Tensor:$data, Sdx_Tensor:$indices, I64Attr:$axis);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$data `[` $indices `]` `axis` $axis attr-dict `:` functional-type(operands, $result)";
}
def Sdx_Slice : Sdx_Op<"slice"> {
  let summary = "result[i] = arg[starts + i * steps]";
  let arguments = (ins Sdx_Tensor:$arg, StrArrayAttr:$starts, DenseI64ArrayAttr:$steps);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg `from` $starts `step` $steps attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Pad : Sdx_Op<"pad"> {
  let summary = "result[i] = arg[i - low] where that is inside the operand, otherwise the scalar value";
  let arguments = (ins Sdx_Tensor:$arg, Sdx_Tensor:$value, StrArrayAttr:$low);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg `with` $value `low` $low attr-dict `:` functional-type(operands, $result)";
}
def Sdx_Window : Sdx_Op<"window"> {
  let summary = "result[.., o, .., k] = arg[.., o * stride + k * dilation, ..] along an axis";
  let description = [{
    The dimension `axis` becomes the positions of the window, and a new last dimension the offsets within it. A
    convolution is a window for each spatial axis, followed by a contraction over the offsets; for a pooling, a
    reduction over them follows. All windows are inside the operand, which is padded before if necessary.
  }];
  let arguments = (ins Sdx_Tensor:$arg, I64Attr:$axis, StrAttr:$size, I64Attr:$stride, I64Attr:$dilation);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = [{
    $arg `axis` $axis `size` $size `stride` $stride `dilation` $dilation attr-dict `:` type($arg) `->` type($result)
  }];
}
def Sdx_Concat : Sdx_Op<"concat"> {
  let summary = "Concatenates the operands along an axis";
  let arguments = (ins Variadic<Sdx_Tensor>:$args, I64Attr:$axis);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "`(` $args `)` `axis` $axis attr-dict `:` functional-type($args, $result)";
}
def Sdx_Append : Sdx_Op<"append"> {
  let summary = "Appends new positions to a state along an axis";
  let description = [{
    The value is that of a concat. The past is an argument of the function with no other use, and the result is an
    output: a call may keep both in the same memory and write the new positions only.
  }];
  let arguments = (ins Sdx_Tensor:$past, Sdx_Tensor:$added, I64Attr:$axis);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$past `,` $added `axis` $axis attr-dict `:` functional-type(operands, $result)";
}
def Sdx_Reshape : Sdx_Op<"reshape"> {
  let summary = "The same elements, in row-major order, with other dimensions";
  let arguments = (ins Sdx_Tensor:$arg);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Transpose : Sdx_Op<"transpose"> {
  let summary = "result.dims[i] = arg.dims[perm[i]]";
  let arguments = (ins Sdx_Tensor:$arg, DenseI64ArrayAttr:$perm);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg $perm attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Broadcast : Sdx_Op<"broadcast"> {
  let summary = "Operand dimension i becomes result dimension dims[i]; an operand dimension of 1 repeats";
  let arguments = (ins Sdx_Tensor:$arg, DenseI64ArrayAttr:$dims);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg `to` $dims attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Iota : Sdx_Op<"iota"> {
  let summary = "result[i] = i[axis]";
  let arguments = (ins I64Attr:$axis);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "`axis` $axis attr-dict `:` type($result)";
}
def Sdx_Bind : Op<Sdx_Dialect, "bind", [RustVerified]> {
  let summary = "Binds a data-dependent symbol to the only element of the operand; the result is the operand";
  let description = [{Not pure: types that mention the symbol depend on it.}];
  let arguments = (ins StrAttr:$symbol, Sdx_Tensor:$arg);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$symbol `=` $arg attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Place : Op<Sdx_Dialect, "place", [Pure, RustVerified]> {
  let summary = "Returns the operand; declares how to distribute it over the ranks along an axis of the mesh";
  let description = [{
    `split` ["1", "2", "32"]: dimension 1 is 2 runs of units of 32 elements, and a rank is to hold the same units of
    each run. If it is empty, every rank is to hold all. The pass `shard` implements placements and removes them.
  }];
  let arguments = (ins Sdx_Tensor:$arg, I64Attr:$mesh, StrArrayAttr:$split);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = "$arg `on` $mesh `split` $split attr-dict `:` type($arg) `->` type($result)";
}
def Sdx_Host : Op<Sdx_Dialect, "host", [RustVerified]> {
  let summary = "Result `number` of a host operation: runtime code, calls of functions, or an exchange between ranks";
  let description = [{
    Nodes of the same `group` have the same operation and operands; it runs once for all of them. `binds` ["1 n"] binds
    the symbol n to the size of dimension 1 of this result; types that mention it depend on it, so the operation is not
    pure. `bodies` are functions with `sdx.internal`: the branches of If, or the body of Loop.
  }];
  let arguments = (ins StrAttr:$op, Variadic<Sdx_Tensor>:$args, I64Attr:$number, I64Attr:$group, StrArrayAttr:$binds,
                       StrArrayAttr:$bodies);
  let results = (outs Sdx_Tensor:$result);
  let assemblyFormat = [{
    $op `(` $args `)` `result` $number `of` $group `binds` $binds `calls` $bodies attr-dict `:`
    functional-type($args, $result)
  }];
}
#endif

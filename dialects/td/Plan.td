// plan: order and placement. Entry points are sequences of launches, copies, bindings and host steps over buffers.
#ifndef SARDONYX_PLAN
#define SARDONYX_PLAN
include "Base.td"
include "mlir/IR/SymbolInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::sardonyx::plan";
  let summary = "Order and placement: entry points as sequences of steps over placed buffers";
  let useDefaultTypePrinterParser = 1;
}
def Plan_Buffer : TypeDef<Plan_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "A range of bytes at run time";
}
class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits # [RustVerified]>;

def Plan_Kernel : Plan_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock, NoTerminator]> {
  let summary = "A kernel's code, shared by all its launches: one flow.kernel over the block's arguments";
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
}
def Plan_Entry : Plan_Op<"entry", [Symbol, IsolatedFromAbove, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "An entry point: buffers, and the steps that use them, in order";
  let description = [{
    `states` ["0 1 kept"]: output 1 continues input 0, and the symbol `kept` is the number of positions that stay
    unchanged in memory; without it, there are none. The types of the input and of the output give the axis along which
    the output is longer, and the capacity of each along that axis. An array of strings may follow: the parts of both
    that a rank holds, in the format of `parts` of sdx.param. `arena` is empty until memory is planned. Entry points
    that are `internal` are called only by host steps of other entry points.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$symbols, StrArrayAttr:$checks, StrAttr:$arena_bytes,
                       OptionalAttr<ArrayAttr>:$states, UnitAttr:$internal);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `symbols` $symbols `checks` $checks `arena` $arena_bytes (`states` $states^)? (`internal` $internal^)? attr-dict-with-keyword $body
  }];
}
def Plan_Input : Plan_Op<"input"> {
  let summary = "The memory of an input";
  let arguments = (ins StrAttr:$name, TypeAttr:$type);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$name $type attr-dict `:` type($result)";
}
def Plan_Output : Plan_Op<"output"> {
  let summary = "The memory of an output";
  let arguments = (ins StrAttr:$name, TypeAttr:$type);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$name $type attr-dict `:` type($result)";
}
def Plan_Param : Plan_Op<"param", [Pure]> {
  let summary = "A constant from the parameter store, which may be transformed and packed (see flow.param)";
  let arguments = (ins StrAttr:$name, OptionalAttr<StrArrayAttr>:$others, OptionalAttr<I64Attr>:$axis,
                       OptionalAttr<StrAttr>:$transform, TypeAttr:$type, OptionalAttr<DenseI64ArrayAttr>:$window,
                       OptionalAttr<ArrayAttr>:$parts);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$name (`and` $others^)? (`axis` $axis^)? (`transform` $transform^)? $type (`window` $window^)? attr-dict `:` type($result)";
}
def Plan_Const : Plan_Op<"const", [Pure]> {
  let summary = "A small constant";
  let arguments = (ins ElementsAttr:$value, TypeAttr:$type);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$value $type attr-dict `:` type($result)";
}
def Plan_Arena : Plan_Op<"arena", [Pure]> {
  let summary = "`bytes` of the arena, beginning at `offset`, which is absent until memory is planned";
  let arguments = (ins StrAttr:$bytes, OptionalAttr<StrAttr>:$offset);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$bytes (`at` $offset^)? attr-dict `:` type($result)";
}
def Plan_Launch : Plan_Op<"launch"> {
  let summary = "Runs a kernel over the work items 0..grid";
  let arguments = (ins FlatSymbolRefAttr:$kernel, StrAttr:$grid, StrArrayAttr:$params, Variadic<Plan_Buffer>:$args);
  let assemblyFormat = "$kernel `(` $args `)` `grid` $grid `params` $params attr-dict";
}
def Plan_Copy : Plan_Op<"copy"> {
  let summary = "Copies a whole buffer";
  let arguments = (ins Plan_Buffer:$from, Plan_Buffer:$to);
  let assemblyFormat = "$from `to` $to attr-dict";
}
def Plan_Bind : Plan_Op<"bind"> {
  let summary = "Binds a data-dependent symbol to the first i64 of a buffer";
  let arguments = (ins StrAttr:$symbol, Plan_Buffer:$arg);
  let assemblyFormat = "$symbol `=` $arg attr-dict";
}
def Plan_Value : Plan_Op<"value"> {
  let summary = "A result of a host step, which allocates its memory";
  let arguments = (ins TypeAttr:$type);
  let results = (outs Plan_Buffer:$result);
  let assemblyFormat = "$type attr-dict `:` type($result)";
}
def Plan_Host : Plan_Op<"host"> {
  let summary = "A host operation: runtime code, calls of entry points, or an exchange between ranks (see flow.host)";
  let arguments = (ins StrAttr:$op, Variadic<Plan_Buffer>:$buffers, TypeArrayAttr:$types, DenseI64ArrayAttr:$numbers,
                       StrArrayAttr:$binds, StrArrayAttr:$bodies);
  let assemblyFormat = [{
    $op `(` $buffers `)` `of` $types `results` $numbers `binds` $binds `calls` $bodies attr-dict
  }];
}
#endif

// ODS output => registered dialects. All rules live in Rust, which this file calls for dimensions and verification.
#include "mlir-c/IR.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Pass.h"
#include "mlir/CAPI/Support.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

extern "C" {
// Both are defined in Rust (`hooks.rs`). `say` receives the normal form, or the reason of a refusal.
bool sardonyx_normalize_dim(MlirStringRef text, MlirStringCallback say, void *data);
bool sardonyx_verify(MlirOperation op);
}

namespace sardonyx {
template <typename Op> struct RustVerified : OpTrait::TraitBase<Op, RustVerified> {
  static LogicalResult verifyTrait(Operation *op) { return success(sardonyx_verify(wrap(op))); }
};
} // namespace sardonyx

static void append(MlirStringRef text, void *to) { static_cast<std::string *>(to)->append(text.data, text.length); }

// Collects one expression's tokens up to `,` or `]` outside parentheses; Rust parses and normalises the text.
static ParseResult parseDim(AsmParser &p, std::string &text, bool &last) {
  for (int depth = 0;;) {
    StringRef word;
    std::string quoted;
    APInt number;
    if (p.parseOptionalPlus().succeeded()) text += " + ";
    else if (p.parseOptionalMinus().succeeded()) text += " - ";
    else if (p.parseOptionalStar().succeeded()) text += "*";
    else if (p.parseOptionalLParen().succeeded()) { text += "("; ++depth; }
    else if (depth > 0 && p.parseOptionalRParen().succeeded()) { text += ")"; --depth; }
    else if (p.parseOptionalComma().succeeded()) {
      if (depth == 0) return last = false, success();
      text += ", ";
    }
    else if (depth == 0 && p.parseOptionalRSquare().succeeded()) return last = true, success();
    else if (p.parseOptionalString(&quoted).succeeded()) {
      text += "\"";
      for (char c : quoted) { if (c == '"' || c == '\\') text += "\\"; text += c; }
      text += "\"";
    }
    else if (p.parseOptionalKeyword(&word).succeeded()) (text += " ") += (word + " ").str();
    else if (auto r = p.parseOptionalInteger(number); r.has_value() && succeeded(*r)) {
      SmallString<20> digits;
      number.toStringSigned(digits);
      text += digits;
    }
    else return p.emitError(p.getCurrentLocation(), "expected a dimension expression");
  }
}

static ParseResult parseDims(AsmParser &p, ArrayAttr &dims) {
  SmallVector<Attribute> out;
  Builder b(p.getContext());
  if (p.parseLSquare()) return failure();
  if (p.parseOptionalRSquare().succeeded()) return dims = b.getArrayAttr(out), success();
  for (bool last = false; !last;) {
    auto at = p.getCurrentLocation();
    std::string text, normal;
    if (parseDim(p, text, last)) return failure();
    if (!sardonyx_normalize_dim(MlirStringRef{text.data(), text.size()}, append, &normal)) return p.emitError(at, normal);
    out.push_back(b.getStringAttr(normal));
  }
  return dims = b.getArrayAttr(out), success();
}

static void printDims(AsmPrinter &p, ArrayAttr dims) {
  p << "[";
  llvm::interleaveComma(dims.getAsRange<StringAttr>(), p.getStream(), [&](StringAttr d) { p << d.getValue(); });
  p << "]";
}

static ParseResult parseWord(AsmParser &p, StringAttr &word) {
  std::string text;
  if (p.parseKeywordOrString(&text)) return failure();
  return word = StringAttr::get(p.getContext(), text), success();
}

static void printWord(AsmPrinter &p, StringAttr word) { p.printKeywordOrString(word.getValue()); }

#include "OnnxDialect.h.inc"
#include "SdxDialect.h.inc"
#include "FlowDialect.h.inc"
#include "PlanDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "OnnxTypes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "SdxTypes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "FlowTypes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "PlanTypes.h.inc"
#define GET_OP_CLASSES
#include "OnnxOps.h.inc"
#define GET_OP_CLASSES
#include "SdxOps.h.inc"
#define GET_OP_CLASSES
#include "FlowOps.h.inc"
#define GET_OP_CLASSES
#include "PlanOps.h.inc"

// Each generated file defines static functions of these names; a macro keeps them apart in one translation unit.
#define generatedTypeParser parseOnnxType
#define generatedTypePrinter printOnnxType
#define GET_TYPEDEF_CLASSES
#include "OnnxTypes.cpp.inc"
#undef generatedTypeParser
#undef generatedTypePrinter
#define generatedTypeParser parseSdxType
#define generatedTypePrinter printSdxType
#define GET_TYPEDEF_CLASSES
#include "SdxTypes.cpp.inc"
#undef generatedTypeParser
#undef generatedTypePrinter
#define generatedTypeParser parseFlowType
#define generatedTypePrinter printFlowType
#define GET_TYPEDEF_CLASSES
#include "FlowTypes.cpp.inc"
#undef generatedTypeParser
#undef generatedTypePrinter
#define generatedTypeParser parsePlanType
#define generatedTypePrinter printPlanType
#define GET_TYPEDEF_CLASSES
#include "PlanTypes.cpp.inc"
#undef generatedTypeParser
#undef generatedTypePrinter
#define GET_OP_CLASSES
#include "OnnxOps.cpp.inc"
#define GET_OP_CLASSES
#include "SdxOps.cpp.inc"
#define GET_OP_CLASSES
#include "FlowOps.cpp.inc"
#define GET_OP_CLASSES
#include "PlanOps.cpp.inc"
#include "OnnxDialect.cpp.inc"
#include "SdxDialect.cpp.inc"
#include "FlowDialect.cpp.inc"
#include "PlanDialect.cpp.inc"

void sardonyx::onnx::OnnxDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "OnnxTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "OnnxOps.cpp.inc"
      >();
}
void sardonyx::sdx::SdxDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "SdxTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "SdxOps.cpp.inc"
      >();
}
void sardonyx::flow::FlowDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "FlowTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "FlowOps.cpp.inc"
      >();
}
void sardonyx::plan::PlanDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "PlanTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "PlanOps.cpp.inc"
      >();
}

extern "C" {
void sardonyxRegisterDialects(MlirDialectRegistry registry) {
  unwrap(registry)->insert<sardonyx::onnx::OnnxDialect, sardonyx::sdx::SdxDialect, sardonyx::flow::FlowDialect,
                           sardonyx::plan::PlanDialect>();
}

// `make` is called with `data` whenever a pipeline names the pass.
void sardonyxRegisterPass(MlirPass (*make)(void *), void *data) {
  registerPass([=] { return std::unique_ptr<Pass>(unwrap(make(data))); });
}

MlirType sardonyxTensorGet(MlirAttribute dims, MlirType elem) {
  return wrap(sardonyx::sdx::TensorType::get(unwrap(elem).getContext(), cast<ArrayAttr>(unwrap(dims)), unwrap(elem)));
}
bool sardonyxTypeIsTensor(MlirType t) { return isa<sardonyx::sdx::TensorType>(unwrap(t)); }
bool sardonyxTypeIsContainer(MlirType t) { return isa<sardonyx::flow::ContainerType>(unwrap(t)); }
MlirType sardonyxContainerGet(MlirAttribute dims, MlirType elem, MlirStringRef layout) {
  auto *context = unwrap(elem).getContext();
  return wrap(sardonyx::flow::ContainerType::get(context, cast<ArrayAttr>(unwrap(dims)), unwrap(elem),
                                                 StringAttr::get(context, unwrap(layout))));
}
// Dimensions, element type and (of a container) layout of either type.
MlirAttribute sardonyxTypeDims(MlirType t) {
  if (auto tensor = dyn_cast<sardonyx::sdx::TensorType>(unwrap(t))) return wrap(Attribute(tensor.getDims()));
  return wrap(Attribute(cast<sardonyx::flow::ContainerType>(unwrap(t)).getDims()));
}
MlirType sardonyxTypeElem(MlirType t) {
  if (auto tensor = dyn_cast<sardonyx::sdx::TensorType>(unwrap(t))) return wrap(tensor.getElem());
  return wrap(cast<sardonyx::flow::ContainerType>(unwrap(t)).getElem());
}
MlirStringRef sardonyxContainerLayout(MlirType t) {
  return wrap(cast<sardonyx::flow::ContainerType>(unwrap(t)).getLayout().getValue());
}
}

//! MLIR's operations, blocks and modules: read by copyable handles, built by owners, replaced within a module

#![expect(clippy::undocumented_unsafe_blocks, reason = "the parent module's documentation has the argument")]

use super::attr::{Attr, Context, Type};
use super::{Handle, copied, printed, string_ref};
use mlir_sys::*;
use sardonyx_base::{Error, Result};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation that is not changed while the handle lives, except that attributes are set and blocks get longer.
pub type Operation<'a> = Handle<'a, MlirOperation>;
/// A block of such an operation.
pub type Block<'a> = Handle<'a, MlirBlock>;
/// A value of such an operation: a result, or an argument of a block.
pub type Val<'a> = Handle<'a, MlirValue>;

/// A value of a block that is being built, as an operand for operations of that block and of those nested in it.
#[derive(Clone, Copy)]
pub struct Operand<'b> {
    value: Val<'b>,
    /// The block that defines it.
    block: BlockId,
}

/// Number of a block that is being built. Unlike an address, it is never used again.
type BlockId = u64;

/// The components of an operation to be built.
#[derive(Default)]
pub struct Parts<'p, 'c> {
    /// Name with its dialect, as in `sdx.map`.
    pub name: &'p str,
    /// Values that the operation uses.
    pub operands: &'p [Operand<'p>],
    /// Types of its results.
    pub results: &'p [Type<'c>],
    /// Attributes by name.
    pub attrs: &'p [(&'p str, Attr<'c>)],
    /// The only block of each region.
    pub regions: Vec<NewBlock<'c>>,
    /// Names of the ONNX nodes that it computes.
    pub origins: &'p [String],
}

/// An operation in no block. It is destroyed with its owner, unless it uses values of others: then it is leaked,
/// because they may be gone.
pub struct NewOperation<'c> {
    operation: Operation<'c>,
    /// Blocks that define the operands, also those of operations within.
    needs: BTreeSet<BlockId>,
}

/// A block in no region, destroyed with its owner like a [`NewOperation`].
pub struct NewBlock<'c> {
    block: Block<'c>,
    id: BlockId,
    /// The blocks around it, whose values its operations may use.
    enclosing: Vec<BlockId>,
    /// Those that they do use.
    needs: RefCell<BTreeSet<BlockId>>,
}

/// A module that nobody else reads, whose operations can be replaced.
pub struct Module<'a> {
    operation: Operation<'a>,
}

impl<'c> Context<'c> {
    /// A location that names ONNX nodes.
    fn location(self, origins: &[String]) -> MlirLocation {
        let unknown = unsafe { mlirLocationUnknownGet(self.raw) };
        let named = |n: &String| unsafe { mlirLocationNameGet(self.raw, string_ref(n), unknown) };
        match origins {
            [] => unknown,
            [one] => named(one),
            many => {
                let all: Vec<MlirLocation> = many.iter().map(named).collect();
                unsafe { mlirLocationFusedGet(self.raw, all.len() as isize, all.as_ptr(), mlirAttributeGetNull()) }
            }
        }
    }

    /// Creates an operation. Errors: E0901 if MLIR refuses it.
    pub fn build(self, parts: Parts<'_, 'c>) -> Result<NewOperation<'c>> {
        let mut needs: BTreeSet<BlockId> = parts.operands.iter().map(|v| v.block).collect();
        let operands: Vec<MlirValue> = parts.operands.iter().map(|v| v.value.raw).collect();
        let results: Vec<MlirType> = parts.results.iter().map(|t| t.raw).collect();
        results.iter().for_each(|t| self.check(unsafe { mlirTypeGetContext(*t) }));
        let attrs: Vec<MlirNamedAttribute> = parts.attrs.iter().map(|(n, a)| self.named(n, *a)).collect();
        let region = |block: NewBlock| unsafe {
            needs.extend(block.needs.take());
            let region = mlirRegionCreate();
            mlirRegionAppendOwnedBlock(region, block.release());
            region
        };
        let regions: Vec<MlirRegion> = parts.regions.into_iter().map(region).collect();
        let raw = unsafe {
            let mut state = mlirOperationStateGet(string_ref(parts.name), self.location(parts.origins));
            mlirOperationStateAddOperands(&mut state, operands.len() as isize, operands.as_ptr());
            mlirOperationStateAddResults(&mut state, results.len() as isize, results.as_ptr());
            mlirOperationStateAddAttributes(&mut state, attrs.len() as isize, attrs.as_ptr());
            mlirOperationStateAddOwnedRegions(&mut state, regions.len() as isize, regions.as_ptr());
            mlirOperationCreate(&mut state)
        };
        match raw.ptr.is_null() {
            true => Err(Error::defect(format!("`{}` cannot be created", parts.name))),
            false => Ok(NewOperation { operation: self.wrap(raw), needs }),
        }
    }

    /// Parses and verifies an operation that uses no values of others; `None` if it is malformed (MLIR has then
    /// reported why).
    pub fn parse(self, text: &str) -> Option<NewOperation<'c>> {
        let raw = unsafe { mlirOperationCreateParse(self.raw, string_ref(text), string_ref("generated")) };
        (!raw.ptr.is_null()).then(|| NewOperation { operation: self.wrap(raw), needs: BTreeSet::new() })
    }
}

impl<'c> NewOperation<'c> {
    /// Lends the operation to readers.
    pub fn operation(&self) -> Operation<'_> {
        self.operation
    }

    /// Gives up the ownership.
    fn release(self) -> MlirOperation {
        std::mem::ManuallyDrop::new(self).operation.raw
    }
}

impl Drop for NewOperation<'_> {
    fn drop(&mut self) {
        if self.needs.is_empty() {
            unsafe { mlirOperationDestroy(self.operation.raw) }
        }
    }
}

impl<'c> NewBlock<'c> {
    /// An empty block with arguments.
    pub fn new(cx: Context<'c>, arguments: &[Type]) -> NewBlock<'c> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let types: Vec<MlirType> = arguments.iter().map(|t| t.raw).collect();
        types.iter().for_each(|t| cx.check(unsafe { mlirTypeGetContext(*t) }));
        let block = unsafe {
            let unknown = vec![mlirLocationUnknownGet(cx.raw); types.len()];
            mlirBlockCreate(types.len() as isize, types.as_ptr(), unknown.as_ptr())
        };
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        NewBlock { block: cx.wrap(block), id, enclosing: vec![], needs: RefCell::default() }
    }

    /// An empty block for an operation of `outer`, whose values it may use.
    pub fn nested(cx: Context<'c>, arguments: &[Type], outer: &NewBlock) -> NewBlock<'c> {
        let mut block = NewBlock::new(cx, arguments);
        block.enclosing = [&outer.enclosing[..], &[outer.id]].concat();
        block
    }

    /// Appends an operation, and returns its results. Panics if it uses a value that neither this block nor one around
    /// it defines.
    pub fn push(&self, op: NewOperation<'_>) -> Vec<Operand<'_>> {
        let outer = op.needs.iter().copied().filter(|id| *id != self.id);
        for id in outer {
            assert!(self.enclosing.contains(&id), "`{}` uses a value of another block", op.operation.name());
            self.needs.borrow_mut().insert(id);
        }
        let raw = op.release();
        unsafe { mlirBlockAppendOwnedOperation(self.block.raw, raw) };
        let pushed: Operation<'_> = self.block.wrap(raw);
        pushed.results().into_iter().map(|value| Operand { value, block: self.id }).collect()
    }

    /// The block's arguments.
    pub fn arguments(&self) -> Vec<Operand<'_>> {
        self.block.arguments().into_iter().map(|value| Operand { value, block: self.id }).collect()
    }

    /// Types of the block's arguments.
    pub fn argument_types(&self) -> Vec<Type<'c>> {
        self.block.arguments().into_iter().map(Val::ty).collect()
    }

    /// Type of a value, which outlives the block.
    pub fn type_of(&self, operand: Operand) -> Type<'c> {
        self.block.wrap(operand.value.ty().raw)
    }

    fn release(self) -> MlirBlock {
        std::mem::ManuallyDrop::new(self).block.raw
    }
}

impl Drop for NewBlock<'_> {
    fn drop(&mut self) {
        if self.needs.get_mut().is_empty() {
            unsafe { mlirBlockDestroy(self.block.raw) }
        }
    }
}

impl<'a> Module<'a> {
    /// Borrows a module exclusively.
    pub fn new(module: &'a mut melior::ir::Module<'_>) -> Module<'a> {
        Module { operation: Operation::of_module(module) }
    }

    /// Wraps the module that MLIR hands to a pass.
    ///
    /// # Safety
    /// The operation is a `builtin.module`, and for `'a` nothing else reads or changes it.
    pub unsafe fn from_raw(raw: MlirOperation) -> Module<'a> {
        Module { operation: Handle { raw, owner: PhantomData } }
    }

    /// Lends the module to readers.
    pub fn operation(&self) -> Operation<'_> {
        self.operation
    }

    /// The context of the module, which outlives it.
    pub fn context(&self) -> Context<'a> {
        self.operation.context()
    }

    /// The operations of the module's only block.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        self.operation.block(0).map_or(vec![], Block::operations)
    }

    /// Appends an operation.
    pub fn push(&mut self, op: NewOperation<'_>) -> Result<()> {
        self.operation.block(0).ok_or_else(|| Error::defect("a module has no body"))?.push(op);
        Ok(())
    }

    /// Replaces each operation of the module's block by those that `rewrite` returns; `None` keeps it.
    ///
    /// Handles of replaced operations cannot be used afterwards:
    /// ```compile_fail,E0502
    /// # fn main() {}
    /// fn name_after(mut module: sardonyx_dialects::mlir::Module) -> String {
    ///     let first = module.operations()[0];
    ///     module.replace(|_| Ok(Some(vec![]))).unwrap();
    ///     first.name()
    /// }
    /// ```
    pub fn replace(
        &mut self,
        mut rewrite: impl FnMut(Operation<'_>) -> Result<Option<Vec<NewOperation<'a>>>>,
    ) -> Result<()> {
        let Some(block) = self.operation.block(0) else { return Ok(()) };
        for old in block.operations() {
            let Some(new) = rewrite(old)? else { continue };
            for op in new {
                block.accept(&op);
                unsafe { mlirBlockInsertOwnedOperationBefore(block.raw, old.raw, op.release()) };
            }
            unsafe {
                mlirOperationRemoveFromParent(old.raw);
                mlirOperationDestroy(old.raw);
            }
        }
        Ok(())
    }
}

impl<'a> Operation<'a> {
    /// Borrows a module for reading.
    pub fn of_module(module: &'a melior::ir::Module<'_>) -> Operation<'a> {
        Handle { raw: melior::ir::operation::OperationLike::to_raw(&module.as_operation()), owner: PhantomData }
    }

    /// Name with its dialect, as in `sdx.map`.
    pub fn name(self) -> String {
        unsafe { copied(mlirIdentifierStr(mlirOperationGetName(self.raw))) }
    }

    /// The context that the operation belongs to.
    pub fn context(self) -> Context<'a> {
        self.wrap(unsafe { mlirOperationGetContext(self.raw) })
    }

    /// The attribute of this name.
    pub fn attr(self, name: &str) -> Option<Attr<'a>> {
        let raw = unsafe { mlirOperationGetAttributeByName(self.raw, string_ref(name)) };
        (!raw.ptr.is_null()).then(|| self.wrap(raw))
    }

    /// The values that the operation uses.
    pub fn operands(self) -> Vec<Val<'a>> {
        let one = |i| self.wrap(unsafe { mlirOperationGetOperand(self.raw, i) });
        (0..unsafe { mlirOperationGetNumOperands(self.raw) }).map(one).collect()
    }

    /// The values that the operation defines.
    pub fn results(self) -> Vec<Val<'a>> {
        let one = |i| self.wrap(unsafe { mlirOperationGetResult(self.raw, i) });
        (0..unsafe { mlirOperationGetNumResults(self.raw) }).map(one).collect()
    }

    /// The first block of region `i`.
    pub fn block(self, i: usize) -> Option<Block<'a>> {
        let i = isize::try_from(i).ok().filter(|i| *i < unsafe { mlirOperationGetNumRegions(self.raw) })?;
        let raw = unsafe { mlirRegionGetFirstBlock(mlirOperationGetRegion(self.raw, i)) };
        (!raw.ptr.is_null()).then(|| self.wrap(raw))
    }

    /// Names of the ONNX nodes in its location.
    pub fn origins(self) -> Vec<String> {
        fn collect(at: MlirLocation, out: &mut Vec<String>) {
            unsafe {
                if mlirLocationIsAName(at) {
                    let name = copied(mlirIdentifierStr(mlirLocationNameGetName(at)));
                    if !out.contains(&name) {
                        out.push(name);
                    }
                } else if mlirLocationIsAFused(at) {
                    let n = mlirLocationFusedGetNumLocations(at) as usize;
                    let mut all = vec![at; n];
                    mlirLocationFusedGetLocations(at, all.as_mut_ptr());
                    all.into_iter().for_each(|l| collect(l, out));
                }
            }
        }
        let mut out = vec![];
        collect(unsafe { mlirOperationGetLocation(self.raw) }, &mut out);
        out
    }

    /// Reports an error at the operation's location to the context's diagnostic handlers.
    pub fn emit_error(self, message: &str) {
        let text = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
        unsafe { mlirEmitError(mlirOperationGetLocation(self.raw), text.as_ptr()) }
    }

    /// Sets or replaces an attribute.
    pub fn set_attr(self, name: &str, attr: Attr) {
        self.context().check(unsafe { mlirAttributeGetContext(attr.raw) });
        unsafe { mlirOperationSetAttributeByName(self.raw, string_ref(name), attr.raw) }
    }

    /// Whether the operation, with all that it contains, keeps the rules of its levels; MLIR reports which it breaks.
    pub fn verify(self) -> bool {
        unsafe { mlirOperationVerify(self.raw) }
    }
}

impl std::fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(|write, to| unsafe { mlirOperationPrint(self.raw, Some(write), to) }))
    }
}

impl<'a> Block<'a> {
    /// Appends an operation that uses no values of others.
    pub fn push(self, op: NewOperation<'_>) -> Operation<'a> {
        self.accept(&op);
        let raw = op.release();
        unsafe { mlirBlockAppendOwnedOperation(self.raw, raw) };
        self.wrap(raw)
    }

    /// Panics if an operation may not become part of this block, which readers know already.
    fn accept(self, op: &NewOperation) {
        assert!(op.needs.is_empty(), "`{}` uses a value of another block", op.operation.name());
        let parent = unsafe { mlirBlockGetParentOperation(self.raw) };
        if !parent.ptr.is_null() {
            op.operation.context().check(unsafe { mlirOperationGetContext(parent) });
        }
    }

    /// The block's arguments.
    pub fn arguments(self) -> Vec<Val<'a>> {
        let one = |i| self.wrap(unsafe { mlirBlockGetArgument(self.raw, i) });
        (0..unsafe { mlirBlockGetNumArguments(self.raw) }).map(one).collect()
    }

    /// The block's operations, in order.
    pub fn operations(self) -> Vec<Operation<'a>> {
        let mut out = vec![];
        let mut at = unsafe { mlirBlockGetFirstOperation(self.raw) };
        while !at.ptr.is_null() {
            out.push(self.wrap(at));
            at = unsafe { mlirOperationGetNextInBlock(at) };
        }
        out
    }
}

impl<'a> Val<'a> {
    /// The value's type.
    pub fn ty(self) -> Type<'a> {
        self.wrap(unsafe { mlirValueGetType(self.raw) })
    }

    /// An identity for use as a map key.
    pub fn key(self) -> usize {
        self.raw.ptr as usize
    }
}

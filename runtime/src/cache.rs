//! the states of an entry point, kept in place from call to call: a key and value cache

use crate::bind::Given;
use crate::comm::{CacheIds, CacheRef};
use crate::device::{Address, Block, Memory, host_address};
use crate::model::Model;
use crate::program::{Entry, Program, State};
use crate::shape::{Shape, bytes_of};
use sardonyx_base::plan::Units;
use sardonyx_base::view::{TensorBuffer, is_aligned};
use sardonyx_base::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// Memory for the states of an entry point: `capacity` positions of each state, of which `len` are filled.
/// [`Session::run_cached`](crate::Session::run_cached) appends to this memory without moving its content. A cache may
/// be used with any session of the model, and with any entry point that has these states.
///
/// The first call allocates the memory, because its inputs determine the other dimensions (such as the batch); a call
/// with other dimensions on an empty cache allocates it again. Allocated memory counts towards
/// [`SessionOptions::memory_bytes_max`](crate::SessionOptions). Instead, the caller may lend the memory for `'a`. A
/// failed call leaves `len` unchanged.
pub struct Cache<'a> {
    model: Model,
    capacity: usize,
    len: usize,
    slots: Vec<Slot>,
    /// The caller's memory, by slot; empty if the cache allocates its own.
    given: Vec<&'a mut [u8]>,
    /// By slot: its memory; absent until a call has determined the dimensions.
    blocks: Option<Vec<SlotMemory>>,
    /// First of several ranks only: the id of the corresponding caches on the other ranks, and the source of the id.
    id: Option<(u64, Arc<CacheIds>)>,
}

/// Properties that identify a state in every entry point of the model.
struct Slot {
    input: String,
    output: String,
    dtype: DType,
    axis: usize,
    units: Vec<Units>,
}

struct SlotMemory {
    /// Dimensions of the memory; on the state's axis, the capacity.
    dims: Vec<usize>,
    /// Memory that the cache has allocated; absent if the caller lends the memory.
    own: Option<Block>,
}

impl<'a> Cache<'a> {
    pub(crate) fn new(model: &Model, entry: &Entry, capacity: usize) -> Result<Cache<'a>> {
        let program = model.program();
        if entry.states.is_empty() {
            return Err(stateless(program, entry));
        }
        for name in entry.states.iter().flat_map(|s| [&s.input_capacity, &s.output_capacity]) {
            let symbol = program.symbol(name);
            if !i64::try_from(capacity).is_ok_and(|c| symbol.admits(c)) {
                let message = format!("a cache with room for {capacity} positions is outside {}", symbol.range());
                return Err(Error::user("E0301", message));
            }
        }
        let slots = entry.states.iter().map(|state| Slot::new(entry, state)).collect();
        Ok(Cache { model: model.clone(), capacity, len: 0, slots, given: Vec::new(), blocks: None, id: None })
    }

    /// Registers the cache, so that other ranks create corresponding caches, and drop those when this cache is dropped.
    pub(crate) fn on_all_ranks(mut self, ids: &Arc<CacheIds>) -> Cache<'a> {
        self.id = Some((ids.give(), ids.clone()));
        self
    }

    /// Sets the number of filled positions to that of the first rank's cache.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }

    /// Uses the caller's memory, which must be given for all states. Errors: E0301.
    pub(crate) fn over(mut self, memory: Vec<(&str, TensorBuffer<'a>)>) -> Result<Cache<'a>> {
        if self.model.device().memory() != Memory::Host {
            let message = format!(
                "a cache of `{}` is in the device's memory, not in that of the caller",
                self.model.device_name()
            );
            return Err(Error::user("E0301", message).help("make one with `Session::cache`"));
        }
        let mut places: Vec<Option<&'a mut [u8]>> = self.slots.iter().map(|_| None).collect();
        for (name, buffer) in memory {
            let at = self.slot(name)?;
            let (wanted, given) = (self.slots[at].dtype, buffer.dtype());
            if given != wanted {
                return Err(Error::user(
                    "E0301",
                    format!("the state `{name}` has type {wanted}, its memory is of {given}"),
                ));
            }
            let bytes = buffer.into_bytes();
            if !is_aligned(bytes.as_ptr(), wanted) {
                return Err(Error::user(
                    "E0301",
                    format!("the memory of the state `{name}` is not aligned to {wanted}"),
                ));
            }
            if places[at].replace(bytes).is_some() {
                return Err(Error::user("E0301", format!("the state `{name}` is given memory twice")));
            }
        }
        if let Some(at) = places.iter().position(Option::is_none) {
            return Err(Error::user("E0301", format!("the state `{}` is given no memory", self.slots[at].output)));
        }
        self.given = places.into_iter().flatten().collect();
        Ok(self)
    }

    /// Number of filled positions.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maximum number of positions.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of bytes that the cache has allocated; 0 before the first call, and if the caller lends the memory.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().flatten().flat_map(|block| &block.own).map(Block::bytes).sum()
    }

    /// Drops the positions from `len` on; does nothing if at most `len` are filled.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Drops all positions. The next call may have another batch size.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Makes the cache look as if `len` positions had been appended, for measurements. Errors: E0307.
    pub fn pretend(&mut self, len: usize) -> Result<()> {
        self.fits(len)?;
        self.len = len;
        Ok(())
    }

    /// Returns a copy of the filled positions of a state, given the name of its input or its output. Errors: E0301, for
    /// example if each rank has only a part of the state.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let at = self.slot(name)?;
        if !self.slots[at].units.is_empty() {
            let error = Error::user("E0301", format!("each rank has a part of `{name}` in its cache"));
            return Err(error.help("without a cache, a call gives it whole"));
        }
        let Some(blocks) = &self.blocks else {
            return Err(Error::user("E0301", "no call has given the cache its dimensions yet").help("call run_cached"));
        };
        let (slot, block) = (&self.slots[at], &blocks[at]);
        let mut dims = block.dims.clone();
        dims[slot.axis] = 1;
        let inner = bytes_of(slot.dtype, &dims[slot.axis..]).unwrap_or(0);
        let outer: usize = dims[..slot.axis].iter().product();
        dims[slot.axis] = self.len;
        let mut data = vec![0; outer * self.len * inner];
        // A chunk size of 0 would panic; where `max` prevents it, `data` is empty.
        for (row, to) in data.chunks_exact_mut((self.len * inner).max(1)).enumerate() {
            let start = row * self.capacity * inner;
            match &block.own {
                Some(own) => self.model.device().read(own, start, to)?,
                None => to.copy_from_slice(&self.given[at][start..start + to.len()]),
            }
        }
        Tensor::new(slot.dtype, dims, data.into())
    }

    fn slot(&self, name: &str) -> Result<usize> {
        self.slots.iter().position(|slot| slot.input == name || slot.output == name).ok_or_else(|| {
            let names: Vec<&str> = self.slots.iter().map(|slot| slot.output.as_str()).collect();
            Error::user("E0301", format!("the cache holds no `{name}`")).help(format!("it has {}", names.join(", ")))
        })
    }

    fn fits(&self, len: usize) -> Result<()> {
        match len <= self.capacity {
            true => Ok(()),
            false => {
                let capacity = self.capacity;
                Err(Error::user("E0307", format!("{len} positions are needed, the cache has room for {capacity}")))
            }
        }
    }

    /// Returns, for every state of the entry point, the index of its slot. Errors: E0301.
    fn match_slots(&self, model: &Model, entry: &Entry) -> Result<Vec<usize>> {
        if !self.model.is(model) {
            return Err(Error::user("E0301", "the cache was made for another model").help("make one with this session"));
        }
        if entry.states.is_empty() {
            return Err(stateless(model.program(), entry));
        }
        let find = |(i, state): (usize, &State)| {
            // The compiler lists the states of all entry points in the same order, so slot `i` is tried first.
            let here = self.slots.get(i).filter(|slot| slot.is(entry, state)).map(|_| i);
            here.or_else(|| self.slots.iter().position(|slot| slot.is(entry, state)))
        };
        let slots: Option<Vec<usize>> = entry.states.iter().enumerate().map(find).collect();
        slots.filter(|slots| slots.len() == self.slots.len()).ok_or_else(|| {
            Error::user("E0301", format!("the cache is not one of the states of the entry point `{}`", entry.name))
                .help(format!("make one with `Session::cache(\"{}\", …)`", entry.name))
        })
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        if let Some((id, ids)) = &self.id {
            ids.forget(*id);
        }
    }
}

impl std::fmt::Debug for Cache<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} of {} positions, {} bytes)", self.len, self.capacity, self.bytes())
    }
}

impl Slot {
    fn new(entry: &Entry, state: &State) -> Slot {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        let (axis, units) = (state.axis, state.units.clone());
        Slot { input: input.name.clone(), output: output.name.clone(), dtype: input.dtype, axis, units }
    }

    fn is(&self, entry: &Entry, state: &State) -> bool {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        let names = (&*self.input, &*self.output) == (&*input.name, &*output.name);
        names && (self.dtype, self.axis, &self.units) == (input.dtype, state.axis, &state.units)
    }
}

fn stateless(program: &Program, entry: &Entry) -> Box<Error> {
    let error = Error::user("E0301", format!("the entry point `{}` has no states to keep", entry.name));
    let with: Vec<&str> = program.entries.iter().filter(|e| !e.states.is_empty()).map(|e| e.name.as_str()).collect();
    match with.is_empty() {
        true => error.help("no entry point of the model has"),
        false => error.help(format!("states have {}", with.join(", "))),
    }
}

/// A cache in use by a call.
pub(crate) struct Held<'a, 'm> {
    cache: &'a mut Cache<'m>,
    /// Index of the slot, by state of the entry point.
    slots: Vec<usize>,
    /// By slot: dimensions of the memory, with the capacity on the state's axis. Set by `bind`.
    dims: Vec<Vec<usize>>,
    /// Address and size in bytes of the memory, by slot.
    places: Vec<(Address, usize)>,
    /// Number of filled positions after the call.
    new_len: usize,
}

impl<'a, 'm> Held<'a, 'm> {
    pub fn new(cache: &'a mut Cache<'m>, model: &Model, entry: &Entry) -> Result<Held<'a, 'm>> {
        let slots = cache.match_slots(model, entry)?;
        let (dims, new_len) = (vec![Vec::new(); slots.len()], cache.len);
        Ok(Held { cache, slots, dims, places: Vec::new(), new_len })
    }

    pub fn capacity(&self) -> usize {
        self.cache.capacity
    }

    /// Returns the reference by which the other ranks find their corresponding caches. Errors: E0301 if they have none.
    pub fn known(&self) -> Result<CacheRef> {
        let unknown = || Error::user("E0301", "the cache is one of a single rank").help("make one with this session");
        let (id, _) = self.cache.id.as_ref().ok_or_else(unknown)?;
        Ok(CacheRef { id: *id, capacity: self.cache.capacity as u64, len: self.cache.len as u64 })
    }

    /// Returns the known sizes of the input of a state: the number of filled positions and, if that is not 0, the sizes
    /// of all other dimensions that are not split among ranks.
    pub fn given(&self, entry: &Entry, state: usize) -> Given<'static> {
        let State { input, axis, .. } = entry.states[state];
        let (all, own) = (&entry.inputs[input].dims, &entry.own_inputs[input]);
        let blocks = self.cache.blocks.as_ref().filter(|_| self.cache.len > 0);
        let known = blocks.map(|blocks| &blocks[self.slots[state]].dims);
        // The cache has only this rank's part of a dimension that is split among ranks; the full size is a constant of
        // the plan.
        let size = |i: usize| match i == axis {
            true => Some(self.cache.len),
            false => known?.get(i).copied().filter(|_| all[i] == own[i]),
        };
        Given::Held { axis, sizes: (0..all.len()).map(size).collect() }
    }

    /// Computes the dimensions of the memory from the values of the symbols. Errors: E0307 if the new positions do not
    /// fit, E0401 if the states do not all grow by the same number of positions.
    pub fn bind(&mut self, program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<()> {
        let mut new_len = None;
        for (i, state) in entry.states.iter().enumerate() {
            let (input, output) = (&entry.own_inputs[state.input], &entry.outputs[state.output]);
            let sizes = input.iter().map(|dim| Ok(usize::try_from(program.eval(values, dim)?).ok()));
            let mut dims: Vec<usize> =
                sizes.map(|size| size.and_then(|s| s.ok_or_else(|| uneven(entry)))).collect::<Result<_>>()?;
            dims[state.axis] = self.cache.capacity;
            self.dims[self.slots[i]] = dims;
            let after = usize::try_from(program.eval(values, &output.dims[state.axis])?).ok();
            let after = after.filter(|&n| n >= self.cache.len && new_len.is_none_or(|other| other == n));
            new_len = Some(after.ok_or_else(|| uneven(entry))?);
        }
        self.new_len = new_len.unwrap_or(self.cache.len);
        self.cache.fits(self.new_len).map_err(|e| e.node(format!("entry point `{}`", entry.name)))
    }

    /// Number of bytes that count towards the call's memory limit; memory that the caller lends does not count.
    pub fn bytes(&self) -> usize {
        match self.cache.given.is_empty() {
            true => (0..self.dims.len()).map(|at| self.size(at)).fold(0, usize::saturating_add),
            false => 0,
        }
    }

    /// Number of bytes that a slot needs.
    fn size(&self, at: usize) -> usize {
        bytes_of(self.cache.slots[at].dtype, &self.dims[at]).unwrap_or(usize::MAX)
    }

    /// Allocates the memory, unless the cache already has memory of the right dimensions.
    pub fn allocate(&mut self) -> Result<()> {
        let fits = |blocks: &Vec<SlotMemory>| blocks.iter().map(|block| &block.dims).eq(&self.dims);
        if !self.cache.blocks.as_ref().is_some_and(fits) {
            // Frees the old memory first, because old and new memory together may exceed the available memory.
            self.cache.blocks = None;
            let blocks: Result<Vec<SlotMemory>> = (0..self.dims.len()).map(|at| self.block(at)).collect();
            self.cache.blocks = Some(blocks?);
        }
        // The addresses are taken only once per call: no reference to the memory may be made while kernels use it.
        if self.places.is_empty() {
            let own = self.cache.blocks.iter().flatten().flat_map(|block| &block.own);
            let given = self.cache.given.iter_mut().map(|bytes| (host_address(bytes.as_mut_ptr()), bytes.len()));
            self.places = own.map(|own| (own.address(), own.bytes())).chain(given).collect();
        }
        Ok(())
    }

    fn block(&self, at: usize) -> Result<SlotMemory> {
        let (slot, dims, needed) = (&self.cache.slots[at], self.dims[at].clone(), self.size(at));
        if needed > isize::MAX as usize {
            let message = format!("a cache of {dims:?} elements of type {} has no representable size", slot.dtype);
            return Err(Error::user("E0202", message));
        }
        match self.cache.given.get(at) {
            None => {
                let device = self.cache.model.device();
                let own = device.clone().allocate(needed, &|| format!("state `{}`", slot.output))?;
                if self.cache.len > 0 && device.memory() != Memory::Host {
                    // Positions that `pretend` filled before the memory was allocated read as zeros.
                    device.write(&own, &vec![0; needed])?;
                }
                Ok(SlotMemory { dims, own: Some(own) })
            }
            Some(given) if given.len() >= needed => Ok(SlotMemory { dims, own: None }),
            Some(given) => {
                let (name, has) = (&slot.output, given.len());
                let message = format!("the state `{name}` of {dims:?} needs {needed} bytes, its memory has {has}");
                Err(Error::user("E0301", message)
                    .help("give it more memory, or make the batch or the capacity smaller"))
            }
        }
    }

    /// Returns the memory that the input and the output of a state share. Errors: E0401 if the plan needs more bytes
    /// than this memory has.
    pub fn place(&self, entry: &Entry, shape: &Shape, state: usize) -> Result<Address> {
        let State { input, output, .. } = entry.states[state];
        let wanted = [entry.inputs[input].buffer, entry.outputs[output].buffer].map(|buffer| shape.bytes[buffer]);
        match self.places.get(self.slots[state]) {
            Some(&(start, has)) if wanted.iter().all(|&n| n <= has) => Ok(start),
            Some((_, has)) => {
                let message = format!("the plan wants {wanted:?} bytes of a state, the cache has {has}");
                Err(Error::user("E0401", message))
            }
            None => Err(Error::defect("a state has no memory")),
        }
    }

    /// Counts the appended positions as filled, after the call has succeeded.
    pub fn grow(&mut self) {
        self.cache.len = self.new_len;
    }
}

fn uneven(entry: &Entry) -> Box<Error> {
    let message = "the plan does not fit this shape: the states do not all grow by as many positions".to_string();
    Error::user("E0401", message).node(format!("entry point `{}`", entry.name)).help("compile the model again")
}

//! the states of an entry point, kept in place from call to call: a key and value cache

use crate::bind::{Given, eval};
use crate::memory::AlignedBuf;
use crate::model::Model;
use crate::program::{Entry, Program, State};
use crate::shape::{Shape, bytes_of};
use crate::{DType, Error, Result, Tensor};

/// Memory for the states of a model, with room for `capacity` positions of which `len` are filled.
/// [`Session::run_cached`](crate::Session::run_cached) appends to it without moving what it holds; any session of the
/// model may, with any entry point that has these states.
///
/// Its memory is allocated by the first call, which knows the other dimensions (the batch), and counts towards
/// [`SessionOptions::memory_bytes_max`](crate::SessionOptions). A call that fails leaves it as it was.
pub struct Cache {
    model: Model,
    capacity: usize,
    len: usize,
    slots: Vec<Slot>,
    /// By slot; absent until dimensions are known.
    memory: Option<Vec<Block>>,
}

/// What a state is known by in every entry point of the model.
struct Slot {
    input: String,
    output: String,
    dtype: DType,
    axis: usize,
}

struct Block {
    /// The dimension of the axis is the capacity.
    dims: Vec<usize>,
    bytes: AlignedBuf,
}

impl Cache {
    pub(crate) fn new(model: &Model, entry: &Entry, capacity: usize) -> Result<Cache> {
        let program = model.program();
        if entry.states.is_empty() {
            return Err(stateless(program, entry));
        }
        for at in entry.states.iter().flat_map(|s| [s.input_capacity, s.output_capacity]) {
            let symbol = &program.symbols[at];
            if !i64::try_from(capacity).is_ok_and(|c| symbol.admits(c)) {
                let message = format!("a cache with room for {capacity} positions is outside {}", symbol.range());
                return Err(Error::user("E0301", message));
            }
        }
        let slots = entry.states.iter().map(|state| Slot::of(entry, state)).collect();
        Ok(Cache { model: model.clone(), capacity, len: 0, slots, memory: None })
    }

    /// Positions that are filled.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that it takes; 0 before the first call.
    pub fn bytes(&self) -> usize {
        self.memory.iter().flatten().map(|block| block.bytes.size()).sum()
    }

    /// Forgets the positions from `len` on; does nothing where there are no more than that.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Forgets all positions. The next call may have another batch.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// As if `len` positions of zeros had been appended: for measuring.
    pub(crate) fn pretend(&mut self, len: usize) -> Result<()> {
        self.fits(len)?;
        self.len = len;
        Ok(())
    }

    /// A copy of the filled positions of a state, by the name of its input or its output. Errors: E0301.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let at = self.slots.iter().position(|slot| slot.input == name || slot.output == name).ok_or_else(|| {
            let names: Vec<&str> = self.slots.iter().map(|slot| slot.output.as_str()).collect();
            Error::user("E0301", format!("the cache holds no `{name}`")).help(format!("it has {}", names.join(", ")))
        })?;
        let Some(blocks) = &self.memory else {
            return Err(Error::user("E0301", "no call has given the cache its dimensions yet").help("call run_cached"));
        };
        let (slot, block) = (&self.slots[at], &blocks[at]);
        let mut dims = block.dims.clone();
        dims[slot.axis] = 1;
        let inner = bytes_of(slot.dtype, &dims[slot.axis..]).unwrap_or(0);
        let outer: usize = dims[..slot.axis].iter().product();
        dims[slot.axis] = self.len;
        let mut data = Vec::with_capacity(outer * self.len * inner);
        for row in 0..outer {
            let start = row * self.capacity * inner;
            data.extend_from_slice(&block.bytes.as_ref()[start..start + self.len * inner]);
        }
        Tensor::new(slot.dtype, dims, data.into())
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

    /// For every state of the entry point the slot that is its memory.
    fn match_slots(&self, model: &Model, entry: &Entry) -> Result<Vec<usize>> {
        if !self.model.is(model) {
            return Err(Error::user("E0301", "the cache was made for another model").help("make one with this session"));
        }
        if entry.states.is_empty() {
            return Err(stateless(model.program(), entry));
        }
        let find = |(i, state): (usize, &State)| {
            // Compilers list the states of all entry points in one order.
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

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} of {} positions, {} bytes)", self.len, self.capacity, self.bytes())
    }
}

impl Slot {
    fn of(entry: &Entry, state: &State) -> Slot {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        Slot { input: input.name.clone(), output: output.name.clone(), dtype: input.dtype, axis: state.axis }
    }

    fn is(&self, entry: &Entry, state: &State) -> bool {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        (&*self.input, &*self.output, self.dtype, self.axis) == (&*input.name, &*output.name, input.dtype, state.axis)
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

/// A cache during a call.
pub(crate) struct Held<'a> {
    cache: &'a mut Cache,
    /// By state of the entry point.
    slots: Vec<usize>,
    /// By slot, with the capacity on the axis. Filled in by `bind`.
    dims: Vec<Vec<usize>>,
    /// What the call makes of it.
    new_len: usize,
}

impl<'a> Held<'a> {
    pub fn new(cache: &'a mut Cache, model: &Model, entry: &Entry) -> Result<Held<'a>> {
        let slots = cache.match_slots(model, entry)?;
        let (dims, new_len) = (vec![Vec::new(); slots.len()], cache.len);
        Ok(Held { cache, slots, dims, new_len })
    }

    pub fn capacity(&self) -> usize {
        self.cache.capacity
    }

    /// What is known of the input of a state: how many positions are filled and, once any are, all other dimensions.
    pub fn given(&self, entry: &Entry, state: usize) -> Given<'static> {
        let State { input, axis, .. } = entry.states[state];
        let blocks = self.cache.memory.as_ref().filter(|_| self.cache.len > 0);
        let known = blocks.map(|blocks| &blocks[self.slots[state]].dims);
        let size = |i: usize| if i == axis { Some(self.cache.len) } else { Some(*known?.get(i)?) };
        Given::Held { axis, sizes: (0..entry.inputs[input].dims.len()).map(size).collect() }
    }

    /// With the symbols known: the memory that is needed, and whether the new positions fit.
    pub fn bind(&mut self, program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<()> {
        let mut new_len = None;
        for (i, state) in entry.states.iter().enumerate() {
            let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
            let sizes = input.dims.iter().map(|dim| Ok(usize::try_from(eval(program, values, dim)?).ok()));
            let mut dims: Vec<usize> =
                sizes.map(|size| size.and_then(|s| s.ok_or_else(|| uneven(entry)))).collect::<Result<_>>()?;
            dims[state.axis] = self.cache.capacity;
            self.dims[self.slots[i]] = dims;
            let after = usize::try_from(eval(program, values, &output.dims[state.axis])?).ok();
            let after = after.filter(|&n| n >= self.cache.len && new_len.is_none_or(|other| other == n));
            new_len = Some(after.ok_or_else(|| uneven(entry))?);
        }
        self.new_len = new_len.unwrap_or(self.cache.len);
        self.cache.fits(self.new_len).map_err(|e| e.node(format!("entry point `{}`", entry.name)))
    }

    /// Bytes that the call's memory limit has to allow for.
    pub fn bytes(&self) -> usize {
        let size = |(slot, dims): (&Slot, &Vec<usize>)| bytes_of(slot.dtype, dims).unwrap_or(usize::MAX);
        self.cache.slots.iter().zip(&self.dims).map(size).fold(0, usize::saturating_add)
    }

    /// Makes the memory, where there is none or an empty one of other dimensions.
    pub fn allocate(&mut self) -> Result<()> {
        let cache = &mut *self.cache;
        let fits = |blocks: &Vec<Block>| blocks.iter().map(|block| &block.dims).eq(&self.dims);
        if cache.memory.as_ref().is_some_and(fits) {
            return Ok(());
        }
        // The old one first: both at once may be too much.
        cache.memory = None;
        let block = |(slot, dims): (&Slot, &Vec<usize>)| {
            let bytes = bytes_of(slot.dtype, dims).ok_or_else(|| {
                Error::user("E0202", format!("a cache of {dims:?} elements of type {} has no size", slot.dtype))
            })?;
            Ok(Block { dims: dims.clone(), bytes: AlignedBuf::new(bytes)? })
        };
        cache.memory = Some(cache.slots.iter().zip(&self.dims).map(block).collect::<Result<_>>()?);
        Ok(())
    }

    /// The memory of a state, for its input and its output alike; refused where the plan wants more than is there.
    pub fn place(&self, entry: &Entry, shape: &Shape, state: usize) -> Result<*mut u8> {
        let State { input, output, .. } = entry.states[state];
        let wanted = [entry.inputs[input].buffer, entry.outputs[output].buffer].map(|buffer| shape.bytes[buffer]);
        let block = self.cache.memory.as_ref().map(|blocks| &blocks[self.slots[state]]);
        match block {
            Some(block) if wanted.iter().all(|&n| n <= block.bytes.size()) => Ok(block.bytes.as_ptr()),
            Some(_) | None => {
                let message = format!("the plan wants {wanted:?} bytes of a state, more than the cache has");
                Err(Error::user("E0401", message))
            }
        }
    }

    /// The call has gone its way: what it appended counts.
    pub fn grow(&mut self) {
        self.cache.len = self.new_len;
    }
}

fn uneven(entry: &Entry) -> Box<Error> {
    let message = "the plan does not fit this shape: the states do not all grow by as many positions".to_string();
    Error::user("E0401", message).node(format!("entry point `{}`", entry.name)).help("compile the model again")
}

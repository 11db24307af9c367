//! Builds kernels, loads them, runs them on guarded memory and compares the results with the interpreter's

#[path = "../../../../tests/src/drawn.rs"]
mod drawn;

use drawn::is_drawn;
use sardonyx_base::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::flow::kernel::{Container, Kernel, Layout};
use sardonyx_dialects::interp::run_kernel;
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{Level, Lowered, levels_of, lower};
use std::ffi::CString;
use std::io::Write;
use std::ops::Range;

pub struct Case {
    pub name: String,
    pub kernel: Kernel,
    pub symbols: Vec<(&'static str, i64)>,
    pub reads: Vec<Tensor>,
    /// The largest difference allowed is `absolute + relative · |expected|`.
    pub absolute: f64,
    pub relative: f64,
}

impl Case {
    /// Makes a case with pseudo-random operands: floats in -1..1, signed integers in -5..=5, unsigned ones in 0..=5.
    pub fn new(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)]) -> Case {
        let mut random = Random(1 + name.bytes().fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(b as u64)));
        let value = |s: &str| symbols.iter().find(|(n, _)| *n == s).map(|(_, v)| *v);
        let sizes =
            |dims: &[Dim]| -> Vec<usize> { dims.iter().map(|d| d.eval_named(&value).unwrap() as usize).collect() };
        let reads = kernel.reads.iter().map(|c| random.tensor(c.dtype, sizes(&c.dims))).collect();
        Case { name: name.into(), kernel, symbols: symbols.to_vec(), reads, absolute: 1e-6, relative: 4e-7 }
    }

    pub fn read(mut self, operand: usize, tensor: Tensor) -> Case {
        self.reads[operand] = tensor;
        self
    }

    pub fn within(mut self, absolute: f64, relative: f64) -> Case {
        (self.absolute, self.relative) = (absolute, relative);
        self
    }

    /// Requires exact results.
    pub fn exact(self) -> Case {
        self.within(0.0, 0.0)
    }

    pub fn value(&self, symbol: &str) -> Option<i64> {
        self.symbols.iter().find(|(n, _)| *n == symbol).map(|(_, v)| *v)
    }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 30) as f64 - 1.0
    }

    pub fn tensor(&mut self, dtype: DType, dims: Vec<usize>) -> Tensor {
        let n: usize = dims.iter().product();
        let mut whole = |_| self.next() as i64 % 11 - 5;
        match dtype {
            DType::I8 => Tensor::from_vec(dims, (0..n).map(|i| whole(i) as i8).collect()),
            DType::U8 => Tensor::from_vec(dims, (0..n).map(|i| whole(i).unsigned_abs() as u8).collect()),
            DType::I16 => Tensor::from_vec(dims, (0..n).map(|i| whole(i) as i16).collect()),
            DType::U16 => Tensor::from_vec(dims, (0..n).map(|i| whole(i).unsigned_abs() as u16).collect()),
            DType::I32 => Tensor::from_vec(dims, (0..n).map(|i| whole(i) as i32).collect()),
            DType::U32 => Tensor::from_vec(dims, (0..n).map(|i| whole(i).unsigned_abs() as u32).collect()),
            DType::I64 => Tensor::from_vec(dims, (0..n).map(whole).collect()),
            DType::U64 => Tensor::from_vec(dims, (0..n).map(|i| whole(i).unsigned_abs()).collect()),
            DType::Bool => Tensor::from_vec(dims, (0..n).map(|i| whole(i) > 0).collect()),
            DType::F64 => Tensor::from_vec(dims, (0..n).map(|_| self.unit()).collect()),
            DType::F16 => Tensor::from_vec(dims, (0..n).map(|_| half::f16::from_f64(self.unit())).collect()),
            DType::BF16 => Tensor::from_vec(dims, (0..n).map(|_| half::bf16::from_f64(self.unit())).collect()),
            _ => Tensor::from_vec(dims, (0..n).map(|_| self.unit() as f32).collect()),
        }
    }
}

/// A loaded shared object.
pub struct Library(*mut libc::c_void);

impl Library {
    pub fn new(bytes: &[u8]) -> Library {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let path = CString::new(file.path().to_str().unwrap()).unwrap();
        // SAFETY: the loaded object was just built from the kernels of a test and has no initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "the object cannot be loaded");
        Library(handle)
    }

    /// Returns the kernel's code for the highest CPU level, at most `level`, for which it has code.
    pub fn kernel(&self, symbol: &str, level: Level) -> KernelFn {
        let own = |v: &Level| {
            let name = CString::new(format!("{symbol}_{}", v.name())).unwrap();
            // SAFETY: the object is loaded, and the name ends with a zero.
            let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let found = level.included().find_map(|level| own(&level));
        let address = found.unwrap_or_else(|| panic!("{symbol} is not exported"));
        // SAFETY: kernels are exported with this signature.
        unsafe { std::mem::transmute::<*mut libc::c_void, KernelFn>(address) }
    }
}

/// Returns the CPU levels for which every kernel has code and which this CPU executes.
pub fn levels() -> Vec<Level> {
    executed(&Level::common().collect::<Vec<_>>())
}

/// Returns those of `levels` that this CPU executes.
pub fn executed(levels: &[Level]) -> Vec<Level> {
    levels.iter().copied().filter(|level| level.is_here()).collect()
}

/// Memory whose size, rounded up to its alignment, ends at an inaccessible page, so that accesses past this end fault.
pub struct Guarded {
    map: *mut u8,
    map_bytes: usize,
    pub start: *mut u8,
    bytes: usize,
}

impl Guarded {
    pub fn new(bytes: usize, align: usize) -> Guarded {
        let page = 4096;
        let padded = bytes.next_multiple_of(align.max(1));
        let room = padded.next_multiple_of(page).max(page);
        let map_bytes = room + page;
        // SAFETY: a fresh anonymous mapping, of which only the last page is made inaccessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let map = libc::mmap(std::ptr::null_mut(), map_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let map = map.cast::<u8>();
            assert_eq!(libc::mprotect(map.add(room).cast(), page, libc::PROT_NONE), 0);
            std::ptr::write_bytes(map, 0xA5, room);
            Guarded { map, map_bytes, start: map.add(room - padded), bytes }
        }
    }

    pub fn with(data: &[u8], align: usize) -> Guarded {
        let memory = Guarded::new(data.len(), align);
        // SAFETY: the memory is as long as `data`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), memory.start, data.len()) };
        memory
    }

    pub fn data(&self) -> Vec<u8> {
        // SAFETY: the mapping is readable.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes).to_vec() }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`.
        unsafe { libc::munmap(self.map.cast(), self.map_bytes) };
    }
}

/// Runs a kernel over its grid in chunks of `piece` work items; returns the bytes of the results and the status.
pub fn run(f: KernelFn, lowered: &Lowered, case: &Case, piece: i64) -> (Vec<Vec<u8>>, i64) {
    let value = |s: &str| case.value(s);
    let mut memory = vec![];
    for (container, tensor) in case.kernel.reads.iter().zip(&case.reads) {
        memory.push(match container.layout {
            Layout::RowMajor => {
                let align = if container.is_plain() { 1 } else { 64 };
                Guarded::with(&container.encoding.encoded(tensor).unwrap(), align)
            }
            Layout::Capacity { .. } | Layout::Order(_) => {
                let mut room = vec![0xA5; room_bytes(container, &value)];
                let elements = tensor.bytes().chunks_exact(tensor.dtype().bytes());
                elements.zip(places(container, &value)).for_each(|(e, at)| room[at].copy_from_slice(e));
                Guarded::with(&room, 1)
            }
        });
    }
    for container in &case.kernel.writes {
        memory.push(Guarded::new(room_bytes(container, &value), 1));
    }
    let params: Vec<i64> = lowered.params.iter().map(|d| d.eval_named(&value).unwrap()).collect();
    let grid = lowered.grid.eval_named(&value).unwrap();
    let scratch_bytes = lowered.scratch_bytes.eval_params(&params).unwrap();
    let scratch = Guarded::new(scratch_bytes as usize, 64);
    let buffers: Vec<*mut u8> = memory.iter().map(|m| m.start).collect();
    let mut status = 0;
    let mut begin = 0;
    while begin < grid {
        let end = grid.min(begin + piece);
        let args = KernelArgs {
            version: KERNEL_ABI_VERSION,
            n_buffers: buffers.len() as u32,
            buffers: buffers.as_ptr(),
            params: params.as_ptr(),
            scratch: scratch.start,
            begin,
            end,
            status: &mut status,
        };
        // SAFETY: the buffers have the sizes that the kernel's containers give them.
        unsafe { f(&args) };
        begin = end;
    }
    let written = |(memory, container): (&Guarded, &Container)| {
        let room = memory.data();
        places(container, &value).into_iter().flat_map(|at| room[at].to_vec()).collect()
    };
    (memory[case.reads.len()..].iter().zip(&case.kernel.writes).map(written).collect(), status)
}

/// Returns the number of bytes of a container that is not packed, with its spare capacity.
pub fn room_bytes(container: &Container, value: &dyn Fn(&str) -> Option<i64>) -> usize {
    let n: i64 = container.memory_dims().iter().map(|d| d.eval_named(value).unwrap()).product();
    container.dtype.bytes_for(n as usize).unwrap()
}

/// Returns the byte range of each element of a container that is not packed; the elements are in row-major order.
pub fn places(container: &Container, value: &dyn Fn(&str) -> Option<i64>) -> Vec<Range<usize>> {
    let sizes = |dims: &[Dim]| -> Vec<usize> { dims.iter().map(|d| d.eval_named(value).unwrap() as usize).collect() };
    let mut starts = vec![0];
    for (n, stride) in sizes(&container.dims).into_iter().zip(sizes(&container.strides())) {
        starts = starts.into_iter().flat_map(|s| (0..n).map(move |i| s + i * stride)).collect();
    }
    let bytes = container.dtype.bytes();
    starts.into_iter().map(|s| s * bytes..(s + 1) * bytes).collect()
}

/// A list of at most this many cases is checked as a whole.
const FEW: usize = 6;

/// Returns the cases that this run checks: all of a short list, otherwise those that are drawn.
pub fn some(cases: &[Case]) -> Vec<&Case> {
    cases.iter().filter(|case| cases.len() <= FEW || is_drawn(&case.name)).collect()
}

/// Checks the cases of this run on the levels that this CPU executes.
pub fn check(cases: &[Case]) {
    check_on(cases, executed);
}

/// Compiles the kernels of the cases of this run into one object, equal kernels once. Checks each case on every level
/// that `executed` returns, over the whole grid at once and in chunks of one and three work items.
pub fn check_on(cases: &[Case], executed: fn(&[Level]) -> Vec<Level>) {
    let cases = some(cases);
    let lowered: Vec<Lowered> =
        cases.iter().map(|c| lower(&c.kernel).unwrap_or_else(|e| panic!("{}: {e}", c.name))).collect();
    let mut distinct: Vec<&Lowered> = vec![];
    let codes: Vec<usize> = lowered
        .iter()
        .map(|l| {
            distinct.iter().position(|d| d.def == l.def).unwrap_or_else(|| {
                distinct.push(l);
                distinct.len() - 1
            })
        })
        .collect();
    let named: Vec<_> = distinct.iter().enumerate().map(|(i, l)| (format!("k{i}"), *l)).collect();
    let expected =
        |c: &&Case| run_kernel(&c.kernel, &|s| c.value(s), &c.reads).unwrap_or_else(|e| panic!("{}: {e}", c.name));
    let expected: Vec<Vec<Tensor>> = cases.iter().map(expected).collect();
    let library = Library::new(&build_shared_object(&named).unwrap());
    let mut failures = vec![];
    for level in executed(&levels_of(&lowered)) {
        for (i, case) in cases.iter().enumerate() {
            let f = library.kernel(&format!("k{}", codes[i]), level);
            let (whole, status) = run(f, &lowered[i], case, i64::MAX / 2);
            assert_eq!(status, 0, "{}: an index out of range", case.name);
            for (bytes, expected) in whole.iter().zip(&expected[i]) {
                if let Err(e) = compare(case, bytes, expected) {
                    failures.push(format!("{} {}: {e}", case.name, level.name()));
                }
            }
            for piece in [1, 3] {
                let (pieces, _) = run(f, &lowered[i], case, piece);
                assert!(pieces == whole, "{} {}: pieces of {piece} differ", case.name, level.name());
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

pub fn compare(case: &Case, bytes: &[u8], expected: &Tensor) -> Result<(), String> {
    let got = Tensor::new(expected.dtype(), expected.dims().to_vec(), bytes.to_vec().into()).unwrap();
    let mut worst: Option<(f64, String)> = None;
    for i in 0..expected.len() {
        let (a, b) = (got.get_f64(i).unwrap(), expected.get_f64(i).unwrap());
        let same = a == b || (a.is_nan() && b.is_nan());
        let over = (a - b).abs() - (case.absolute + case.relative * b.abs());
        if !same && (over.is_nan() || over > 0.0) && worst.as_ref().is_none_or(|(w, _)| over > *w || over.is_nan()) {
            worst = Some((over, format!("element {i} of {:?}: {a} instead of {b}", expected.dims())));
        }
    }
    worst.map_or(Ok(()), |(_, text)| Err(text))
}

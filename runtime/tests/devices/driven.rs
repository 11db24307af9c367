//! calls on a GPU of the stand-in driver  =>  the results of a CPU, errors, and the expected numbers of driver calls

use super::common::{again, driver};
use super::*;
use cudarc::driver::sys;
use sardonyx_runtime::DeviceTensor;

const SUCCESS: sys::CUresult = sys::CUresult::CUDA_SUCCESS;

#[test]
fn a_gpu_does_what_the_cpu_does() {
    let driver = driver();
    let tests =
        ["copies", "everything", "mistakes", "repeated_calls", "changing_calls", "times", "tensors", "an_example"];
    for test in tests {
        again(&format!("driven::{test}_on_the_driver"), driver.path(), &[]);
    }
    again("driven::lost_on_the_driver", driver.path(), &[("SARDONYX_TEST_LOST", "1")]);
}

#[test]
#[ignore = "needs the driver made for tests"]
fn everything_on_the_driver() {
    everything("cuda:0");
    assert!(layers().load_with(&on("cuda:0")).unwrap().device_report().is_none());
}

#[test]
#[ignore = "needs the driver made for tests"]
fn mistakes_on_the_driver() {
    let refused = |b: &Builder, device: &str| -> Box<Error> { b.load_with(&on(device)).err().expect("refused") };
    let e = refused(&layers(), "cuda:1");
    assert_eq!((e.code, e.message.as_str()), ("E0405", "there is no GPU `cuda:1`; the driver knows 1"));
    let mut b = layers();
    b.ptx[0].1 = b.ptx[0].1.replace(".version 8.0", ".version 99.0");
    let e = refused(&b, "cuda:0");
    let words = "the GPU's driver cannot compile the PTX: refused by the test's driver\nptxas line 1: no version";
    assert_eq!((e.code, e.message.as_str()), ("E0405", words));
    let mut b = layers();
    b.kernels[0].symbol = "nothing".into();
    assert_eq!(refused(&b, "cuda:0").message, "the PTX lacks the kernel `nothing`");
    let mut b = layers();
    b.ptx[0].0 = "sm_100".into();
    assert_eq!(refused(&b, "cuda:0").message, "the artifact has no code for `sm_90`, only for `cpu`, `sm_100`");
    // The newest code that the GPU runs is selected; a target with the suffix `a` is for exactly one compute
    // capability.
    for (target, runs) in [("sm_90", true), ("sm_90a", true), ("sm_100a", false), ("sm_80", true), ("sm_8x", false)] {
        let mut b = layers();
        b.ptx[0].0 = target.into();
        b.kernels.iter_mut().for_each(|k| k.targets[0].target = target.into());
        assert_eq!(b.load_with(&on("cuda:0")).is_ok(), runs, "{target}");
    }
    let mut b = layers();
    b.kernels[0].targets[0].shared_bytes = 100 << 10;
    assert!(b.load_with(&on("cuda:0")).is_ok());
    let mut b = positive();
    b.entry.arena_bytes = "4*n + 64 + 1000000000".into();
    b.entry.buffers[2].place = Some(Place::Arena("1000000000 - 1000000000 mod 64".into()));
    let session = session(&b.load_with(&on("cuda:0")).unwrap());
    let e = session.run(&[("x", x(vec![3], 0))]).unwrap_err();
    let of_memory = "allocate 1000000012 bytes: out of memory; 268435456 of 1073741824 bytes are free";
    assert_eq!((e.code, e.message.contains(of_memory)), ("E0304", true), "{e}");
}

/// Numbers of driver calls, as the stand-in driver has counted them so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Launches, copies, fills and marks that were not recorded in a graph.
    submitted: i64,
    graphs: i64,
    waits: i64,
    recorded: i64,
    allocated: i64,
}

impl Counts {
    fn now() -> Counts {
        // SAFETY: the library is the stand-in driver, whose function has this signature.
        let count = unsafe {
            let library = libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW);
            let count = libc::dlsym(library, c"standin_count".as_ptr());
            assert!(!count.is_null());
            std::mem::transmute::<*mut libc::c_void, extern "C" fn(i32) -> i64>(count)
        };
        let [submitted, graphs, waits, recorded, allocated] = [0, 1, 2, 3, 4].map(|what| count(what));
        Counts { submitted, graphs, waits, recorded, allocated }
    }

    /// Returns what a call adds to the counts.
    fn during(call: impl FnOnce()) -> Counts {
        let before = Counts::now();
        call();
        let after = Counts::now();
        Counts {
            submitted: after.submitted - before.submitted,
            graphs: after.graphs - before.graphs,
            waits: after.waits - before.waits,
            recorded: after.recorded - before.recorded,
            allocated: after.allocated - before.allocated,
        }
    }
}

#[test]
#[ignore = "needs the driver made for tests"]
fn repeated_calls_on_the_driver() {
    let [cpu, gpu] = ["cpu", "cuda:0"].map(|d| session(&layers().load_with(&on(d)).unwrap()));
    let call = |n: usize, seed: usize| {
        let inputs = [("x", x(vec![n, 8], seed))];
        let expected = floats(&cpu.run(&inputs).unwrap());
        let mut given = vec![];
        let counts = Counts::during(|| given = floats(&gpu.run(&inputs).unwrap()));
        assert_eq!(given, expected, "{n} {seed}");
        counts
    };
    // A fill of the status words, the input, three launches, a copy, the status words and two outputs.
    let first = call(5, 0);
    assert_eq!((first.submitted, first.graphs, first.waits, first.recorded), (9, 0, 1, 0));
    let launch = Counts { submitted: 0, graphs: 1, waits: 1, recorded: 0, allocated: 0 };
    assert_eq!(call(5, 1), Counts { recorded: 9, ..launch });
    (2..6).for_each(|seed| assert_eq!(call(5, seed), launch));
    // Calls of other sizes do not displace the graph, and get graphs of their own.
    assert_eq!((call(3, 0).graphs, call(3, 1).graphs), (0, 1));
    assert_eq!([call(5, 6), call(3, 7)], [launch, launch]);
    // A larger call moves the memory, so graphs with the old addresses no longer apply.
    assert_eq!(call(70, 0).waits, 1);
    assert_eq!((call(5, 8).graphs, call(5, 9).recorded), (0, 9));
    assert_eq!(call(5, 10), launch);
    // The number of kept graphs is limited.
    (0..3).for_each(|seed| (1..41).for_each(|n| assert_eq!(call(n, seed).waits, 1)));
    assert!(gpu.trim() > 0);
    assert_eq!((call(5, 11).graphs, call(5, 12).graphs), (0, 1));
    // An index out of range is found in a graph too.
    let session = session(&lookup().load_with(&on("cuda:0")).unwrap());
    let run = |at: i64| session.run(&[("i", Tensor::from_vec(vec![3], vec![1, at, 2]))]).map_err(|e| e.code);
    for at in [0, 2, 3, 1, -1, 0] {
        let counts = Counts::during(|| assert_eq!(run(at).err(), (!(0..3).contains(&at)).then_some("E0303"), "{at}"));
        assert_eq!(counts.waits, 1);
    }
}

/// Tests calls that wait before their end, and calls of which no two are equal.
#[test]
#[ignore = "needs the driver made for tests"]
fn changing_calls_on_the_driver() {
    let [cpu, gpu] = ["cpu", "cuda:0"].map(|d| session(&positive().load_with(&on(d)).unwrap()));
    for (n, seed) in [(70, 0), (70, 0), (70, 3), (70, 5), (33, 0), (70, 3)] {
        let inputs = [("x", x(vec![n], seed))];
        let [expected, given] = [&cpu, &gpu].map(|s| floats(&s.run(&inputs).unwrap()));
        assert_eq!(expected, given, "{n} {seed}");
    }
    let session = session(&decoder().load_with(&on("cuda:0")).unwrap());
    let mut cache = session.cache("main", 40).unwrap();
    let counts = Counts::during(|| {
        for seed in 0..20 {
            let x = x(vec![2, 1, 4], seed);
            let inputs = [("x", TensorView::from(&x))];
            session.run_cached("main", &inputs, &mut [], &mut cache, &RunOptions::default()).unwrap();
        }
    });
    assert_eq!((counts.graphs, counts.recorded, counts.waits), (0, 0, 20));
    // After the cache has been truncated, a call repeats the operations of the earlier call at the same position.
    cache.truncate(19);
    let x = x(vec![2, 1, 4], 19);
    let run = || drop(session.run_cached("main", &[("x", (&x).into())], &mut [], &mut cache, &RunOptions::default()));
    assert_eq!(Counts::during(run).graphs, 1);
}

#[test]
#[ignore = "needs the driver made for tests"]
fn times_on_the_driver() {
    let session = session(&layers().load_with(&on("cuda:0")).unwrap());
    for n in [4, 4, 4, 0] {
        let mut times = vec![];
        let counts = Counts::during(|| {
            let mut watch = |l: sardonyx_runtime::Launched| {
                times.push((l.step, l.ran.0, l.ran.1));
                Ok(())
            };
            session.run_timed("main", &[("x", x(vec![n, 8], 0))], &mut watch).unwrap();
        });
        assert_eq!(counts.waits, 1);
        assert_eq!(times.iter().map(|t| t.0).collect::<Vec<_>>(), [0, 1, 2]);
        let points: Vec<_> = times.iter().flat_map(|t| [t.1, t.2]).collect();
        assert!(points.is_sorted(), "{points:?}");
    }
}

/// Allocates memory on the GPU. Returns the address of the values, `offset` bytes after its beginning.
fn on_gpu(values: &[f32], offset: usize) -> u64 {
    let (mut context, mut address, bytes) = (std::ptr::null_mut(), 0, std::mem::size_of_val(values));
    // SAFETY: the driver writes its results to the given locations; the copy is waited for.
    unsafe {
        assert_eq!(sys::cuInit(0), SUCCESS);
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), SUCCESS);
        assert_eq!(sys::cuCtxPushCurrent_v2(context), SUCCESS);
        assert_eq!(sys::cuMemAlloc_v2(&mut address, bytes + offset + 1), SUCCESS);
        assert_eq!(sys::cuMemcpyHtoD_v2(address + offset as u64, values.as_ptr().cast(), bytes), SUCCESS);
        assert_eq!(sys::cuCtxPopCurrent_v2(&mut context), SUCCESS);
    }
    address + offset as u64
}

fn from_gpu(address: u64, n: usize) -> Vec<f32> {
    let (mut values, mut context) = (vec![0f32; n], std::ptr::null_mut());
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), SUCCESS);
        assert_eq!(sys::cuCtxPushCurrent_v2(context), SUCCESS);
        assert_eq!(sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, 4 * n), SUCCESS);
        assert_eq!(sys::cuCtxPopCurrent_v2(&mut context), SUCCESS);
    }
    values
}

#[test]
#[ignore = "needs the driver made for tests"]
fn tensors_on_the_driver() {
    let [cpu, gpu] = ["cpu", "cuda:0"].map(|d| session(&layers().load_with(&on(d)).unwrap()));
    let values = x(vec![5, 8], 3);
    let expected = floats(&cpu.run(&[("x", values.clone())]).unwrap());
    let values: Vec<f32> = values.to_vec().unwrap();
    // Tensors are used in place if they are aligned, and copied otherwise.
    for (in_offset, out_offset) in [(0, 0), (4, 0), (0, 8)] {
        let (from, to) = (on_gpu(&values, in_offset), on_gpu(&[7.0; 8], out_offset));
        // SAFETY: the memory has these sizes and is used by nothing else.
        let (input, output) = unsafe {
            (DeviceTensor::new(DType::F32, &[5, 8], from).unwrap(), DeviceTensor::space(DType::F32, to, 24).unwrap())
        };
        let (inputs, mut outputs) = ([("x", (&input).into())], [("y", output)]);
        let mut run = || {
            let rest = gpu.run_on_device("main", &inputs, &mut outputs, None, &RunOptions::default()).unwrap();
            assert_eq!(floats(&rest), expected[1..]);
            assert_eq!(outputs[0].1.dims(), [5]);
        };
        let counts = [Counts::during(&mut run), Counts::during(&mut run), Counts::during(&mut run)];
        // A fill of the status words, three launches, a copy, the status words, an output to the host, and a copy for
        // each tensor that is not aligned.
        let n = 7 + i64::from(in_offset > 0) + i64::from(out_offset > 0);
        assert_eq!(
            counts.map(|c| (c.submitted, c.recorded, c.graphs, c.waits)),
            [(n, 0, 0, 1), (0, n, 1, 1), (0, 0, 1, 1)]
        );
        assert_eq!((from_gpu(to, 6)[..5].to_vec(), from_gpu(to, 6)[5]), (expected[0].2.clone(), 7.0));
    }
    // Work on a stream of the caller may still be filling the input when the call begins.
    let (from, to) = (on_gpu(&[0.0; 40], 0), on_gpu(&[0.0; 5], 0));
    let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the driver writes its results to the given locations; the values and the memory outlive the copy.
    let (input, output) = unsafe {
        assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), SUCCESS);
        assert_eq!(sys::cuCtxPushCurrent_v2(context), SUCCESS);
        assert_eq!(sys::cuStreamCreate(&mut stream, 1), SUCCESS);
        assert_eq!(sys::cuMemcpyHtoDAsync_v2(from, values.as_ptr().cast(), 160, stream), SUCCESS);
        assert_eq!(sys::cuCtxPopCurrent_v2(&mut context), SUCCESS);
        let input = DeviceTensor::new(DType::F32, &[5, 8], from).unwrap().used_on(stream.cast());
        (input, DeviceTensor::space(DType::F32, to, 20).unwrap())
    };
    gpu.run_on_device("main", &[("x", (&input).into())], &mut [("y", output)], None, &RunOptions::default()).unwrap();
    assert_eq!(from_gpu(to, 5), expected[0].2);
    // SAFETY: nothing uses the memory.
    let of = |bytes, dtype| unsafe { DeviceTensor::space(dtype, 0x1000, bytes) };
    let space = |bytes| of(bytes, DType::F32).unwrap();
    // SAFETY: as above.
    let input = unsafe { DeviceTensor::new(DType::F32, &[5, 8], 0x1000) }.unwrap();
    let refused = |session: &Session, output| {
        let outputs = &mut [("y", output)];
        let e = session.run_on_device("main", &[("x", (&input).into())], outputs, None, &RunOptions::default());
        e.map(drop).unwrap_err()
    };
    let e = refused(&gpu, space(20));
    assert_eq!((e.code, e.message.as_str()), ("E0301", "the memory of the output `y` overlaps that of `x`"));
    let e = refused(&cpu, space(20));
    assert_eq!((e.code, e.message.contains("the model runs on 1 x `cpu`")), ("E0301", true), "{e}");
    let run = |to: DeviceTensor| {
        let input = Tensor::from_vec(vec![5, 8], values.clone());
        let done = gpu.run_on_device("main", &[("x", (&input).into())], &mut [("y", to)], None, &RunOptions::default());
        done.map(drop).map_err(|e| (e.code, e.message.clone())).unwrap_err()
    };
    assert_eq!(run(space(19)), ("E0301", "the output `y` of [5] has 20 bytes, its buffer only 19".into()));
    let message = "the output `y` has type f32, but its buffer is of i32";
    assert_eq!(run(of(20, DType::I32).unwrap()), ("E0301", message.into()));
    assert_eq!(of(20, DType::String).unwrap_err().code, "E0107");
}

/// Runs `runtime/python/tests/cuda.py` with a Python that has the module `sardonyx`.
#[test]
#[ignore = "cargo xtask test --suite embedding"]
fn arrays_of_python() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), driver());
    let path = dir.path().join("layers.sdx");
    layers().write(&path);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/tests/cuda.py");
    let python = std::env::var_os("SARDONYX_PYTHON").expect("SARDONYX_PYTHON is a Python with NumPy");
    let mut command = std::process::Command::new(python);
    let done = command.arg(script).arg(&path).env("LD_LIBRARY_PATH", driver.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
#[ignore = "needs the driver made for tests"]
fn an_example_on_the_driver() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    layers().write(&path);
    let cpu = session(&layers().load().unwrap());
    for x in [0.5f32, 2.0] {
        let input = Tensor::from_vec(vec![3, 8], vec![2.0 * x + 1.0; 24]);
        let expected = floats(&cpu.run(&[("x", input)]).unwrap());
        let (dims, values) = beside_cuda::run(path.to_str().unwrap(), 3, x).unwrap();
        assert_eq!((dims, values), (vec![3], expected[0].2.clone()));
    }
    // A context of another GPU and a stream of another context are refused.
    let options = |context: usize| {
        // SAFETY: the stand-in driver knows these contexts.
        unsafe { on("cuda:0").cuda_context(std::ptr::without_provenance_mut(context)) }
    };
    let e = layers().load_with(&options(0x1008)).err().unwrap();
    assert_eq!((e.code, e.message.as_str()), ("E0001", "the context is one of GPU 1, not of GPU 0"));
    let e = layers().load_with(&options(0x1000).device("cpu".parse().unwrap())).err().unwrap();
    assert_eq!((e.code, e.message.as_str()), ("E0001", "a context is for a model of one rank on a GPU"));
    let mut stream = std::ptr::null_mut();
    // SAFETY: the driver writes its result to the given location.
    unsafe {
        let mut context = std::ptr::null_mut();
        assert_eq!(sys::cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        assert_eq!(sys::cuStreamCreate(&mut stream, 1), SUCCESS);
        assert_eq!(sys::cuCtxPopCurrent_v2(&mut context), SUCCESS);
    }
    // SAFETY: the stream is never destroyed.
    let on_stream = unsafe { SessionOptions::default().cuda_stream(stream.cast()) };
    let e = layers().load_with(&on("cuda:0")).unwrap().session(&on_stream).err().unwrap();
    assert_eq!((e.code, e.message.as_str()), ("E0001", "the stream belongs to another context than the model"));
    assert!(layers().load_with(&options(0x1000)).unwrap().session(&on_stream).is_ok());
    let e = layers().load().unwrap().session(&on_stream).err().unwrap();
    assert_eq!((e.code, e.message.as_str()), ("E0001", "a stream is for a model on a GPU"));
}

#[test]
#[ignore = "needs the driver made for tests"]
fn lost_on_the_driver() {
    let session = session(&layers().load_with(&on("cuda:0")).unwrap());
    let e = session.run(&[("x", x(vec![3, 8], 0))]).unwrap_err();
    assert_eq!(e.code, "E0410", "{e}");
    assert!(e.message.starts_with("the GPU was lost when it was to "), "{e}");
    assert!(e.remedy().is_some_and(|help| help.starts_with("end the process")), "{e}");
}

#[test]
fn without_a_driver_there_is_a_sentence() {
    if let Err(e) = layers().load_with(&on("cuda:0")).map(drop) {
        assert_eq!(e.code, "E0405");
        assert!(e.remedy().is_some_and(|help| help.contains("--device cpu")), "{e}");
    }
}

/// Tests that a plan that consists of copies needs no code.
#[test]
#[ignore = "needs the driver made for tests"]
fn copies_on_the_driver() {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    let from = b.input("x", DType::F32, &["n"], "4*n");
    let to = b.output("y", DType::F32, &["n"], "4*n");
    b.step(Action::Copy(Copy { from, to }));
    b.without_cpu = true;
    let calls: Vec<_> = [3, 0, 70].map(|n| vec![("x", x(vec![n], n))]).into();
    both(&b, "cuda:0", &calls);
}

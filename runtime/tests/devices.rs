//! the same artifacts on the CPU, on a simulated GPU and on a GPU of a stand-in driver  =>  the same numbers

#![cfg(all(feature = "cuda", feature = "sim"))]

mod common;

use common::{Builder, PTX, again, driver};
use sardonyx_base::plan::KERNELS_COMMENT;
use sardonyx_base::plan::messages::{Bind, Copy, Launch, State, SymbolKind, buffer::Place, step::Action};
use sardonyx_base::{DType, Error, Result, Tensor, TensorBuffer, TensorView};
use sardonyx_runtime::{LoadOptions, Model, RunOptions, Session, SessionOptions};

fn on(device: &str) -> LoadOptions {
    common::trusted().device(device.parse().unwrap())
}

fn session(model: &Model) -> Session {
    model.session(&SessionOptions::default().threads(2)).unwrap()
}

fn x(dims: Vec<usize>, seed: usize) -> Tensor {
    let n = dims.iter().product();
    Tensor::from_vec(dims, (0..n).map(|i| ((i + seed) * 7 % 33) as f32 * 0.25 - 4.0).collect())
}

/// y = (2 (2x + 1) + 1) · w for rows of eight elements; z = x.
fn layers() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    let z = b.output("z", DType::F32, &["batch", "8"], "batch*32");
    let w = b.constant(&[0.5, 1.0, -2.0, 0.25, 3.0, 1.5, 0.0, 8.0]);
    let room = "(batch*32 + 63) floordiv 64 * 64";
    let h = b.arena("batch*32", "0");
    let g = b.arena("batch*32", room);
    b.entry.arena_bytes = format!("2*({room})");
    let affine = b.kernel("affine", &[false, true], 1, "0");
    let rowdot = b.kernel("rowdot", &[false, false, true], 2, "4*p0");
    b.launch(affine, &[x, h], &["batch*8"], "batch*8");
    b.launch(affine, &[h, g], &["batch*8"], "batch*8");
    b.launch(rowdot, &[g, w, y], &["8", "batch"], "batch");
    b.step(Action::Copy(Copy { from: x, to: z }));
    b.for_gpus();
    b
}

/// y[i] = table[i[i]]
fn lookup() -> Builder {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    let i = b.input("i", DType::I64, &["n"], "8*n");
    let table = b.constant(&[10.0, 20.0, 30.0]);
    let y = b.output("y", DType::F32, &["n"], "4*n");
    let gather = b.kernel("gather", &[false, false, true], 2, "0");
    b.launch(gather, &[table, i, y], &["3", "n"], "n");
    b.for_gpus();
    b
}

/// y = 2x + 1 for the positive elements of x; their number depends on the data.
fn positive() -> Builder {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    b.symbol("k", SymbolKind::Data, 0, None);
    let x = b.input("x", DType::F32, &["n"], "4*n");
    let y = b.output("y", DType::F32, &["k"], "4*k");
    let found = b.arena("4*n", "64");
    let count = b.arena("8", "0");
    b.entry.arena_bytes = "4*n + 64".into();
    let positive = b.kernel("positive", &[false, true, true], 2, "0");
    let affine = b.kernel("affine", &[false, true], 1, "0");
    b.launch(positive, &[x, found, count], &["n", "1"], "1");
    b.step(Action::Bind(Bind { symbol: "k".into(), buffer: count }));
    b.launch(affine, &[found, y], &["k"], "k");
    b.for_gpus();
    b
}

/// Like `common::decoder`: present = past followed by 2x + 1, y = Σt (t + 1) · present[t].
fn decoder() -> Builder {
    let mut b = Builder::new();
    for name in ["batch", "seq", "past"] {
        b.symbol(name, SymbolKind::Input, 0, None);
    }
    b.symbol("room_in", SymbolKind::Capacity, 0, None);
    b.symbol("room_out", SymbolKind::Capacity, 0, None);
    let carry = b.kernel("carry", &[false, true], 5, "0");
    let append = b.kernel("append", &[false, true], 5, "0");
    let total = b.kernel("total", &[false, true], 4, "0");
    let x = b.input("x", DType::F32, &["batch", "seq", "4"], "16*batch*seq");
    let old = b.input("past", DType::F32, &["batch", "past", "4"], "16*batch*room_in");
    let new = b.output("present", DType::F32, &["batch", "past + seq", "4"], "16*batch*room_out");
    let y = b.output("y", DType::F32, &["batch", "4"], "16*batch");
    b.launch(carry, &[old, new], &["past", "4", "room_in", "room_out", "batch*past"], "batch*past");
    common::edit(&mut b, 0, |l: &mut Launch| l.carries = Some(0));
    b.launch(append, &[x, new], &["seq", "4", "past", "room_out", "batch*seq"], "batch*seq");
    b.launch(total, &[new, y], &["past + seq", "4", "room_out", "batch"], "batch");
    let (input_capacity, output_capacity) = ("room_in".into(), "room_out".into());
    let kept = String::new();
    b.entry.states = vec![State { input: 1, output: 0, axis: 1, input_capacity, output_capacity, kept, units: vec![] }];
    b.for_gpus();
    b
}

fn floats(out: &[(String, Tensor)]) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    out.iter().map(|(n, t)| (n.clone(), t.dims().to_vec(), t.to_vec().unwrap())).collect()
}

/// Compares calls on the CPU and on the device, and repeats each after the sessions released their kept memory.
fn both(b: &Builder, device: &str, calls: &[Vec<(&str, Tensor)>]) {
    let sessions = ["cpu", device].map(|d| session(&b.load_with(&on(d)).unwrap()));
    for call in calls {
        let [cpu, other] = sessions.each_ref().map(|s| floats(&s.run(call).unwrap()));
        assert_eq!(cpu, other, "{call:?}");
        sessions.iter().for_each(|s| assert!(s.trim() > 0));
        let again = sessions.each_ref().map(|s| floats(&s.run(call).unwrap()));
        assert_eq!(again, [cpu, other], "{call:?}");
    }
}

fn calls_give_the_same_numbers(device: &str) {
    // Sizes grow and shrink again, so that kept memory is reused.
    let calls: Vec<_> = [1, 0, 5, 100, 3].map(|n| vec![("x", x(vec![n, 8], n))]).into();
    both(&layers(), device, &calls);
    let calls: Vec<_> = [4, 0, 130].map(|n| vec![("i", Tensor::from_vec(vec![n], vec![2i64; n]))]).into();
    both(&lookup(), device, &calls);
    let calls: Vec<_> = [1, 70, 0, 33].map(|n| vec![("x", x(vec![n], n))]).into();
    both(&positive(), device, &calls);
    let past = |n: usize| vec![("x", x(vec![2, 3, 4], n)), ("past", x(vec![2, n, 4], 1))];
    both(&decoder(), device, &[past(5), past(0), past(70)]);
}

fn outputs_may_lie_in_the_callers_memory(device: &str) {
    let session = session(&layers().load_with(&on(device)).unwrap());
    let x = x(vec![3, 8], 2);
    let wanted: Vec<f32> = session.run(&[("x", x.clone())]).unwrap()[0].1.to_vec().unwrap();
    let mut y = [7f32; 5];
    let mut outputs = [("y", TensorBuffer::from_slice(&mut y).unwrap())];
    let rest = session.run_with("main", &[("x", (&x).into())], &mut outputs, &RunOptions::default()).unwrap();
    assert_eq!((rest.len(), rest[0].1.to_vec::<f32>()), (1, x.to_vec()));
    assert_eq!(outputs[0].1.dims(), [3]);
    assert_eq!((&y[..3], &y[3..]), (&wanted[..], &[7.0, 7.0][..]));
}

fn an_index_out_of_range_is_an_error(device: &str) {
    let session = session(&lookup().load_with(&on(device)).unwrap());
    for bad in [3i64, -1, i64::MAX] {
        let e = session.run(&[("i", Tensor::from_vec(vec![3], vec![1, bad, 2]))]).unwrap_err();
        assert_eq!((e.code, e.node.as_deref()), ("E0303", Some("/node_0")), "{e}");
    }
    let good = session.run(&[("i", Tensor::from_vec(vec![2], vec![1i64, 0]))]).unwrap();
    assert_eq!(good[0].1.to_vec::<f32>().unwrap(), [20.0, 10.0]);
}

fn states_stay_on_the_device(device: &str) {
    let models = ["cpu", device].map(|d| decoder().load_with(&on(d)).unwrap());
    let sessions = models.each_ref().map(session);
    let mut caches = sessions.each_ref().map(|s| s.cache("main", 40).unwrap());
    let mut step = |seq: usize, seed: usize| {
        let x = x(vec![2, seq, 4], seed);
        let mut out = vec![];
        for (session, cache) in sessions.iter().zip(&mut caches) {
            let inputs = [("x", TensorView::from(&x))];
            let given = session.run_cached("main", &inputs, &mut [], cache, &RunOptions::default())?;
            out.push((floats(&given), cache.len(), cache.tensor("past")?.to_vec::<f32>().unwrap()));
        }
        assert_eq!(out[0], out[1], "{seq} {seed}");
        Ok(())
    };
    for (i, seq) in [5, 1, 1, 0, 9].into_iter().enumerate() {
        step(seq, i).unwrap();
    }
    let e: Result<()> = step(30, 0);
    assert_eq!(e.unwrap_err().code, "E0307");
    step(1, 7).unwrap();
    caches.iter_mut().for_each(|c| c.truncate(4));
    assert_eq!(floats_of(&caches[0]), floats_of(&caches[1]));
    let mut memory = vec![0f32; 2 * 40 * 4];
    let memory = vec![("past", TensorBuffer::from_slice(&mut memory).unwrap())];
    let e = sessions[1].cache_over("main", 40, memory).unwrap_err();
    assert_eq!(e.message, format!("a cache of `{device}` is in the device's memory, not in that of the caller"));
}

fn floats_of(cache: &sardonyx_runtime::Cache) -> Vec<f32> {
    cache.tensor("present").unwrap().to_vec().unwrap()
}

fn memory_has_a_limit(device: &str) {
    let model = layers().load_with(&on(device)).unwrap();
    // Arena 64 + 32 bytes, outputs 4 + 32, input 32.
    let options = |max| SessionOptions::default().memory_bytes_max(max);
    let run = |max| model.session(&options(max)).unwrap().run(&[("x", x(vec![1, 8], 0))]).map_err(|e| e.message);
    assert_eq!(run(163).unwrap_err(), "the call needs 164 bytes, the limit is 163");
    assert!(run(164).is_ok());
}

fn sessions_share_the_constants(device: &str) {
    let model = layers().load_with(&on(device)).unwrap();
    let expected = floats(&session(&model).run(&[("x", x(vec![4, 8], 1))]).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let session = session(&model);
                for _ in 0..10 {
                    assert_eq!(floats(&session.run(&[("x", x(vec![4, 8], 1))]).unwrap()), expected);
                }
            });
        }
    });
}

fn everything(device: &str) {
    calls_give_the_same_numbers(device);
    outputs_may_lie_in_the_callers_memory(device);
    an_index_out_of_range_is_an_error(device);
    states_stay_on_the_device(device);
    memory_has_a_limit(device);
    sessions_share_the_constants(device);
}

mod simulated {
    use super::*;

    #[test]
    fn a_simulated_gpu_does_what_the_cpu_does() {
        everything("sim:sm_80");
    }

    #[test]
    fn what_was_launched_and_found_is_reported() {
        let model = layers().load_with(&on("sim:sm_80")).unwrap();
        session(&model).run(&[("x", x(vec![3, 8], 0))]).unwrap();
        session(&model).run(&[("x", x(vec![0, 8], 0))]).unwrap();
        let report = model.device_report().unwrap();
        assert_eq!(report.text(), "device sim:sm_80: 0 findings, 0 host operations, 3 launches");
        assert!(layers().load().unwrap().device_report().is_none());
    }

    /// Nothing is adjacent to a buffer, not even in an arena, so that any access beyond it is found.
    #[test]
    fn an_access_beyond_a_buffer_is_found() {
        let mut b = Builder::new();
        b.symbol("n", SymbolKind::Input, 0, None);
        b.input("x", DType::F32, &["n"], "4*n");
        let y = b.output("y", DType::F32, &["n"], "4*n");
        let beyond = b.kernel("beyond", &[true], 1, "0");
        b.launch(beyond, &[y], &["n"], "1");
        b.for_gpus();
        b.without_cpu = true;
        let model = b.load_with(&on("sim:sm_80")).unwrap();
        let out = session(&model).run(&[("x", x(vec![3], 0))]).unwrap();
        assert_eq!(out[0].1.to_vec::<f32>().unwrap(), [1.0; 3]);
        let report = model.device_report().unwrap();
        let [finding] = report.findings.as_slice() else { panic!("{}", report.text()) };
        let line = PTX.lines().collect::<Vec<_>>()[finding.line as usize - 1].trim();
        assert_eq!((finding.kernel.as_str(), finding.count, line), ("beyond", 1, "st.global.f32 [%d4], %f0;"));
        assert!(finding.message.contains("output `y`"), "{}", finding.message);
    }

    #[test]
    fn ptx_that_the_simulator_does_not_know_is_refused() {
        let mut b = layers();
        b.ptx[0].1 = PTX.replace("mul.rn.f32", "mul.rq.f32");
        let e = b.load_with(&on("sim:sm_80")).err().unwrap();
        assert_eq!(e.code, "E0405");
        assert!(e.message.starts_with("the simulator refuses PTX for sm_80: line "), "{}", e.message);
    }
}

#[test]
fn what_a_target_needs_is_checked() {
    let refused = |edit: &dyn Fn(&mut Builder)| {
        let mut b = layers();
        edit(&mut b);
        // The plan is checked before the device matters.
        let e = b.load().err().unwrap_or_else(|| panic!("accepted"));
        (e.code, e.message.replace("the plan is malformed: ", ""))
    };
    let broken = |edit: &dyn Fn(&mut sardonyx_base::plan::messages::KernelTarget)| {
        refused(&|b: &mut Builder| edit(&mut b.kernels[0].targets[0])).1
    };
    assert_eq!(broken(&|t| t.block = 0), "blocks of 0 threads for sm_80, where 1 to 1024 are possible");
    assert_eq!(broken(&|t| t.block = 1025), "blocks of 1025 threads for sm_80, where 1 to 1024 are possible");
    let shared = "232449 bytes of shared memory for sm_80, where 232448 are possible";
    assert_eq!(broken(&|t| t.shared_bytes = 232449), shared);
    assert_eq!(broken(&|t| t.grid = "p1".into()), "the grid uses `p1`, which is no parameter of the kernel");
    assert_eq!(broken(&|t| t.grid = "b0".into()), "the grid uses `b0`, which is no parameter of the kernel");
    let twice = refused(&|b: &mut Builder| {
        let again = b.kernels[0].targets[0].clone();
        b.kernels[0].targets.push(again);
    });
    assert_eq!(twice.1, "it has two launches for sm_80");
}

#[test]
fn a_device_that_the_artifact_is_not_for_is_a_sentence() {
    let mut b = layers();
    b.without_cpu = true;
    let e = b.load().err().unwrap();
    assert_eq!((e.code, e.message.as_str()), ("E0403", "the artifact has no code for `cpu`, only for `sm_80`"));
    assert_eq!(e.help.as_deref(), Some("compile the model with `--target cpu`"));
    let message = |b: &Builder, device: &str| b.load_with(&on(device)).err().map(|e| (e.code, e.message)).unwrap();
    let mut b = layers();
    b.ptx.clear();
    let words = "the artifact has no code for `sm_80`, only for `cpu`".to_string();
    assert_eq!(message(&b, "sim:sm_80"), ("E0403", words));
    let mut b = layers();
    b.kernels[1].targets[0].target = "sm_90".into();
    assert_eq!(message(&b, "sim:sm_80").1, "kernel 1 `rowdot` has no launch for sm_80");
    let mut b = layers();
    let other = sardonyx_base::plan::messages::Plan::default();
    let digits: String = prost::Message::encode_to_vec(&other).iter().map(|n| format!("{n:02x}")).collect();
    b.ptx[0].1 += &format!("{KERNELS_COMMENT}{digits}\n");
    assert_eq!(message(&b, "sim:sm_80").1, "the plan has 2 kernels, the code 0");
    let mut b = layers();
    b.ptx[0].1 += &format!("{KERNELS_COMMENT}abcx\n");
    assert_eq!(message(&b, "sim:sm_80").1, "the PTX's own kernels do not decode");
}

/// A launch that exceeds the limits of every GPU is refused before anything runs.
#[test]
fn too_many_blocks_are_refused() {
    for grid in ["p0 * 300000000", "0 - p0", "p0 * 9000000000000000000"] {
        let mut b = layers();
        b.kernels[0].targets[0].grid = grid.into();
        let model = b.load_with(&on("sim:sm_80")).unwrap();
        let e = session(&model).run(&[("x", x(vec![1, 8], 0))]).unwrap_err();
        assert_eq!((e.code, e.node.as_deref()), ("E0202", Some("/node_0")), "{e}");
        assert!(b.load().unwrap().session(&SessionOptions::default()).unwrap().run(&[("x", x(vec![1, 8], 0))]).is_ok());
    }
}

mod driven {
    use super::*;

    #[test]
    fn a_gpu_does_what_the_cpu_does() {
        let driver = driver();
        let tests = ["copies", "everything", "mistakes", "repeated_calls", "changing_calls", "times"];
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
        for (target, runs) in [("sm_90", true), ("sm_90a", true), ("sm_100a", false), ("sm_80", true), ("sm_8x", false)]
        {
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

    /// What the stand-in driver has counted so far.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Counts {
        /// Launches, copies, fills and marks.
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

        fn of(call: impl FnOnce()) -> Counts {
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
            let counts = Counts::of(|| given = floats(&gpu.run(&inputs).unwrap()));
            assert_eq!(given, expected, "{n} {seed}");
            counts
        };
        // Status words cleared, input, three launches, a copy, status words and two outputs.
        let first = call(5, 0);
        assert_eq!((first.submitted, first.graphs, first.waits, first.recorded), (9, 0, 1, 0));
        let launch = Counts { submitted: 0, graphs: 1, waits: 1, recorded: 0, allocated: 0 };
        assert_eq!(call(5, 1), Counts { recorded: 9, ..launch });
        (2..6).for_each(|seed| assert_eq!(call(5, seed), launch));
        // Other sizes do not displace the graph, and get their own.
        assert_eq!((call(3, 0).graphs, call(3, 1).graphs), (0, 1));
        assert_eq!([call(5, 6), call(3, 7)], [launch, launch]);
        // A larger call moves the memory.
        assert_eq!(call(70, 0).waits, 1);
        assert_eq!((call(5, 8).graphs, call(5, 9).recorded), (0, 9));
        assert_eq!(call(5, 10), launch);
        // Only so many graphs are kept.
        (0..3).for_each(|seed| (1..41).for_each(|n| assert_eq!(call(n, seed).waits, 1)));
        assert!(gpu.trim() > 0);
        assert_eq!((call(5, 11).graphs, call(5, 12).graphs), (0, 1));
        // An index out of range is found in a graph too.
        let session = session(&lookup().load_with(&on("cuda:0")).unwrap());
        let run = |at: i64| session.run(&[("i", Tensor::from_vec(vec![3], vec![1, at, 2]))]).map_err(|e| e.code);
        for at in [0, 2, 3, 1, -1, 0] {
            let counts = Counts::of(|| assert_eq!(run(at).err(), (!(0..3).contains(&at)).then_some("E0303"), "{at}"));
            assert_eq!(counts.waits, 1);
        }
    }

    /// Calls that wait in between, and those of which no two are equal.
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
        let counts = Counts::of(|| {
            for seed in 0..20 {
                let x = x(vec![2, 1, 4], seed);
                let inputs = [("x", TensorView::from(&x))];
                session.run_cached("main", &inputs, &mut [], &mut cache, &RunOptions::default()).unwrap();
            }
        });
        assert_eq!((counts.graphs, counts.recorded, counts.waits), (0, 0, 20));
        // The calls after a cache was cut are those after it had been filled for the first time.
        cache.truncate(19);
        let x = x(vec![2, 1, 4], 19);
        let run =
            || drop(session.run_cached("main", &[("x", (&x).into())], &mut [], &mut cache, &RunOptions::default()));
        assert_eq!(Counts::of(run).graphs, 1);
    }

    #[test]
    #[ignore = "needs the driver made for tests"]
    fn times_on_the_driver() {
        let session = session(&layers().load_with(&on("cuda:0")).unwrap());
        for n in [4, 4, 4, 0] {
            let mut times = vec![];
            let counts = Counts::of(|| {
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

    /// A plan of copies only needs no code.
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
}

//! the same artifacts on the CPU, on a simulated GPU and on a GPU of a stand-in driver  =>  the same numbers

#![cfg(all(feature = "cuda", feature = "sim"))]

#[path = "../../examples/beside_cuda.rs"]
#[expect(dead_code, reason = "an example with a main function")]
mod beside_cuda;
#[path = "../common/mod.rs"]
mod common;
mod driven;

use common::{Builder, PTX, layers};
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
    // The arena takes 64 + 32 bytes, the outputs take 4 + 32, and the input takes 32.
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
        // The plan is checked before a device is opened.
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

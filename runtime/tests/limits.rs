//! limits of a call  =>  they hold within host operations and simulated launches, and in a forked process

mod common;

use common::{Builder, host, operand, result, value};
use sardonyx_base::plan::messages::{Copy, SymbolKind, step::Action};
use sardonyx_base::{DType, Result, Tensor, TensorView};
use sardonyx_runtime::{RunOptions, Session, SessionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Kind<'a> = (DType, &'a [&'a str]);

/// A plan of one host operation with two operands of these types and dimensions.
fn one_step(op: &str, kinds: [Kind; 2], to: Kind) -> Builder {
    let mut builder = Builder::new();
    let mut symbols: Vec<&str> = kinds.iter().flat_map(|(_, dims)| dims.iter().copied()).collect();
    symbols.retain(|dim| dim.parse::<i64>().is_err());
    symbols.iter().for_each(|symbol| builder.symbol(symbol, SymbolKind::Input, 0, None));
    let bytes = |(dtype, dims): Kind| match dtype.is_opaque() {
        true => "0".to_string(),
        false => dims.iter().fold(dtype.bytes().to_string(), |product, dim| format!("{product}*{dim}")),
    };
    let mut args = vec![];
    for (name, kind) in ["a", "b"].into_iter().zip(kinds) {
        args.push(operand(builder.input(name, kind.0, kind.1, &bytes(kind)), kind.0, kind.1));
    }
    let y = builder.output("y", to.0, to.1, &bytes(to));
    let made = value(&mut builder, &bytes(to));
    host(&mut builder, op, args, vec![result(0, operand(made, to.0, to.1), &[])], &[]);
    builder.step(Action::Copy(Copy { from: made, to: y }));
    builder
}

fn outer_product() -> Builder {
    one_step("StringConcat", [(DType::String, &["n", "1"]), (DType::String, &["1", "m"])], (DType::String, &["n", "m"]))
}

fn words(n: usize) -> [Tensor; 2] {
    let words = vec!["word"; n];
    [vec![n, 1], vec![1, n]].map(|dims| Tensor::from_strings(dims, &words))
}

fn session(b: &Builder, bytes_max: Option<usize>) -> Session {
    b.load().unwrap().session(&SessionOptions::default().memory_bytes_max(bytes_max)).unwrap()
}

fn run(session: &Session, [a, b]: &[Tensor; 2], options: &RunOptions) -> Result<Tensor> {
    let inputs = [("a", TensorView::from(a)), ("b", TensorView::from(b))];
    session.run_with("main", &inputs, &mut [], options).map(|out| out[0].1.clone())
}

#[test]
fn strings_that_no_machine_holds_are_an_error() {
    let session = session(&outer_product(), None);
    let deadline = RunOptions::default().deadline(Instant::now() + Duration::from_secs(2));
    let e = run(&session, &words(100_000), &deadline).unwrap_err();
    // A system that overcommits memory may allow the allocation; then the deadline ends the call.
    assert!(["E0304", "E0305"].contains(&e.code), "{e}");
    assert_eq!(run(&session, &words(2), &RunOptions::default()).unwrap().texts().unwrap(), ["wordword"; 4]);
}

#[test]
fn strings_count_against_the_limit_of_bytes() {
    let session = session(&outer_product(), Some(1 << 20));
    for n in [3000, 100_000] {
        let e = run(&session, &words(n), &RunOptions::default()).unwrap_err();
        assert_eq!(e.code, "E0304", "{e}");
        assert!(e.message.contains("the limit is 1048576"), "{e}");
    }
    assert_eq!(run(&session, &words(100), &RunOptions::default()).unwrap().len(), 10_000);
    // The result and the copies of the operands stay just below the limit.
    assert!(run(&session, &words(200), &RunOptions::default()).is_ok());
}

#[test]
fn a_host_operation_ends_when_the_call_is_to_end() {
    let session = session(&outer_product(), None);
    let operands = words(6000);
    let begun = Instant::now();
    let late = RunOptions::default().deadline(begun + Duration::from_millis(20));
    assert_eq!(run(&session, &operands, &late).unwrap_err().code, "E0305");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    let cancel = Arc::new(AtomicBool::new(false));
    let options = RunOptions::default().cancel(cancel.clone());
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            cancel.store(true, Ordering::Relaxed);
        });
        let begun = Instant::now();
        assert_eq!(run(&session, &operands, &options).unwrap_err().code, "E0306");
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    });
    assert!(run(&session, &words(3), &RunOptions::default()).is_ok());
}

#[test]
fn a_limit_covers_operands_and_what_is_computed_with() {
    let order = one_step("Order descending=1", [(DType::F32, &["n"]), (DType::I64, &[])], (DType::I64, &["4"]));
    let session = session(&order, Some(1 << 20));
    let x = |n: usize| Tensor::from_vec(vec![n], (0..n).map(|i| (i % 97) as f32).collect());
    let run = |n: usize| session.run(&[("a", x(n)), ("b", Tensor::scalar(4i64))]).map(|out| out[0].1.len());
    assert_eq!(run(10_000).unwrap(), 4);
    assert_eq!(run(1 << 20).unwrap_err().code, "E0304");
}

/// The forked child has only the calling thread; it reports its result as its exit code.
#[test]
fn a_session_works_and_ends_in_a_process_that_was_forked() {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    let (x, y) = (b.input("x", DType::F32, &["n"], "4*n"), b.output("y", DType::F32, &["n"], "4*n"));
    let affine = b.kernel("affine", &[false, true], 0, "0");
    b.launch(affine, &[x, y], &[], "n");
    let session = b.load().unwrap().session(&SessionOptions::default().threads(3)).unwrap();
    let x = Tensor::from_vec(vec![1000], vec![1f32; 1000]);
    let is_right = |session: &Session| {
        session.run(&[("x", x.clone())]).is_ok_and(|out| out[0].1.to_vec::<f32>() == Some(vec![3.0; 1000]))
    };
    assert!(is_right(&session));
    // SAFETY: the child uses only what belongs to this thread, and ends without returning from this function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: only sets a timer that ends a child that hangs.
        unsafe { libc::alarm(20) };
        let right = (0..20).all(|_| is_right(&session));
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(session))).is_ok();
        // SAFETY: ends the child only, without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!right) + 2 * i32::from(!dropped)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child forked above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(is_right(&session));
}

#[cfg(feature = "sim")]
#[test]
fn a_simulated_launch_that_never_ends_is_left() {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    let (x, y) = (b.input("x", DType::F32, &["n"], "4*n"), b.output("y", DType::F32, &["n"], "4*n"));
    let affine = b.kernel("affine", &[false, true], 1, "0");
    b.launch(affine, &[x, y], &["n"], "n");
    b.for_gpus();
    b.without_cpu = true;
    b.ptx[0].1 = b.ptx[0].1.replacen("  mov.u32 %r0, %ctaid.x;", "AGAIN:\n  mov.u32 %r0, %ctaid.x;\n  bra AGAIN;", 1);
    let options = common::trusted().device("sim:sm_80".parse().unwrap());
    let model = b.load_with(&options).unwrap();
    let session = model.session(&SessionOptions::default()).unwrap();
    let x = Tensor::from_vec(vec![3], vec![1f32; 3]);
    let run = |options: &RunOptions| {
        let begun = Instant::now();
        let code = session.run_with("main", &[("x", (&x).into())], &mut [], options).map_err(|e| e.code).err();
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        code
    };
    let late = RunOptions::default().deadline(Instant::now() + Duration::from_millis(20));
    assert_eq!(run(&late), Some("E0305"));
    let cancel = Arc::new(AtomicBool::new(false));
    let cancelled = RunOptions::default().cancel(cancel.clone());
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            cancel.store(true, Ordering::Relaxed);
        });
        assert_eq!(run(&cancelled), Some("E0306"));
    });
}

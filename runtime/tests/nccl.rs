//! ranks on GPUs of a stand-in driver, with a stand-in for NCCL  =>  the same results as over shared memory on the CPU;
//! each test runs in its own process, since the library is looked up only once

#![cfg(feature = "cuda")]

mod common;

use common::{Builder, again, driver, nccl};
use sardonyx_base::plan::NEEDS_MESH;
use sardonyx_base::plan::messages::{Host, HostResult, MeshAxis, Operand, SymbolKind, step::Action};
use sardonyx_base::{DType, Tensor, TensorView};
use sardonyx_runtime::{RunOptions, Session, SessionOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn exchange(b: &mut Builder, op: &str, dtype: DType, from: (u32, &[&str]), to: (u32, &[&str])) {
    let operand = |(buffer, dims): (u32, &[&str])| Operand {
        buffer,
        dtype: dtype.onnx_code(),
        dims: dims.iter().map(|d| d.to_string()).collect(),
    };
    let results = vec![HostResult { index: 0, value: Some(operand(to)), binds: vec![] }];
    let origins = vec![format!("/{op}")];
    b.step(Action::Host(Host { op: op.into(), args: vec![operand(from)], results, bodies: vec![], origins }));
}

/// Each rank r computes g = 2x + 1, and applies that function a second time to the first 4r elements. Outputs: s is the
/// sum of g over all ranks. c and e are the g of all ranks, concatenated along the second and the first dimension. u is
/// like e, but without the last r rows of each rank r. m is the maximum of i over all ranks.
fn meeting(n: u32) -> Builder {
    let mut b = Builder::new();
    b.manifest.mesh = vec![MeshAxis { name: "0".into(), size: n, symbol: "r".into() }];
    b.manifest.needs = vec![NEEDS_MESH.into()];
    b.symbol("r", SymbolKind::Rank, 0, Some(i64::from(n) - 1));
    b.symbol("batch", SymbolKind::Input, i64::from(n), Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let i = b.input("i", DType::I64, &["batch"], "batch*8");
    let (rows, columns) = (format!("{n}*batch"), format!("{}", 8 * n));
    let fewer = format!("{n}*batch - {}", n * (n - 1) / 2);
    let bytes = |rows: &str| format!("32*({rows})");
    let h = b.arena("batch*32", "0");
    let g = b.arena("batch*32", "(batch*32 + 63) floordiv 64 * 64");
    b.entry.arena_bytes = "(batch*32 + 63) floordiv 64 * 128".into();
    let s = b.output("s", DType::F32, &["batch", "8"], "batch*32");
    let c = b.output("c", DType::F32, &["batch", &columns], &bytes(&rows));
    let e = b.output("e", DType::F32, &[&rows, "8"], &bytes(&rows));
    let u = b.output("u", DType::F32, &[&fewer, "8"], &bytes(&fewer));
    let m = b.output("m", DType::I64, &["batch"], "batch*8");
    let affine = b.kernel("affine", &[false, true], 1, "0");
    b.launch(affine, &[x, h], &["batch*8"], "batch*8");
    b.launch(affine, &[x, g], &["batch*8"], "batch*8");
    b.launch(affine, &[h, g], &["4*r"], "4*r");
    let whole: &[&str] = &["batch", "8"];
    exchange(&mut b, "AllReduce mesh=0 by=add", DType::F32, (g, whole), (s, whole));
    exchange(&mut b, "AllGather mesh=0 dim=1", DType::F32, (g, whole), (c, &["batch", &columns]));
    exchange(&mut b, "AllGather mesh=0 dim=0", DType::F32, (g, whole), (e, &[&rows, "8"]));
    exchange(&mut b, "AllGather mesh=0 dim=0", DType::F32, (g, &["batch - r", "8"]), (u, &[&fewer, "8"]));
    exchange(&mut b, "AllReduce mesh=0 by=max", DType::I64, (i, &["batch"]), (m, &["batch"]));
    b.for_gpus();
    b
}

fn inputs(batch: usize) -> Vec<(&'static str, Tensor)> {
    let x = (0..8 * batch).map(|i| (i * 7 % 33) as f32 * 0.25 - 4.0).collect();
    let i = (0..batch as i64).map(|i| i * 5 % 11).collect();
    vec![("x", Tensor::from_vec(vec![batch, 8], x)), ("i", Tensor::from_vec::<i64>(vec![batch], i))]
}

fn session(n: u32, device: &str) -> Session {
    let options = common::trusted().device(device.parse().unwrap());
    meeting(n).load_with(&options).unwrap().session(&SessionOptions::default()).unwrap()
}

/// Compares the same calls on the CPU and on GPUs.
fn equal(n: u32) -> Session {
    let [cpu, gpu] = ["cpu", "cuda:0"].map(|device| session(n, device));
    for batch in [5, 3, 40, 5] {
        let [a, b] = [&cpu, &gpu].map(|s| s.run(&inputs(batch)).unwrap());
        assert_eq!(a, b, "{batch}");
    }
    gpu
}

fn folder() -> PathBuf {
    std::env::var_os("SARDONYX_TEST_NCCL").unwrap().into()
}

#[test]
fn gpus_exchange_as_ranks_on_a_cpu_do() {
    let (with, without) = (driver(), driver());
    nccl(with.path());
    let dir = with.path().to_str().unwrap();
    let gpus = |n| [("SARDONYX_TEST_GPUS", n), ("SARDONYX_TEST_NCCL", dir)];
    again("through_the_library", with.path(), &gpus("3"));
    again("one_gpu_for_two_ranks", with.path(), &gpus("1"));
    again("no_library", without.path(), &gpus("3"));
    again("others_do_not_come", with.path(), &gpus("2"));
}

/// The real NCCL on the stand-in driver: all its functions are found, and its refusal to run there becomes an error.
#[test]
#[ignore = "NCCL is 200 MB: cargo xtask test --suite nccl"]
fn nccl_itself() {
    let with = driver();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fetch/nvidia-nccl-cu12-2.18.3/libnccl.so.2");
    again("refused_by_the_real_one", with.path(), &[("SARDONYX_TEST_GPUS", "2"), ("SARDONYX_NCCL", path)]);
}

#[test]
#[ignore = "needs the driver made for tests, and NCCL"]
fn refused_by_the_real_one() {
    let gpu = session(2, "cuda:0");
    let e = gpu.run(&inputs(5)).unwrap_err();
    println!("{e}");
    assert_eq!((e.code, e.message.contains("NCCL cannot join the ranks: ")), ("E0408", true), "{e}");
}

#[test]
#[ignore = "needs the driver and the library made for tests"]
fn through_the_library() {
    let session = equal(3);
    assert_eq!(session.exchange().as_deref(), Some("through NCCL 2.24.3"));
    drop(session);
    let calls = std::fs::read_to_string(folder().join("calls")).unwrap();
    let of = |rank: &str| calls.lines().filter_map(|l| l.strip_prefix(rank)).collect::<Vec<_>>();
    let parts = vec!["Broadcast"; 3];
    let call = [vec!["AllReduce"], parts.clone(), vec!["AllGather"], parts, vec!["AllReduce"]].concat();
    let all = [vec!["CommInitRankConfig"], call.repeat(4), vec!["CommAbort"]].concat();
    assert_eq!((of("1 "), of("2 ")), (all.clone(), all.clone()));
    assert_eq!(of("0 "), [vec!["GetUniqueId"], all].concat());
}

#[test]
#[ignore = "needs the driver and the library made for tests"]
fn one_gpu_for_two_ranks() {
    let how = equal(2).exchange();
    assert_eq!(how.as_deref(), Some("through the memory of hosts: ranks 0 and 1 have one GPU"));
}

#[test]
#[ignore = "needs the driver made for tests"]
fn no_library() {
    let how = equal(3).exchange().unwrap();
    assert!(how.starts_with("through the memory of hosts: there is no NCCL: libnccl.so: cannot open shared"), "{how}");
}

#[test]
#[ignore = "needs the driver and the library made for tests"]
fn others_do_not_come() {
    let (cpu, gpu) = (session(2, "cpu"), session(2, "cuda:0"));
    let wanted = cpu.run(&inputs(5)).unwrap();
    for (fault, code, words) in [
        ("stall 1", "E0305", "another rank had not come to `AllReduce mesh=0 by=max`"),
        ("stall 0", "E0305", "another rank had not come to `AllReduce mesh=0 by=max`"),
        ("error 1", "E0408", "NCCL cannot exchange: a remote rank is gone"),
        ("error 0", "E0408", "NCCL cannot exchange: a remote rank is gone"),
    ] {
        std::fs::write(folder().join("fault"), fault).unwrap();
        let given = inputs(5);
        let given: Vec<(&str, TensorView)> = given.iter().map(|(name, t)| (*name, t.into())).collect();
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_millis(300));
        let e = gpu.run_with("main", &given, &mut [], &RunOptions::default().deadline(deadline)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5), "{fault}");
        assert_eq!((e.code, e.message.contains(words)), (code, true), "{fault}: {e}");
        std::fs::write(folder().join("fault"), "").unwrap();
        // After the failure, all ranks can join and exchange again.
        assert_eq!(gpu.run(&inputs(5)).unwrap(), wanted, "{fault}");
    }
}

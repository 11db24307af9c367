//! ptxvm run: exit status, text and JSON for a correct and a wrong kernel

use std::path::PathBuf;
use std::process::{Command, Output};

const SAXPY: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f4;
DONE:
    ret;
}
";

const LAUNCH: &str = r#"{ "entry": "saxpy", "grid": 1, "block": [32, 1, 1],
  "buffers": {
    "x": { "dtype": "f32", "values": [1, 2, 3, 4, 5] },
    "y": { "dtype": "f32", "fill": 1, "count": 5, "expected": { "values": [3, 5, 7, 9, 11] } } },
  "params": [ "x", "y", { "f32": 2 }, { "u32": N } ] }"#;

fn ptxvm(name: &str, kernel: &str, launch: &str, more: &[&str]) -> Output {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let (text, json) = (folder.join("k.ptx"), folder.join("l.json"));
    std::fs::write(&text, kernel).unwrap();
    std::fs::write(&json, launch).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ptxvm"));
    command.arg("run").arg(text).arg("--launch").arg(json).args(more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_right_kernel_ends_with_status_0() {
    let output = ptxvm("right", SAXPY, &LAUNCH.replace('N', "5"), &["--seed", "3"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.starts_with("0 findings\n") && stdout.contains("`y` (20 bytes)"), "{stdout}");
}

#[test]
fn findings_and_wrong_values_end_with_status_1() {
    let output = ptxvm("bounds", SAXPY, &LAUNCH.replace('N', "6"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("out of bounds: line 24"), "{}", text(&output.stdout));
    let output = ptxvm("values", SAXPY, &LAUNCH.replace('N', "3"), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("`y`: 2 of 5 differ, the first at 3: 1 instead of 9"), "{stdout}");
    assert!(stdout.starts_with("{\"report\":{\"findings\":[]"), "{stdout}");
}

#[test]
fn mistakes_end_with_status_2_and_say_where() {
    let cases = [
        (SAXPY.replace("fma.rn", "fma.rx"), LAUNCH.replace('N', "5"), "line 26: `fma.rx.f32`: unknown modifier `.rx`"),
        (SAXPY.to_owned(), LAUNCH.replace("N }", "5 }, 7"), "a parameter is a buffer's name"),
        (
            SAXPY.to_owned(),
            LAUNCH.replace("\"block\"", "\"blok\"").replace('N', "5"),
            "unknown field `blok` of the launch",
        ),
        (SAXPY.to_owned(), LAUNCH.replace("\"y\", {", "\"z\", {").replace('N', "5"), "parameter `z` is no buffer"),
        (SAXPY.to_owned(), LAUNCH.replace("\"count\": 5", "\"count\": 99999999999999").replace('N', "5"), "buffer `y`"),
        (SAXPY.to_owned(), "{".to_owned(), "line 1: expected a string"),
        (SAXPY.to_owned(), LAUNCH.replace("saxpy", "axpy").replace('N', "5"), "no entry `axpy`; the text has saxpy"),
    ];
    for (i, (kernel, launch, expected)) in cases.iter().enumerate() {
        let output = ptxvm(&format!("mistake{i}"), kernel, launch, &[]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

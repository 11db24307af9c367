//! Kernels of a few lines, each testing one class of instructions or one kind of finding

mod atomics;
mod basics;
mod bulk;
mod copies;
mod findings;
mod floats;
mod functions;
mod integers;
mod mbarriers;
mod refused;
mod warps;
mod wgmma;

use crate::testing::clean;

/// Runs instructions on the 32-bit registers %r1, %r2 and %r3 and returns %r4.
fn word(body: &str, [a, b, c]: [u32; 3]) -> u32 {
    let body = format!(
        "ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8];\n{body}\n\
         st.global.u32 [%rd0], %r4;"
    );
    clean(&body, 1, &[a, b, c])[0]
}

/// Runs instructions on the 64-bit registers %rd3, %rd4 and %rd5 and returns %rd6.
fn double(body: &str, values: [u64; 3]) -> u64 {
    let body = format!(
        "ld.global.u64 %rd3, [%rd1]; ld.global.u64 %rd4, [%rd1+8]; ld.global.u64 %rd5, [%rd1+16];\n{body}\n\
         mov.b64 {{%r1, %r2}}, %rd6; setp.eq.u32 %p1, %r0, 0; selp.b32 %r1, %r1, %r2, %p1;\n\
         @%p1 bra ONE; setp.eq.u32 %p1, %r0, 1; ONE: @%p1 st.global.u32 [%rd0], %r1;"
    );
    // Both threads read the same inputs.
    let body = format!("sub.s64 %rd1, %rd1, %rd2;\n{body}");
    let input: Vec<u32> = values.iter().flat_map(|value| [*value as u32, (*value >> 32) as u32]).collect();
    let words = clean(&body, 2, &input);
    u64::from(words[1]) << 32 | u64::from(words[0])
}

#[track_caller]
fn check_words(rows: &[(&str, [u32; 3], u32)]) {
    for (body, inputs, expected) in rows {
        let found = word(body, *inputs);
        assert_eq!(found, *expected, "{body} of {inputs:x?}: {found:#x}, not {expected:#x}");
    }
}

#[track_caller]
fn check_doubles(rows: &[(&str, [u64; 3], u64)]) {
    for (body, inputs, expected) in rows {
        let found = double(body, *inputs);
        assert_eq!(found, *expected, "{body} of {inputs:x?}: {found:#x}, not {expected:#x}");
    }
}

//! wgmma: products of every type and layout against a plain sum, and the findings for each missing synchronisation

use crate::testing::{hopper, run_text};
use crate::{Kind, Report};

/// Layout of an operand in shared memory.
#[derive(Clone, Copy)]
struct Layout {
    start: u64,
    /// Leading and stride dimension byte offsets, as in the matrix descriptor.
    leading: u64,
    stride: u64,
    /// Bytes of the swizzle pattern; 16 means no swizzle.
    pattern: u64,
    /// Whether the operand is contiguous along its rows (M or N) rather than along K.
    rows_inside: bool,
}

impl Layout {
    fn descriptor(&self) -> u64 {
        let code = [(16, 0), (128, 1), (64, 2), (32, 3)].iter().find(|row| row.0 == self.pattern).unwrap().1;
        self.start >> 4 | (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | code << 62
    }

    /// Returns the address of an element, according to the tables of the PTX ISA.
    fn at(&self, row: u64, k: u64, bytes: u64) -> usize {
        let (s, lbo, sbo) = (self.pattern, self.leading, self.stride);
        let (kb, u) = (k * bytes, row * bytes);
        let linear = match (self.rows_inside, s) {
            (false, 16) => row / 8 * sbo + kb / 16 * lbo + row % 8 * 16 + kb % 16,
            (false, _) => row / 8 * sbo + row % 8 * s + kb,
            (true, 16) => u / 16 * sbo + k / 8 * lbo + k % 8 * 16 + u % 16,
            (true, _) => u / s * lbo + k / 8 * sbo + k % 8 * s + u % s,
        } + self.start;
        let mask = match s {
            128 => 7,
            64 => 3,
            32 => 1,
            _ => 0,
        };
        (linear ^ ((linear >> 7) & mask) << 4) as usize
    }
}

/// Returns the bits of a small number in the type `ty`.
fn bits(ty: &str, value: i32) -> u32 {
    let float = (value as f32).to_bits();
    match ty {
        "bf16" => float >> 16,
        "tf32" => float,
        "f16" => [0xc000, 0xbc00, 0, 0x3c00, 0x4000][(value + 2) as usize],
        "e4m3" => [0xc0, 0xb8, 0, 0x38, 0x40][(value + 2) as usize],
        "e5m2" => [0xc0, 0xbc, 0, 0x3c, 0x40][(value + 2) as usize],
        _ => value as u32 & 0xff,
    }
}

fn value(seed: u64, row: u64, k: u64) -> i32 {
    ((row * 7 + k * 3 + row * k + seed) % 5) as i32 - 2
}

const IMAGE_BYTES: u64 = 16384;

struct Case {
    ty: &'static str,
    n: u64,
    a: Layout,
    b: Layout,
    /// Bytes from one step of K to the next, by which the start address in the descriptor grows.
    a_step: u64,
    b_step: u64,
    steps: u64,
}

impl Case {
    fn bytes(&self) -> u64 {
        match self.ty {
            "tf32" => 4,
            "bf16" | "f16" => 2,
            _ => 1,
        }
    }

    fn sum(&self) -> &'static str {
        if self.ty == "s8" { "s32" } else { "f32" }
    }

    fn k(&self) -> u64 {
        32 / self.bytes()
    }

    fn image(&self) -> Vec<u32> {
        let mut image = vec![0u8; IMAGE_BYTES as usize];
        let bytes = self.bytes();
        for (layout, rows, seed) in [(self.a, 64, 1), (self.b, self.n, 4)] {
            for (row, k) in (0..rows).flat_map(|row| (0..self.k() * self.steps).map(move |k| (row, k))) {
                let at = layout.at(row, k, bytes);
                let word = bits(self.ty, value(seed, row, k)).to_le_bytes();
                image[at..at + bytes as usize].copy_from_slice(&word[..bytes as usize]);
            }
        }
        image.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn body(&self) -> String {
        let (n_regs, sum, is_int) = (self.n / 2, self.sum(), self.ty == "s8");
        let regs = (0..n_regs).map(|i| format!("%d{i}")).collect::<Vec<_>>().join(", ");
        let tail = match self.ty {
            "bf16" | "f16" => {
                format!(", 1, 1, {}, {}", u8::from(self.a.rows_inside), u8::from(self.b.rows_inside))
            }
            "s8" => String::new(),
            _ => ", 1, 1".into(),
        };
        let mut text = format!(
            ".shared .align 1024 .b8 image[{IMAGE_BYTES}]; .reg .b32 %d<{n_regs}>;
             mov.u32 %r1, image; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; mov.u32 %r3, 0;
             FILL: ld.global.u32 %r4, [%rd1]; st.shared.u32 [%r1], %r4; add.u64 %rd1, %rd1, 512; add.u32 %r1, %r1, 512;
             add.u32 %r3, %r3, 512; setp.lt.u32 %p1, %r3, {IMAGE_BYTES}; @%p1 bra FILL;
             fence.proxy.async; bar.sync 0;
             wgmma.fence.sync.aligned;\n"
        );
        for step in 0..self.steps {
            let (a, b) = (self.a.descriptor() + step * self.a_step / 16, self.b.descriptor() + step * self.b_step / 16);
            let (shape, ty) = (format!("m64n{}k{}", self.n, self.k()), self.ty);
            text += &format!(
                "mov.u64 %rd3, {a}; mov.u64 %rd4, {b}; setp.ne.u32 %p2, {step}, 0;
                 wgmma.mma_async.sync.aligned.{shape}.{sum}.{ty}.{ty} {{{regs}}}, %rd3, %rd4, %p2{tail};\n"
            );
        }
        text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmov.u32 %r5, 0;\n";
        for i in 0..n_regs {
            let convert = if is_int { "mov.b32" } else { "cvt.rni.s32.f32" };
            text += &format!("{convert} %r6, %d{i}; mad.lo.s32 %r5, %r6, {}, %r5;\n", 2 * i + 1);
        }
        text + "st.global.u32 [%rd0], %r5;"
    }

    fn expected(&self) -> Vec<u32> {
        let product = |row: u64, column: u64| -> i32 {
            (0..self.k() * self.steps).map(|k| value(1, row, k) * value(4, column, k)).sum()
        };
        let thread = |thread: u64| {
            let (warp, g, t) = (thread / 32, thread % 32 / 4, thread % 4);
            let weighted = (0..self.n / 2).map(|i| {
                let (row, column) = (16 * warp + g + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * t + (i & 1));
                product(row, column) * (2 * i as i32 + 1)
            });
            weighted.sum::<i32>() as u32
        };
        (0..128).map(thread).collect()
    }
}

fn swizzled() -> Case {
    let layout = |start| Layout { start, leading: 16, stride: 1024, pattern: 128, rows_inside: false };
    Case { ty: "bf16", n: 16, a: layout(0), b: layout(8192), a_step: 32, b_step: 32, steps: 4 }
}

fn run_case(case: &Case) -> (Vec<u32>, Report) {
    run_text(&hopper(&case.body()), 1, 128, &case.image())
}

fn kinds(body: &str) -> Vec<Kind> {
    let (_, report) = run_text(&hopper(body), 1, 128, &swizzled().image());
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn products_of_every_type_and_layout() {
    let k_inside = |start, leading, stride, pattern| Layout { start, leading, stride, pattern, rows_inside: false };
    let rows_inside = |start, leading, stride, pattern| Layout { start, leading, stride, pattern, rows_inside: true };
    let cases = [
        swizzled(),
        Case {
            ty: "f16",
            n: 8,
            a: k_inside(0, 1024, 128, 16),
            b: k_inside(8192, 128, 256, 16),
            a_step: 2048,
            b_step: 256,
            steps: 2,
        },
        Case {
            ty: "tf32",
            n: 24,
            a: k_inside(0, 16, 512, 64),
            b: k_inside(8192, 16, 512, 64),
            a_step: 32,
            b_step: 32,
            steps: 2,
        },
        Case {
            ty: "e4m3",
            n: 16,
            a: k_inside(0, 16, 256, 32),
            b: k_inside(8192, 16, 1024, 128),
            a_step: 32,
            b_step: 32,
            steps: 1,
        },
        Case {
            ty: "e5m2",
            n: 40,
            a: k_inside(0, 16, 1024, 128),
            b: k_inside(8192, 16, 1024, 128),
            a_step: 32,
            b_step: 32,
            steps: 4,
        },
        Case {
            ty: "s8",
            n: 32,
            a: k_inside(0, 16, 1024, 128),
            b: k_inside(8192, 16, 512, 64),
            a_step: 32,
            b_step: 32,
            steps: 2,
        },
        // Both operands are contiguous along their rows: one step of K is 16 lines of 128 bytes.
        Case {
            ty: "bf16",
            n: 128,
            a: rows_inside(0, 4096, 1024, 128),
            b: rows_inside(4096, 4096, 1024, 128),
            a_step: 2048,
            b_step: 2048,
            steps: 2,
        },
        Case {
            ty: "f16",
            n: 16,
            a: k_inside(0, 16, 1024, 128),
            b: rows_inside(8192, 128, 512, 16),
            a_step: 32,
            b_step: 256,
            steps: 2,
        },
    ];
    for case in cases {
        let (words, report) = run_case(&case);
        assert!(report.findings.is_empty(), "{} n{}: {:#?}", case.ty, case.n, report.findings);
        assert_eq!(words, case.expected(), "{} n{}", case.ty, case.n);
    }
}

#[test]
fn factors_in_registers_and_negated_products() {
    // All elements of A (in registers) and B (in shared memory) are 1; A and B may each be negated.
    let body = |scale: &str| {
        format!(
            ".shared .align 1024 .b8 image[256]; .reg .b32 %d<4>; mov.b32 %r2, 0x3f803f80; shl.b32 %r3, %r0, 2;
             setp.lt.u32 %p1, %r0, 64; @%p1 st.shared.u32 [%r3], %r2; fence.proxy.async; bar.sync 0;
             mov.u64 %rd3, {};
             wgmma.fence.sync.aligned;
             wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, {{%r2, %r2, %r2, %r2}}, %rd3, 0, {scale}, 0;
             wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%d0, %d1, %d2, %d3}}, {{%r2, %r2, %r2, %r2}}, %rd3, 1, {scale}, 0;
             wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
             cvt.rni.s32.f32 %r4, %d3; st.global.u32 [%rd0], %r4;",
            (128u64 >> 4) << 16 | (256 >> 4) << 32
        )
    };
    for (scale, expected) in [("1, 1", 32), ("-1, 1", -32), ("-1, -1", 32)] {
        let (words, report) = run_text(&hopper(&body(scale)), 1, 128, &[]);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert_eq!(words, vec![expected as u32; 128]);
    }
    // The registers of A are in use until the wait.
    let early = body("1, 1").replace("wgmma.commit_group", "mov.b32 %r2, 0; wgmma.commit_group");
    let (_, report) = run_text(&hopper(&early), 1, 128, &[]);
    assert_eq!(report.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::InFlight]);
}

#[test]
fn each_missing_step_is_found() {
    let body = swizzled().body();
    assert_eq!(kinds(&body), []);
    let without = |text: &str| {
        assert!(body.contains(text), "{text}");
        kinds(&body.replacen(text, "", 1))
    };
    assert!(without("fence.proxy.async;").iter().all(|kind| *kind == Kind::MissingFence));
    assert!(!without("fence.proxy.async;").is_empty());
    assert_eq!(without("wgmma.fence.sync.aligned;"), [Kind::MissingFence]);
    assert!(without("bar.sync 0;").contains(&Kind::Race));
    assert!(without("wgmma.wait_group.sync.aligned 0;").contains(&Kind::InFlight));
    assert!(without("wgmma.commit_group.sync.aligned;").contains(&Kind::InFlight));
    // Another instruction writes an accumulator register between the fence and the product.
    let late = body.replace("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.b32 %d1, 0;");
    assert_eq!(kinds(&late), [Kind::MissingFence]);
    // Shared memory is overwritten while the product reads it.
    let early = body.replace("wgmma.wait_group", "bar.sync 1; st.shared.u32 [%r2], 0; wgmma.wait_group");
    assert!(kinds(&early).contains(&Kind::Race));
    let after = body.replace("mov.u32 %r5, 0;", "mov.u32 %r5, 0; bar.sync 1; st.shared.u32 [%r2], 0;");
    assert_eq!(kinds(&after), []);
    // Only three of four warps execute the product.
    let part = body.replace("wgmma.fence", "setp.ge.u32 %p3, %r0, 96; @%p3 bra END; wgmma.fence") + "END:";
    assert!(kinds(&part).contains(&Kind::DivergentSync));
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let error = |text: &str| crate::Module::parse(&hopper(text)).unwrap_err().to_string();
    let rows = [
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
            "is not supported",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2}, %rd1, %rd2, 1, 1, 1, 0, 0;",
            "4 registers here, not 2",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
            "takes 6 operands, not 8",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 2, 1, 0, 0;",
            "expected 1 or -1",
        ),
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, %r1, 2, 1, 1, 1, 0, 0;",
            "the selector does not exist",
        ),
        ("wgmma.fence;", "expected .sync.aligned"),
    ];
    for (text, expected) in rows {
        assert!(error(text).contains(expected), "{text}: {}", error(text));
    }
    let old = crate::testing::kernel("wgmma.fence.sync.aligned;");
    assert!(crate::Module::parse(&old).unwrap_err().message.contains("needs .target sm_90a"));
    let plain = hopper("wgmma.fence.sync.aligned;").replace("sm_90a", "sm_90");
    assert!(crate::Module::parse(&plain).unwrap_err().message.contains("needs .target sm_90a"));
}

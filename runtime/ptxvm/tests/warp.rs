//! Warp-level instructions as PTX text: shuffles, votes, reductions, tiles, matrix loads, counters

use ptxvm::units::Lanes;
use ptxvm::units::matrix::{Row, ldmatrix};
use ptxvm::units::mma::Mma;
use ptxvm::{Kind, Launch, Memory, Module, Options, Report};

/// Runs `body` in one warp: `%i0...` hold the inputs and `%o0...` become the outputs.
fn warp(body: &str, inputs: &[Lanes], outputs: usize) -> (Vec<Lanes>, Report) {
    let loads: String = (0..inputs.len()).map(|k| format!("ld.global.b32 %i{k}, [%in+{}];\n", 128 * k)).collect();
    let stores: String = (0..outputs).map(|k| format!("st.global.b32 [%out+{}], %o{k};\n", 128 * k)).collect();
    let text = format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .shared .align 128 .b8 smem[8192];\n\
         .reg .pred %p<8>; .reg .b32 %i<24>, %o<24>, %r<32>; .reg .f64 %d<32>; .reg .b64 %in, %out, %l<8>; .reg .b32 %t;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n\
         mad.wide.u32 %in, %t, 4, %in;\nmad.wide.u32 %out, %t, 4, %out;\n{loads}{body}\n{stores}ret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let input = memory.alloc(bytes.len().max(4), "in");
    memory.write(input, &bytes).unwrap();
    let output = memory.alloc(128 * outputs.max(1), "out");
    let launch = Launch {
        entry: "k".into(),
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        params: [input.to_le_bytes(), output.to_le_bytes()].concat(),
    };
    let report =
        ptxvm::run(&module, &mut memory, &launch, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut bytes = vec![0; 128 * outputs.max(1)];
    memory.read(output, &mut bytes).unwrap();
    let words: Vec<u32> = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    (words.chunks(32).take(outputs).map(|lanes| lanes.try_into().unwrap()).collect(), report)
}

/// Like [`warp`], and asserts that there are no findings.
fn clean(body: &str, inputs: &[Lanes], outputs: usize) -> Vec<Lanes> {
    let (lanes, report) = warp(body, inputs, outputs);
    assert!(report.findings.is_empty(), "{body}\n{:?}", report.findings);
    lanes
}

/// Pseudo-random numbers that are the same in every run.
fn random(seed: u32) -> impl FnMut() -> u32 {
    let mut x = u64::from(seed) * 2 + 1;
    move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u32
    }
}

fn lanes(seed: u32) -> Lanes {
    let mut next = random(seed);
    std::array::from_fn(|_| next())
}

#[test]
fn shuffles_move_registers_and_set_predicates() {
    let a = lanes(1);
    let pick = "selp.u32 %o1, 1, 0, %p1;";
    let expect = |mode: &str, clamp: &str, source: &dyn Fn(usize) -> Option<usize>| {
        let body = format!("shfl.sync.{mode}.b32 %o0|%p1, %i0, 5, {clamp}, 0xffffffff;\n{pick}");
        let got = clean(&body, &[a], 2);
        for lane in 0..32 {
            let from = source(lane);
            assert_eq!(got[0][lane], a[from.unwrap_or(lane)], "{mode} lane {lane}");
            assert_eq!(got[1][lane], u32::from(from.is_some()), "{mode} lane {lane}");
        }
    };
    expect("down", "31", &|lane| (lane + 5 < 32).then(|| lane + 5));
    expect("up", "0", &|lane| lane.checked_sub(5));
    expect("bfly", "31", &|lane| Some(lane ^ 5));
    expect("idx", "31", &|_| Some(5));
    // The operand c selects segments of eight lanes: bits 8 to 12 hold the segment mask 24.
    expect("down", "0x181f", &|lane| (lane % 8 + 5 < 8).then(|| lane + 5));
    expect("idx", "0x181f", &|lane| Some(lane / 8 * 8 + 5));
    // The lane is given in a register, and there is no predicate.
    let index: Lanes = std::array::from_fn(|lane| (lane as u32 * 7 + 3) % 32);
    let got = clean("shfl.sync.idx.b32 %o0, %i0, %i1, 31, -1;", &[a, index], 1);
    assert_eq!(got[0], index.map(|i| a[i as usize]));
}

#[test]
fn a_shuffle_from_an_absent_lane_is_reported() {
    let body = "setp.lt.u32 %p1, %t, 16;\nmov.u32 %o0, 0;\n@!%p1 bra DONE;\n\
                shfl.sync.down.b32 %o0, %i0, 8, 31, 0x0000ffff;\nDONE:";
    let (_, report) = warp(body, &[lanes(2)], 1);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].kind, Kind::UndefinedShuffle);
}

#[test]
fn votes_and_matches_and_reductions() {
    let a: Lanes = std::array::from_fn(|lane| (lane as u32 * 5) % 3);
    let ones = (0..32).fold(0u32, |mask, lane| mask | u32::from(a[lane] == 1) << lane);
    let body = "setp.eq.u32 %p1, %i0, 1;\nvote.sync.ballot.b32 %o0, %p1, -1;\n\
                vote.sync.any.pred %p2, %p1, -1;\nselp.u32 %o1, 1, 0, %p2;\n\
                vote.sync.all.pred %p3, %p1, -1;\nselp.u32 %o2, 1, 0, %p3;\n\
                vote.sync.uni.pred %p4, !%p1, -1;\nselp.u32 %o3, 1, 0, %p4;\n\
                match.any.sync.b32 %o4, %i0, -1;\nmatch.all.sync.b32 %o5|%p5, 7, -1;\nselp.u32 %o6, 1, 0, %p5;\n\
                activemask.b32 %o7;";
    let got = clean(body, &[a], 8);
    assert_eq!([got[0], got[1], got[2], got[3]], [[ones; 32], [1; 32], [0; 32], [0; 32]]);
    for lane in 0..32 {
        let same = (0..32).fold(0u32, |mask, other| mask | u32::from(a[other] == a[lane]) << other);
        assert_eq!(got[4][lane], same, "match.any lane {lane}");
    }
    assert_eq!([got[5], got[6], got[7]], [[u32::MAX; 32], [1; 32], [u32::MAX; 32]]);

    let v = lanes(3);
    let body = "redux.sync.add.u32 %o0, %i0, -1;\nredux.sync.min.s32 %o1, %i0, -1;\nredux.sync.max.u32 %o2, %i0, -1;\n\
                redux.sync.xor.b32 %o3, %i0, -1;\nredux.sync.or.b32 %o4, %i0, -1;\nredux.sync.and.b32 %o5, %i0, -1;";
    let got = clean(body, &[v], 6);
    let expected = [
        v.iter().fold(0u32, |a, b| a.wrapping_add(*b)),
        v.iter().map(|x| *x as i32).min().unwrap() as u32,
        v.iter().copied().max().unwrap(),
        v.iter().fold(0, |a, b| a ^ b),
        v.iter().fold(0, |a, b| a | b),
        v.iter().fold(u32::MAX, |a, b| a & b),
    ];
    for (lanes, expected) in got.iter().zip(expected) {
        assert_eq!(*lanes, [expected; 32]);
    }
}

#[test]
fn every_tile_shape_gets_its_registers_in_order() {
    for modifiers in [
        "m16n8k8.row.col.f32.f16.f16.f32",
        "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k16.row.col.f16.f16.f16.f16",
        "m16n8k8.row.col.f32.bf16.bf16.f32",
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k4.row.col.f32.tf32.tf32.f32",
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        "m16n8k16.row.col.s32.s8.u8.s32",
        "m16n8k32.row.col.satfinite.s32.s8.s8.s32",
        "m16n8k64.row.col.s32.s4.s4.s32",
        "m8n8k16.row.col.s32.u8.u8.s32",
    ] {
        let mma = Mma::parse(&modifiers.split('.').collect::<Vec<_>>()).unwrap();
        let list = |name: &str, from: usize, n: usize| {
            format!("{{{}}}", (from..from + n).map(|k| format!("%{name}{k}")).collect::<Vec<_>>().join(", "))
        };
        let (a, b, c) = (mma.n_a, mma.n_b, mma.n_c);
        let body = format!(
            "mma.sync.aligned.{modifiers} {}, {}, {}, {};",
            list("o", 0, mma.n_d),
            list("i", 0, a),
            list("i", a, b),
            list("i", a + b, c)
        );
        // Medium exponents, valid in every format.
        let inputs: Vec<Lanes> =
            (0..a + b + c).map(|k| lanes(k as u32 + 10).map(|x| x & 0xbfff_bfff | 0x3000_3000)).collect();
        let mut expected = vec![[0; 32]; mma.n_d];
        mma.run(&inputs[..a], &inputs[a..a + b], &inputs[a + b..], &mut expected);
        assert_eq!(clean(&body, &inputs, mma.n_d), expected, "{modifiers}");
    }
}

#[test]
fn double_precision_tiles_take_64_bit_registers() {
    // A is all ones and B all twos: every element is c + 4 * 2.
    let body = "mov.f64 %d0, 0d3ff0000000000000;\nmov.f64 %d1, 0d4000000000000000;\nmov.b64 %d2, {0, %i0};\n\
                mov.f64 %d3, %d0;\nmma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d4, %d5}, {%d0}, {%d1}, {%d2, %d3};\n\
                mov.b64 {%r1, %o0}, %d4;\nmov.b64 {%r1, %o1}, %d5;";
    let c: Lanes = std::array::from_fn(|lane| ((lane as f64).to_bits() >> 32) as u32);
    let got = clean(body, &[c], 2);
    assert_eq!(got[0], std::array::from_fn(|lane| ((lane as f64 + 8.0).to_bits() >> 32) as u32));
    assert_eq!(got[1], [(9f64.to_bits() >> 32) as u32; 32]);
}

#[test]
fn sparse_tiles_take_metadata_and_a_selector() {
    let modifiers = "m16n8k32.row.col.f32.f16.f16.f32";
    let mma = Mma::parse_sparse(&modifiers.split('.').collect::<Vec<_>>()).unwrap();
    let inputs: Vec<Lanes> = (0..12).map(|k| lanes(k + 40).map(|x| x & 0xbfff_bfff | 0x3000_3000)).collect();
    let nibbles = [0x4, 0x8, 0x9, 0xc, 0xd, 0xe];
    let e = lanes(60).map(|x| (0..8).fold(0, |e, i| e | nibbles[(x >> (3 * i)) as usize % 6] << (4 * i)));
    for selector in 0..2 {
        let body = format!(
            "mma.sp.sync.aligned.{modifiers} {{%o0,%o1,%o2,%o3}}, {{%i0,%i1,%i2,%i3}}, {{%i4,%i5,%i6,%i7}}, \
             {{%i8,%i9,%i10,%i11}}, %i12, {selector};"
        );
        let mut expected = vec![[0; 32]; 4];
        mma.run_sparse(&inputs[..4], &inputs[4..8], &inputs[8..12], &e, selector, &mut expected);
        let all: Vec<Lanes> = inputs.iter().copied().chain([e]).collect();
        assert_eq!(clean(&body, &all, 4), expected, "selector {selector}");
    }
}

#[test]
fn matrix_loads_spread_rows_and_count_wavefronts() {
    let words: Vec<Lanes> = (0..4).map(|k| lanes(k + 70)).collect();
    let rows: [Row; 32] = std::array::from_fn(|lane| std::array::from_fn(|w| words[w][lane]));
    // Each lane writes a row of 16 bytes; rows are `stride` bytes apart.
    for (stride, conflict_free) in [(16, true), (80, true), (128, false)] {
        for (count, registers) in [(1, "%o0"), (2, "%o0, %o1"), (4, "%o0, %o1, %o2, %o3")] {
            for trans in [false, true] {
                let suffix = if trans { ".trans" } else { "" };
                let body = format!(
                    "mov.u32 %r0, smem;\nmad.lo.u32 %r0, %t, {stride}, %r0;\n\
                     st.shared.v4.b32 [%r0], {{%i0, %i1, %i2, %i3}};\nbar.warp.sync -1;\n\
                     ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{registers}}}, [%r0];"
                );
                let (got, report) = warp(&body, &words, count);
                assert!(report.findings.is_empty(), "{:?}", report.findings);
                assert_eq!(got, ldmatrix(&rows, count, trans)[..count], "x{count} {trans} {stride}");
                let shared = &report.counters.shared;
                let tiles = count as u64 + 4;
                assert_eq!(shared.ideal, tiles, "x{count} {trans} {stride}");
                assert_eq!(
                    shared.wavefronts,
                    if conflict_free { tiles } else { 8 * tiles },
                    "x{count} {trans} {stride}"
                );
            }
        }
    }
}

#[test]
fn wmma_multiplies_what_it_loads() {
    // Matrices of 16x16 bytes: A by rows, B by columns; D = A * B is stored to shared memory and then written out.
    let (a, b) = (lanes(80), lanes(81));
    let inputs: Vec<Lanes> = vec![a, lanes(82), b, lanes(83)];
    let body = "mov.u32 %r0, smem;\nmad.lo.u32 %r1, %t, 4, %r0;\nst.shared.b32 [%r1], %i0;\nst.shared.b32 [%r1+128], %i1;\n\
                st.shared.b32 [%r1+256], %i2;\nst.shared.b32 [%r1+384], %i3;\nbar.warp.sync -1;\nadd.u32 %r2, %r0, 256;\n\
                wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%r4, %r5}, [%r0], 16;\n\
                wmma.load.b.sync.aligned.col.m16n16k16.shared.s8 {%r6, %r7}, [%r2], 16;\nmov.u32 %r3, 0;\n\
                wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 {%r8,%r9,%r10,%r11,%r12,%r13,%r14,%r15}, {%r4, %r5}, \
                {%r6, %r7}, {%r3,%r3,%r3,%r3,%r3,%r3,%r3,%r3};\nadd.u32 %r2, %r0, 1024;\n\
                wmma.store.d.sync.aligned.row.m16n16k16.shared.s32 [%r2], {%r8,%r9,%r10,%r11,%r12,%r13,%r14,%r15}, 16;\n\
                bar.warp.sync -1;\nmad.lo.u32 %r1, %t, 4, %r2;\n";
    let loads: String = (0..8).map(|k| format!("ld.shared.b32 %o{k}, [%r1+{}];\n", 128 * k)).collect();
    let got = clean(&format!("{body}{loads}"), &inputs, 8);
    let byte = |half: usize, at: usize| {
        let word = inputs[half + at / 128][at % 128 / 4];
        i32::from((word >> (8 * (at % 4))) as i8)
    };
    for row in 0..16 {
        for column in 0..16 {
            let expected: i32 = (0..16).map(|k| byte(0, 16 * row + k) * byte(2, 16 * column + k)).sum();
            let at = 16 * row + column;
            assert_eq!(got[at / 32][at % 32] as i32, expected, "row {row} column {column}");
        }
    }
}

#[test]
fn wmma_reads_either_layout_and_every_stride() {
    // f16 matrices by rows and by columns with a stride of 24 elements, read from global memory through generic
    // addresses; C and D by columns. Element (r, c) of A is r - c, of B r + 2c, both mod 8, so that sums are exact.
    let a_of = |r: usize, c: usize| ((r + 16 - c) % 8) as f32;
    let b_of = |r: usize, c: usize| ((r + 2 * c) % 8) as f32;
    let pattern = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
    for (a_layout, b_layout) in [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")] {
        let fill = |f: &dyn Fn(usize, usize) -> f32, layout: &str| {
            let mut words = vec![0u32; 24 * 16 / 2];
            for (r, c) in (0..16).flat_map(|r| (0..16).map(move |c| (r, c))) {
                let at = if layout == "row" { 24 * r + c } else { 24 * c + r };
                words[at / 2] |= pattern(f(r, c)) << (16 * (at % 2));
            }
            words
        };
        let all: Vec<u32> = [fill(&a_of, a_layout), fill(&b_of, b_layout)].concat();
        let inputs: Vec<Lanes> = all.chunks(32).map(|words| words.try_into().unwrap()).collect();
        let registers =
            |name: &str| format!("{{{}}}", (0..8).map(|k| format!("%{name}{k}")).collect::<Vec<_>>().join(","));
        let body = format!(
            ".reg .b32 %a<8>, %b<8>, %c<8>; .reg .b64 %pa, %pb, %pc;\n\
             mul.wide.u32 %pa, %t, 4;\nsub.u64 %pa, %in, %pa;\nadd.u64 %pb, %pa, 768;\n\
             wmma.load.a.sync.aligned.{a_layout}.m16n16k16.f16 {}, [%pa], 24;\n\
             wmma.load.b.sync.aligned.{b_layout}.m16n16k16.f16 {}, [%pb], 24;\n\
             mov.u32 %r0, smem;\nmad.lo.u32 %r1, %t, 4, %r0;\nmov.f32 %r2, 0f40400000;\n\
             st.shared.b32 [%r1], %r2; st.shared.b32 [%r1+128], %r2; st.shared.b32 [%r1+256], %r2; st.shared.b32 [%r1+384], %r2;\n\
             st.shared.b32 [%r1+512], %r2; st.shared.b32 [%r1+640], %r2; st.shared.b32 [%r1+768], %r2; st.shared.b32 [%r1+896], %r2;\n\
             bar.warp.sync -1;\nwmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {}, [%r0];\n\
             wmma.mma.sync.aligned.{a_layout}.{b_layout}.m16n16k16.f32.f32 {}, {}, {}, {};\n\
             wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r0], {}, 16;\nbar.warp.sync -1;\n{}",
            registers("a"),
            registers("b"),
            registers("c"),
            registers("c"),
            registers("a"),
            registers("b"),
            registers("c"),
            registers("c"),
            (0..8).map(|k| format!("ld.shared.b32 %o{k}, [%r1+{}];\n", 128 * k)).collect::<String>()
        );
        let got = clean(&body, &inputs, 8);
        for (r, c) in (0..16).flat_map(|r| (0..16).map(move |c| (r, c))) {
            let expected = 3.0 + (0..16).map(|k| a_of(r, k) * b_of(k, c)).sum::<f32>();
            let at = 16 * c + r;
            assert_eq!(f32::from_bits(got[at / 32][at % 32]), expected, "{a_layout} {b_layout} row {r} column {c}");
        }
    }
}

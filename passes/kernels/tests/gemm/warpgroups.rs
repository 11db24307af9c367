//! Warpgroup tiles: the PTX for Hopper, executed in ptxvm, agrees with the interpreter, and needs its synchronisation

use crate::launch::{Case, Fill, Outcome};
use crate::problem::{After, Lie, PLAIN, Problem};
use crate::{check, name, stated_for};
use ptxvm::Kind;
use sardonyx_base::DType;
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::gemm::Shape;
use sardonyx_kernels::ptx::gemm::warpgroups::TILES;

const SMALL: Problem = Problem { dtype: DType::BF16, sizes: [128, 64, 256], ..PLAIN };

/// A product of bf16 operands with f32 result, where B is a constant packed for GPUs in panels of 128 columns.
const PACKED: Problem = Problem { widened: true, fixed: true, sizes: [128, 128, 256], b: Lie::Chunks(128), ..PLAIN };

fn close(p: Problem, shape: &'static Shape, fill: Fill) -> Outcome {
    let case = Case::new(p, fill);
    let outcome = case.run_on_hopper(Some(shape), &|text| text);
    check(&case, &outcome, fill, &name(&p, shape));
    outcome
}

#[test]
fn every_tile_type_and_layout() {
    for (turn, shape) in TILES.iter().enumerate() {
        for dtype in [DType::BF16, DType::F16] {
            for (a, b) in [Lie::K(0), Lie::Rows(0)].into_iter().flat_map(|a| [(a, Lie::K(0)), (a, Lie::Rows(0))]) {
                let after = if turn == 0 { After::BiasGelu } else { After::Residual };
                let p = Problem { dtype, sizes: [shape.m, shape.n, 320], batch: 2, a, b, after, ..PLAIN };
                close(p, shape, Fill::Random);
                close(Problem { after: After::Nothing, sizes: [shape.m, shape.n, 64], ..p }, shape, Fill::Whole);
            }
        }
    }
}

#[test]
fn extents_around_the_tiles() {
    for (turn, shape) in TILES.iter().enumerate() {
        let ks = [8, 56, 64, 72, 200, 256, 264];
        for (i, (m, n)) in [(0, 8), (1, 0), (-8, -8), (8, 8), (shape.m - 8, 2 * shape.n - 8)].into_iter().enumerate() {
            for (j, (a, b)) in [(Lie::K(0), Lie::Rows(0)), (Lie::Rows(8), Lie::K(8))].into_iter().enumerate() {
                let sizes =
                    [shape.m + if a == Lie::K(0) { m } else { m - m % 8 }, shape.n + n, ks[(turn + i + 3 * j) % 7]];
                let p = Problem { dtype: DType::BF16, sizes, a, b, ..PLAIN };
                close(p, shape, Fill::Whole);
            }
        }
    }
}

/// Bulk copies fetch constant operands B, in panels narrower than, as wide as, or wider than the tile. There are one or
/// two products, and some tiles extend beyond the last column.
#[test]
fn packed_constants() {
    for (turn, shape) in TILES.iter().enumerate() {
        for (i, width) in [32, 64, 128].into_iter().enumerate() {
            for (j, second) in [None, Some(Lie::Chunks(width))].into_iter().enumerate() {
                let columns = shape.n / (1 + j as i64);
                let whole = width < columns;
                let n = if whole { 2 * columns } else { [columns - 8, columns, 2 * columns + 24][(turn + i) % 3] };
                let after = [After::Nothing, After::BiasGelu, After::Residual][(i + j) % 3];
                let sizes = [shape.m + [0, 1, -8][(turn + i + j) % 3], n, [64, 192, 320][(turn + j) % 3]];
                let a = [Lie::K(0), Lie::Rows(0), Lie::K(8)][(turn + i) % 3];
                let a = if sizes[0] % 8 == 0 { a } else { Lie::K(0) };
                let p = Problem { sizes, a, b: Lie::Chunks(width), second, after, ..PACKED };
                let outcome = close(p, shape, Fill::Random);
                assert_eq!(outcome.report.counters.shared.conflicts(), 0, "{}", name(&p, shape));
            }
        }
    }
    for (width, n) in [(128, 128), (128, 200), (64, 192), (32, 256)] {
        let p = Problem { sizes: [256, n, 256], b: Lie::Chunks(width), after: After::BiasGelu, ..PACKED };
        let case = Case::new(p, Fill::Random);
        let outcome = case.run_on_hopper(None, &|text| {
            assert!(text.contains("cp.async.bulk.shared") && text.contains("wgmma.mma_async"));
            text
        });
        check(&case, &outcome, Fill::Random, &format!("{width} {n}"));
        stated_for(&p, &outcome, 0.02, "sm_90a");
    }
}

/// Each of these changes to the PTX causes a finding or a wrong result: another number of bytes copied or announced,
/// another number of arrivals, an announcement or a copy left out, a swizzled descriptor, a transposed operand.
#[test]
fn what_orders_bulk_copies_is_needed() {
    let case = Case::new(Problem { sizes: [64, 64, 512], b: Lie::Chunks(64), ..PACKED }, Fill::Whole);
    let expected = case.expected();
    let constant: i64 = 8 << 32 | 64 << 16;
    let (constant, swizzled) = (constant.to_string(), (constant | 1 << 62).to_string());
    for (from, to) in [
        ("], 8192;", "], 8176;"),
        ("], 8192;", "], 8208;"),
        (", 8192, [", ", 8176, ["),
        ("], 129;", "], 128;"),
        ("mbarrier.arrive.expect_tx", "//"),
        ("cp.async.bulk", "//"),
        (constant.as_str(), swizzled.as_str()),
        (", 1, 1, 0, 0;", ", 1, 1, 0, 1;"),
    ] {
        let outcome = case.run_on_hopper(Some(&TILES[2]), &|text| {
            assert!(text.contains(from), "{from}");
            let line =
                |line: &str| if to == "//" && line.contains(from) { String::new() } else { line.replace(from, to) };
            text.lines().map(|l| line(l) + "\n").collect()
        });
        assert!(!outcome.report.findings.is_empty() || outcome.values != expected, "{from} => {to}");
    }
}

/// The number of rows is known only at launch. The PTX of the kernel contains code for three tiles: for launches with
/// few rows, for those with few blocks, and for all others.
#[test]
fn open_rows() {
    let packed = Problem { symbolic: true, b: Lie::Chunks(128), ..PACKED };
    for (m, batch) in [(1, 1), (16, 2), (17, 1), (130, 3), (260, 32)] {
        for p in [Problem { symbolic: true, fixed: true, ..SMALL }, packed] {
            if p.b == packed.b && batch == 3 {
                continue;
            }
            let p = Problem { sizes: [m, 128, 192], batch, ..p };
            let case = Case::new(p, Fill::Whole);
            let outcome = case.run_on_hopper(None, &|text| {
                for part in ["wgmma.mma_async.sync.aligned.m64n128", "wgmma.mma_async.sync.aligned.m64n64", "mma.sync"]
                {
                    assert!(text.contains(part), "{part}");
                }
                text
            });
            check(&case, &outcome, Fill::Whole, &format!("{m} rows"));
            stated_for(&p, &outcome, 0.02, "sm_90a");
        }
    }
}

/// The predicted number of sectors of each buffer is within 2 % of the number that the simulator counts, and there are
/// no bank conflicts in shared memory.
#[test]
fn sectors_and_banks() {
    for (a, b) in [(Lie::K(0), Lie::K(0)), (Lie::K(0), Lie::Rows(0)), (Lie::Rows(0), Lie::Rows(0))] {
        let p = Problem { sizes: [256, 192, 128], a, b, after: After::BiasGelu, ..SMALL };
        let case = Case::new(p, Fill::Random);
        let outcome = case.run_on_hopper(None, &|text| text);
        check(&case, &outcome, Fill::Random, "as the compiler chooses");
        stated_for(&p, &outcome, 0.02, "sm_90a");
        assert_eq!(outcome.report.counters.shared.conflicts(), 0, "{:?}", outcome.report.counters.lines);
    }
}

/// The compiler plans no warpgroups for older devices, other types, operands that are not contiguous or not aligned to
/// 16 bytes, at most half as many rows as the smallest tile has, constants in panels of another depth, or constants of
/// which some tiles would not be full.
#[test]
fn what_warpgroups_do_not_take() {
    let is_taken = |p: Problem, target: &str| {
        let lowered = sardonyx_kernels::lower(&p.kernel()).unwrap();
        lowered.for_gpu(Target::from_ptx(target).unwrap()).emit("k").unwrap().text.contains("wgmma")
    };
    assert!(is_taken(SMALL, "sm_90a"));
    assert!(!is_taken(SMALL, "sm_80"));
    assert!(!is_taken(Problem { dtype: DType::F32, ..SMALL }, "sm_90a"));
    assert!(!is_taken(Problem { b: Lie::Rows(3), ..SMALL }, "sm_90a"));
    assert!(!is_taken(Problem { a: Lie::Apart, ..SMALL }, "sm_90a"));
    assert!(!is_taken(Problem { sizes: [20, 64, 64], ..SMALL }, "sm_90a"));
    assert!(is_taken(Problem { second: Some(Lie::Rows(0)), ..SMALL }, "sm_90a"));
    let packed = |n, k, width| Problem { sizes: [128, n, k], b: Lie::Chunks(width), ..PACKED };
    assert!(is_taken(packed(200, 256, 128), "sm_90a") && is_taken(packed(64, 256, 32), "sm_90a"));
    assert!(!is_taken(packed(200, 248, 128), "sm_90a") && !is_taken(packed(200, 256, 32), "sm_90a"));
    assert!(!is_taken(Problem { b: Lie::Panels, ..PACKED }, "sm_90a"));
    let case = Case::new(Problem { b: Lie::Rows(3), ..SMALL }, Fill::Whole);
    check(&case, &case.run_on_hopper(None, &|text| text), Fill::Whole, "columns at odd places");
}

/// Each of these changes to the synchronisation of the ring of stages makes the simulator report a finding of an
/// expected kind.
#[test]
fn what_orders_the_ring_is_needed() {
    let case = Case::new(Problem { sizes: [64, 64, 512], ..SMALL }, Fill::Whole);
    let changes: [(&str, &str, &[Kind]); 8] = [
        ("fence.proxy.async.shared::cta;", "", &[Kind::MissingFence]),
        ("wgmma.fence.sync.aligned;", "", &[Kind::MissingFence]),
        ("wgmma.wait_group.sync.aligned 0;", "", &[Kind::InFlight]),
        ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 7;", &[Kind::InFlight]),
        ("cp.async.wait_group 2;", "cp.async.wait_group 3;", &[Kind::InFlight]),
        ("bar.sync 0;", "", &[Kind::BarrierMisuse, Kind::Race]),
        ("], 128;", "], 129;", &[Kind::Deadlock]),
        ("], 4;", "], 3;", &[Kind::Race, Kind::BarrierMisuse]),
    ];
    for (from, to, expected) in changes {
        let outcome = case.run_on_hopper(Some(&TILES[2]), &|text| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let kinds: Vec<Kind> = outcome.report.findings.iter().map(|f| f.kind).collect();
        assert!(kinds.iter().any(|kind| expected.contains(kind)), "{from}: {:?}", outcome.report.findings);
    }
}

/// Each of these changes to the PTX except the last causes a finding or a wrong result: a group that is not committed,
/// a transposed or negated operand, another swizzle pattern, a descriptor that starts 32 bytes later, another element
/// type.
#[test]
fn changes_are_noticed() {
    let case = Case::new(Problem { sizes: [64, 64, 512], ..SMALL }, Fill::Whole);
    let expected = case.expected();
    let along_k: i64 = 1 << 62 | 64 << 32 | 1 << 16;
    let constant = along_k.to_string();
    let (other_pattern, shifted) = ((along_k ^ 3 << 62).to_string(), (along_k + 2).to_string());
    for (from, to) in [
        ("wgmma.commit_group.sync.aligned;", ""),
        ("cp.async.commit_group;", ""),
        (", 1, 1, 0, 1;", ", 1, 1, 0, 0;"),
        (", 1, 1, 0, 1;", ", 1, -1, 0, 1;"),
        (constant.as_str(), other_pattern.as_str()),
        (constant.as_str(), shifted.as_str()),
        ("k16.f32.bf16.bf16", "k16.f32.f16.f16"),
        ("mbarrier.try_wait", "mbarrier.test_wait"),
    ] {
        let outcome = case.run_on_hopper(Some(&TILES[2]), &|text| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let is_noticed = !outcome.report.findings.is_empty() || outcome.values != expected;
        // The last change is not noticed: `test_wait` in place of `try_wait` gives an equivalent loop.
        assert_eq!(is_noticed, to != "mbarrier.test_wait", "{from} => {to}");
    }
}

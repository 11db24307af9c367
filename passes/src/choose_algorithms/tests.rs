//! small random convolutions  =>  the same results up to rounding with Winograd's algorithm, for whole and cut batches

use super::*;
use crate::random::Random;
use crate::steps::{drop_dead, sort_steps};
use sardonyx_base::Tensor;
use sardonyx_dialects::flow::{Layout, Source};
use sardonyx_dialects::interp::run_program;
use sardonyx_dialects::scalar::ReduceFn;
use sardonyx_kernels::Target;
use std::sync::Arc;

const F: DType = DType::F32;

/// Index of the step of `program` that is the convolution.
const CONVOLUTION: usize = 2;

fn tensor(r: &mut Random, dims: &[i64]) -> Tensor {
    let n: i64 = dims.iter().product();
    let values = (0..n).map(|_| r.unit() as f32).collect();
    Tensor::from_vec(dims.iter().map(|d| *d as usize).collect(), values)
}

fn container(dims: &[i64], layout: Layout) -> Container {
    Container { layout, ..Container::plain(F, dims.iter().map(|n| Dim::constant(*n)).collect()) }
}

/// Sizes of a convolution: number of images, lines and columns of the result, channels of the image and of the result.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    n: i64,
    h: i64,
    w: i64,
    c: i64,
    o: i64,
    /// Lines and columns of the filter.
    f: [i64; 2],
}

const SQUARE: [i64; 2] = [3, 3];

/// Builds -max(conv(x, k) + bias + z, 0), where z is added elementwise and a separate step negates. Returns the
/// program, its inputs x and z, the filters k and the bias.
fn program(s: Sizes, channels_last: bool) -> (Program, Vec<(String, Tensor)>, Tensor, Tensor) {
    let mut r = Random::new((s.n * 7 + s.h * 11 + s.w * 13 + s.c * 17 + s.o) as u64);
    let layout = if channels_last { Layout::Order(vec![0, 2, 3, 1]) } else { Layout::RowMajor };
    let mut p = Program { name: "main".into(), ..Program::default() };
    let x = p.container(container(&[s.n, s.c, s.h + s.f[0] - 1, s.w + s.f[1] - 1], layout.clone()));
    let z = p.container(container(&[s.n, s.o, s.h, s.w], Layout::RowMajor));
    let k = p.container(container(&[s.o, s.c, s.f[0], s.f[1]], Layout::RowMajor));
    let bias = p.container(container(&[s.o], Layout::RowMajor));
    let y = p.container(container(&[s.n, s.o, s.h, s.w], layout));
    for (id, name) in [(k, "k"), (bias, "bias")] {
        let op = FlowOp::Param { source: Source::one(name), window: None };
        p.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
    }
    let v = Kernel::var;
    let mut body = Draft::default();
    let image = body.load(&p, x, vec![v(0), v(4), v(2) + v(5), v(3) + v(6)], None);
    let filters = body.load(&p, k, vec![v(1), v(4), v(5), v(6)], None);
    let product = body.apply(ScalarFn::Mul, &[image, filters], F);
    let sum = body.push(Body::Reduce { f: ReduceFn::Add, arg: product }, F);
    let bias = body.load(&p, bias, vec![v(1)], None);
    let biased = body.apply(ScalarFn::Add, &[sum, bias], F);
    let other = body.load(&p, z, vec![v(0), v(1), v(2), v(3)], None);
    let both = body.apply(ScalarFn::Add, &[biased, other], F);
    let zero = body.push(Body::Const(0.0), F);
    let value = body.apply(ScalarFn::Max, &[both, zero], F);
    let dims = |sizes: &[i64]| sizes.iter().map(|n| Dim::constant(*n)).collect();
    let mut kernel = Kernel {
        outer: dims(&[s.n, s.o, s.h, s.w]),
        inner: dims(&[s.c, s.f[0], s.f[1]]),
        deep: vec![],
        reads: body.reads,
        writes: vec![p.containers[y].clone()],
        body: body.body,
        stores: vec![Store { memlet: Memlet { container: 0, index: vec![v(0), v(1), v(2), v(3)] }, value }],
    };
    sort_outer(&mut kernel);
    p.steps.push(Step { op: FlowOp::Kernel(Arc::new(kernel)), args: body.args, results: vec![y], origins: vec![] });
    let minus = p.container(container(&[s.n, s.o, s.h, s.w], Layout::RowMajor));
    let mut body = Draft::default();
    let value = body.load(&p, y, (0..4).map(v).collect(), None);
    let value = body.apply(ScalarFn::Neg, &[value], F);
    let store = Store { memlet: Memlet { container: 0, index: (0..4).map(v).collect() }, value };
    let kernel = Kernel {
        outer: dims(&[s.n, s.o, s.h, s.w]),
        inner: vec![],
        deep: vec![],
        reads: body.reads,
        writes: vec![p.containers[minus].clone()],
        body: body.body,
        stores: vec![store],
    };
    let (op, args) = (FlowOp::Kernel(Arc::new(kernel)), body.args);
    p.steps.push(Step { op, args, results: vec![minus], origins: vec![] });
    p.inputs = vec![("x".into(), x), ("z".into(), z)];
    p.outputs = vec![("minus".into(), minus)];
    let inputs = vec![
        ("x".to_string(), tensor(&mut r, &[s.n, s.c, s.h + s.f[0] - 1, s.w + s.f[1] - 1])),
        ("z".to_string(), tensor(&mut r, &[s.n, s.o, s.h, s.w])),
    ];
    (p, inputs, tensor(&mut r, &[s.o, s.c, s.f[0], s.f[1]]), tensor(&mut r, &[s.o]))
}

fn run_both(s: Sizes, channels_last: bool, filters: Filters, calls: &[(i64, Algorithm)]) {
    let (before, inputs, k, bias) = program(s, channels_last);
    let at = CONVOLUTION;
    let site = Site::find(&before, &before.steps[at], &before.producers()).unwrap_or_else(|| panic!("{s:?} is a site"));
    let mut after = before.clone();
    let step = after.steps.remove(at);
    apply(&mut after, &site, &step, &Way { filters, calls: calls.to_vec(), gain: 0 });
    sort_steps(&mut after);
    drop_dead(&mut after);
    let params = |name: &str| Ok(if name == "k" { k.clone() } else { bias.clone() });
    let run = |p: &Program| run_program(p, &params, &inputs).unwrap().remove(0).1.to_vec::<f32>().unwrap();
    let (want, got) = (run(&before), run(&after));
    assert_eq!(want.len(), got.len());
    let worst = want.iter().zip(&got).map(|(w, g)| (w - g).abs()).fold(0.0, f32::max);
    assert!(worst <= 1e-6 * 9.0 * s.c as f32, "{s:?} {calls:?}: {worst:e}");
}

#[test]
fn results_are_those_of_the_convolution() {
    use Algorithm::Winograd;
    let even = [(1, 2, 2, 1, 1), (1, 4, 6, 3, 5), (2, 2, 4, 5, 2), (3, 6, 2, 2, 3)];
    let odd = [(1, 3, 3, 1, 1), (1, 5, 6, 3, 5), (2, 2, 7, 5, 2), (3, 3, 5, 2, 3)];
    for (n, h, w, c, o) in even.into_iter().chain(odd) {
        for channels_last in [false, true] {
            run_both(Sizes { n, h, w, c, o, f: SQUARE }, channels_last, Filters::Stored, &[(n, Winograd)]);
            for f in [SQUARE, [1, 3], [3, 1], [1, 5], [5, 1]] {
                run_both(Sizes { n, h, w, c, o, f }, channels_last, Filters::Made, &[(n, Winograd)]);
            }
        }
    }
}

#[test]
fn parts_of_a_batch_are_put_together() {
    use Algorithm::{Direct, Winograd};
    for (h, channels_last, filters, f) in [
        (2, false, Filters::Stored, SQUARE),
        (3, false, Filters::Made, SQUARE),
        (2, true, Filters::Made, [1, 5]),
        (3, true, Filters::Stored, SQUARE),
    ] {
        let s = Sizes { n: 5, h, w: 4, c: 3, o: 2, f };
        run_both(s, channels_last, filters, &[(2, Winograd), (1, Direct), (2, Winograd)]);
        run_both(s, channels_last, filters, &[(1, Winograd); 5]);
        run_both(s, channels_last, filters, &[(4, Direct), (1, Winograd)]);
    }
}

/// Of the kernels that differ from the convolution in one respect, only that with an odd number of lines is a site, and
/// only if its result is not an output.
#[test]
fn other_kernels_are_left_alone() {
    let is_site_where = |edit: &dyn Fn(&mut Kernel), read: bool| {
        let (mut p, ..) = program(Sizes { n: 1, h: 4, w: 4, c: 3, o: 2, f: SQUARE }, false);
        if !read {
            p.outputs[0].1 = p.steps[CONVOLUTION].results[0];
        }
        let at = CONVOLUTION;
        if let FlowOp::Kernel(k) = &mut p.steps[at].op {
            edit(Arc::make_mut(k));
        }
        Site::find(&p, &p.steps[at], &p.producers()).is_some()
    };
    let is_site = |edit: &dyn Fn(&mut Kernel)| is_site_where(edit, true);
    let index = |k: &mut Kernel, at: usize, to: Dim| {
        if let Body::Load { memlet, .. } = &mut k.body[0].body {
            memlet.index[at] = to;
        }
    };
    let v = Kernel::var;
    assert!(is_site(&|_| {}));
    assert!(is_site(&|k| k.outer[2] = Dim::constant(3)), "an odd number of lines");
    assert!(!is_site(&|k| k.outer[2] = Dim::constant(1)), "one line");
    assert!(!is_site_where(&|k| k.outer[2] = Dim::constant(3), false), "an odd number of lines of an output");
    assert!(is_site_where(&|_| {}, false), "an output");
    assert!(!is_site(&|k| k.outer[3] = Dim::symbol("w")), "an open number of columns");
    assert!(!is_site(&|k| k.inner[1] = Dim::constant(2)), "another filter");
    assert!(!is_site(&|k| index(k, 1, v(5))), "an offset of two indices");
    assert!(!is_site(&|k| index(k, 2, Dim::constant(2) * v(2) + v(5))), "a stride");
    assert!(!is_site(&|k| index(k, 2, v(2) + Dim::constant(2) * v(5))), "a dilation");
    assert!(!is_site(&|k| index(k, 3, v(2) + v(6))), "one variable for lines and columns");
    assert!(!is_site(&|k| index(k, 1, v(4) + v(1))), "an image for each channel of the result");
    assert!(!is_site(&|k| k.body[3].body = Body::Reduce { f: ReduceFn::Max, arg: 2 }), "no sum");
    assert!(!is_site(&|k| k.reads[0].dtype = DType::F64), "another type");
}

/// Eight images need a workspace of 49 MiB, which does not fit the cache; the workspaces of parts fit.
#[test]
fn a_batch_is_cut_where_its_parts_fit_the_cache() {
    let s = Sizes { n: 8, h: 56, w: 56, c: 64, o: 64, f: SQUARE };
    let (p, ..) = program(s, true);
    let at = CONVOLUTION;
    let site = Site::find(&p, &p.steps[at], &p.producers()).unwrap();
    let costs = Costs::new(Target::cpu());
    let estimate = Estimate::new(&p, at, &site, Filters::Stored, &costs);
    assert_eq!(estimate.workspace(8), 49 << 20);
    let free = estimate.choose(u64::MAX);
    assert!(free.calls.len() > 1 && free.workspace < 32 << 20, "{free:?}");
    let small = estimate.choose(13 << 20);
    assert!(small.workspace <= 13 << 20 && small.time >= free.time, "{small:?}");
    assert_eq!(estimate.choose(0).calls, [(8, Algorithm::Direct)]);
}

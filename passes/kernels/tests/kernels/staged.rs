//! Contractions whose operand A is padded or computed from bytes: each work item computes its window of A in scratch

use crate::build::Builder;
use crate::check;
use crate::contract::case;
use crate::harness::Case;
use sardonyx_base::{DType, Encoding, Tensor};
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Words, lower};

/// An image with a border on all sides, and a window that slides over the image.
#[derive(Clone)]
struct Image {
    size: [&'static str; 2],
    window: [i64; 2],
    channels: i64,
    stride: i64,
    dilation: i64,
    border: i64,
}

impl Image {
    /// Returns the number of window positions along an axis, as an expression.
    fn places(&self, axis: usize) -> String {
        let Image { size, window, stride, dilation, border, .. } = self;
        let more = 2 * border - (window[axis] - 1) * dilation - 1;
        format!("({} - {}) floordiv {stride} + 1", size[axis], -more)
    }

    fn builder(&self, columns: &str, summed: &[&str]) -> Builder {
        let places = [0, 1].map(|axis| self.places(axis));
        let window = self.window.map(|n| n.to_string());
        let inner = [&[window[0].as_str(), &window[1]], summed].concat();
        Builder::new(&["b", &places[0], &places[1], columns], &inner)
    }

    /// Adds the pixel of channel `channel`, or `around` in the border.
    fn pixel(
        &self,
        b: &mut Builder,
        dtype: DType,
        channel: &str,
        around: f64,
        value: &dyn Fn(&mut Builder, usize) -> usize,
    ) -> usize {
        let Image { size, channels, stride, dilation, border, .. } = self;
        let at = [1, 2].map(|v| format!("{stride}*%{v} + {dilation}*%{} - {border}", v + 3));
        let mut guard = None;
        for (at, size) in at.iter().zip(size) {
            let (low, at, high) = (b.index("0"), b.index(at), b.index(size));
            let (above, below) = (b.apply(ScalarFn::Le, &[low, at]), b.apply(ScalarFn::Lt, &[at, high]));
            let both = b.apply(ScalarFn::And, &[above, below]);
            guard = Some(guard.map_or(both, |guard| b.apply(ScalarFn::And, &[guard, both])));
        }
        let shape = ["b", size[0], size[1], &channels.to_string()];
        let x = b.guarded(dtype, &shape, &["%0", &at[0], &at[1], channel], guard);
        let x = value(b, x);
        let around = b.constant(around, b.0.body[x].dtype);
        b.apply(ScalarFn::Select, &[guard.unwrap(), x, around])
    }

    fn store(&self, b: &mut Builder, y: usize, columns: &str) {
        let places = [0, 1].map(|axis| self.places(axis));
        b.store(y, &["b", &places[0], &places[1], columns], &["%0", "%1", "%2", "%3"]);
    }

    /// A depthwise convolution of bytes times a scale.
    fn depthwise(&self) -> Kernel {
        let (channels, [i, j]) = (self.channels.to_string(), self.window.map(|n| n.to_string()));
        let mut b = self.builder(&channels, &[]);
        let x = self.pixel(&mut b, DType::U8, "%3", 0.0, &|b, x| {
            let x = b.convert(x, DType::F32);
            let scale = b.constant(0.0078125, DType::F32);
            b.apply(ScalarFn::Mul, &[x, scale])
        });
        let w = b.load(DType::F32, &[&i, &j, &channels], &["%4", "%5", "%3"]);
        let y = b.dot(x, w);
        self.store(&mut b, y, &channels);
        b.0
    }

    /// A convolution over all channels, with weights in panels.
    fn dense(&self, words: Words) -> Kernel {
        let (left, right, sum) = match words {
            Words::Singles => (DType::F32, DType::F32, DType::F32),
            Words::Pairs => (DType::BF16, DType::BF16, DType::F32),
            Words::Quads => (DType::U8, DType::I8, DType::I32),
        };
        let Image { window: [i, j], channels: c, .. } = self;
        let mut b = self.builder("40", &[&c.to_string()]);
        let x = self.pixel(&mut b, left, "%6", if left == DType::U8 { 131.0 } else { 0.0 }, &|_, x| x);
        let x = if left == sum { x } else { b.convert(x, sum) };
        let w = b.load(right, &[&(i * j * c).to_string(), "40"], &[&format!("{c} * ({j} * %4 + %5) + %6"), "%3"]);
        b.0.reads[1].encoding = Encoding::Panels { width: 32, depth: words.depth() as usize };
        let w = if right == sum { w } else { b.convert(w, sum) };
        let y = b.dot(x, w);
        self.store(&mut b, y, "40");
        b.0
    }
}

fn staged(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)], words: Words) -> Case {
    assert_eq!(kernel.class(), Class::Contract, "{name}");
    let lowered = lower(&kernel).unwrap();
    assert!(lowered.stages() && lowered.words() == Some(words), "{name}");
    let mut case = case(name, kernel, symbols, 200);
    for read in 0..case.reads.len() {
        let dims = case.reads[read].dims().to_vec();
        let n: usize = dims.iter().product();
        let byte = |i: usize| (i * 89 + i / 7) as u8;
        case = match case.reads[read].dtype() {
            DType::U8 => case.read(read, Tensor::from_vec(dims, (0..n).map(byte).collect())),
            DType::I8 => case.read(read, Tensor::from_vec(dims, (0..n).map(|i| byte(i) as i8).collect())),
            _ => case,
        };
    }
    case
}

fn images() -> Vec<Image> {
    let image =
        |size, window, channels, stride, dilation, border| Image { size, window, channels, stride, dilation, border };
    vec![
        image(["7", "9"], [3, 3], 40, 1, 1, 1),
        image(["14", "60"], [3, 3], 16, 2, 1, 1),
        image(["9", "5"], [5, 3], 36, 1, 2, 2),
        image(["3", "4"], [2, 2], 64, 3, 1, 1),
        image(["h", "w"], [3, 3], 32, 1, 1, 1),
    ]
}

const SYMBOLS: [(&str, i64); 3] = [("b", 2), ("h", 11), ("w", 53)];

#[test]
fn depthwise_windows_of_bytes() {
    let one =
        |(i, image): (usize, Image)| staged(&format!("depthwise {i}"), image.depthwise(), &SYMBOLS, Words::Singles);
    check(images().into_iter().enumerate().map(one).collect());
}

#[test]
fn windows_of_all_channels() {
    let mut cases = vec![];
    for (i, image) in images().into_iter().enumerate() {
        for words in Words::ALL {
            cases.push(staged(&format!("{words:?} {i}"), image.dense(words), &SYMBOLS, words));
        }
    }
    check(cases);
}

/// The border depends on one variable of the window only, so that window positions share no staged data.
#[test]
fn borders_of_results() {
    let image = images()[0].clone();
    let mut b = image.builder("40", &[]);
    let (low, at) = (b.index("0"), b.index("%2 - 1"));
    let guard = b.apply(ScalarFn::Le, &[low, at]);
    let x = b.guarded(DType::F32, &["b", "9", "11", "40"], &["%0", "%1 + %4", "%2 + %5", "%3"], Some(guard));
    let zero = b.constant(0.0, DType::F32);
    let x = b.apply(ScalarFn::Select, &[guard, x, zero]);
    let w = b.load(DType::F32, &["3", "3", "40"], &["%4", "%5", "%3"]);
    let y = b.dot(x, w);
    image.store(&mut b, y, "40");
    assert!(lower(&b.0).unwrap().stages());
    check(vec![case("a border of rows", b.0, &SYMBOLS, 9)]);
}

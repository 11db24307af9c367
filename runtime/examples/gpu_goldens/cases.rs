//! the test inputs of a GPU, and its results as JSON  =>  `testdata/goldens/*.json`

use half::{bf16, f16};
use serde_json::{Value, json};

/// PTX of the kernels; every entry takes the address of its input and the address of its output.
pub static PTX: &str = include_str!("../../../testdata/goldens/probe.ptx");

/// PTX of the kernels that only a GPU of compute capability 9.0 can run.
pub static PTX_SM_90A: &str = include_str!("../../../testdata/goldens/probe_sm_90a.ptx");

/// Number of 32-bit words that a lane reads and writes: one value, or six registers of operands A and B with four
/// accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Unary,
    Matrix,
}

impl Shape {
    pub fn words(self) -> (usize, usize) {
        match self {
            Shape::Unary => (1, 1),
            Shape::Matrix => (10, 4),
        }
    }
}

/// One entry point with the bits that its lanes read, warp after warp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub entry: String,
    pub shape: Shape,
    pub inputs: Vec<u32>,
}

impl Case {
    pub fn is_of_warpgroups(&self) -> bool {
        self.entry.starts_with("wgmma")
    }

    /// Number of threads in a block.
    pub fn threads(&self) -> u32 {
        if self.is_of_warpgroups() { 128 } else { 32 }
    }

    pub fn blocks(&self) -> u32 {
        (self.inputs.len() / self.shape.words().0) as u32 / self.threads()
    }

    pub fn n_outputs(&self) -> usize {
        self.inputs.len() / self.shape.words().0 * self.shape.words().1
    }
}

/// Values around which approximations of functions change their method.
static SEAMS: [f32; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-40,
    f32::MAX,
    f32::MIN,
    -126.0,
    -149.0,
    127.99,
    128.0,
];

/// Number of warps that run each unary entry, and each matrix entry.
const UNARY_WARPS: usize = 24;
const PRODUCTS: usize = 12;

static UNARY: [&str; 9] = ["cos", "ex2", "ex2_ftz", "lg2", "rcp", "rsqrt", "sin", "sqrt", "tanh"];

/// Draws one register of operand values at random.
type Factor = fn(&mut Random) -> u32;

/// Returns all test cases; they are the same at every call.
pub fn cases() -> Vec<Case> {
    let mut random = Random(20);
    let unary = UNARY.map(|entry| Case { entry: entry.into(), shape: Shape::Unary, inputs: floats(&mut random) });
    let matrix: [(&str, Factor); 9] = [
        ("mma_bf16", bf16_pair),
        ("mma_f16", f16_pair),
        ("mma_tf32", tf32),
        ("mma_s8", |r| r.bits() as u32),
        ("wgmma_bf16", bf16_pair),
        ("wgmma_f16", f16_pair),
        ("wgmma_tf32", tf32),
        ("wgmma_e4m3", |r| u32::from_le_bytes(std::array::from_fn(|_| e4m3(r.bits() as u8)))),
        ("wgmma_s8", |r| r.bits() as u32),
    ];
    let matrix = matrix.map(|(entry, factor)| {
        let lane = |random: &mut Random| -> Vec<u32> {
            let factors: Vec<u32> = (0..6).map(|_| factor(random)).collect();
            let is_whole = entry.ends_with("s8");
            let sum = (0..4).map(|_| if is_whole { random.bits() as u32 >> 8 } else { random.wide(8).to_bits() });
            factors.into_iter().chain(sum.collect::<Vec<_>>()).collect()
        };
        let inputs = (0..PRODUCTS * 32).flat_map(|_| lane(&mut random)).collect();
        Case { entry: entry.into(), shape: Shape::Matrix, inputs }
    });
    unary.into_iter().chain(matrix).collect()
}

/// Returns the seams, then values in the range that sine and exponential see in practice, then values of any exponent.
fn floats(random: &mut Random) -> Vec<u32> {
    let n = UNARY_WARPS * 32;
    let seams = SEAMS.iter().map(|v| v.to_bits());
    let others = (SEAMS.len()..n).map(|i| if i < n / 2 { random.wide(3) * 4.0 } else { random.wide(60) }.to_bits());
    seams.chain(others).collect()
}

fn bf16_pair(random: &mut Random) -> u32 {
    pair(random, |v| bf16::from_f32(v).to_bits())
}

fn f16_pair(random: &mut Random) -> u32 {
    pair(random, |v| f16::from_f32(v).to_bits())
}

fn tf32(random: &mut Random) -> u32 {
    random.wide(8).to_bits() & !0x1fff
}

/// Replaces NaN by a number.
fn e4m3(bits: u8) -> u8 {
    if bits & 0x7f == 0x7f { bits ^ 1 } else { bits }
}

fn pair(random: &mut Random, narrow: fn(f32) -> u16) -> u32 {
    let mut one = || u32::from(narrow(random.wide(8)));
    one() | one() << 16
}

/// The splitmix64 generator.
pub struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number of either sign with an exponent from -`span` to `span`.
    fn wide(&mut self, span: i32) -> f32 {
        let exponent = (self.bits() % (2 * span as u64 + 1)) as i32 - span;
        let fraction = 1.0 + (self.bits() >> 41) as f32 / (1 << 23) as f32;
        fraction * (exponent as f32).exp2() * if self.bits() & 1 == 0 { 1.0 } else { -1.0 }
    }
}

/// Serializes the results of a device.
pub fn to_json(device: &str, answers: &[(Case, Vec<u32>)]) -> String {
    let case = |(case, outputs): &(Case, Vec<u32>)| {
        let matrix = case.shape == Shape::Matrix;
        json!({"entry": case.entry, "matrix": matrix, "inputs": hex(&case.inputs), "outputs": hex(outputs)})
    };
    let cases: Vec<Value> = answers.iter().map(case).collect();
    serde_json::to_string_pretty(&json!({"device": device, "cases": cases})).expect("it has no maps with odd keys")
        + "\n"
}

fn hex(words: &[u32]) -> String {
    words.iter().map(|w| format!("{w:08x}")).collect()
}

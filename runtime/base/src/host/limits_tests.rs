//! every host operation, on operands for which it runs long  =>  it ends at a deadline and respects a limit of bytes

use super::*;
use crate::Value;
use crate::reduction::Reduction;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Limits the time of an operation: `go_on` fails from this instant on.
struct Deadline(Instant);

impl Limits for Deadline {
    fn go_on(&self) -> Result<()> {
        if Instant::now() < self.0 { Ok(()) } else { Err(Error::user("E0305", "late")) }
    }

    fn allow(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// Limits the bytes of an operation.
struct Bytes(usize);

impl Limits for Bytes {
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    fn allow(&self, bytes: usize) -> Result<()> {
        let max = self.0;
        if bytes <= max { Ok(()) } else { Err(Error::user("E0304", format!("{bytes} bytes, the limit is {max}"))) }
    }
}

/// Limits the number of allocations.
struct Times(Cell<usize>);

impl Limits for Times {
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    fn allow(&self, _: usize) -> Result<()> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| Error::user("E0304", "once too often"))?;
        self.0.set(left);
        Ok(())
    }
}

/// A loop body that returns its last operand unchanged, as the carried value and as the value to be stacked.
struct Turns;

impl Bodies for Turns {
    fn run(&mut self, _: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let value = inputs.last().cloned().ok_or_else(|| Error::defect("no operand"))?;
        Ok(vec![Tensor::scalar(true), value.clone(), value])
    }

    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// How an operation on large operands relates to the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// It takes longer than the deadline.
    Late,
    /// Whether it takes longer depends on the machine.
    Either,
}
use Long::{Either, Late};

/// An operation, and operands on which it is tested.
struct Case {
    op: HostOp,
    /// Makes the operands for a size.
    args: fn(usize) -> Vec<Tensor>,
    /// A size for which the operation runs long, and a small size.
    sizes: [usize; 2],
    long: Long,
}

fn case(op: &str, sizes: [usize; 2], long: Long, args: fn(usize) -> Vec<Tensor>) -> Case {
    Case { op: HostOp::parse(op).unwrap_or_else(|| panic!("{op}")), args, sizes, long }
}

fn floats(dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    Tensor::from_vec(dims.to_vec(), (0..n).map(|i: usize| (i.wrapping_mul(2_654_435_761) % 1_000_003) as f32).collect())
}

fn ints(dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    Tensor::from_vec(dims.to_vec(), (0..n).map(|i: usize| (i.wrapping_mul(2_654_435_761) % 1_000_003) as i64).collect())
}

fn range(n: usize) -> Tensor {
    Tensor::from_vec(vec![n], (0..n as i64).collect())
}

fn words(dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    let words: Vec<String> = (0..n).map(|i: usize| format!("w{i}")).collect();
    Tensor::from_strings(dims.to_vec(), &words)
}

fn word(text: &str) -> Tensor {
    Tensor::from_strings(vec![1], &[text])
}

/// A sequence of scalars.
fn sequence(n: usize) -> Tensor {
    Value::Sequence(vec![Value::Tensor(Tensor::scalar(7f32)); n]).into_tensor()
}

fn one(op: DataOp, args: &[Tensor]) -> Tensor {
    HostOp::Data(op).run(args).unwrap().remove(0)
}

/// Boxes that do not overlap.
fn boxes(n: usize) -> Vec<Tensor> {
    let corners = (0..n).flat_map(|i| [i as f32, 0.0, i as f32 + 0.9, 1.0]).collect();
    let scores = (0..n).map(|i| 1.0 + (i * 7919 % 1013) as f32).collect();
    let most = Tensor::scalar(n as i64);
    let [overlap, least] = [0.5f32, 0.0].map(Tensor::scalar);
    vec![Tensor::from_vec(vec![1, n, 4], corners), Tensor::from_vec(vec![1, 1, n], scores), most, overlap, least]
}

fn ngrams(n: usize) -> Vec<Tensor> {
    let weights = Tensor::from_vec(vec![2], vec![1f32; 2]);
    vec![
        range(n),
        Tensor::from_vec(vec![4], vec![1i64, 2, 3, 4]),
        Tensor::from_vec(vec![2], vec![0i64, 0]),
        range(2),
        weights,
    ]
}

/// A PGM file of n × n pixels.
#[cfg(feature = "image")]
fn picture(n: usize) -> Vec<Tensor> {
    let mut file = format!("P5\n{n} {n}\n255\n").into_bytes();
    file.resize(file.len() + n * n, 7);
    vec![Tensor::from_vec(vec![file.len()], file)]
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("NonZero", [8 << 20, 100], Either, |n| vec![floats(&[n])]),
        case("Unique sorted=1", [3_000_000, 100], Late, |n| vec![floats(&[n])]),
        case("Unique sorted=0", [3_000_000, 100], Late, |n| vec![ints(&[n])]),
        case("Unique axis=1 sorted=0", [1_500_000, 100], Late, |n| vec![ints(&[2, n])]),
        case("NonMaxSuppression center=0", [20_000, 20], Late, boxes),
        case("Loop carried=1", [200_000_000, 10], Late, |n| {
            vec![Tensor::scalar(n as i64), Tensor::scalar(true), floats(&[100])]
        }),
        case("Order descending=1", [4 << 20, 100], Late, |n| vec![floats(&[n]), Tensor::scalar(n as i64 / 2)]),
        case("Order descending=0", [4 << 20, 100], Late, |n| vec![ints(&[2, n / 2]), Tensor::scalar(n as i64 / 4)]),
        case("Scatter", [4 << 20, 100], Either, |n| vec![floats(&[n, 1]), range(n), floats(&[n, 1])]),
        case("Scatter fn=add", [4 << 20, 100], Either, |n| vec![floats(&[n, 1]), range(n), floats(&[n, 1])]),
        case("Scatter fn=add", [4 << 20, 100], Either, |n| {
            vec![floats(&[1, n]), Tensor::from_vec(vec![1], vec![0i64]), floats(&[1, n])]
        }),
        case("Fourier inverse=0", [1 << 20, 64], Late, |n| vec![Tensor::zeros(DType::F64, vec![1, n, 2])]),
        case("Fourier inverse=1", [700_001, 7], Late, |n| vec![Tensor::zeros(DType::F64, vec![1, n, 2])]),
        case("Fourier inverse=0", [1 << 20, 9], Late, |n| vec![Tensor::zeros(DType::F64, vec![n / 3, 3, 2])]),
        case("SequenceConstruct", [1 << 19, 9], Either, |n| vec![floats(&[1]); n]),
        case("SequenceAt", [1 << 19, 9], Either, |n| vec![sequence(n), Tensor::scalar(1i64)]),
        case("SequenceInsert", [1 << 19, 9], Either, |n| vec![sequence(n), floats(&[2]), Tensor::scalar(1i64)]),
        case("SequenceErase", [1 << 19, 9], Either, |n| vec![sequence(n), Tensor::scalar(1i64)]),
        case("SequenceLength", [1 << 19, 9], Either, |n| vec![sequence(n)]),
        case("ZipMap", [1 << 19, 8], Either, |n| vec![floats(&[n / 2, 2]), words(&[2])]),
        case("ZipMap", [10_000, 4], Either, |n| vec![floats(&[n, 1]), word(&"x".repeat(n))]),
        case("DictVectorizer", [1 << 18, 8], Either, |n| {
            let map = one(DataOp::ZipMap, &[floats(&[n]), words(&[n])]);
            let map = one(DataOp::SequenceAt, &[map, Tensor::scalar(0i64)]);
            vec![map, words(&[n]), Tensor::scalar(0f32)]
        }),
        case("SplitToSequence axis=0 keep=0", [1 << 20, 9], Either, |n| vec![floats(&[n])]),
        case("SplitToSequence axis=1 keep=1", [3000, 9], Late, |n| vec![floats(&[n, n]), Tensor::scalar(1i64)]),
        case("ConcatFromSequence axis=0 new=1", [1 << 19, 9], Either, |n| vec![sequence(n)]),
        case("Optional", [1 << 19, 9], Either, |n| vec![sequence(n)]),
        case("OptionalHasElement", [1 << 19, 9], Either, |n| vec![sequence(n)]),
        case("OptionalGetElement", [1 << 19, 9], Either, |n| vec![one(DataOp::Optional, &[sequence(n)])]),
        case("StringConcat", [4000, 9], Late, |n| vec![words(&[n, 1]), words(&[1, n])]),
        case("StringEqual", [10_000, 9], Late, |n| vec![words(&[n, 1]), words(&[1, n])]),
        case("StringSplit limit=-1", [4 << 20, 9], Either, |n| {
            vec![Tensor::from_strings(vec![2], &["a ".repeat(n), "b ".repeat(n)]), word("")]
        }),
        case("StringSplit limit=-1", [1 << 20, 9], Either, |n| vec![words(&[n]), word("1")]),
        case("StringNormalizer case=1 sensitive=0", [8 << 20, 9], Either, |n| vec![word(&"Ä ".repeat(n)), word("x")]),
        case("StringNormalizer case=2 sensitive=1", [1 << 19, 9], Either, |n| vec![words(&[n]), words(&[n / 2])]),
        #[cfg(feature = "regex")]
        case("RegexFullMatch", [50_000, 5], Late, |n| vec![word(&"a".repeat(n)), word("(.*a.{200})*")]),
        case("StringFromNumbers", [1 << 20, 9], Either, |n| vec![floats(&[n])]),
        case("StringToNumbers float=0", [1 << 20, 9], Either, |n| vec![Tensor::from_strings(vec![n], &vec!["12"; n])]),
        case("StringToNumbers float=1", [1 << 20, 9], Either, |n| {
            vec![Tensor::from_strings(vec![n], &vec!["1.5e3"; n])]
        }),
        case("LookUp", [1 << 20, 9], Either, |n| vec![ints(&[n]), range(n)]),
        case("LookUp", [1 << 19, 9], Either, |n| vec![words(&[n]), words(&[n])]),
        case("Pick", [20_000, 9], Late, |n| vec![word(&"x".repeat(n)), Tensor::from_vec(vec![n], vec![0i64; n])]),
        case("CouplePairs", [400, 3], Late, |n| {
            vec![Tensor::from_vec(vec![9, n * (n - 1) / 2], vec![0.3f32; 9 * n * (n - 1) / 2])]
        }),
        case("TfIdf least=1 most=2 skip=100000 weighing=0", [20_000, 9], Late, ngrams),
        #[cfg(feature = "image")]
        case("ImageDecoder pixels=0", [6000, 9], Either, picture),
    ];
    for f in Reduction::ALL.into_iter().filter(|f| f.admits(DType::F32)) {
        let op = format!("Scatter fn={}", f.name());
        cases.push(case(&op, [1 << 10, 9], Either, |n| vec![floats(&[n, 1]), range(n), floats(&[n, 1])]));
    }
    cases
}

fn run(case: &Case, args: &[Tensor], limits: &dyn Limits) -> Result<Vec<Tensor>> {
    case.op.run_with(args, &[], &mut Turns, &Budget::new(limits))
}

/// The names of all operations that compute. With a new operation, the `match` does not compile until `next` includes
/// the operation, and then `every_operation_has_its_cases` fails until `cases` includes it.
fn names() -> Vec<&'static str> {
    fn next(op: &HostOp) -> Option<HostOp> {
        let data = |op| Some(HostOp::Data(op));
        match op {
            HostOp::NonZero => Some(HostOp::Unique { axis: None, sorted: true }),
            HostOp::Unique { .. } => Some(HostOp::NonMaxSuppression { center: false }),
            HostOp::NonMaxSuppression { .. } => Some(HostOp::If { n_then: 0 }),
            HostOp::If { .. } => Some(HostOp::Loop { n_carried: 0 }),
            HostOp::Loop { .. } => Some(HostOp::Array(ArrayOp::Order { descending: false })),
            HostOp::Array(ArrayOp::Order { .. }) => Some(HostOp::Array(ArrayOp::Scatter { f: None })),
            HostOp::Array(ArrayOp::Scatter { .. }) => Some(HostOp::Array(ArrayOp::Fourier { inverse: false })),
            HostOp::Array(ArrayOp::Fourier { .. }) => data(DataOp::SequenceConstruct),
            HostOp::Data(op) => match op {
                DataOp::SequenceConstruct => data(DataOp::SequenceAt),
                DataOp::SequenceAt => data(DataOp::SequenceInsert),
                DataOp::SequenceInsert => data(DataOp::SequenceErase),
                DataOp::SequenceErase => data(DataOp::SequenceLength),
                DataOp::SequenceLength => data(DataOp::ZipMap),
                DataOp::ZipMap => data(DataOp::DictVectorizer),
                DataOp::DictVectorizer => data(DataOp::SplitToSequence { axis: 0, keep: false }),
                DataOp::SplitToSequence { .. } => data(DataOp::ConcatFromSequence { axis: 0, new_axis: true }),
                DataOp::ConcatFromSequence { .. } => data(DataOp::Optional),
                DataOp::Optional => data(DataOp::OptionalHasElement),
                DataOp::OptionalHasElement => data(DataOp::OptionalGetElement),
                DataOp::OptionalGetElement => data(DataOp::StringConcat),
                DataOp::StringConcat => data(DataOp::StringEqual),
                DataOp::StringEqual => data(DataOp::StringSplit { limit: -1 }),
                DataOp::StringSplit { .. } => {
                    data(DataOp::StringNormalizer { case: text::Case::None, sensitive: true })
                }
                DataOp::StringNormalizer { .. } => data(DataOp::RegexFullMatch),
                DataOp::RegexFullMatch => data(DataOp::StringFromNumbers),
                DataOp::StringFromNumbers => data(DataOp::StringToNumbers { float: true }),
                DataOp::StringToNumbers { .. } => data(DataOp::LookUp),
                DataOp::LookUp => data(DataOp::Pick),
                DataOp::Pick => data(DataOp::CouplePairs),
                DataOp::CouplePairs => {
                    data(DataOp::TfIdf(Ngrams { lengths: (1, 1), skip_max: 0, weighing: Weighing::Tf }))
                }
                DataOp::TfIdf(_) => data(DataOp::ImageDecoder { pixels: Pixels::Rgb }),
                DataOp::ImageDecoder { .. } => Some(HostOp::Collective(Collective::Barrier { mesh: 0 })),
            },
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => None,
        }
    }
    let all = std::iter::successors(Some(HostOp::NonZero), next);
    // An If only calls bodies, and collectives need other ranks.
    let computes = |op: &HostOp| !matches!(op, HostOp::If { .. } | HostOp::Collective(_)) && op.lacks().is_none();
    all.filter(computes).map(|op| op.name()).collect()
}

#[test]
fn every_operation_has_its_cases() {
    let tested: Vec<&str> = cases().iter().map(|case| case.op.name()).collect();
    let missing: Vec<&str> = names().into_iter().filter(|name| !tested.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_operation_ends_at_the_deadline() {
    let most = Duration::from_secs(2);
    for case in cases() {
        let args = (case.args)(case.sizes[0]);
        let begun = Instant::now();
        let ran = run(&case, &args, &Deadline(begun + Duration::from_millis(2)));
        let took = begun.elapsed();
        let code = ran.map_err(|e| e.code).err();
        println!("{:50} {:5.1} ms {code:?}", case.op.to_string(), took.as_secs_f64() * 1e3);
        assert!(took < most, "{} took {took:?}: {code:?}", case.op);
        let is_fine = code == Some("E0305") || (case.long == Either && code.is_none());
        assert!(is_fine, "{}: {code:?} after {took:?}", case.op);
    }
}

#[test]
fn every_allocation_may_be_refused() {
    for case in cases() {
        let args = (case.args)(case.sizes[1]);
        let wanted = run(&case, &args, &Bytes(usize::MAX)).unwrap_or_else(|e| panic!("{}: {e}", case.op));
        for times in 0.. {
            match run(&case, &args, &Times(Cell::new(times))) {
                Err(e) => assert_eq!(e.code, "E0304", "{} with {times} allocations", case.op),
                Ok(found) => {
                    assert_eq!(found, wanted, "{}", case.op);
                    break;
                }
            }
        }
        assert_eq!(run(&case, &args, &Bytes(usize::MAX)).unwrap(), wanted, "{}", case.op);
    }
}

#[test]
fn results_that_are_too_large_are_refused_before_they_are_made() {
    let strings = |n: usize| vec![words(&[n, 1]), words(&[1, n])];
    for (op, args) in [
        ("StringConcat", strings(100_000)),
        ("StringEqual", strings(100_000)),
        (
            "StringSplit limit=-1",
            vec![
                Tensor::from_strings(vec![2000], &{
                    let mut texts = vec![String::new(); 1999];
                    texts.push("a ".repeat(100_000));
                    texts
                }),
                word(""),
            ],
        ),
        ("Pick", vec![word(&"x".repeat(1 << 16)), Tensor::from_vec(vec![1 << 16], vec![0i64; 1 << 16])]),
        ("ZipMap", vec![floats(&[1 << 10, 1]), word(&"x".repeat(1 << 16))]),
        ("SplitToSequence axis=0 keep=0", vec![Tensor::zeros(DType::F32, vec![1 << 40, 0])]),
        ("Unique axis=0 sorted=1", vec![Tensor::zeros(DType::F32, vec![1 << 40, 0])]),
        ("TfIdf least=1 most=1 skip=0 weighing=0", {
            let far = Tensor::from_vec(vec![1], vec![(1i64 << 28) - 1]);
            vec![ints(&[1000, 1]), range(1), Tensor::from_vec(vec![1], vec![0i64]), far, Tensor::scalar(1f32)]
        }),
    ] {
        let op = HostOp::parse(op).unwrap();
        let begun = Instant::now();
        let budget_limits = Bytes(1 << 20);
        let e = op.run_within(&args, &Budget::new(&budget_limits)).unwrap_err();
        assert_eq!(e.code, "E0304", "{op}: {e}");
        assert!(e.message.contains("the limit is 1048576"), "{op}: {e}");
        assert!(begun.elapsed() < Duration::from_millis(500), "{op}: {:?}", begun.elapsed());
    }
}

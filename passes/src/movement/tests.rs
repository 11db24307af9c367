//! accesses  =>  their numbers of words, compared with numbers computed by hand

use super::{Sure, Words};
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::{Body, Container, Kernel, Memlet, Statement, Store};
use sardonyx_dialects::scalar::ScalarFn;

fn dims(texts: &[&str]) -> Vec<Dim> {
    texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
}

/// A variable, and the bounds lo and hi within which a load is executed.
type Guard<'a> = Option<(usize, &'a str, &'a str)>;

/// Returns the words of y[outer] = the sum of loads of x, each under an optional guard `lo <= %v < hi`.
fn reads(outer: &[&str], x: &[&str], loads: &[(&[&str], Guard)]) -> (String, Sure) {
    let mut body: Vec<Statement> = vec![];
    let push = |body: &mut Vec<Statement>, b: Body, dtype| {
        body.push(Statement { body: b, dtype });
        body.len() - 1
    };
    let mut sum = None;
    for (index, range) in loads {
        let guard = range.map(|(v, lo, hi)| {
            let [at, lo, hi] = [Kernel::var(v), Dim::parse(lo).unwrap(), Dim::parse(hi).unwrap()]
                .map(|d| push(&mut body, Body::Index(d), DType::I64));
            let above = push(&mut body, Body::Apply { f: ScalarFn::Le, args: vec![lo, at] }, DType::Bool);
            let below = push(&mut body, Body::Apply { f: ScalarFn::Lt, args: vec![at, hi] }, DType::Bool);
            push(&mut body, Body::Apply { f: ScalarFn::And, args: vec![above, below] }, DType::Bool)
        });
        let memlet = Memlet { container: 0, index: dims(index) };
        let load = push(&mut body, Body::Load { memlet, guard }, DType::F32);
        let args = |s| vec![s, load];
        sum = Some(sum.map_or(load, |s| push(&mut body, Body::Apply { f: ScalarFn::Add, args: args(s) }, DType::F32)));
    }
    let container = |d: Vec<Dim>| Container::plain(DType::F32, d);
    let index = (0..outer.len()).map(Kernel::var).collect();
    let kernel = Kernel {
        outer: dims(outer),
        inner: vec![],
        deep: vec![],
        reads: vec![container(dims(x))],
        writes: vec![container(dims(outer))],
        body,
        stores: vec![Store { memlet: Memlet { container: 0, index }, value: sum.unwrap() }],
    };
    let count = Words::count(&kernel, &|_| 0).reads.remove(0);
    (count.words.to_string(), count.sure)
}

fn exact(words: &str) -> (String, Sure) {
    (words.to_string(), Sure::Exact)
}

#[test]
fn what_does_not_move_the_index_does_not_count() {
    assert_eq!(reads(&["b", "s", "64"], &["64"], &[(&["%2"], None)]), exact("64"));
    assert_eq!(reads(&["b", "s", "64"], &["b", "1"], &[(&["%0", "0"], None)]), exact("b"));
}

/// x·cos + rotate(x)·sin: the two halves of x that `rotate` reads count only once, because the whole of x is read
/// anyway.
#[test]
fn parts_of_a_whole_do_not_count_twice() {
    let halves: [(&[&str], _); 3] = [
        (&["%0", "%1"], None),
        (&["%0", "%1 + 16"], Some((1, "0", "16"))),
        (&["%0", "%1 - 16"], Some((1, "16", "32"))),
    ];
    assert_eq!(reads(&["s", "32"], &["s", "32"], &halves), exact("32*s"));
    assert_eq!(reads(&["s", "32"], &["s", "32"], &halves[1..]), exact("32*s"));
    assert_eq!(reads(&["s", "32"], &["s", "32"], &halves[2..]), exact("16*s"));
}

/// One part of a concatenation along an axis of symbolic length, and the last 32 of 96 columns.
#[test]
fn a_guard_says_how_much_is_read() {
    let part: (&[&str], _) = (&["%0", "%1 - past"], Some((1, "past", "past + seq")));
    assert_eq!(reads(&["b", "past + seq"], &["b", "seq"], &[part]), exact("b*seq"));
    let slice: (&[&str], _) = (&["%0", "%1 + 64"], None);
    assert_eq!(reads(&["s", "32"], &["s", "96"], &[slice]), exact("32*s"));
}

#[test]
fn shared_heads_and_merged_dimensions_are_digits() {
    let shared: (&[&str], _) = (&["((%0) floordiv (4))", "%1"], None);
    assert_eq!(reads(&["8", "t"], &["2", "t"], &[shared]), exact("2*t"));
    let digits: (&[&str], _) = (&["((%0) floordiv (4))", "%0 - 4*((%0) floordiv (4))"], None);
    assert_eq!(reads(&["8"], &["2", "4"], &[digits]), exact("8"));
    let merged: (&[&str], _) = (&["32*%0 + %1"], None);
    assert_eq!(reads(&["h", "32"], &["32*h"], &[merged]), exact("32*h"));
}

/// Windows of size 3 with stride 2 overlap by one element; with stride 5 they leave gaps.
#[test]
fn windows_overlap_or_leave_gaps() {
    assert_eq!(reads(&["n", "3"], &["2*n + 1"], &[(&["2*%0 + %1"], None)]), exact("2*n + 1"));
    assert_eq!(reads(&["n", "3"], &["5*n"], &[(&["5*%0 + %1"], None)]), exact("3*n"));
}

#[test]
fn overlapping_parts_count_once() {
    let parts: [(&[&str], _); 2] = [(&["%0"], Some((0, "0", "6"))), (&["%0"], Some((0, "4", "10")))];
    assert_eq!(reads(&["10"], &["10"], &parts), exact("10"));
    let parts: [(&[&str], _); 2] = [(&["%0"], Some((0, "0", "3"))), (&["%0"], Some((0, "5", "9")))];
    assert_eq!(reads(&["10"], &["10"], &parts), exact("7"));
}

//! Kernels on one core  =>  tables of their rates, most of them also as a share of the FMA (multiply-add) peak or of
//! the read bandwidth
//!
//! Each share is the median over samples of the kernel's rate divided by the rate of a reference loop. The reference
//! loop uses vectors of the same width as the kernel's CPU level. It is timed directly before and after the kernel,
//! because clock rates drift. `cargo bench -p sardonyx-kernels --bench kernels [-- WORD]` runs the rows whose name
//! contains WORD.

#[path = "../../tests/kernels/build.rs"]
#[allow(dead_code)] // The tests use the remaining items.
mod build;
#[path = "../../tests/kernels/harness.rs"]
#[allow(dead_code)] // The tests use the remaining items.
mod harness;
mod measure;
mod shapes;

use harness::{Library, executed, levels};
use measure::{Figures, measure};
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{Level, Lowered, levels_of, lower};
use shapes::{Kind, Shape, shapes};
use std::time::Instant;

fn main() {
    // Skips the flags that Cargo passes.
    let word = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let shapes: Vec<Shape> = shapes().into_iter().filter(|s| s.name.contains(&word)).collect();
    let parts = |s: Shape| [vec![s.clone()], s.parts].concat();
    let shapes: Vec<Shape> = shapes.into_iter().flat_map(parts).collect();
    let lowered: Vec<Lowered> = shapes.iter().map(|s| lower(&s.kernel).unwrap()).collect();
    let named: Vec<_> = lowered.iter().enumerate().map(|(i, l)| (format!("k{i}"), l)).collect();
    let start = Instant::now();
    let object = build_shared_object(&named).unwrap();
    let (ms, kb) = (start.elapsed().as_secs_f64() * 1e3, object.len() / 1024);
    let all = levels_of(&lowered);
    let (here, names) = (executed(&all), |v: &[Level]| v.iter().map(|v| v.name()).collect::<Vec<_>>().join(", "));
    println!("{} kernels for {}: {ms:.0} ms, {kb} KB; this CPU executes {}", shapes.len(), names(&all), names(&here));
    let library = Library::new(&object);
    let levels = levels();
    for (kind, title) in Kind::TABLES {
        let is_row = |s: &Shape| s.kind == *kind && (s.kind != Kind::Whole || !s.parts.is_empty());
        let rows: Vec<usize> = (0..shapes.len()).filter(|i| is_row(&shapes[*i])).collect();
        if rows.is_empty() {
            continue;
        }
        println!("\n{}", header(title, *kind, &levels));
        for i in rows {
            let own = [*executed(&levels_of([&lowered[i]])).last().expect("this CPU executes some variant")];
            let levels = if *kind == Kind::Words { &own[..] } else { &levels };
            let cells = levels.iter().map(|level| {
                let measured = |i: usize| {
                    let kernel = library.kernel(&format!("k{i}"), *level);
                    measure(kernel, &lowered[i], &shapes[i], *level)
                };
                if *kind != Kind::Whole {
                    return cell(*kind, &measured(i));
                }
                let whole = measured(i);
                // Time in a unit that does not depend on the clock rate: the number of operations that the peak loop
                // does while the kernel runs.
                let time = |i: usize, f: &Figures| shapes[i].work / f.of_peak;
                let parts: f64 = (i + 1..=i + shapes[i].parts.len()).map(|p| time(p, &measured(p))).sum();
                let us = shapes[i].work / whole.rate / 1e3;
                format!("{us:>7.1} | {:>3.0} % | {:.2} x", whole.of_peak * 100.0, parts / time(i, &whole))
            });
            println!("| {:<42} | {} |", shapes[i].name, cells.collect::<Vec<_>>().join(" | "));
        }
    }
}

fn header(title: &str, kind: Kind, levels: &[Level]) -> String {
    if kind == Kind::Words {
        return format!(
            "| {title:<42} | 10^9 operations/s | of the instruction's peak | GB/s | of reading |\n|---|{}",
            "--:|".repeat(4)
        );
    }
    let columns = |v: &Level| match kind {
        Kind::Whole => format!("{0} µs | {0} of peak | {0}: separate kernels take", v.name()),
        Kind::Product => format!("{0} GFLOP/s | {0} of peak", v.name()),
        Kind::Stream => format!("{0} GB/s | {0} of its bound", v.name()),
        Kind::Words => unreachable!("has columns of its own"),
        Kind::Moved => format!("{0} GB/s | {0} of reading", v.name()),
        Kind::Elements => format!("{} elements/ns", v.name()),
    };
    let names: Vec<String> = levels.iter().map(columns).collect();
    let per_variant = match kind {
        Kind::Elements => 1,
        Kind::Whole => 3,
        Kind::Product | Kind::Stream | Kind::Words | Kind::Moved => 2,
    };
    format!("| {title:<42} | {} |\n|---|{}", names.join(" | "), "--:|".repeat(levels.len() * per_variant))
}

fn cell(kind: Kind, f: &Figures) -> String {
    match kind {
        Kind::Whole => unreachable!("has cells of its own"),
        Kind::Product => format!("{:>6.1} | {:>3.0} %", f.rate, f.of_peak * 100.0),
        Kind::Words => {
            let shares = [f.of_peak, f.of_read].map(|share| format!("{:>3.0} %", share * 100.0));
            format!("{:>6.1} | {} | {:>6.1} | {}", f.rate, shares[0], f.bytes_rate, shares[1])
        }
        // The row is compared with the slower of its two bounds: reading the weights, or the arithmetic.
        Kind::Stream if f.of_read > f.of_peak => {
            format!("{:>6.1} | {:>3.0} % of reading", f.bytes_rate, f.of_read * 100.0)
        }
        Kind::Stream => format!("{:>6.1} | {:>3.0} % of FMA peak", f.bytes_rate, f.of_peak * 100.0),
        Kind::Moved => format!("{:>6.1} | {:>3.0} %", f.bytes_rate, f.of_read * 100.0),
        Kind::Elements => format!("{:>5.1}", f.rate),
    }
}

//! timed calls  =>  a row per kernel: its launches, their time, and how close they come to the machine's peak

use super::peak::Peak;
use super::quantile;
use sardonyx_base::json::Json;
use sardonyx_base::plan::is_product;
use sardonyx_base::{Result, Tensor};
use sardonyx_runtime::{Launched, Session};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A launch of the plan, measured over several calls.
struct Step {
    kernel: String,
    class: String,
    node: String,
    work: Option<(i64, i64)>,
    seconds: Vec<f64>,
}

/// All launches of one kernel.
struct Row {
    kernel: String,
    class: String,
    node: String,
    launches: usize,
    seconds: f64,
    flops: i64,
    bytes: i64,
    /// Seconds that the launches would take at the peak rates, if these are measured.
    bound: Option<f64>,
}

pub struct Kernels {
    rows: Vec<Row>,
    /// Absent on a GPU.
    peak: Option<Peak>,
    calls: usize,
}

impl Row {
    /// Returns the share of the peak rate that limits the kernel.
    fn roofline(&self) -> Option<f64> {
        self.bound.map(|bound| bound / self.seconds.max(1e-12))
    }
}

impl Kernels {
    /// Runs calls for at least `seconds`; the median time of each launch is used. The peak is measured before and after
    /// these calls, because clock frequencies drift.
    pub fn measure(
        session: &Session,
        (entry, inputs): (&str, &[(&str, Tensor)]),
        seconds: f64,
        peak: &dyn Fn() -> Option<Peak>,
    ) -> Result<Kernels> {
        let before = peak();
        let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
        let (start, mut calls) = (Instant::now(), 0);
        while calls < 3 || start.elapsed() < Duration::from_secs_f64(seconds) {
            session.run_timed(entry, inputs, &mut |l: Launched| {
                let fresh = || Step {
                    kernel: l.kernel.into(),
                    class: l.class.into(),
                    node: l.origins.first().cloned().unwrap_or_default(),
                    work: l.work,
                    seconds: vec![],
                };
                let step = steps.entry(l.step).or_insert_with(fresh);
                // The first call is left out: it touches the memory for the first time.
                if calls > 0 {
                    step.seconds.push(l.ran.1.duration_since(l.ran.0).as_secs_f64());
                }
                Ok(())
            })?;
            calls += 1;
        }
        let peak = before.zip(peak()).map(|(before, after)| before.mean(after));
        let mut rows: Vec<Row> = vec![];
        for mut step in steps.into_values() {
            step.seconds.sort_by(f64::total_cmp);
            let seconds = quantile(&step.seconds, 0.5);
            let (flops, bytes) = step.work.unwrap_or((0, 0));
            let bound = peak.map(|peak| (flops as f64 / peak.gflops).max(bytes as f64 / peak.gb_s) / 1e9);
            match rows.iter_mut().find(|r| r.kernel == step.kernel) {
                Some(row) => {
                    row.launches += 1;
                    row.seconds += seconds;
                    row.flops += flops;
                    row.bytes += bytes;
                    row.bound = row.bound.zip(bound).map(|(all, one)| all + one);
                }
                None => {
                    let Step { kernel, class, node, .. } = step;
                    rows.push(Row { kernel, class, node, launches: 1, seconds, flops, bytes, bound });
                }
            }
        }
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(Kernels { rows, peak, calls: calls - 1 })
    }

    /// A table of the kernels, the slowest first.
    pub fn text(&self) -> String {
        let total: f64 = self.rows.iter().map(|r| r.seconds).sum();
        let launches: usize = self.rows.iter().map(|r| r.launches).sum();
        let products = self.products() as f64 / total.max(1e-12) / 1e9;
        let share = self.peak.map_or(String::new(), |p| format!(", {:.0} % of the peak", 100.0 * products / p.gflops));
        let peak = match self.peak {
            Some(Peak { gflops, gb_s }) => {
                format!(
                    "{gflops:.1} GFLOP/s multiply-adds of f32, {gb_s:.1} GB/s plain read, measured before and after"
                )
            }
            None => "not measured on a GPU; `sardonyx devices` has published rates".into(),
        };
        let mut out = format!(
            "kernels     {launches} launches, {:.4} ms in all, medians of {} calls\n\
             products    {products:.1} GFLOP/s over all of that time{share}\n\
             peak        {peak}\n\n\
             kernel   class      launches        ms      %    GFLOP/s     GB/s  roofline  first node\n",
            total * 1e3,
            self.calls,
        );
        for r in &self.rows {
            let per_second = |n: i64| n as f64 / r.seconds.max(1e-12) / 1e9;
            let share = 100.0 * r.seconds / total;
            let roofline = r.roofline().map_or("-  ".into(), |part| format!("{:.0} %", 100.0 * part));
            let (flops, bytes) = (per_second(r.flops), per_second(r.bytes));
            let _ = writeln!(
                out,
                "{:<8} {:<10} {:>8} {:>9.4} {share:>6.1} {flops:>10.1} {bytes:>8.1} {roofline:>9}  {}",
                r.kernel,
                r.class,
                r.launches,
                r.seconds * 1e3,
                r.node,
            );
        }
        out
    }

    /// Floating-point operations of contractions and attention in one call.
    fn products(&self) -> i64 {
        self.rows.iter().filter(|r| is_product(&r.class)).map(|r| r.flops).sum()
    }

    pub fn json(&self) -> String {
        let row = |r: &Row| {
            format!(
                "{{\"kernel\": {}, \"class\": {}, \"launches\": {}, \"ms\": {:.6}, \"flops\": {}, \"bytes\": {}, \
                 \"roofline\": {}, \"node\": {}}}",
                Json::from(r.kernel.as_str()),
                Json::from(r.class.as_str()),
                r.launches,
                r.seconds * 1e3,
                r.flops,
                r.bytes,
                r.roofline().map_or("null".into(), |part| format!("{part:.4}")),
                Json::from(r.node.as_str()),
            )
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        let rate = |of: fn(Peak) -> f64| self.peak.map_or("null".into(), |peak| format!("{:.2}", of(peak)));
        format!(
            "{{\"peak_gflops\": {}, \"peak_gb_s\": {}, \"calls\": {}, \"product_flops\": {}, \"rows\": [{}]}}",
            rate(|peak| peak.gflops),
            rate(|peak| peak.gb_s),
            self.calls,
            self.products(),
            rows.join(", ")
        )
    }
}

/// One call as a Chrome trace, which Perfetto reads too. Times are microseconds since the start of the call.
pub fn trace(session: &Session, entry: &str, inputs: &[(&str, Tensor)]) -> Result<String> {
    let mut events = vec![];
    for warm in [true, false] {
        let start = Instant::now();
        let us = |at: Instant| at.duration_since(start).as_secs_f64() * 1e6;
        session.run_timed(entry, inputs, &mut |l: Launched| {
            if warm {
                return Ok(());
            }
            let (flops, bytes) = l.work.unwrap_or((0, 0));
            events.push(format!(
                "{{\"name\": {}, \"cat\": {}, \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": {:.3}, \"dur\": {:.3}, \
                 \"args\": {{\"nodes\": {}, \"flops\": {flops}, \"bytes\": {bytes}, \"step\": {}}}}}",
                Json::from(l.kernel),
                Json::from(l.class),
                us(l.ran.0),
                us(l.ran.1) - us(l.ran.0),
                Json::List(l.origins.iter().map(|o| Json::from(o.as_str())).collect()),
                l.step,
            ));
            Ok(())
        })?;
        if !warm {
            events.push(format!(
                "{{\"name\": {}, \"cat\": \"call\", \"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"ts\": 0, \"dur\": {:.3}}}",
                Json::from(entry),
                us(Instant::now()),
            ));
        }
    }
    Ok(format!("{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n{}\n]}}\n", events.join(",\n")))
}

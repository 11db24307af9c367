//! model.onnx, sizes, a device  =>  an HTML file that shows what each launch computes, moves and is limited by
//!
//! The file is self-contained: drawings are inline, and their coordinates are computed here. A short script links a
//! launch with its box, its point under the roofline and its ONNX nodes.

mod layout;
mod measured;
mod svg;

pub use self::measured::{Measured, measure};
use crate::explain::{Launches, Layers, Planned};
use crate::movement::{Row, sum};
use crate::sizes::{Sizes, value};
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_base::plan::is_product;
use sardonyx_dialects::plan::{Action, Buffer, Entry};
use sardonyx_kernels::{DeviceSpec, Rates};
use std::collections::BTreeMap;

/// The numbers, and the edges between launches, that the page shows.
pub struct Report {
    /// Launches of `main`, in order.
    pub launches: Vec<Launch>,
    /// Pairs of a launch and a later one that reads what it writes.
    pub edges: Vec<(usize, usize)>,
    /// The repeated layer, which is drawn once; `None` if nothing repeats.
    pub layers: Option<Layers>,
    /// Buffers in the arena whose offset and size are known before the call.
    pub blocks: Vec<Block>,
    /// Peak operations per second of the described device.
    pub operations_per_s: f64,
    /// Memory bandwidth of the described device, in bytes per second.
    pub bytes_per_s: f64,
    /// Sum of the predicted times of all launches, in microseconds.
    pub total_us: f64,
    /// Times of the launches on this machine, if they were requested.
    pub measured: Option<Measured>,
}

/// A launch, with figures at the sizes of the report.
pub struct Launch {
    /// Symbol of the kernel.
    pub kernel: String,
    /// Class of the kernel, such as `contract`.
    pub class: String,
    /// ONNX nodes that the launch computes.
    pub origins: Vec<String>,
    /// Algebraic words: each distinct element is moved once.
    pub words: i64,
    /// Words that the emitted code requests.
    pub scheduled: i64,
    /// Lower bound on the words that any code requests.
    pub bound: i64,
    /// Number of floating-point operations.
    pub operations: i64,
    /// Predicted time on the described device, in microseconds.
    pub predicted_us: f64,
}

/// A buffer in the arena, from the first step that uses it to the last.
pub struct Block {
    /// Index of the first step that uses the buffer.
    pub first: usize,
    /// Index of the last step that uses the buffer.
    pub last: usize,
    /// Offset in the arena, in bytes.
    pub offset: i64,
    /// Size in bytes.
    pub bytes: i64,
}

static PAGE: &str = include_str!("page.html");

impl Report {
    /// Computes the figures without measuring. Errors: E0406 if the device description lacks one.
    pub fn new(planned: &Planned, found: &Launches, device: &DeviceSpec) -> Result<Report> {
        let rates = Rates::new(device)?;
        let launch = |(launch, row): (&crate::explain::Launch, &Row)| {
            let (kernel, class) = &found.kernels[launch.kernel];
            let scheduled = row.scheduled.unwrap_or(row.words);
            let computes = if is_product(class) { rates.contract_ops_per_s } else { rates.vector_ops_per_s };
            let seconds = (row.flops as f64 / computes).max(4.0 * scheduled as f64 / rates.bytes_per_s);
            Launch {
                kernel: kernel.clone(),
                class: class.clone(),
                origins: launch.origins.clone(),
                words: row.words,
                scheduled,
                bound: row.lower_bound.unwrap_or(row.words),
                operations: row.flops,
                predicted_us: 1e6 * (seconds + rates.launch_s),
            }
        };
        let launches: Vec<Launch> = found.launches.iter().zip(&found.movement.after).map(launch).collect();
        let entry = planned.plan.entries.first();
        let edges = entry.map(|entry| edges(planned, entry)).unwrap_or_default();
        let blocks = entry.map(|entry| blocks(entry, &found.movement.sizes)).transpose()?.unwrap_or_default();
        let total_us = launches.iter().map(|l| l.predicted_us).sum();
        let (operations_per_s, bytes_per_s) = (rates.contract_ops_per_s, rates.bytes_per_s);
        let layers = found.layers;
        Ok(Report { launches, edges, layers, blocks, operations_per_s, bytes_per_s, total_us, measured: None })
    }

    /// The launches that are drawn: of a repeated layer, only the first occurrence.
    pub fn shown(&self) -> Vec<usize> {
        let hidden = self.layers.map_or(0..0, |l| l.first + l.length..l.first + l.length * l.times);
        (0..self.launches.len()).filter(|i| !hidden.contains(i)).collect()
    }

    /// Number of launches that a drawn launch represents.
    pub fn times(&self, launch: usize) -> usize {
        self.layers.filter(|l| (l.first..l.first + l.length).contains(&launch)).map_or(1, |l| l.times)
    }

    fn measured_us(&self, launch: usize) -> Option<f64> {
        self.measured.as_ref().and_then(|measured| measured.us.get(launch).copied())
    }

    /// The drawn launch that represents a launch.
    fn drawn(&self, launch: usize) -> usize {
        match self.layers {
            Some(l) if (l.first..l.first + l.length * l.times).contains(&launch) => {
                l.first + (launch - l.first) % l.length
            }
            Some(_) | None => launch,
        }
    }

    /// Edges between drawn launches, as indices into `shown`, without those that lead from a layer to its repetition.
    fn edges_shown(&self) -> Vec<(usize, usize)> {
        let shown = self.shown();
        let number = |launch: usize| shown.binary_search(&self.drawn(launch)).ok();
        let mut edges: Vec<(usize, usize)> =
            self.edges.iter().filter_map(|(a, b)| Some((number(*a)?, number(*b)?))).filter(|(a, b)| a < b).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// The complete HTML file.
    pub fn html(&self, title: &str, found: &Launches) -> String {
        let (before, after) = (sum(&found.movement.before), sum(&found.movement.after));
        let at: Vec<String> = found.movement.sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
        let percent = |part: i64, of: i64| if of == 0 { 100.0 } else { 100.0 * part as f64 / of as f64 };
        let measured = self.measured.as_ref().map(|m| {
            let (ms, threads) = (m.us.iter().sum::<f64>() / 1e3, m.threads);
            ("measured", format!("{ms:.3} ms on this machine, threads: {threads}, medians of {} calls", m.calls))
        });
        let figures = [
            ("launches", format!("{} of {} kernels", self.launches.len(), found.kernels.len())),
            ("predicted", format!("{:.3} ms on {}", self.total_us / 1e3, found.movement.device)),
            (
                "words",
                format!(
                    "{} for {} of the model ({:.1} %)",
                    after.words,
                    before.words,
                    percent(after.words, before.words)
                ),
            ),
            (
                "scheduled",
                format!(
                    "{} words, the bound is {:.1} % of it",
                    after.scheduled,
                    percent(after.lower_bound, after.scheduled)
                ),
            ),
            ("sizes", at.join(", ")),
        ];
        let figures: String = figures
            .iter()
            .chain(&measured)
            .map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(text)))
            .collect();
        let layer = self.layers.map_or(String::new(), |l| {
            format!("Launches {} to {} are drawn once: they repeat {} times.", l.first, l.first + l.length - 1, l.times)
        });
        let (points, column) = match &self.measured {
            None => ("As the device is described; nothing here was measured.", ""),
            Some(_) => (
                "Filled as the device is described, dashed as measured on this machine.",
                "<th class=\"measured\" data-key=\"measured\">measured µs</th>",
            ),
        };
        let parts = [
            ("TITLE", escaped(title)),
            ("FIGURES", figures),
            ("LAYER", layer),
            ("POINTS", points.into()),
            ("MEASURED", column.into()),
            ("GRAPH", svg::graph(self)),
            ("ROOFLINE", svg::roofline(self)),
            ("ARENA", svg::arena(self)),
            // A string from the model that contains `</script>` must not close the script element.
            ("DATA", self.data().to_string().replace("</", "<\\/")),
        ];
        parts.iter().fold(PAGE.to_string(), |page, (name, text)| page.replace(&format!("{{{{{name}}}}}"), text))
    }

    fn data(&self) -> Json {
        let launch = |(i, l): (usize, &Launch)| {
            Json::Object(vec![
                ("kernel", l.kernel.as_str().into()),
                ("class", l.class.as_str().into()),
                ("origins", Json::list(l.origins.iter().map(String::as_str))),
                ("words", l.words.into()),
                ("scheduled", l.scheduled.into()),
                ("bound", l.bound.into()),
                ("operations", l.operations.into()),
                ("us", l.predicted_us.into()),
                ("measured", self.measured_us(i).map_or(Json::Null, Json::from)),
                ("drawn", self.drawn(i).into()),
            ])
        };
        Json::List(self.launches.iter().enumerate().map(launch).collect())
    }
}

/// Edges between launches, by the buffers that they write and read.
fn edges(planned: &Planned, entry: &Entry) -> Vec<(usize, usize)> {
    let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut edges, mut number) = (vec![], 0);
    for step in &entry.steps {
        let Action::Launch(launch) = &step.action else { continue };
        let reads = planned.plan.kernels.get(launch.kernel).map_or(0, |(_, kernel)| kernel.reads.len());
        let (read, written) = launch.buffers.split_at(reads.min(launch.buffers.len()));
        edges.extend(read.iter().filter_map(|buffer| Some((*writers.get(buffer)?, number))));
        writers.extend(written.iter().map(|buffer| (*buffer, number)));
        number += 1;
    }
    edges
}

fn blocks(entry: &Entry, sizes: &Sizes) -> Result<Vec<Block>> {
    let mut used: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
    for (at, step) in entry.steps.iter().enumerate() {
        for buffer in step.buffers() {
            used.entry(buffer).or_insert([at, at])[1] = at;
        }
    }
    let mut blocks = vec![];
    for (buffer, [first, last]) in used {
        let Some(Buffer::Arena { bytes, offset: Some(offset) }) = entry.buffers.get(buffer) else { continue };
        // Sizes that depend on data are unknown before the call.
        let (Ok(offset), Ok(bytes)) = (value(offset, sizes), value(bytes, sizes)) else { continue };
        blocks.push(Block { first, last, offset, bytes });
    }
    Ok(blocks)
}

/// Escapes a text for HTML or SVG.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&quot;".to_string(),
        '{' => "&#123;".to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

//! steps of a call, with figures of each  =>  an HTML file: graph and table of the steps, roofline plot, arena
//!
//! The file is self-contained: drawings are inline, and their coordinates are computed here. A short script highlights
//! the chosen step in the graph, the roofline plot and the table, and lists its figures and ONNX nodes.

mod layers;
mod layout;
mod svg;

pub use self::layers::{Layers, layers};
use sardonyx_base::json::Json;
use std::collections::BTreeMap;

/// The content of an HTML file.
pub struct Page {
    /// Title of the page and of the browser's window.
    pub title: String,
    /// The word for a step, in the singular and in the plural, such as `launch` and `launches`.
    pub words: [&'static str; 2],
    /// Names and values above the drawings.
    pub figures: Vec<(&'static str, String)>,
    /// Columns of the table, besides number, name, class and ONNX nodes.
    pub columns: Vec<Column>,
    /// The steps in order of execution.
    pub steps: Vec<Step>,
    /// Pairs of indices into `steps`: a step, and a later step that reads a buffer that the first one writes.
    pub edges: Vec<(usize, usize)>,
    /// The repeated layer, which is drawn once; `None` if nothing repeats.
    pub layers: Option<Layers>,
    /// Buffers in the arena whose offset and size are known.
    pub blocks: Vec<Block>,
    /// The limits of the device; `None` if the page describes no device and has no roofline plot.
    pub roofline: Option<Roofline>,
}

/// A column of numbers in the table of steps.
pub struct Column {
    /// Key of the numbers in the JSON data of the page.
    pub key: &'static str,
    /// Heading, with the unit if there is one.
    pub label: &'static str,
    /// Number of decimals.
    pub decimals: usize,
    /// Whether the numbers were measured; measured numbers are set in italics.
    pub is_measured: bool,
}

/// A step of a call.
pub struct Step {
    /// Symbol of the kernel, or name of another operation: a copy, a binding or a host operation.
    pub name: String,
    /// Class of the kernel, such as `contract`; `host` if the step launches no kernel.
    pub class: String,
    /// ONNX nodes that the step computes.
    pub origins: Vec<String>,
    /// A number for each column; null where it is unknown.
    pub values: Vec<Json>,
    /// Figures for the roofline plot; `None` if they are unknown.
    pub point: Option<Point>,
}

/// Operations, memory traffic and times of a step.
pub struct Point {
    /// Number of floating-point operations.
    pub operations: f64,
    /// Number of bytes moved to and from memory.
    pub bytes: f64,
    /// Predicted time in microseconds.
    pub predicted_us: f64,
    /// Measured time in microseconds; `None` if the step was not measured.
    pub measured_us: Option<f64>,
}

/// The limits of a device.
pub struct Roofline {
    /// Peak number of floating-point operations per second.
    pub operations_per_s: f64,
    /// Memory bandwidth in bytes per second.
    pub bytes_per_s: f64,
    /// A sentence that says whether the times of the points are predicted or measured.
    pub source: &'static str,
}

/// A buffer in the arena, with its live range. Indices of steps count those that were passed to `blocks`.
pub struct Block {
    /// Index of the first step that uses the buffer.
    pub first: usize,
    /// Index of the last step that uses the buffer.
    pub last: usize,
    /// Offset from the start of the arena, in bytes.
    pub offset: i64,
    /// Size in bytes.
    pub bytes: i64,
}

/// Returns the pairs of a step and a later step that reads a buffer which the first one was the last to write, given
/// the buffers that each step reads and those that it writes.
pub fn edges(accesses: impl Iterator<Item = [Vec<usize>; 2]>) -> Vec<(usize, usize)> {
    let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut edges = vec![];
    for (at, [read, written]) in accesses.enumerate() {
        edges.extend(read.iter().filter_map(|buffer| Some((*writers.get(buffer)?, at))));
        writers.extend(written.into_iter().map(|buffer| (buffer, at)));
    }
    edges
}

/// Returns the buffers in the arena, given the number of each step and the buffers that it uses. `place` returns the
/// offset and the size of a buffer in bytes; `None` if the buffer is not in the arena, or if its offset or size is
/// unknown.
pub fn blocks(
    steps: impl Iterator<Item = (usize, Vec<usize>)>,
    place: impl Fn(usize) -> Option<(i64, i64)>,
) -> Vec<Block> {
    let mut used: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
    for (at, buffers) in steps {
        for buffer in buffers {
            used.entry(buffer).or_insert([at, at])[1] = at;
        }
    }
    let block = |(buffer, [first, last]): (usize, [usize; 2])| {
        let (offset, bytes) = place(buffer).filter(|(offset, bytes)| *offset >= 0 && *bytes >= 0)?;
        Some(Block { first, last, offset, bytes })
    };
    used.into_iter().filter_map(block).collect()
}

static PAGE: &str = include_str!("page.html");

impl Page {
    /// Returns the complete HTML file.
    pub fn html(&self) -> String {
        let [one, many] = self.words;
        let figures =
            self.figures.iter().map(|(name, text)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(text))).collect();
        let layer = self.layers.map_or(String::new(), |l| match l.length {
            1 => format!("{} {} is drawn once: it repeats {} times.", capital(one), l.first, l.times),
            n => {
                let last = l.first + n - 1;
                format!("{} {} to {last} are drawn once: they repeat {} times.", capital(many), l.first, l.times)
            }
        });
        let roofline = self.roofline.as_ref().map_or(String::new(), |device| {
            let (source, drawing) = (device.source, svg::roofline(self, device));
            format!("<div><h2>Roofline</h2><p>{source} The larger a point, the more of the time.</p>{drawing}</div>")
        });
        let heading = |column: &Column| {
            let class = if column.is_measured { " class=\"measured\"" } else { "" };
            format!("<th{class} data-key=\"{}\">{}</th>", column.key, column.label)
        };
        let parts = [
            ("TITLE", escaped(&self.title)),
            ("STEP", one.into()),
            ("CAPITAL", capital(one)),
            ("STEPS", many.into()),
            ("CAPITALS", capital(many)),
            ("FIGURES", figures),
            ("LAYER", layer),
            ("COLUMNS", self.columns.iter().map(heading).collect()),
            ("GRAPH", svg::graph(self)),
            ("TWO", if self.roofline.is_some() { " class=\"two\"".into() } else { String::new() }),
            ("ROOFLINE", roofline),
            ("ARENA", svg::arena(self)),
            // Without `<`, no text of the model can end the script element or begin a comment in it.
            ("DATA", self.data().to_string().replace('<', "\\u003c")),
        ];
        parts.iter().fold(PAGE.to_string(), |page, (name, text)| page.replace(&format!("{{{{{name}}}}}"), text))
    }

    /// Returns the steps that are drawn: of a repeated layer, only the first occurrence.
    fn shown(&self) -> Vec<usize> {
        let hidden = self.layers.map_or(0..0, |l| l.first + l.length..l.first + l.length * l.times);
        (0..self.steps.len()).filter(|i| !hidden.contains(i)).collect()
    }

    /// Returns the number of steps that a drawn step represents.
    fn times(&self, step: usize) -> usize {
        self.layers.filter(|l| (l.first..l.first + l.length).contains(&step)).map_or(1, |l| l.times)
    }

    /// Returns the drawn step that represents a step.
    fn drawn(&self, step: usize) -> usize {
        match self.layers {
            Some(l) if (l.first..l.first + l.length * l.times).contains(&step) => l.first + (step - l.first) % l.length,
            Some(_) | None => step,
        }
    }

    /// Returns the edges between drawn steps, as sorted pairs of indices into the result of `shown`. An edge between
    /// two repetitions of a layer is left out unless the drawn step of its target follows that of its source.
    fn edges_shown(&self) -> Vec<(usize, usize)> {
        let shown = self.shown();
        let number = |step: usize| shown.binary_search(&self.drawn(step)).ok();
        let mut edges: Vec<(usize, usize)> =
            self.edges.iter().filter_map(|(a, b)| Some((number(*a)?, number(*b)?))).filter(|(a, b)| a < b).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    fn data(&self) -> Json {
        let column = |column: &Column| {
            Json::Object(vec![
                ("key", column.key.into()),
                ("label", column.label.into()),
                ("decimals", column.decimals.into()),
                ("measured", column.is_measured.into()),
            ])
        };
        let step = |(i, step): (usize, &Step)| {
            let mut members = vec![
                ("name", step.name.as_str().into()),
                ("class", step.class.as_str().into()),
                ("origins", Json::list(step.origins.iter().map(String::as_str))),
                ("drawn", self.drawn(i).into()),
            ];
            members.extend(self.columns.iter().map(|column| column.key).zip(step.values.iter().cloned()));
            Json::Object(members)
        };
        Json::Object(vec![
            ("columns", Json::list(self.columns.iter().map(column))),
            ("steps", Json::list(self.steps.iter().enumerate().map(step))),
        ])
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Escapes a text for HTML or SVG. `{` is escaped too, so that no text looks like a placeholder such as `{{TITLE}}`.
pub fn escaped(text: &str) -> String {
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

//! steps, their dependences, buffers of the arena  =>  three SVG drawings: graph, roofline, arena

use super::layout::layered;
use super::{Block, Page, Point, Roofline, Step, escaped};
use std::fmt::Write;

/// Width and height of a step's box in the graph.
const BOX: (usize, usize) = (168, 34);
/// Distance between adjacent boxes, horizontally and vertically.
const GAP: (usize, usize) = (18, 26);

/// Draws the graph of steps and their dependences; a repeated layer is drawn once.
pub fn graph(page: &Page) -> String {
    let shown = page.shown();
    let edges = page.edges_shown();
    let places = layered(shown.len(), &edges);
    let columns = places.iter().map(|p| p.column + 1).max().unwrap_or(1);
    let rows = places.iter().map(|p| p.row + 1).max().unwrap_or(1);
    let mut in_row = vec![0; rows];
    places.iter().for_each(|place| in_row[place.row] += 1);
    let center = |i: usize| {
        // A row with fewer boxes than the widest row is centred.
        let left = (columns - in_row[places[i].row]) * (BOX.0 + GAP.0) / 2;
        let x = GAP.0 + left + places[i].column * (BOX.0 + GAP.0) + BOX.0 / 2;
        (x, GAP.1 + places[i].row * (BOX.1 + GAP.1) + BOX.1 / 2)
    };
    let (width, height) = (GAP.0 + columns * (BOX.0 + GAP.0), GAP.1 + rows * (BOX.1 + GAP.1));
    let mut out =
        format!("<svg id=\"graph\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n");
    for (from, to) in edges {
        let ((x1, y1), (x2, y2)) = (center(from), center(to));
        let (y1, y2) = (y1 + BOX.1 / 2, y2 - BOX.1 / 2);
        let bend = (y2.saturating_sub(y1)).max(8) / 2;
        let (a, b) = (shown[from], shown[to]);
        let path = format!("M{x1} {y1}C{x1} {} {x2} {} {x2} {y2}", y1 + bend, y2.saturating_sub(bend));
        let _ = writeln!(out, "<path class=\"edge\" data-from=\"{a}\" data-to=\"{b}\" d=\"{path}\"/>");
    }
    for (at, &i) in shown.iter().enumerate() {
        let Step { name, class, origins, .. } = &page.steps[i];
        let ((x, y), times) = (center(at), page.times(i));
        let (left, top) = (x - BOX.0 / 2, y - BOX.1 / 2);
        let (node, class) = (origins.last().map_or("", |name| last_part(name)), escaped(class));
        let times = if times > 1 { format!(" ×{times}") } else { String::new() };
        let _ = writeln!(
            out,
            "<g class=\"node {class}\" data-step=\"{i}\" tabindex=\"0\"><rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" rx=\"5\"/>\
             <text x=\"{x}\" y=\"{}\">{i} {} {class}{times}</text><text class=\"small\" x=\"{x}\" y=\"{}\">{}</text></g>",
            BOX.0,
            BOX.1,
            y - 3,
            escaped(name),
            y + 11,
            escaped(node),
        );
    }
    out + "</svg>\n"
}

/// Returns the last components of a node's name that fit into a box; if none fits, the last characters.
fn last_part(name: &str) -> &str {
    const CHARS_MAX: usize = 26;
    let mut from = name.len();
    let separator = if name.contains('/') { '/' } else { '.' };
    for (at, _) in name.rmatch_indices(separator).chain([(0, "")]) {
        if name.len() - at > CHARS_MAX {
            break;
        }
        from = at;
    }
    let begin = name.char_indices().rev().nth(CHARS_MAX - 1).map_or(0, |(at, _)| at);
    if from == name.len() { &name[begin..] } else { &name[from..] }
}

/// Width and height of the roofline plot.
const PLOT: (f64, f64) = (560.0, 320.0);
/// Distance from the plot's border to the axes, horizontally and vertically.
const MARGIN: (f64, f64) = (56.0, 34.0);

/// Draws the roofline on logarithmic axes: the limits of the device, and for each step a point at its operations per
/// byte and predicted operations per second, with a second point if the step was measured. The area of a point grows
/// with the predicted time of the step.
pub fn roofline(page: &Page, device: &Roofline) -> String {
    let points: Vec<(usize, &Point, f64)> = (page.shown().into_iter())
        .filter_map(|i| Some((i, page.steps[i].point.as_ref()?)))
        .filter(|(_, p)| p.operations > 0.0 && p.bytes > 0.0 && p.predicted_us > 0.0)
        .map(|(i, p)| (i, p, p.operations / p.bytes))
        .collect();
    let speed = |p: &Point| p.operations / p.predicted_us * 1e6;
    let total_us: f64 = page.steps.iter().filter_map(|step| Some(step.point.as_ref()?.predicted_us)).sum();
    let (peak, rate) = (device.operations_per_s, device.bytes_per_s);
    let ridge = peak / rate;
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let x0 = least(&mut points.iter().map(|p| p.2).chain([ridge / 10.0])).log10().floor();
    let x1 = most(&mut points.iter().map(|p| p.2).chain([ridge * 10.0])).log10().ceil();
    let y0 = least(&mut points.iter().map(|p| speed(p.1)).chain([peak / 100.0])).log10().floor();
    let y1 = peak.log10().ceil();
    let x = |v: f64| MARGIN.0 + (v.log10() - x0) / (x1 - x0) * (PLOT.0 - 2.0 * MARGIN.0 + 40.0);
    let y = |v: f64| PLOT.1 - MARGIN.1 - (v.log10() - y0) / (y1 - y0) * (PLOT.1 - 2.0 * MARGIN.1);
    let (width, height) = PLOT;
    let mut out =
        format!("<svg id=\"roofline\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n");
    for e in x0 as i32..=x1 as i32 {
        let at = x(10f64.powi(e));
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} {:.1}V{:.1}\"/><text class=\"axis\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            MARGIN.1,
            height - MARGIN.1,
            height - MARGIN.1 + 14.0,
            power(e)
        );
    }
    for e in y0 as i32..=y1 as i32 {
        let at = y(10f64.powi(e));
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{:.1} {at:.1}H{:.1}\"/><text class=\"axis end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            MARGIN.0,
            x(10f64.powf(x1)),
            MARGIN.0 - 5.0,
            at + 4.0,
            power(e)
        );
    }
    let begins = 10f64.powf(x0).max(10f64.powf(y0) / rate);
    let _ = writeln!(
        out,
        "<path class=\"roof\" d=\"M{:.1} {:.1}L{:.1} {:.1}H{:.1}\"/>",
        x(begins),
        y(begins * rate),
        x(ridge),
        y(peak),
        x(10f64.powf(x1))
    );
    for (i, point, intensity) in points {
        let Step { name, class, .. } = &page.steps[i];
        let radius = 4.0 + 10.0 * (point.predicted_us * page.times(i) as f64 / total_us.max(1e-12)).sqrt();
        let (x, y, name, class) = (x(intensity), &y, escaped(name), escaped(class));
        let mut circle = |class: &str, speed: f64, what: &str| {
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" data-step=\"{i}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\"><title>{i} {name}, {what}</title></circle>",
                y(speed),
            );
        };
        circle(&class, speed(point), "predicted");
        if let Some(us) = point.measured_us.filter(|us| *us > 0.0) {
            let measured = point.operations / us * 1e6;
            circle(&format!("{class} measured"), measured.max(10f64.powf(y0)), "measured");
        }
    }
    let _ = writeln!(
        out,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">operations for each byte</text>\
         <text class=\"axis start\" x=\"4\" y=\"14\">operations a second</text></svg>",
        width / 2.0,
        height - 3.0
    );
    out
}

/// Label of 10^e on an axis.
fn power(e: i32) -> String {
    match e {
        -3..=3 => format!("{}", 10f64.powi(e)),
        _ => format!("1e{e}"),
    }
}

/// Draws the arena: steps on the horizontal axis, bytes on the vertical one, and for each buffer a rectangle over its
/// live range and its addresses.
pub fn arena(page: &Page) -> String {
    let (width, height) = (900.0, 260.0);
    let total = page.blocks.iter().map(|b| b.offset.saturating_add(b.bytes)).max().unwrap_or(1).max(1) as f64;
    let steps = page.blocks.iter().map(|b| b.last + 1).max().unwrap_or(1) as f64;
    let mut out =
        format!("<svg id=\"arena\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n");
    for Block { first, last, offset, bytes } in &page.blocks {
        let (x, w) = (*first as f64 / steps * width, (last - first + 1) as f64 / steps * width);
        let (h, top) = (*bytes as f64 / total * height, offset.saturating_add(*bytes) as f64 / total * height);
        let _ = writeln!(
            out,
            "<rect class=\"block\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"><title>{bytes} bytes at {offset}, \
             steps {first} to {last}</title></rect>",
            height - top
        );
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::last_part;

    #[test]
    fn names_are_cut_at_their_parts() {
        assert_eq!(last_part("/layer.0/attention/query/MatMul"), "/attention/query/MatMul");
        assert_eq!(last_part("short"), "short");
        assert_eq!(last_part(&"é".repeat(60)).chars().count(), 26);
    }
}

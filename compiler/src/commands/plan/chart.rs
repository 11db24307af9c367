//! candidate plans, bytes on links  =>  a self-contained SVG
//!
//! A row for each plan shows its time (computing and exchanging), its memory against the limit, and why it lost. Below,
//! bars show the bytes that each link carries in one call of the first plan.

use super::{lost, name, size};
use crate::planner::Plans;
use sardonyx_passes::distribute::Estimate;
use sardonyx_run::page::escaped;
use std::fmt::Write;

const WIDTH: f64 = 1100.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
/// x coordinates where the bars of time and memory and the reasons begin.
const TIME: f64 = 240.0;
const MEMORY: f64 = 600.0;
const WHY: f64 = 880.0;
/// Width of the longest bar; its value is written after it.
const TIME_WIDTH: f64 = 210.0;
const MEMORY_WIDTH: f64 = 190.0;
/// Largest number of links that are drawn; a large cluster has thousands of similar links.
const LINKS_MAX: usize = 24;

const STYLE: &str = "svg{font:13px system-ui,sans-serif;color-scheme:light dark;--ink:#1b1b1f;--page:#fff;--rule:#d33}
.page{fill:var(--page)}text{fill:var(--ink)}.h{font-weight:600}.compute{fill:#2f6fb3}.exchange{fill:#e08a1e}
.weights{fill:#4b8f4b}.between{fill:#a7c957}.link{fill:#e08a1e}.limit{stroke:var(--rule);stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){svg{--ink:#e8e8ee;--page:#17171b;--rule:#f77}}";

/// Draws the chart. `links` is sorted by decreasing bytes.
pub fn chart(found: &Plans, comment: &str, memory: Option<u64>, links: &[(String, u64)]) -> String {
    let rows = found.candidates.len() as f64;
    let shown = &links[..links.len().min(LINKS_MAX)];
    let below = 90.0 + rows * ROW;
    let height = below + 60.0 + shown.len() as f64 * ROW;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    text(&mut out, (12.0, 24.0), " class=\"h\"", comment);
    legend(&mut out, (TIME, 50.0), &[("compute", "computes"), ("exchange", "exchanges")]);
    legend(&mut out, (MEMORY, 50.0), &[("weights", "weights"), ("between", "between operations")]);
    let estimates = || found.candidates.iter().filter_map(|c| c.estimate.as_ref().ok());
    let most = |of: fn(&Estimate) -> f64| estimates().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (per_us, per_byte) = (TIME_WIDTH / most(Estimate::time_us), MEMORY_WIDTH / most(Estimate::bytes));
    let best = found.candidates.first().and_then(|c| c.estimate.as_ref().ok());
    for (i, c) in found.candidates.iter().enumerate() {
        let y = 66.0 + i as f64 * ROW;
        text(&mut out, (12.0, y + BAR - 2.0), if i == 0 { " class=\"h\"" } else { "" }, &name(c));
        match &c.estimate {
            Ok(e) => {
                let times = [("compute", e.compute_us), ("exchange", e.exchange_us)];
                let end = bars(&mut out, (TIME, y), &times.map(|(class, us)| (class, us * per_us)));
                text(&mut out, (end + 5.0, y + BAR - 2.0), "", &format!("{:.3} ms{}", e.time_us() / 1e3, idle(e)));
                let memory = [("weights", e.weight_bytes), ("between", e.activation_bytes)];
                let end = bars(&mut out, (MEMORY, y), &memory.map(|(class, n)| (class, n * per_byte)));
                text(&mut out, (end + 5.0, y + BAR - 2.0), "", &size(e.bytes()));
                text(&mut out, (WHY, y + BAR - 2.0), "", &if i == 0 { "chosen".into() } else { lost(e, best, c.fits) });
            }
            Err(why) => text(&mut out, (TIME, y + BAR - 2.0), "", &format!("cannot be split so: {why}")),
        }
    }
    let limit = memory.map(|bytes| MEMORY + bytes as f64 * per_byte).filter(|x| *x < WHY);
    if let Some(x) = limit {
        let _ = writeln!(out, "<path class=\"limit\" d=\"M{x:.1} 60V{:.1}\"/>", 66.0 + rows * ROW);
    }
    link_rows(&mut out, below, shown, links.len());
    out.push_str("</svg>\n");
    out
}

/// The text for the share of the time that ranks of a pipeline wait for each other; empty without a pipeline.
pub fn idle(e: &Estimate) -> String {
    e.bubble.map_or(String::new(), |bubble| format!(", {:.0} % idle", 100.0 * bubble))
}

fn link_rows(out: &mut String, top: f64, shown: &[(String, u64)], n: usize) {
    let more = if n > shown.len() { format!(", the busiest of {n}") } else { String::new() };
    let heading = if n == 0 { "No link carries anything".into() } else { format!("Bytes on links in a call{more}") };
    text(out, (12.0, top + 20.0), " class=\"h\"", &heading);
    let most = shown.first().map_or(1, |(_, bytes)| *bytes).max(1);
    for (i, (link, bytes)) in shown.iter().enumerate() {
        let y = top + 32.0 + i as f64 * ROW;
        text(out, (12.0, y + BAR - 2.0), "", link);
        let end = bars(out, (TIME, y), &[("link", *bytes as f64 / most as f64 * (MEMORY - TIME))]);
        text(out, (end + 5.0, y + BAR - 2.0), "", &format!("{bytes}"));
    }
}

/// Draws adjacent bars; returns the x coordinate where they end.
fn bars(out: &mut String, (x, y): (f64, f64), widths: &[(&str, f64)]) -> f64 {
    widths.iter().fold(x, |x, (class, width)| {
        let _ =
            writeln!(out, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/>");
        x + width
    })
}

fn legend(out: &mut String, (x, y): (f64, f64), entries: &[(&str, &str)]) {
    for (i, (class, word)) in entries.iter().enumerate() {
        let x = x + i as f64 * 100.0;
        bars(out, (x, y - BAR + 2.0), &[(class, BAR)]);
        text(out, (x + BAR + 5.0, y), "", word);
    }
}

fn text(out: &mut String, (x, y): (f64, f64), attributes: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{}</text>", escaped(words));
}

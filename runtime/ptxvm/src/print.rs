//! [`Report`]  =>  text for people, JSON for programs

use std::fmt::{self, Write};

use crate::report::{Counters, Report, Traffic};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let times = if finding.count == 1 { String::new() } else { format!(" ({} times)", finding.count) };
            writeln!(f, "{}: line {}{times}: {}", finding.kind.name(), finding.line, finding.message)?;
        }
        writeln!(f, "{} findings", self.findings.len())?;
        write!(f, "{}", self.counters)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} warp instructions, {} thread instructions", self.warp_instructions, self.thread_instructions)?;
        for (class, count) in &self.classes {
            writeln!(f, "  {class:18} {:>14} warp {:>16} thread", count.warp, count.thread)?;
        }
        for allocation in &self.allocations {
            writeln!(f, "`{}` ({} bytes)", allocation.name, allocation.bytes)?;
            for (verb, traffic, distinct) in [
                ("loads", &allocation.loads, allocation.distinct_load_sectors),
                ("stores", &allocation.stores, allocation.distinct_store_sectors),
            ] {
                if traffic.requests > 0 {
                    writeln!(f, "  {verb:6} {}, {distinct} distinct sectors", traffic_text(traffic))?;
                }
            }
        }
        let shared = &self.shared;
        if shared.requests > 0 {
            writeln!(
                f,
                "shared memory: {} requests, {} wavefronts of {} ideal, {} conflicts",
                shared.requests,
                shared.wavefronts,
                shared.ideal,
                shared.conflicts()
            )?;
        }
        for line in &self.lines {
            write!(f, "line {:5} x {:8}", line.line, line.warp)?;
            if line.global.requests > 0 {
                write!(f, "  {}", traffic_text(&line.global))?;
            }
            if line.shared.requests > 0 {
                write!(f, "  {} wavefronts of {}", line.shared.wavefronts, line.shared.ideal)?;
            }
            writeln!(f, "  {}", line.text)?;
        }
        Ok(())
    }
}

fn traffic_text(traffic: &Traffic) -> String {
    let fetched = (32 * traffic.sectors).max(1);
    let used = 100.0 * traffic.bytes as f64 / fetched as f64;
    format!("{} requests, {} sectors, {} bytes ({used:.0} %)", traffic.requests, traffic.sectors, traffic.bytes)
}

impl Report {
    /// Returns the report as a JSON object with the members `findings` and `counters`.
    pub fn to_json(&self) -> String {
        let findings = self.findings.iter().map(|finding| {
            format!(
                "{{\"kind\":{},\"line\":{},\"count\":{},\"message\":{}}}",
                quoted(finding.kind.name()),
                finding.line,
                finding.count,
                quoted(&finding.message)
            )
        });
        format!("{{\"findings\":[{}],\"counters\":{}}}", joined(findings), self.counters.to_json())
    }
}

impl Counters {
    fn to_json(&self) -> String {
        let classes = self
            .classes
            .iter()
            .map(|(class, count)| format!("{}:{{\"warp\":{},\"thread\":{}}}", quoted(class), count.warp, count.thread));
        let allocations = self.allocations.iter().map(|allocation| {
            format!(
                "{{\"name\":{},\"address\":{},\"bytes\":{},\"loads\":{},\"stores\":{},\"distinct_load_sectors\":{},\
                 \"distinct_store_sectors\":{}}}",
                quoted(&allocation.name),
                allocation.address,
                allocation.bytes,
                traffic_json(&allocation.loads),
                traffic_json(&allocation.stores),
                allocation.distinct_load_sectors,
                allocation.distinct_store_sectors
            )
        });
        let lines = self.lines.iter().map(|line| {
            format!(
                "{{\"line\":{},\"text\":{},\"warp\":{},\"thread\":{},\"global\":{},\"wavefronts\":{},\"ideal\":{}}}",
                line.line,
                quoted(&line.text),
                line.warp,
                line.thread,
                traffic_json(&line.global),
                line.shared.wavefronts,
                line.shared.ideal
            )
        });
        format!(
            "{{\"warp_instructions\":{},\"thread_instructions\":{},\"classes\":{{{}}},\"allocations\":[{}],\
             \"shared\":{{\"requests\":{},\"wavefronts\":{},\"ideal\":{},\"conflicts\":{}}},\"lines\":[{}]}}",
            self.warp_instructions,
            self.thread_instructions,
            joined(classes),
            joined(allocations),
            self.shared.requests,
            self.shared.wavefronts,
            self.shared.ideal,
            self.shared.conflicts(),
            joined(lines)
        )
    }
}

fn traffic_json(traffic: &Traffic) -> String {
    let Traffic { requests, sectors, bytes } = traffic;
    format!("{{\"requests\":{requests},\"sectors\":{sectors},\"bytes\":{bytes}}}")
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the text as a string of JSON, with its quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => write!(out, "\\u{:04x}", c as u32).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use crate::testing::run_body;

    #[test]
    fn both_forms_name_findings_and_traffic() {
        let (_, report) = run_body("ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd0], %r1;", 32, &[1; 16]);
        let text = report.to_string();
        assert!(text.contains("out of bounds: line 9 (16 times)"), "{text}");
        assert!(text.contains("stores 1 requests, 4 sectors, 128 bytes (100 %), 4 distinct sectors"), "{text}");
        let json = report.to_json();
        assert!(json.starts_with("{\"findings\":[{\"kind\":\"out of bounds\",\"line\":9,\"count\":16,"), "{json}");
        assert!(
            json.contains("\"name\":\"in\"") && json.contains("\"loads\":{\"requests\":1,\"sectors\":2,\"bytes\":64}")
        );
        assert_eq!(json.matches('{').count(), json.matches('}').count());
    }
}

//! the record of a simulated device: its launches, and the errors of their kernels

use sardonyx_base::json::Json;

/// The record of a simulated device since the model was loaded, over all sessions of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Name of the device, such as `sim:sm_80`.
    pub device: String,
    /// Number of kernel launches that were simulated.
    pub launches: u64,
    /// Number of steps that the host computed instead of the device.
    pub host_operations: u64,
    /// Errors of kernels, one entry for each kernel, line and kind.
    pub findings: Vec<Finding>,
}

/// An error of a kernel: an access out of bounds, a race, a read of unwritten memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Symbol of the kernel, which is its entry in the PTX.
    pub kernel: String,
    /// Line in the artifact's PTX.
    pub line: u32,
    /// Kind of error, such as `out of bounds`.
    pub kind: &'static str,
    /// Describes the first occurrence.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
}

impl DeviceReport {
    #[cfg(any(feature = "sim", test))]
    pub(crate) fn add(&mut self, finding: Finding) {
        let same = |f: &Finding| (&f.kernel, f.line, f.kind) == (&finding.kernel, finding.line, finding.kind);
        match self.findings.iter_mut().find(|f| same(f)) {
            Some(known) => known.count += finding.count,
            None => self.findings.push(finding),
        }
    }

    /// Returns a line for each finding, and `device sim:sm_80: 0 findings, 0 host operations, 63 launches`.
    pub fn text(&self) -> String {
        let one = |f: &Finding| {
            let Finding { kernel, line, kind, message, count } = f;
            format!("{kernel}, PTX line {line}: {kind}: {message} ({count} times)\n")
        };
        let findings: String = self.findings.iter().map(one).collect();
        let (n, host, launches) = (self.findings.len(), self.host_operations, self.launches);
        format!("{findings}device {}: {n} findings, {host} host operations, {launches} launches", self.device)
    }

    /// Returns an object with `name`, `findings`, `host_operations` and `launches`.
    pub fn json(&self) -> Json {
        let finding = |f: &Finding| {
            Json::Object(vec![
                ("kernel", f.kernel.as_str().into()),
                ("line", u64::from(f.line).into()),
                ("kind", f.kind.into()),
                ("message", f.message.as_str().into()),
                ("count", f.count.into()),
            ])
        };
        Json::Object(vec![
            ("name", self.device.as_str().into()),
            ("findings", Json::List(self.findings.iter().map(finding).collect())),
            ("host_operations", self.host_operations.into()),
            ("launches", self.launches.into()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_one_line_are_one() {
        let mut report = DeviceReport { device: "sim:sm_80".into(), launches: 63, ..DeviceReport::default() };
        assert_eq!(report.text(), "device sim:sm_80: 0 findings, 0 host operations, 63 launches");
        let at = |line, kind, message: &str| {
            let message = message.into();
            Finding { kernel: "k3".into(), line, kind, message, count: 2 }
        };
        report.add(at(12, "race", "thread 3 of block 0"));
        report.add(at(12, "race", "thread 7 of block 1"));
        report.add(at(12, "out of bounds", "thread 7"));
        report.add(at(13, "race", "thread 3 of block 0"));
        assert_eq!(report.findings.iter().map(|f| f.count).collect::<Vec<_>>(), [4, 2, 2]);
        let first = report.text().lines().next().unwrap().to_string();
        assert_eq!(first, "k3, PTX line 12: race: thread 3 of block 0 (4 times)");
    }
}

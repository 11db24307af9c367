//! NAME.toml  =>  the devices of a cluster and the links between them, each figure with its source
//!
//! Levels are nested: the first level joins devices to groups, and each further level joins the groups of the previous
//! level. Devices of the same group have consecutive numbers; rank r runs on device r.

use sardonyx_base::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of devices of a topology: more than any cluster has.
const DEVICES_MAX: usize = 1 << 20;

/// The topologies that commands accept by name.
pub const PRESETS: [(&str, &str); 7] = [
    ("one-host", include_str!("../topologies/one-host.toml")),
    ("dgx-h100", include_str!("../topologies/dgx-h100.toml")),
    ("fat-tree", include_str!("../topologies/fat-tree.toml")),
    ("dragonfly", include_str!("../topologies/dragonfly.toml")),
    ("torus-2d", include_str!("../topologies/torus-2d.toml")),
    ("torus-3d", include_str!("../topologies/torus-3d.toml")),
    ("hamming-mesh", include_str!("../topologies/hamming-mesh.toml")),
];

/// Description of a cluster: its devices, and the links between them.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name of the topology; a preset has its name in [`PRESETS`].
    pub name: String,
    /// Short description of the cluster, for reports.
    pub about: String,
    /// Time for which a device is busy when it sends or receives one message, in microseconds.
    pub overhead_us: Figure,
    /// Rate at which a device combines operands, in 10⁹ bytes per second.
    pub combine_gb_s: Figure,
    /// Explanation of each source, by the name to which the `source` of a figure refers.
    pub sources: BTreeMap<String, String>,
    /// The levels, from the devices outwards.
    pub level: Vec<Level>,
    /// Properties of the switches, if they can combine operands.
    pub in_network: Option<InNetwork>,
    /// The device on which a rank computes.
    pub device: Option<Device>,
}

/// A reference to a device description.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name as listed by `sardonyx devices`.
    pub name: String,
    /// Number of cores of the device that a rank uses; all cores if absent.
    pub cores: Option<usize>,
}

/// A number with its source.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Value, in the unit with which the name of the field ends.
    pub value: f64,
    /// Key of [`Topology::sources`].
    pub source: String,
}

/// A level of the topology, which joins members (devices, or groups of the previous level) to groups.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// How the members of a group are connected.
    pub kind: Kind,
    /// Number of members along each dimension of a group; groups of a switch have one dimension.
    pub members: Vec<usize>,
    /// Number of parallel links of each member; device d of the member uses link d modulo this number.
    #[serde(default = "one")]
    pub lanes: usize,
    /// Whether the links are attached to the groups of the previous level (the default) or to devices.
    #[serde(default)]
    pub attached: Attached,
    /// Latency of each link that a message passes, in microseconds.
    pub latency_us: Figure,
    /// Bandwidth of one link in one direction, in 10⁹ bytes per second.
    pub gb_s: Figure,
}

fn one() -> usize {
    1
}

/// How the links of a level connect the members of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each member has a link to a non-blocking switch.
    Switch,
    /// Each member has a link to every other member.
    Direct,
    /// Neighbours in a grid have a link, and so do the two ends of each line.
    Torus,
    /// Like a torus, without the links between the ends of lines.
    Mesh,
    /// A grid of boards, each a two-dimensional mesh of devices. Each line of devices through a row or column of boards
    /// has a switch, to which the line's first and last device on every board are linked.
    Lines,
}

/// The points to which the links of a level are attached.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Attached {
    /// The links are attached to the groups of the previous level: a message passes links of the previous level first.
    #[default]
    Group,
    /// The links are attached to the devices.
    Device,
}

/// An all-reduce in the switches: each device sends its operand once and receives the result once.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct InNetwork {
    /// Time of an all-reduce without data, in microseconds.
    pub latency_us: Figure,
    /// Rate at which operands are reduced, in 10⁹ bytes of one operand per second.
    pub gb_s: Figure,
}

impl Topology {
    /// Parses and checks a topology. Errors: E0108, which names the faulty line, figure or level.
    pub fn parse(text: &str) -> Result<Topology> {
        let topology: Topology = toml::from_str(text).map_err(|e| wrong(e.to_string().trim_end().to_string()))?;
        topology.verify()?;
        Ok(topology)
    }

    /// Parses the preset of this name; `None` if there is no such preset.
    pub fn preset(name: &str) -> Option<Result<Topology>> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| Topology::parse(text))
    }

    /// Parses the preset called `name`, or else the topology file at the path `name`. Errors: E0002, E0108.
    pub fn named(name: &str) -> Result<Topology> {
        match Topology::preset(name) {
            Some(preset) => preset,
            None => {
                let path = Path::new(name);
                let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
                Topology::parse(&text).map_err(|e| e.file(name))
            }
        }
    }

    /// Checks a number of ranks. Errors: E0108 if the number is 0 or larger than the number of devices.
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        if (1..=self.devices()).contains(&ranks) {
            return Ok(());
        }
        let message = format!("{ranks} ranks on the {} devices of `{}`", self.devices(), self.name);
        Err(Error::user("E0108", message).help("give fewer ranks, or a larger topology"))
    }

    fn verify(&self) -> Result<()> {
        let mut figures = vec![
            ("overhead_us".to_string(), &self.overhead_us, 0.0),
            ("combine_gb_s".to_string(), &self.combine_gb_s, f64::MIN_POSITIVE),
        ];
        for (i, level) in self.level.iter().enumerate() {
            figures.push((format!("level {i}: latency_us"), &level.latency_us, 0.0));
            figures.push((format!("level {i}: gb_s"), &level.gb_s, f64::MIN_POSITIVE));
        }
        if let Some(network) = &self.in_network {
            figures.push(("in_network: latency_us".to_string(), &network.latency_us, 0.0));
            figures.push(("in_network: gb_s".to_string(), &network.gb_s, f64::MIN_POSITIVE));
        }
        for (name, figure, least) in figures {
            if !(figure.value >= least && figure.value <= 1e9) {
                let wants = if least > 0.0 { "above 0" } else { "0 or more" };
                return Err(wrong(format!("{name} is {}, not {wants} and at most 1e9", figure.value)));
            }
            if !self.sources.contains_key(&figure.source) {
                return Err(wrong(format!(
                    "{name} has the source `{}`, which `sources` does not explain",
                    figure.source
                )));
            }
        }
        if self.level.is_empty() {
            return Err(wrong("there is no `[[level]]`"));
        }
        let mut devices: usize = 1;
        for (i, level) in self.level.iter().enumerate() {
            let n_dims = match level.kind {
                Kind::Switch | Kind::Direct => 1..=1,
                Kind::Torus | Kind::Mesh => 1..=6,
                Kind::Lines => 2..=2,
            };
            if !n_dims.contains(&level.members.len()) || level.members.contains(&0) {
                let (least, most) = (n_dims.start(), n_dims.end());
                return Err(wrong(format!("level {i}: `members` has {least} to {most} numbers, each 1 or more")));
            }
            let is_board = |below: &Level| below.kind == Kind::Mesh && below.members.len() == 2;
            if level.kind == Kind::Lines && !(i == 1 && is_board(&self.level[0])) {
                return Err(wrong(format!(
                    "level {i}: `lines` join boards: it is level 1, level 0 a mesh of two dimensions"
                )));
            }
            if level.lanes == 0 || (level.lanes > 1 && level.kind != Kind::Switch) {
                return Err(wrong(format!("level {i}: `lanes` is 1 or more, and 1 unless the level is a switch")));
            }
            if level.attached == Attached::Device && level.kind != Kind::Switch {
                return Err(wrong(format!("level {i}: only the links of a switch hang on devices")));
            }
            devices = level.members.iter().try_fold(devices, |n, m| n.checked_mul(*m)).unwrap_or(usize::MAX);
            if devices > DEVICES_MAX {
                return Err(wrong(format!("level {i}: more than {DEVICES_MAX} devices")));
            }
        }
        Ok(())
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.level.iter().flat_map(|l| &l.members).product()
    }

    /// Number of devices in each member of a level.
    pub(crate) fn devices_below(&self, level: usize) -> usize {
        self.level[..level].iter().flat_map(|l| &l.members).product()
    }
}

fn wrong(message: impl Into<String>) -> Box<Error> {
    Error::user("E0108", format!("the topology: {}", message.into()))
        .help("correct the file, or name a topology that is built in")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_topologies() {
        for (name, _) in PRESETS {
            let topology = Topology::preset(name).unwrap().unwrap();
            assert_eq!(topology.name, name);
            assert!(topology.devices() >= 8, "{name}");
        }
        assert_eq!(Topology::preset("dgx-h100").unwrap().unwrap().devices(), 4096);
        assert!(Topology::preset("ring").is_none());
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let text = PRESETS[0].1;
        let changed = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let e = Topology::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert_eq!(e.code, "E0108");
            e.message
        };
        assert!(changed("about", "abuot").contains("line"), "{}", changed("about", "abuot"));
        assert!(changed("members = [8]", "members = []").contains("level 0: `members` has 1 to 1 numbers"));
        assert!(changed("members = [8]", "members = [0]").contains("each 1 or more"));
        assert!(changed("members = [8]", "members = [9999999]").contains("more than 1048576 devices"));
        assert!(changed("kind = \"switch\"", "kind = \"bus\"").contains("line"));
        assert!(changed("kind = \"switch\"", "kind = \"lines\"").contains("has 2 to 2 numbers"));
        assert!(changed("members = [8]", "members = [8]\nlanes = 0").contains("`lanes` is 1 or more"));
        assert!(changed("assumed\" }", "heard\" }").contains("which `sources` does not explain"));
    }

    #[test]
    fn no_changed_file_panics() {
        let mut seed: u64 = 1;
        let mut next = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..2000 {
            let mut bytes = PRESETS[next(PRESETS.len())].1.as_bytes().to_vec();
            for _ in 0..1 + next(3) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = b"0123456789.-[]=\"x\n"[next(18)],
                    1 => drop(bytes.remove(at)),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b'9'),
                }
            }
            match Topology::parse(&String::from_utf8_lossy(&bytes)) {
                Ok(topology) => {
                    taken += 1;
                    let n = topology.devices();
                    topology.route(0, n - 1);
                    topology.route(n / 2, 0);
                }
                Err(e) => {
                    refused += 1;
                    assert_eq!(e.code, "E0108");
                }
            }
        }
        assert!(taken > 100 && refused > 100, "{taken} {refused}");
    }
}

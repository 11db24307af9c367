//! devices [NAME|FILE.toml]  =>  the list of described devices and which of them are present, or the figures of one

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::say;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_kernels::DeviceSpec;
use sardonyx_kernels::device_spec::{Listed, NOT_MEASURED};
use std::io::Write;
use std::path::Path;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} devices
  {bin} devices sm_80
  {bin} devices sm_80 --toml > mine.toml
  {bin} devices mine.toml --json")]
pub struct DevicesArgs {
    /// Show one device: a name from the list, or a TOML file that describes another one [default: show the list]
    #[arg(value_name = "NAME|FILE.toml")]
    pub device: Option<String>,
    /// Print the device's description as TOML
    #[arg(long, requires = "device", conflicts_with = "json")]
    pub toml: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command. Errors: E0001 for an unknown device; E0002 and E0406 for the file that describes one.
pub fn devices(args: &DevicesArgs, out: &mut dyn Write) -> Result<()> {
    let Some(device) = &args.device else { return list(args.json, out) };
    let text = text(device)?;
    let spec = DeviceSpec::parse(&text, device)?;
    match (args.toml, args.json) {
        (true, _) => write!(out, "{text}").map_err(|e| Error::io("standard output", "write", &e)),
        (_, true) => say(out, &figures_json(&spec).to_string()),
        (_, false) => figures(&spec, out),
    }
}

/// The description of a known device, or of one in a file. Errors: E0001, E0002, E0406.
pub fn spec(device: &str) -> Result<DeviceSpec> {
    DeviceSpec::parse(&text(device)?, device)
}

/// The description of a known device, or the content of a file.
fn text(device: &str) -> Result<String> {
    if let Some(text) = DeviceSpec::text(device) {
        return Ok(text.into());
    }
    if Path::new(device).extension().is_none_or(|e| e != "toml") {
        let known: Vec<&str> = DeviceSpec::names().collect();
        return Err(Error::user("E0001", format!("no device `{device}` is described"))
            .help(format!("known are {}; a description of your own is a file FILE.toml", known.join(", "))));
    }
    std::fs::read_to_string(device).map_err(|e| Error::io(device, "read", &e))
}

fn list(json: bool, out: &mut dyn Write) -> Result<()> {
    let specs: Vec<DeviceSpec> = DeviceSpec::names().filter_map(DeviceSpec::named).collect();
    if json {
        let rows = specs.iter().map(|spec| {
            Json::Object(vec![
                ("name", spec.name.as_str().into()),
                ("target", spec.target.as_str().into()),
                ("about", spec.about.as_str().into()),
                ("present", present(spec).into()),
            ])
        });
        return say(out, &Json::Object(vec![("devices", Json::List(rows.collect()))]).to_string());
    }
    specs.iter().try_for_each(|spec| {
        let here = match present(spec) {
            Some(true) => "here",
            Some(false) => "not here",
            None => "unknown",
        };
        say(out, &format!("{:<12} {:<14} {here:<10} {}", spec.name, spec.target, spec.about))
    })
}

/// Returns whether this machine has the described device, or a CPU with all its features; `None` if that cannot be
/// determined.
fn present(spec: &DeviceSpec) -> Option<bool> {
    match &spec.cpu {
        Some(cpu) => {
            let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
            let flags = info.lines().find_map(|l| l.strip_prefix("flags")?.split_once(':').map(|(_, flags)| flags))?;
            let has = |feature: &str| flags.split_whitespace().any(|flag| flag == feature.replace('-', "_"));
            Some(cpu.features.iter().all(|feature| has(feature)))
        }
        // Only the NVIDIA driver knows which GPU is installed. Without the driver no GPU can be used.
        None => (!Path::new("/proc/driver/nvidia/version").exists()).then_some(false),
    }
}

fn figures(spec: &DeviceSpec, out: &mut dyn Write) -> Result<()> {
    say(out, &format!("{}: {}", spec.name, spec.about))?;
    say(out, &format!("target {}", spec.target))?;
    for figure in spec.figures() {
        let source = spec.sources.get(figure.source).map_or(figure.source, String::as_str);
        match figure.value {
            Some(v) => say(out, &format!("{:<36} {v:<14} {source}", figure.path))?,
            None => say(out, &format!("{:<36} {NOT_MEASURED}", figure.path))?,
        }
    }
    Ok(())
}

fn figures_json(spec: &DeviceSpec) -> Json {
    let row = |f: &Listed| {
        Json::Object(vec![
            ("name", f.path.as_str().into()),
            ("value", f.value.map_or(Json::Null, Json::from)),
            ("source", spec.sources.get(f.source).map_or(f.source, String::as_str).into()),
        ])
    };
    Json::Object(vec![
        ("name", spec.name.as_str().into()),
        ("target", spec.target.as_str().into()),
        ("about", spec.about.as_str().into()),
        ("figures", Json::List(spec.figures().iter().map(row).collect())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(args: &DevicesArgs) -> Result<String> {
        let mut out = vec![];
        devices(args, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    fn output_for(device: Option<&str>, toml: bool, json: bool) -> Result<String> {
        printed(&DevicesArgs { device: device.map(String::from), toml, json })
    }

    #[test]
    fn the_list_names_every_device_and_its_target() {
        let text = output_for(None, false, false).unwrap();
        assert_eq!(text.lines().count(), DeviceSpec::names().count());
        assert!(text.contains("sm_80        cuda:sm_80     "), "{text}");
        assert!(output_for(None, false, true).unwrap().contains("\"name\": \"x86-64-v3\", \"target\": \"cpu\""));
    }

    #[test]
    fn a_figure_is_shown_with_its_source_and_what_nobody_measured_says_so() {
        let text = output_for(Some("sm_80"), false, false).unwrap();
        assert!(text.contains("memory.dram.read_gb_s                1555           NVIDIA A100 Tensor Core"), "{text}");
        assert!(text.contains("memory.shared.read_gb_s              not measured\n"), "{text}");
        let json = output_for(Some("sm_80"), false, true).unwrap();
        assert!(
            json.contains("{\"name\": \"memory.shared.read_gb_s\", \"value\": null, \"source\": \"not measured\"}"),
            "{json}"
        );
    }

    #[test]
    fn a_description_of_ones_own_starts_from_a_printed_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let text = output_for(Some("sm_90a"), true, false).unwrap();
        std::fs::write(&path, text.replacen("value = 132", "value = 114", 1)).unwrap();
        let shown = output_for(path.to_str(), false, false).unwrap();
        assert!(shown.contains("cores                                114 "), "{shown}");
        std::fs::write(&path, text.replacen("value = 132", "value = 0", 1)).unwrap();
        let told = output_for(path.to_str(), false, false).unwrap_err().to_string();
        assert!(
            told.starts_with("error[E0406]: 0 is not positive\n  --> ") && told.contains("mine.toml, node cores"),
            "{told}"
        );
    }

    #[test]
    fn an_unknown_device_lists_the_known_ones() {
        let told = output_for(Some("sm_75"), false, false).unwrap_err().to_string();
        assert!(told.contains("no device `sm_75` is described") && told.contains("known are amx, sm_80"), "{told}");
        assert_eq!(output_for(Some("absent.toml"), false, false).unwrap_err().code, "E0002");
    }
}

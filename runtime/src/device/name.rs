//! "cuda:0"  =>  `DeviceName::Cuda(0)`, or an error that lists the devices

use sardonyx_base::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The device that a model runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// `cpu`: the processor of the host.
    #[default]
    Cpu,
    /// `sim:sm_80`: a simulated GPU of that target. Its results, bounds checks, race reports and counters are exact;
    /// time is not simulated.
    Sim(String),
    /// `cuda:0`: a GPU, by its index in the numbering of the CUDA driver.
    Cuda(u32),
}

/// PTX targets that can be simulated.
pub static SIMULATED: &[&str] = &["sm_80", "sm_90a"];

impl FromStr for DeviceName {
    type Err = Box<Error>;

    fn from_str(text: &str) -> Result<DeviceName> {
        match text.split_once(':') {
            None if text == "cpu" => return Ok(DeviceName::Cpu),
            Some(("sim", target)) if SIMULATED.contains(&target) => return Ok(DeviceName::Sim(target.to_string())),
            Some(("cuda", number)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                if let Ok(number) = number.parse() {
                    return Ok(DeviceName::Cuda(number));
                }
            }
            Some(_) | None => {}
        }
        Err(Error::user("E0001", format!("there is no device `{text}`")).help(DeviceName::known()))
    }
}

impl DeviceName {
    fn known() -> String {
        let simulated: Vec<String> = SIMULATED.iter().map(|target| format!("`sim:{target}`")).collect();
        format!("the devices are `cpu`, {} and `cuda:N`, such as `cuda:0`", simulated.join(", "))
    }

    /// Returns the class of devices that share a plan, as the artifact names it.
    pub fn class(&self) -> &'static str {
        match self {
            DeviceName::Cpu => "cpu",
            DeviceName::Sim(_) | DeviceName::Cuda(_) => "gpu",
        }
    }

    /// Whether kernels run on the processors of the host, of which a session takes some.
    pub fn is_host(&self) -> bool {
        *self == DeviceName::Cpu
    }

    /// Whether the number in the name chooses one of several devices, so that each rank can have its own.
    pub fn is_numbered(&self) -> bool {
        match self {
            DeviceName::Cuda(_) => true,
            DeviceName::Cpu | DeviceName::Sim(_) => false,
        }
    }

    /// Whether the device is simulated: its results are exact, but times measured on it are meaningless.
    pub fn is_simulated(&self) -> bool {
        match self {
            DeviceName::Sim(_) => true,
            DeviceName::Cpu | DeviceName::Cuda(_) => false,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cpu => f.write_str("cpu"),
            DeviceName::Sim(target) => write!(f, "sim:{target}"),
            DeviceName::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["cpu", "sim:sm_80", "sim:sm_90a", "cuda:0", "cuda:12"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cpu:0", "sim", "sim:", "sim:sm_20", "cuda", "cuda:", "cuda:+1", "cuda:99999999999"] {
            let e = text.parse::<DeviceName>().unwrap_err();
            assert_eq!((e.code, e.message), ("E0001", format!("there is no device `{text}`")));
            let devices = "the devices are `cpu`, `sim:sm_80`, `sim:sm_90a` and `cuda:N`, such as `cuda:0`";
            assert_eq!(e.help.unwrap(), devices);
        }
    }
}

//! arguments of the command line  =>  times and sizes, or an error message

use sardonyx_runtime::Wire;
use std::num::NonZeroU64;
use std::time::Duration;

/// Parses a positive time: `250ms`, `1.5s`, `2min`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "" => return Err("a time has a unit: us, ms, s or min".to_string()),
        _ => return Err(format!("`{unit}` is no unit of time: us, ms, s and min are")),
    };
    let time = number.parse::<f64>().ok().and_then(|n| Duration::try_from_secs_f64(n * seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "it is no time above 0".to_string())
}

/// Parses a number of bytes: `64`, `512M` or `512MiB`.
pub fn byte_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(format!("`{unit}` is no unit of bytes: K, M, G and T are, and KiB, MiB, GiB, TiB")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "it is no number of bytes".to_string())
}

/// `512 bytes`, `72.0 KiB`, `1.1 MiB`
pub fn bytes_text(bytes: u64) -> String {
    let scaled = |shift: u32| bytes as f64 / (1u64 << shift) as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{:.1} KiB", scaled(10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", scaled(20)),
        _ => format!("{:.1} GiB", scaled(30)),
    }
}

/// Parses a link's latency and its rate in bytes per second: `50us,1G`.
pub fn wire(text: &str) -> Result<Wire, String> {
    let parts = text.split_once(',').ok_or_else(|| "a link is a latency and bytes a second: 50us,1G".to_string());
    let (latency, rate) = parts?;
    let bytes_per_s = NonZeroU64::new(byte_count(rate)?).ok_or_else(|| "a link carries something".to_string())?;
    Ok(Wire { latency: duration(latency)?, bytes_per_s })
}

/// Splits a text into a number and its unit.
fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| !matches!(c, '0'..='9' | '.')).unwrap_or(text.len());
    (&text[..at], text[at..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2 min"), Ok(Duration::from_secs(120)));
        assert_eq!((byte_count("512"), byte_count("64KiB"), byte_count("2G")), (Ok(512), Ok(65536), Ok(2 << 30)));
        assert_eq!([1023, 1024, 3 << 19, 5 << 30].map(bytes_text), ["1023 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
        for wrong in ["", "0s", "-1s", "s", "1h", "nan", "inf", "1e999s", "1s2", "250"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "-1", "1.5G", "20000000T", "M", "1kb"] {
            assert!(byte_count(wrong).is_err(), "{wrong}");
        }
    }
}

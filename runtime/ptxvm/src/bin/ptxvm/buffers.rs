//! a launch file  =>  memory and a launch; after the run, buffers are compared with their expected values

use std::collections::BTreeMap;
use std::path::Path;

use crate::json::{self, Value};
use ptxvm::units::format::{Format, Rounding};
use ptxvm::{Launch, Memory, Params};

/// Maximum size of a buffer, so that a launch file cannot allocate all memory of the machine.
const BUFFER_BYTES_MAX: u64 = 1 << 34;

pub struct Job {
    pub memory: Memory,
    pub launch: Launch,
    expectations: Vec<Expectation>,
}

struct Expectation {
    name: String,
    address: u64,
    dtype: Dtype,
    bytes: Vec<u8>,
    tolerance: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dtype {
    U8,
    I8,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

const DTYPES: [(&str, Dtype, usize); 12] = [
    ("u8", Dtype::U8, 1),
    ("i8", Dtype::I8, 1),
    ("u16", Dtype::U16, 2),
    ("i16", Dtype::I16, 2),
    ("f16", Dtype::F16, 2),
    ("bf16", Dtype::Bf16, 2),
    ("u32", Dtype::U32, 4),
    ("i32", Dtype::I32, 4),
    ("f32", Dtype::F32, 4),
    ("u64", Dtype::U64, 8),
    ("i64", Dtype::I64, 8),
    ("f64", Dtype::F64, 8),
];

impl Dtype {
    fn named(name: &str) -> Result<Dtype, String> {
        let found = DTYPES.iter().find(|(known, ..)| *known == name);
        found.map(|(_, dtype, _)| *dtype).ok_or_else(|| format!("unknown dtype `{name}`; `ptxvm --help` lists them"))
    }

    fn bytes(self) -> usize {
        DTYPES.iter().find(|(_, dtype, _)| *dtype == self).map_or(1, |(.., bytes)| *bytes)
    }

    /// Encodes a value as little-endian bytes, floats rounded to nearest.
    fn encode(self, value: f64) -> Vec<u8> {
        match self {
            Dtype::U8 => (value as u8).to_le_bytes().to_vec(),
            Dtype::I8 => (value as i8).to_le_bytes().to_vec(),
            Dtype::U16 => (value as u16).to_le_bytes().to_vec(),
            Dtype::I16 => (value as i16).to_le_bytes().to_vec(),
            Dtype::F16 => (Format::F16.narrow(value, Rounding::Rn, false) as u16).to_le_bytes().to_vec(),
            Dtype::Bf16 => (Format::Bf16.narrow(value, Rounding::Rn, false) as u16).to_le_bytes().to_vec(),
            Dtype::U32 => (value as u32).to_le_bytes().to_vec(),
            Dtype::I32 => (value as i32).to_le_bytes().to_vec(),
            Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
            Dtype::U64 => (value as u64).to_le_bytes().to_vec(),
            Dtype::I64 => (value as i64).to_le_bytes().to_vec(),
            Dtype::F64 => value.to_le_bytes().to_vec(),
        }
    }

    fn encode_json(self, value: &Value) -> Result<Vec<u8>, String> {
        // 64-bit integers are parsed directly, because f64 would lose digits.
        if let Value::Number(text) = value {
            match self {
                Dtype::U64 => return text.parse::<u64>().map(|v| v.to_le_bytes().to_vec()).map_err(|e| e.to_string()),
                Dtype::I64 => return text.parse::<i64>().map(|v| v.to_le_bytes().to_vec()).map_err(|e| e.to_string()),
                _ => {}
            }
        }
        value.real().map(|value| self.encode(value)).ok_or_else(|| "values are numbers".to_owned())
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 8];
        wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let bits = u64::from_le_bytes(wide);
        match self {
            Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => bits as f64,
            Dtype::I8 => f64::from(bits as i8),
            Dtype::I16 => f64::from(bits as i16),
            Dtype::I32 => f64::from(bits as i32),
            Dtype::I64 => bits as i64 as f64,
            Dtype::F16 => f64::from(Format::F16.widen(bits as u32)),
            Dtype::Bf16 => f64::from(Format::Bf16.widen(bits as u32)),
            Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
            Dtype::F64 => f64::from_bits(bits),
        }
    }
}

type Object = BTreeMap<String, Value>;

fn object<'v>(value: &'v Value, what: &str, known: &[&str]) -> Result<&'v Object, String> {
    let Value::Object(object) = value else { return Err(format!("{what} is an object")) };
    match object.keys().find(|key| !known.is_empty() && !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown field `{key}` of {what}; known are {}", known.join(", "))),
        None => Ok(object),
    }
}

fn extents(value: Option<&Value>, what: &str) -> Result<[u32; 3], String> {
    let wrong = || format!("`{what}` is a number or a list of up to three");
    let list = match value {
        Some(Value::List(list)) if (1..=3).contains(&list.len()) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => return Err(format!("`{what}` is missing")),
    };
    let mut extents = [1; 3];
    for (extent, value) in extents.iter_mut().zip(list) {
        *extent = value.integer().and_then(|value| u32::try_from(value).ok()).ok_or_else(wrong)?;
    }
    Ok(extents)
}

impl Job {
    pub fn read(text: &str, folder: &Path) -> Result<Job, String> {
        let root = json::parse(text)?;
        let known = ["entry", "grid", "block", "shared_bytes", "buffers", "params"];
        let root = object(&root, "the launch", &known)?;
        let entry = root.get("entry").and_then(Value::text).ok_or("`entry` is missing")?.to_owned();
        let shared = root.get("shared_bytes").map_or(Some(0), Value::integer);
        let shared_bytes = shared.and_then(|bytes| u32::try_from(bytes).ok()).ok_or("`shared_bytes` is a number")?;
        let (mut memory, mut addresses, mut expectations) = (Memory::new(), BTreeMap::new(), Vec::new());
        let none = Value::Object(Object::new());
        for (name, buffer) in object(root.get("buffers").unwrap_or(&none), "`buffers`", &[])? {
            let (address, expectation) =
                read_buffer(&mut memory, name, buffer, folder).map_err(|error| format!("buffer `{name}`: {error}"))?;
            addresses.insert(name.clone(), address);
            expectations.extend(expectation);
        }
        let params = match root.get("params") {
            Some(Value::List(list)) => read_params(list, &addresses)?,
            None => Vec::new(),
            Some(_) => return Err("`params` is a list".into()),
        };
        let (grid, block) = (extents(root.get("grid"), "grid")?, extents(root.get("block"), "block")?);
        let launch = Launch { entry, grid, block, cluster: [1; 3], shared_bytes, params };
        Ok(Job { memory, launch, expectations })
    }

    /// Returns a line for each buffer that differs from its expected values.
    pub fn compare(&self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for expected in &self.expectations {
            let mut found = vec![0; expected.bytes.len()];
            self.memory.read(expected.address, &mut found).map_err(|error| error.to_string())?;
            lines.extend(expected.difference(&found));
        }
        Ok(lines)
    }
}

impl Expectation {
    fn difference(&self, found: &[u8]) -> Option<String> {
        let width = self.dtype.bytes();
        let values = |bytes: &[u8]| -> Vec<f64> { bytes.chunks(width).map(|bytes| self.dtype.decode(bytes)).collect() };
        let (expected, found) = (values(&self.bytes), values(found));
        let largest = expected.iter().filter(|value| value.is_finite()).fold(0f64, |most, value| most.max(value.abs()));
        let allowed = self.tolerance * largest;
        let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= allowed;
        let wrong: Vec<usize> = (0..expected.len()).filter(|i| !same(expected[*i], found[*i])).collect();
        let first = *wrong.first()?;
        Some(format!(
            "`{}`: {} of {} differ, the first at {first}: {} instead of {}",
            self.name,
            wrong.len(),
            expected.len(),
            found[first],
            expected[first]
        ))
    }
}

fn read_buffer(
    memory: &mut Memory,
    name: &str,
    value: &Value,
    folder: &Path,
) -> Result<(u64, Option<Expectation>), String> {
    let known = ["dtype", "count", "fill", "file", "values", "expected", "tolerance", "seed"];
    let buffer = object(value, "a buffer", &known)?;
    let dtype = Dtype::named(buffer.get("dtype").and_then(Value::text).unwrap_or("f32"))?;
    let start = contents(buffer, dtype, folder)?;
    let expected = match buffer.get("expected") {
        Some(value) => contents(object(value, "`expected`", &["values", "file"])?, dtype, folder)?,
        None => None,
    };
    let counted = match buffer.get("count") {
        Some(count) => {
            count.integer().and_then(|count| count.checked_mul(dtype.bytes() as u64)).ok_or("`count` is a number")?
        }
        None => 0,
    };
    let longest = [&start, &expected].into_iter().flatten().map(|bytes| bytes.len() as u64).fold(counted, u64::max);
    if longest > BUFFER_BYTES_MAX {
        return Err(format!("{longest} bytes, more than {BUFFER_BYTES_MAX}"));
    }
    let address = memory.alloc(longest as usize, name);
    let start = match (start, buffer.get("fill")) {
        (None, Some(fill)) => {
            let seed = buffer.get("seed").and_then(Value::integer).unwrap_or(1);
            Some(filled(fill, dtype, longest as usize / dtype.bytes(), seed)?)
        }
        (start, _) => start,
    };
    if let Some(bytes) = start {
        memory.write(address, &bytes).map_err(|error| error.to_string())?;
    }
    let tolerance = buffer.get("tolerance").map_or(Some(0.0), Value::real).ok_or("`tolerance` is a number")?;
    let expectation = expected.map(|bytes| Expectation { name: name.to_owned(), address, dtype, bytes, tolerance });
    Ok((address, expectation))
}

fn contents(object: &Object, dtype: Dtype, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    match (object.get("values"), object.get("file")) {
        (Some(Value::List(values)), None) => {
            let encoded: Result<Vec<_>, _> = values.iter().map(|value| dtype.encode_json(value)).collect();
            Ok(Some(encoded?.concat()))
        }
        (None, Some(Value::Text(file))) => {
            let path = folder.join(file);
            std::fs::read(&path).map(Some).map_err(|error| format!("{}: {error}", path.display()))
        }
        (None, None) => Ok(None),
        _ => Err("either `values`, a list, or `file`, a name".into()),
    }
}

fn filled(fill: &Value, dtype: Dtype, count: usize, seed: u64) -> Result<Vec<u8>, String> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let is_float = matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
    let mut random = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let unit = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64;
        if is_float { 2.0 * unit - 1.0 } else { (unit * 100.0).floor() }
    };
    let bytes: Vec<Vec<u8>> = match fill {
        Value::Text(name) if name == "random" => (0..count).map(|_| dtype.encode(random())).collect(),
        Value::Text(name) if name == "iota" => (0..count).map(|i| dtype.encode(i as f64)).collect(),
        Value::Number(_) => {
            let one = dtype.encode_json(fill)?;
            return Ok(one.repeat(count));
        }
        _ => return Err("`fill` is a number, \"random\" or \"iota\"".into()),
    };
    Ok(bytes.concat())
}

fn read_params(list: &[Value], addresses: &BTreeMap<String, u64>) -> Result<Vec<u8>, String> {
    let mut params = Params::new();
    for value in list {
        params = match value {
            Value::Text(name) => {
                let address = addresses.get(name).ok_or_else(|| format!("parameter `{name}` is no buffer"))?;
                params.u64(*address)
            }
            Value::Object(object) => {
                let mut fields = object.iter();
                let (Some((dtype, value)), None) = (fields.next(), fields.next()) else {
                    return Err("a scalar is an object of one field, such as { \"u32\": 7 }".into());
                };
                let dtype = Dtype::named(dtype)?;
                params.bytes(&dtype.encode_json(value)?, dtype.bytes())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) => {
                return Err("a parameter is a buffer's name or an object such as { \"u32\": 7 }".into());
            }
        };
    }
    Ok(params.build())
}

//! tensors as text, and names as file names

use sardonyx_base::{
    DType, Tensor,
    widen::{parts, widen},
};

/// Returns the type, the dimensions and the first values of a tensor as text: `f32 [2, 3]: 0.5 1 …`.
pub fn summary(tensor: &Tensor) -> String {
    const SHOWN: usize = 8;
    let wide = widen(tensor);
    let n = wide.len();
    let values: Vec<String> = (0..n.min(SHOWN)).map(|i| value(&wide, i)).collect();
    let more = if n > SHOWN { " …" } else { "" };
    format!("{} {:?}: {}{more}", tensor.dtype(), tensor.dims(), values.join(" "))
}

fn value(tensor: &Tensor, i: usize) -> String {
    let real = |v: Option<f64>| v.map_or("?".to_string(), |v| format!("{}", v as f32));
    match tensor.dtype() {
        DType::F64 => tensor.get_f64(i).map_or("?".to_string(), |v| v.to_string()),
        DType::C64 | DType::C128 => {
            let parts = parts(tensor);
            format!("({} {})", real(parts.get_f64(2 * i)), real(parts.get_f64(2 * i + 1)))
        }
        DType::U64 => tensor.get_i64(i).map_or("?".to_string(), |v| (v as u64).to_string()),
        dtype if dtype.is_float() => real(tensor.get_f64(i)),
        _ => tensor.get_i64(i).map_or("?".to_string(), |v| v.to_string()),
    }
}

/// Returns a safe file name without directories or a leading dot, different from those in `taken`.
pub fn file_name(name: &str, taken: &[String]) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let mut base: String = name.chars().take(100).map(safe).collect();
    if base.is_empty() || base.starts_with('.') {
        base.insert(0, '_');
    }
    let numbered = |n: usize| if n == 0 { base.clone() } else { format!("{base}_{n}") };
    (0..).map(numbered).find(|name| !taken.contains(name)).unwrap_or(base.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_stay_in_their_folder() {
        assert_eq!(file_name("last_hidden_state", &[]), "last_hidden_state");
        assert_eq!(file_name("../../etc/passwd", &[]), "_.._.._etc_passwd");
        assert_eq!(file_name("", &[]), "_");
        assert_eq!(file_name("a:0", &["a_0".into()]), "a_0_1");
    }

    #[test]
    fn values_are_printed_in_their_own_type() {
        assert_eq!(summary(&Tensor::from_vec(vec![2], vec![0.1f32, -2.0])), "f32 [2]: 0.1 -2");
        assert_eq!(summary(&Tensor::scalar(u64::MAX)), "u64 []: 18446744073709551615");
        assert_eq!(summary(&Tensor::from_vec(vec![9], vec![true; 9])), "bool [9]: 1 1 1 1 1 1 1 1 …");
        let complex: Vec<u8> = [1f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let complex = Tensor::new(DType::C64, vec![1], complex.into()).unwrap();
        assert_eq!(summary(&complex), "c64 [1]: (1 -2)");
    }
}

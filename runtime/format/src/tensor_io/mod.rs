//! tensor files  =>  `Tensor`, and back: ONNX `.pb`, numpy `.npy` and `.npz`, synthetic values

pub mod npy;
pub mod proto;
pub mod synthetic;
mod values;

pub use npy::{read_npz, save_npy};
pub use proto::TensorProto;
pub use synthetic::Synthetic;
pub use values::read_value;

use sardonyx_base::{Error, Result, Tensor};
use std::path::Path;

/// Reads a tensor from an ONNX `.pb` or a numpy `.npy` file.
pub fn load_tensor(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let named = |e: Box<Error>| e.file(path.display().to_string());
    match path.extension().and_then(|e| e.to_str()) {
        Some("pb") => load_proto(path)?.to_tensor().map_err(named),
        Some("npy") => npy::decode(read_file(path)?).map_err(named),
        Some(_) | None => {
            let message = format!("cannot tell the format of the tensor file {}", path.display());
            Err(Error::user("E0302", message).file(path.display().to_string()).help("use a `.npy` or a `.pb` file"))
        }
    }
}

/// Reads a serialised `TensorProto`, including its name.
pub fn load_proto(path: impl AsRef<Path>) -> Result<TensorProto> {
    let path = path.as_ref();
    TensorProto::from_bytes(read_file(path)?).map_err(|e| e.file(path.display().to_string()))
}

/// Reads a `.pb` file as a value of the kind that the model declares; returns it with its name.
pub fn load_value(path: impl AsRef<Path>, kind: &sardonyx_base::Kind) -> Result<(String, Tensor)> {
    let path = path.as_ref();
    read_value(read_file(path)?, kind).map_err(|e| e.file(path.display().to_string()))
}

/// Reads a whole regular file. Devices and pipes are refused, because they may never end.
fn read_file(path: &Path) -> Result<bytes::Bytes> {
    let fail = |e: std::io::Error| Error::io(path, "read", &e);
    let kind = std::fs::metadata(path).map_err(fail)?;
    if !kind.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(Error::user("E0002", message).file(path.display().to_string()));
    }
    std::fs::read(path).map(Into::into).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let t = Tensor::from_vec(vec![2], vec![3i64, -4]);
        let path = |name: &str| dir.path().join(name);
        save_npy(path("a.npy"), &t).unwrap();
        std::fs::write(path("a.pb"), TensorProto::from_tensor("a", &t).to_bytes()).unwrap();
        for name in ["a.npy", "a.pb"] {
            assert_eq!(load_tensor(path(name)).unwrap().to_vec::<i64>().unwrap(), [3, -4]);
        }
        assert_eq!(load_tensor(path("a.txt")).unwrap_err().code, "E0302");
        assert_eq!(load_tensor(path("none.npy")).unwrap_err().code, "E0002");
        std::fs::create_dir(path("folder.npy")).unwrap();
        assert_eq!(load_tensor(path("folder.npy")).unwrap_err().code, "E0002");
        assert_eq!(load_tensor("/dev/zero.npy").unwrap_err().code, "E0002");
    }
}

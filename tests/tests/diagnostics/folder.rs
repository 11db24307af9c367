//! A folder with the user's files, and `out/`, in which a refused command must leave nothing

use sardonyx_base::Tensor;
use sardonyx_format::tensor_io::{TensorProto, save_npy};
use sardonyx_tests::onnx::{Net, small};
use sardonyx_tests::programs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    pub fn new() -> Folder {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join("out")).expect("a folder in it");
        Folder { root }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), bytes).expect("the folder can be written");
    }

    pub fn npy(&self, name: &str, tensor: &Tensor) {
        save_npy(self.file(name), tensor).expect("the folder can be written");
    }

    pub fn pb(&self, name: &str, port: &str, tensor: &Tensor) {
        self.write(name, TensorProto::from_tensor(port, tensor).to_bytes());
    }

    /// Names of the files that the program left in `out/`.
    pub fn written(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.file("out")).expect("`out` is a folder");
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Writes `m.onnx`, and returns the command line that compiles it into `out/`.
    pub fn compile(&self, model: &Net) -> Vec<String> {
        self.compile_bytes(model.bytes())
    }

    pub fn compile_bytes(&self, model: impl AsRef<[u8]>) -> Vec<String> {
        self.write("m.onnx", model);
        line("sardonyx compile m.onnx -o out/m.sdx")
    }

    /// Writes `m.sdx`, the compiled model [`small`].
    pub fn artifact(&self) {
        self.write("m.sdx", small_artifact());
    }
}

pub fn line(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

/// Artifact of [`small`], compiled with `batch` from 1 to 512.
pub fn small_artifact() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let folder = Folder::new();
        folder.write("small.onnx", small().bytes());
        programs::compile(&folder.file("small.onnx"), &folder.file("small.sdx"), &["--dim", "batch=1..512"]);
        std::fs::read(folder.file("small.sdx")).expect("it was just written")
    })
}

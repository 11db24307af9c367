//! a model, `--dim` arguments  =>  the artifact and the interpreter, to be called side by side

use sardonyx::compile::{Request, compile, parse_dims};
use sardonyx::reference::Reference;
use sardonyx_base::compare::{Tolerance, compare};
use sardonyx_base::cpu::Level;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_run::{Command, InspectArgs};
use sardonyx_runtime::{DeviceName, Model, Session, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;
use std::path::{Path, PathBuf};

pub struct Compiled {
    pub model: Model,
    pub reference: Reference,
    folder: tempfile::TempDir,
}

pub type Inputs = Vec<(String, Tensor)>;

impl Compiled {
    pub fn compile(path: &Path, dims: &[&str]) -> Result<Compiled> {
        let folder = tempfile::tempdir().unwrap();
        let dims = parse_dims(&dims.iter().map(|d| d.to_string()).collect::<Vec<_>>())?;
        let output = folder.path().join("m.sdx");
        compile(&Request { dims: dims.clone(), ..Request::new(path, &output) })?;
        let model = Model::load(&output, &trusted())?;
        Ok(Compiled { model, reference: Reference::read(path, &dims)?, folder })
    }

    pub fn compile_net(net: &Net, dims: &[&str]) -> Result<Compiled> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, net.bytes()).unwrap();
        Compiled::compile(&path, dims)
    }

    pub fn session(&self, threads: usize) -> Session {
        self.model.session(&SessionOptions::default().threads(threads)).unwrap()
    }

    /// A session with the kernels for older processors.
    pub fn session_v3(&self) -> Session {
        let options = trusted().cpu(Level::from_name("v3"));
        Model::load(self.artifact(), &options).unwrap().session(&SessionOptions::default()).unwrap()
    }

    pub fn artifact(&self) -> PathBuf {
        self.folder.path().join("m.sdx")
    }

    /// Outputs of a call, which are compared with the interpreter's.
    pub fn run(&self, inputs: &Inputs) -> Result<Inputs> {
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let actual = self.session(2).run(&given)?;
        let expected = self.reference.run(inputs)?;
        let tolerance = Tolerance { rtol: 1e-4, atol: 2e-5, instead: None };
        assert_eq!(actual.len(), expected.len());
        for ((name, a), (_, e)) in actual.iter().zip(&expected) {
            let difference = compare(a, e, &tolerance).unwrap_or_else(|what| panic!("{name}: {what}"));
            assert_eq!(difference.n_failed, 0, "{name}: {difference:?}");
        }
        Ok(actual.into())
    }

    /// The runtime's error for a call that the interpreter rejects too.
    pub fn refusal(&self, inputs: &Inputs) -> Box<Error> {
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        assert!(self.reference.run(inputs).is_err(), "the interpreter accepts it");
        self.session(1).run(&given).unwrap_err()
    }

    /// The lines of `inspect` about symbols.
    pub fn symbols(&self) -> Vec<String> {
        let mut text = vec![];
        Command::Inspect(InspectArgs {
            model: self.artifact(),
            steps: false,
            entry: None,
            dim: vec![],
            device: DeviceName::Cpu,
            json: false,
            html: None,
        })
        .execute(&mut text)
        .unwrap();
        let words = ["symbol ", "derived ", "  check "];
        let lines = String::from_utf8(text).unwrap();
        let ours = lines.lines().filter(|l| words.iter().any(|w| l.starts_with(w)));
        ours.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

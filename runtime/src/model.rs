//! a loaded, verified artifact, shared by sessions

use crate::Result;
use crate::artifact::{Artifact, Verify};
use crate::code::Library;
use crate::cpu::{self, Level};
use crate::plan::{KernelFn, Manifest, Plan};
use crate::program::{self, Entry, Program};
use crate::session::{Session, SessionOptions};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub verify: Verify,
    /// The highest variant to use; the best that this CPU runs where absent.
    pub cpu: Option<Level>,
    /// Make the artifact's own call with known results, if it has one, and refuse the artifact where they differ. It
    /// reads the weights, `Verify::Lazy` or not.
    pub selftest: bool,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { verify: Verify::default(), cpu: None, selftest: true }
    }
}

/// Cheap to clone; all clones and sessions share the weights and the code. The file must not be changed in place
/// while it is loaded (replace it by renaming another over it, as the writer does).
#[derive(Clone)]
pub struct Model(Arc<Loaded>);

struct Loaded {
    manifest: Manifest,
    program: Program,
    weights: Bytes,
    level: Option<Level>,
    /// Functions of `library`, in the plan's order; nothing hands them out without the model.
    kernels: Vec<KernelFn>,
    _library: Option<Library>,
    file: String,
}

impl Model {
    /// Errors: E0002 unreadable, E0401 damaged, E0402 another format version, E0403 code for another CPU, E0404 wrong
    /// results in the self-test.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model> {
        let file = path.as_ref().display().to_string();
        let mut artifact = Artifact::open(path, options.verify)?;
        let selftest = artifact.selftest.take().filter(|_| options.selftest);
        let model = Model::from_artifact(artifact, options, &file).map_err(|e| e.file(&file))?;
        if let Some(test) = selftest {
            crate::selftest::run(&model, &test).map_err(|e| e.file(file))?;
        }
        Ok(model)
    }

    fn from_artifact(artifact: Artifact, options: &LoadOptions, file: &str) -> Result<Model> {
        let Artifact { manifest, plan, code, weights, .. } = artifact;
        let program = program::verify(&manifest, &plan, weights.len())?;
        // A plan that only copies needs no code, and runs anywhere.
        let mut loaded =
            Loaded { manifest, program, weights, level: None, kernels: vec![], _library: None, file: file.into() };
        if !loaded.program.kernels.is_empty() {
            let (level, library, kernels) = load_code(&loaded.manifest, &plan, &loaded.program, &code, options)?;
            (loaded.level, loaded._library, loaded.kernels) = (Some(level), Some(library), kernels);
        }
        Ok(Model(Arc::new(loaded)))
    }

    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }

    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// The entry point's inputs, outputs and steps.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        self.entry_index(name).map(|at| &self.0.program.entries[at])
    }

    pub(crate) fn entry_index(&self, name: &str) -> Result<usize> {
        self.0.program.entry_index(name).map_err(|e| e.file(&self.0.file))
    }

    /// The variant of the kernels in use; none where the plan has no kernels.
    pub fn level(&self) -> Option<Level> {
        self.0.level
    }

    /// Whether both are the same loaded artifact.
    pub(crate) fn is(&self, other: &Model) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn file(&self) -> &str {
        &self.0.file
    }

    pub(crate) fn weights(&self) -> &[u8] {
        &self.0.weights
    }

    pub(crate) fn kernels(&self) -> &[KernelFn] {
        &self.0.kernels
    }
}

fn load_code(
    manifest: &Manifest,
    plan: &Plan,
    program: &Program,
    code: &[u8],
    options: &LoadOptions,
) -> Result<(Level, Library, Vec<KernelFn>)> {
    let level = cpu::select(&manifest.arch, &manifest.variants, options.cpu)?;
    let library = Library::load(code)?;
    library.check_declared(&plan.kernels)?;
    // Every variant that this CPU may be asked to run must be whole, not only the one in use.
    let runs = manifest.variants.iter().filter_map(|v| Level::from_name(v)).filter(|l| l.missing().is_empty());
    for other in runs {
        library.kernels(&program.kernels, other)?;
    }
    let kernels = library.kernels(&program.kernels, level)?;
    Ok((level, library, kernels))
}

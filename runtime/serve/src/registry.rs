//! names  =>  the models that are served under them; a model is replaced as a whole when its file is replaced

use crate::args::ServeArgs;
use crate::metrics::Metrics;
use crate::refusal::{Answer, Refusal};
use crate::served::Served;
use arc_swap::ArcSwap;
use axum::http::StatusCode;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub type Models = BTreeMap<String, Arc<Served>>;

/// The served models. A request keeps the model that it started with, even if the registry replaces it meanwhile.
pub struct Registry {
    args: ServeArgs,
    metrics: Arc<Metrics>,
    models: ArcSwap<Models>,
    /// State of each name. The lock is held while a model is loaded, so models are loaded one after the other.
    known: Mutex<BTreeMap<String, Known>>,
}

/// State of a name, kept whether its model is served or not.
#[derive(Clone, Debug, Default)]
struct Known {
    version: u64,
    /// Identifies the file that the last attempt to load has read.
    stamp: Option<Stamp>,
    failure: Option<String>,
}

/// Identifies a file; it changes when another file is renamed to the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn read(path: &Path) -> Option<Stamp> {
        let file: Metadata = std::fs::metadata(path).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Stamp { device: file.dev(), inode: file.ino(), bytes: file.size(), modified })
    }
}

/// An entry of the repository's index.
pub struct Indexed {
    pub name: String,
    pub version: Option<u64>,
    pub failure: Option<String>,
}

impl Indexed {
    pub fn state(&self) -> &'static str {
        if self.version.is_some() { "READY" } else { "UNAVAILABLE" }
    }
}

impl Registry {
    /// Loads the models that the command line names. Errors: those of loading, E0001 for a folder without artifacts.
    pub fn load(args: &ServeArgs, metrics: &Arc<Metrics>) -> Result<Registry> {
        let files = artifacts(args)?;
        if files.is_empty() && !args.allow_load {
            return Err(Error::user("E0001", format!("the folder {} has no artifacts", args.path.display()))
                .help("put files `NAME.sdx` into it, as `sardonyx compile` writes them, or give `--allow-load`"));
        }
        let (models, known) = (ArcSwap::default(), Mutex::default());
        let registry = Registry { args: args.clone(), metrics: metrics.clone(), models, known };
        for (name, path) in files {
            registry.replace(&mut registry.lock(), &name, &path)?;
        }
        Ok(registry)
    }

    pub fn args(&self) -> &ServeArgs {
        &self.args
    }

    pub fn models(&self) -> Arc<Models> {
        self.models.load_full()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the model of a name; a given version must be the one that is served. Errors: 404.
    pub fn find(&self, name: &str, version: Option<&str>) -> Answer<Arc<Served>> {
        let models = self.models.load();
        let served = models.get(name).ok_or_else(|| {
            let names: Vec<String> = models.keys().take(20).map(|name| format!("`{name}`")).collect();
            let help = format!("served are {}", names.join(", "));
            Refusal::not_found(format!("there is no model `{}`", shortened(name)), &help)
        })?;
        match version {
            Some(version) if version != served.version.to_string() => {
                let message = format!("the model `{name}` has no version `{}`", shortened(version));
                Err(Refusal::not_found(message, &format!("its version is {}", served.version)))
            }
            Some(_) | None => Ok(served.clone()),
        }
    }

    /// Loads and tests a file while the old model is still served, then serves it instead. On failure the old model
    /// stays.
    fn replace(&self, known: &mut BTreeMap<String, Known>, name: &str, path: &Path) -> Result<()> {
        let entry = known.entry(name.into()).or_default();
        // The stamp is taken before the file is read, so that any later change is noticed.
        entry.stamp = Stamp::read(path);
        let is_serving = !self.models.load().is_empty();
        let loaded = Served::load((name, entry.version + 1), path, &self.args, &self.metrics, is_serving);
        self.metrics.loaded(name, loaded.is_ok());
        let served = loaded.inspect_err(|error| entry.failure = Some(error.message.clone()))?;
        (entry.version, entry.failure) = (served.version, None);
        self.change(|models| drop(models.insert(name.into(), Arc::new(served))));
        Ok(())
    }

    /// Replaces the map of models. The caller must hold the lock.
    fn change(&self, change: impl FnOnce(&mut Models)) {
        let mut models = Models::clone(&self.models.load());
        change(&mut models);
        self.models.store(Arc::new(models));
    }

    /// Reloads served models whose file was replaced or one of whose ranks has failed; with `all`, also loads new files
    /// of the folder. Returns the errors; a file that failed is not tried again until it changes.
    pub fn refresh(&self, all: bool) -> Vec<Error> {
        let mut known = self.lock();
        let models = self.models();
        let files = match artifacts(&self.args) {
            Ok(files) => files,
            Err(error) => return if all { vec![*error] } else { vec![] },
        };
        let mut failed = vec![];
        for (name, path) in files {
            let is_wanted = models.contains_key(&name) || (all && !known.contains_key(&name));
            let stamp = Stamp::read(&path);
            let has_changed = stamp.is_some() && known.get(&name).is_none_or(|known| known.stamp != stamp);
            if is_wanted && (has_changed || models.get(&name).is_some_and(|served| served.takes_loading())) {
                failed.extend(self.replace(&mut known, &name, &path).err().map(|error| *error));
            }
        }
        failed
    }

    fn check_allowed(&self) -> Answer<()> {
        match self.args.allow_load {
            true => Ok(()),
            false => {
                let message = "models are not loaded and unloaded over the network";
                let help = "start the server with `--allow-load`, or replace the file and send SIGHUP";
                Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message, help))
            }
        }
    }

    /// Loads or reloads a model of the folder.
    pub fn load_model(&self, name: &str) -> Answer<()> {
        self.check_allowed()?;
        let mut known = self.lock();
        // Only names of files in the folder are looked up, so a name cannot lead out of it.
        let files = artifacts(&self.args)?;
        let found = files.into_iter().find(|(found, _)| found == name);
        let (name, path) = found.ok_or_else(|| {
            let message = format!("the folder has no artifact `{}.sdx`", shortened(name));
            Refusal::not_found(message, "`POST /v2/repository/index` lists the models")
        })?;
        self.replace(&mut known, &name, &path).map_err(|error| {
            let refusal = Refusal::from(error);
            Refusal { status: StatusCode::BAD_REQUEST, ..refusal }
        })
    }

    /// Stops serving a model. Requests that were already accepted are still answered.
    pub fn unload_model(&self, name: &str) -> Answer<()> {
        self.check_allowed()?;
        let _known = self.lock();
        self.find(name, None)?;
        self.change(|models| drop(models.remove(name)));
        Ok(())
    }

    /// Returns every model of the folder, and the models that are served although their file is gone.
    pub fn index(&self) -> Answer<Vec<Indexed>> {
        self.check_allowed()?;
        let (known, models) = (self.lock(), self.models());
        let mut names: Vec<String> = artifacts(&self.args)?.into_iter().map(|(name, _)| name).collect();
        names.extend(models.keys().cloned());
        names.sort();
        names.dedup();
        let indexed = |name: String| Indexed {
            version: models.get(&name).map(|served| served.version),
            failure: known.get(&name).and_then(|known| known.failure.clone()),
            name,
        };
        Ok(names.into_iter().map(indexed).collect())
    }
}

/// Shortens a name for a message, to at most 80 characters.
fn shortened(name: &str) -> String {
    name.chars().take(80).collect()
}

/// Returns the names and paths of the artifacts. Links that lead out of the folder are skipped.
fn artifacts(args: &ServeArgs) -> Result<Vec<(String, PathBuf)>> {
    let path = &args.path;
    if !path.is_dir() {
        let name = args.name.clone().or_else(|| stem(path)).unwrap_or_else(|| "model".into());
        return Ok(vec![(name, path.clone())]);
    }
    if args.name.is_some() {
        let error = Error::user("E0001", "`--name` is for one artifact, and a folder is given");
        return Err(error.help("leave it out: the models have the names of their files"));
    }
    let unreadable = |e| Error::io(path, "read the folder", &e);
    let folder = path.canonicalize().map_err(unreadable)?;
    let mut found = vec![];
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let is_inside = || file.canonicalize().is_ok_and(|real| real.starts_with(&folder));
        if file.extension().is_some_and(|e| e == "sdx") && file.is_file() && is_inside() {
            found.extend(stem(&file).map(|name| (name, file)));
        }
    }
    found.sort();
    Ok(found)
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

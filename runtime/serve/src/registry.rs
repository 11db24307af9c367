//! names  =>  the models that are served under them

use crate::args::ServeArgs;
use crate::metrics::Metrics;
use crate::refusal::{Answer, Refusal};
use crate::served::Served;
use arc_swap::ArcSwap;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub type Models = BTreeMap<String, Arc<Served>>;

/// Whoever has a model keeps it until its requests are answered; the registry only says which one is next.
pub struct Registry {
    args: ServeArgs,
    models: ArcSwap<Models>,
}

impl Registry {
    /// Loads what the command line names. Errors: those of loading, E0001 for a folder without artifacts.
    pub fn load(args: &ServeArgs, metrics: &Arc<Metrics>) -> Result<Registry> {
        let files = artifacts(args)?;
        let mut models = Models::new();
        for (name, path) in files {
            models.insert(name.clone(), Arc::new(Served::load(&name, 1, &path, args, metrics)?));
        }
        Ok(Registry { args: args.clone(), models: ArcSwap::from_pointee(models) })
    }

    pub fn args(&self) -> &ServeArgs {
        &self.args
    }

    pub fn models(&self) -> Arc<Models> {
        self.models.load_full()
    }

    /// The model of a name, in the version that is served.
    pub fn find(&self, name: &str, version: Option<&str>) -> Answer<Arc<Served>> {
        let models = self.models.load();
        let served = models.get(name).ok_or_else(|| {
            let names: Vec<String> = models.keys().take(20).map(|name| format!("`{name}`")).collect();
            Refusal::not_found(
                format!("there is no model `{}`", shortened(name)),
                &format!("served are {}", names.join(", ")),
            )
        })?;
        match version {
            Some(version) if version != served.version.to_string() => {
                let message = format!("the model `{name}` has no version `{}`", shortened(version));
                Err(Refusal::not_found(message, &format!("its version is {}", served.version)))
            }
            Some(_) | None => Ok(served.clone()),
        }
    }
}

/// Names in messages are no longer than a line.
fn shortened(name: &str) -> String {
    name.chars().take(80).collect()
}

/// Names and files.
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
    let entries = std::fs::read_dir(path).map_err(|e| Error::io(path, "read the folder", &e))?;
    let mut found = vec![];
    for entry in entries {
        let file = entry.map_err(|e| Error::io(path, "read the folder", &e))?.path();
        if file.extension().is_some_and(|e| e == "sdx") && file.is_file() {
            found.extend(stem(&file).map(|name| (name, file)));
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(Error::user("E0001", format!("the folder {} has no artifacts", path.display()))
            .help("put files `NAME.sdx` into it, as `sardonyx compile` writes them")),
        false => Ok(found),
    }
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

//! orders of the first rank  =>  the work of another rank, on a thread or in another process

use super::link::{Link, Payload};
use super::measure;
use super::order::{Input, Load, Open, Order, Run};
use crate::cache::Cache;
use crate::device::DeviceName;
use crate::model::{LoadOptions, Model};
use crate::session::{Session, SessionOptions};
use crate::stop::RunOptions;
use sardonyx_base::cpu::Level;
use sardonyx_base::view::TensorView;
use sardonyx_base::{DType, Error, Result};
use sardonyx_format::{Trust, Verify};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A rank that carries out orders.
pub struct Peer {
    pub link: Arc<dyn Link>,
    /// The model of this rank; absent until an order has loaded it.
    pub model: Option<Model>,
    sessions: BTreeMap<u64, Session>,
    caches: BTreeMap<u64, Cache<'static>>,
}

/// The ways to verify weights; `Load::verify` is an index in this list.
static VERIFY: [Verify; 3] = [Verify::Full, Verify::Lazy, Verify::Off];

impl Load {
    pub fn new(path: &std::path::Path, options: &LoadOptions, identity: Vec<u8>) -> Load {
        let verify = VERIFY.iter().position(|v| *v == options.verify).unwrap_or(0) as u32;
        let level = options.cpu.map(|level| level.name().to_string());
        let (path, device) = (path.as_os_str().as_bytes().to_vec(), options.device.to_string());
        Load { path, verify, device, level, identity, copied: options.copied }
    }

    fn options(&self) -> Result<LoadOptions> {
        let unfit = || Error::defect("an order that no first rank gives");
        let device: DeviceName = self.device.parse()?;
        let verify = VERIFY.get(self.verify as usize).copied().ok_or_else(unfit)?;
        let cpu = match &self.level {
            Some(name) => Some(Level::from_name(name).ok_or_else(unfit)?),
            None => None,
        };
        // The artifact is the one that the first rank trusts (`identity`), so this rank needs no trust of its own.
        let options = LoadOptions::new(Trust::default()).copied(self.copied);
        Ok(options.verify(verify).device(device).cpu(cpu).selftest(false))
    }
}

impl Peer {
    pub fn new(link: Arc<dyn Link>, model: Option<Model>) -> Peer {
        Peer { link, model, sessions: BTreeMap::new(), caches: BTreeMap::new() }
    }

    /// Carries out orders until one of them ends this rank. Errors: E0408 if the first rank is gone.
    pub fn serve(mut self) -> Result<()> {
        let link = self.link.clone();
        loop {
            let (order, payload) = link.take()?;
            let ended = Ended { link: &*link, well: Cell::new(false) };
            let goes_on = self.carry_out(&order, &payload).unwrap_or_else(|e| {
                link.fail(&e);
                true
            });
            ended.well.set(true);
            drop(ended);
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Carries out an order. Returns false for the order that ends this rank.
    fn carry_out(&mut self, order: &Order, payload: &Payload) -> Result<bool> {
        match order {
            Order { run: Some(run), .. } => self.run(run, payload)?,
            Order { load: Some(load), .. } => self.load(load)?,
            Order { open: Some(open), .. } => self.open(open)?,
            Order { measure: Some(what), .. } => drop(measure::run(&*self.link, what)?),
            Order { close: Some(session), .. } => drop(self.sessions.remove(session)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn load(&mut self, load: &Load) -> Result<()> {
        let (path, rank) = (OsStr::from_bytes(&load.path).as_ref(), self.link.rank());
        let model = Model::load_rank(path, &load.options()?, rank, &load.identity)?;
        self.model = Some(model);
        Ok(())
    }

    fn open(&mut self, open: &Open) -> Result<()> {
        let model = self.model.clone().ok_or_else(|| Error::defect("a session of no model"))?;
        let options = SessionOptions::default()
            .threads(open.threads as usize)
            .pinned(open.pinned)
            .memory_bytes_max(open.memory_bytes_max.map(|n| n as usize))
            .spin_max(open.spin_ns_max.map(Duration::from_nanos));
        self.sessions.insert(open.session, Session::of_rank(model, &options, self.link.clone())?);
        Ok(())
    }

    fn run(&mut self, run: &Run, payload: &Payload) -> Result<()> {
        run.dropped.iter().for_each(|id| drop(self.caches.remove(id)));
        let session = self.sessions.get(&run.session).ok_or_else(|| Error::defect("a session that is not there"))?;
        if run.renew {
            session.renew();
        }
        let deadline = run.limit.map(|ns| Instant::now() + Duration::from_nanos(ns));
        let options = RunOptions::default().deadline(deadline);
        let inputs = run.inputs.iter().map(|input: &Input| {
            let unfit = || Error::defect("an order that no first rank gives");
            let bytes = payload.bytes(input.at as usize, input.bytes as usize).ok_or_else(unfit)?;
            let dtype = DType::from_onnx(input.dtype).ok_or_else(unfit)?;
            let dims: Vec<usize> = input.dims.iter().map(|n| *n as usize).collect();
            Ok((input.name.as_str(), dtype, dims, bytes))
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let views = inputs.iter().map(|(name, dtype, dims, bytes)| Ok((*name, TensorView::new(*dtype, dims, bytes)?)));
        let views = views.collect::<Result<Vec<_>>>()?;
        let Some(wanted) = &run.cache else {
            return session.run_with(&run.entry, &views, &mut [], &options).map(drop);
        };
        let cache = match self.caches.entry(wanted.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(session.cache(&run.entry, wanted.capacity as usize)?),
        };
        cache.set_len(wanted.len as usize);
        session.run_cached(&run.entry, &views, &mut [], cache, &options).map(drop)
    }
}

/// Guard that reports to the first rank that this rank has ended an order, even after a panic.
struct Ended<'a> {
    link: &'a dyn Link,
    well: Cell<bool>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if !self.well.get() {
            self.link.fail(&Error::defect("it panicked"));
        }
        self.link.done();
    }
}

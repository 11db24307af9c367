//! a loaded and verified artifact, shared by sessions

use crate::call_bytes::CallBytes;
use crate::comm::{self, Load, Order, Wire, World};
use crate::describe::EntryPoint;
use crate::device::{self, Address, Block, Device, DeviceName, DeviceReport, Gpu, Memory};
use crate::memory::{ALIGNMENT, AlignedBuf};
use crate::program::{self, Entry, Program};
use crate::session::{Session, SessionOptions};
use crate::session_pool::{PoolOptions, SessionPool};
use bytes::Bytes;
use sardonyx_base::cpu::Level;
use sardonyx_base::plan::{Manifest, candidate_target};
use sardonyx_base::{Error, Result};
use sardonyx_format::artifact::{Artifact, Reading, Trust, Verify};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Options for loading an artifact: `LoadOptions::new(Trust::pin(SEAL)?).device(device)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Which artifacts may be loaded; their code is executed.
    pub trust: Trust,
    /// Whether the file is read into memory, where it can no longer change, instead of mapped.
    pub copied: bool,
    /// Which hashes are checked at load.
    pub verify: Verify,
    /// The device to run on. Constants are copied there once and shared by all sessions.
    pub device: DeviceName,
    /// The highest variant of CPU code to use; if absent, the best that this CPU can run.
    pub cpu: Option<Level>,
    /// Whether to make the artifact's test call with known results, if it has one, and refuse the artifact if they
    /// differ. The test reads the weights even with `Verify::Lazy`. It is skipped on a simulated device, which is too
    /// slow.
    pub selftest: bool,
    /// Number of ranks that the artifact must be compiled for; other artifacts are refused.
    pub ranks: Option<usize>,
    /// Where the other ranks run.
    pub transport: Transport,
    /// Slower links to emulate between the ranks of this host.
    pub wire: Option<Wire>,
    /// Index of the choice of tiles that the kernels of a GPU use, in an artifact for measuring tiles; 0 is the choice
    /// that the compiler expects to be the fastest.
    pub candidate: usize,
    /// The context of the GPU to load the model in, as an address.
    pub(crate) cuda_context: Option<NonZeroUsize>,
}

impl LoadOptions {
    /// Returns the default options: all hashes are checked, and the model runs on the CPU.
    pub fn new(trust: Trust) -> LoadOptions {
        LoadOptions {
            trust,
            copied: false,
            verify: Verify::default(),
            device: DeviceName::Cpu,
            cpu: None,
            selftest: true,
            ranks: None,
            transport: Transport::Threads,
            wire: None,
            candidate: 0,
            cuda_context: None,
        }
    }

    /// Sets whether the file is read into memory instead of mapped; by default it is mapped.
    pub fn copied(self, copied: bool) -> LoadOptions {
        LoadOptions { copied, ..self }
    }

    /// Sets which hashes are checked at load; all by default.
    pub fn verify(self, verify: Verify) -> LoadOptions {
        LoadOptions { verify, ..self }
    }

    /// Sets the device to run on; the CPU by default.
    pub fn device(self, device: DeviceName) -> LoadOptions {
        LoadOptions { device, ..self }
    }

    /// Sets the highest variant of CPU code to use; `None`, the default, is the best that this CPU can run.
    pub fn cpu(self, level: impl Into<Option<Level>>) -> LoadOptions {
        LoadOptions { cpu: level.into(), ..self }
    }

    /// Sets whether the artifact's test call is made at load; by default it is.
    pub fn selftest(self, selftest: bool) -> LoadOptions {
        LoadOptions { selftest, ..self }
    }

    /// Sets the number of ranks that the artifact must be compiled for; `None`, the default, accepts any.
    pub fn ranks(self, ranks: impl Into<Option<usize>>) -> LoadOptions {
        LoadOptions { ranks: ranks.into(), ..self }
    }

    /// Sets where the other ranks run; by default as threads of this process.
    pub fn transport(self, transport: Transport) -> LoadOptions {
        LoadOptions { transport, ..self }
    }

    /// Sets slower links to emulate between the ranks of this host; none by default.
    pub fn wire(self, wire: impl Into<Option<Wire>>) -> LoadOptions {
        LoadOptions { wire: wire.into(), ..self }
    }

    /// Sets the choice of tiles that the kernels of a GPU use: a number below [`Model::candidates`]; 0 by default.
    pub fn candidate(self, candidate: usize) -> LoadOptions {
        LoadOptions { candidate, ..self }
    }

    /// Sets the context (`CUcontext`) of a GPU to load the model in; null, the default, is the GPU's primary context,
    /// which the CUDA runtime and the libraries based on it use too. It must be a context of the GPU that `device`
    /// names.
    ///
    /// # Safety
    /// The context must exist until the model and everything created from it have been dropped.
    pub unsafe fn cuda_context(self, context: *mut std::ffi::c_void) -> LoadOptions {
        LoadOptions { cuda_context: NonZeroUsize::new(context.expose_provenance()), ..self }
    }
}

/// How the ranks of a model run, if it has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Threads of this process.
    #[default]
    Threads,
    /// Processes: this program, started again. It must call [`serve_rank`](crate::serve_rank) before anything else.
    Processes,
    /// Processes that an MPI launcher has started, on any hosts; each must call [`serve_rank`](crate::serve_rank)
    /// before anything else.
    Mpi,
}

/// Keeps the constants alive: the mapped file, or memory of the device.
struct Constants {
    _mapped: Option<Bytes>,
    _uploaded: Vec<Block>,
}

/// A loaded model. It is cheap to clone: all clones and sessions share the weights and the code. Unless the file was
/// read into memory (`LoadOptions::copied`), it must not be changed in place while the model is loaded; replace it by
/// renaming another file over it, as the writer of artifacts does.
#[derive(Clone)]
pub struct Model(Arc<Loaded>);

struct Loaded {
    manifest: Manifest,
    program: Program,
    device: Arc<dyn Device>,
    device_name: DeviceName,
    /// Addresses of the constants on the device.
    constants: Vec<Address>,
    _constants: Constants,
    file: String,
    attached: Vec<(String, Bytes)>,
    /// First rank only: the connection to the others.
    world: Option<World>,
}

impl Model {
    /// Loads an artifact. Errors: E0002 unreadable, E0409 not trusted, E0401 damaged, E0402 another format version,
    /// E0403 no code for the device, E0404 wrong results in the self-test, E0405 device unavailable, E0407 compiled for
    /// another number of ranks, E0408 another rank cannot be started or reached.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model> {
        let file = path.as_ref().display().to_string();
        let reading = Reading { verify: options.verify, copied: options.copied, trust: Some(&options.trust) };
        Model::tested(Artifact::open_for(path, &reading)?, options, &file).map_err(|e| e.file(&file))
    }

    /// As [`load`](Model::load), but from the bytes of a file: from an object store, `include_bytes!`, or the caller's
    /// own mapping ([`Bytes::from_owner`]). The bytes are used in place; only weights that are not aligned to 64 bytes
    /// are copied. `name` stands for the file in messages. Further errors: E0002 if other processes would have to load
    /// the file too.
    pub fn from_bytes(bytes: impl Into<Bytes>, name: &str, options: &LoadOptions) -> Result<Model> {
        let load = || {
            let reading = Reading { verify: options.verify, copied: false, trust: Some(&options.trust) };
            let mut artifact = Artifact::read(bytes.into(), &reading)?;
            if !artifact.weights.as_ptr().addr().is_multiple_of(ALIGNMENT) {
                let n = artifact.weights.len();
                artifact.weights = Bytes::from_owner(AlignedBuf::from_slice(&artifact.weights)?).slice(..n);
            }
            if !artifact.manifest.mesh.is_empty() && options.transport != Transport::Threads {
                let message = "a model of several ranks has no file that the other processes could load";
                return Err(Error::user("E0002", message).help("write it to a file, or let the ranks be threads"));
            }
            Model::tested(artifact, options, name)
        };
        load().map_err(|e| e.file(name))
    }

    fn tested(mut artifact: Artifact, options: &LoadOptions, file: &str) -> Result<Model> {
        let selftest = artifact.selftest.take().filter(|_| options.selftest && !options.device.is_simulated());
        let model = Model::from_artifact(artifact, options, file)?;
        selftest.map_or(Ok(()), |test| crate::selftest::run(&model, &test))?;
        Ok(model)
    }

    /// Loads the model of a rank that is not the first. `identity` is that of the first rank's artifact. Errors: those
    /// of [`load`](Model::load); E0407 if the artifact at `path` has another identity.
    pub(crate) fn load_rank(path: &Path, options: &LoadOptions, rank: usize, identity: &[u8]) -> Result<Model> {
        let file = path.display().to_string();
        let reading = Reading { verify: options.verify, copied: options.copied, trust: None };
        let artifact = Artifact::open_for(path, &reading)?;
        if artifact.identity() != identity {
            let message = format!("{file} is not the artifact that the first rank has");
            return Err(Error::user("E0407", message).help("give every rank the same file"));
        }
        let plan = artifact.plan_of(options.device.class());
        let program = program::verify(&artifact.manifest, plan, artifact.weights.len(), rank);
        let place = comm::place_on_host(rank);
        let mut made = program.and_then(|program| Model::of_ranks(artifact, options, &file, (place, vec![program])));
        let model = made.as_mut().ok().and_then(Vec::pop);
        made.map_err(|e| e.file(&file)).and_then(|_| model.ok_or_else(|| Error::defect("a model of no rank")))
    }

    fn from_artifact(artifact: Artifact, options: &LoadOptions, file: &str) -> Result<Model> {
        let plan = artifact.plan_of(options.device.class());
        let program = |rank| program::verify(&artifact.manifest, plan, artifact.weights.len(), rank);
        let mut programs = vec![program(0)?];
        if options.cuda_context.is_some()
            && (!matches!(options.device, DeviceName::Cuda(_)) || !programs[0].mesh.is_empty())
        {
            let message = "a context is for a model of one rank on a GPU";
            return Err(Error::user("E0001", message).help("load with `DeviceName::Cuda`, or without a context"));
        }
        let mesh = programs[0].mesh.clone();
        let n: usize = programs[0].mesh.iter().product();
        if let Some(wanted) = options.ranks.filter(|wanted| *wanted != n) {
            let message = format!("the model is made for {n} ranks, not for {wanted}");
            return Err(Error::user("E0407", message)
                .help(format!("run it with `--ranks {n}`, or compile it with `--ranks {wanted}`")));
        }
        if options.transport == Transport::Threads {
            (1..n).try_for_each(|rank| program(rank).map(|program| programs.push(program)))?;
        }
        if options.wire.is_some() && options.transport == Transport::Mpi {
            let message = "ranks that a launcher has started have links of their own: slower ones are not acted out";
            return Err(Error::user("E0001", message).help("let the ranks be threads or processes"));
        }
        let place = if options.transport == Transport::Mpi { comm::place_on_host(0) } else { 0 };
        let identity = artifact.identity();
        let mut models = Model::of_ranks(artifact, options, file, (place, programs))?;
        let first = models.remove(0);
        if n == 1 {
            return Ok(first);
        }
        let world = match options.transport {
            Transport::Threads => comm::on_threads(&mesh, models.into_iter().map(Some), options.wire)?,
            Transport::Processes | Transport::Mpi => {
                let world = match options.transport {
                    Transport::Mpi => comm::over_mpi(&mesh)?,
                    _ => comm::in_processes(&mesh, options.wire)?,
                };
                let load = Load::new(Path::new(file), options, identity);
                world.tell(Order { load: Some(load), ..Order::default() })?;
                world
            }
        };
        let mut first = first.0;
        let loaded =
            Arc::get_mut(&mut first).ok_or_else(|| Error::defect("a model that is in use before it is there"))?;
        loaded.world = Some(world);
        Ok(Model(first))
    }

    /// Returns a model for each of `programs`, which are those of consecutive ranks; `place` is the index of the first
    /// of these ranks among the ranks of its host.
    fn of_ranks(
        artifact: Artifact,
        options: &LoadOptions,
        file: &str,
        (place, mut programs): (usize, Vec<Program>),
    ) -> Result<Vec<Model>> {
        if options.verify == Verify::Full && !artifact.manifest.mesh.is_empty() {
            checked(&artifact, &programs)?;
        }
        let plan = artifact.plan_of(options.device.class());
        let (code, ptx, level) = (artifact.code.as_ref(), artifact.ptx.as_slice(), options.cpu);
        let (context, candidate) = (options.cuda_context, options.candidate);
        let open = |place| {
            let (manifest, program) = (&artifact.manifest, &programs[0]);
            let source = device::Source { manifest, plan, program, place, context, code, ptx, candidate, level };
            device::open(&options.device, &source)
        };
        let device = open(place)?;
        // Each rank uses its own GPU if there are enough GPUs.
        let others = match options.device.is_numbered() {
            true => (1..programs.len()).map(|i| open(place + i)).collect::<Result<Vec<_>>>()?,
            false => vec![device.clone(); programs.len() - 1],
        };
        if let Some(target) = device.target() {
            programs.iter_mut().try_for_each(|program| program.choose_target(target))?;
        }
        let Artifact { manifest, weights, attached, .. } = artifact;
        let of_rank = |(program, device): (Program, Arc<dyn Device>)| {
            let (constants, uploaded) = place_constants(&device, &program, &weights)?;
            let mapped = (device.memory() == Memory::Host).then(|| weights.clone());
            Ok(Model(Arc::new(Loaded {
                manifest: manifest.clone(),
                program,
                device: device.clone(),
                device_name: options.device.clone(),
                constants,
                _constants: Constants { _mapped: mapped, _uploaded: uploaded },
                file: file.into(),
                attached: attached.clone(),
                world: None,
            })))
        };
        programs.into_iter().zip([device].into_iter().chain(others)).map(of_rank).collect()
    }

    /// Creates a session. Errors: E0001 for an invalid number of threads, E0304 if a thread cannot be started or
    /// pinned, E0408 if another rank is gone.
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self.clone(), options)
    }

    /// Creates sessions that serve requests of many callers. Errors: E0001 for an invalid number of sessions or
    /// threads, E0304 if a thread cannot be started.
    pub fn session_pool(&self, options: &PoolOptions) -> Result<SessionPool> {
        SessionPool::new(self, options)
    }

    /// Returns the number of ranks that run the model together.
    pub fn ranks(&self) -> usize {
        self.0.program.mesh.iter().product()
    }

    pub(crate) fn world(&self) -> Option<&World> {
        self.0.world.as_ref()
    }

    /// Returns the manifest of the artifact.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Returns the verified plan, as this rank runs it.
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// Returns the entry points that can be called: `main` first, if there is one.
    pub fn entry_points(&self) -> Vec<EntryPoint> {
        let program = self.program();
        let mut entries: Vec<&Entry> = program.entries.iter().filter(|e| !e.internal).collect();
        entries.sort_by_key(|entry| entry.name != "main");
        entries.into_iter().map(|entry| EntryPoint::new(program, entry)).collect()
    }

    /// Returns the bytes that a call takes beside the weights if the symbols of its inputs have these sizes: upper
    /// bounds if sizes are read from data. `None` if such a size has no bound, if sizes are read from data on several
    /// ranks, or if a host step runs bodies. Errors: E0204 for a missing size, E0301 for a size out of range or an
    /// unknown symbol.
    pub fn call_bytes(&self, entry: &str, sizes: &[(&str, i64)]) -> Result<Option<CallBytes>> {
        let (program, entry) = (self.program(), self.entry(entry)?);
        let is_bound = |name: &str| entry.sources.iter().any(|source| &*source.symbol == name);
        let bytes = match sizes.iter().find(|(name, _)| !is_bound(name)) {
            Some((name, _)) => {
                Err(Error::user("E0301", format!("no input of `{}` has the symbol `{name}`", entry.name)))
            }
            None => CallBytes::new(program, entry, &|symbol| {
                sizes.iter().find(|(name, _)| *name == symbol.name).map(|(_, size)| *size)
            }),
        };
        bytes.map_err(|e| e.file(self.file()))
    }

    /// Returns an entry point with its inputs, outputs and steps. Errors: E0301 for an unknown name.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        self.entry_index(name).map(|at| &self.0.program.entries[at])
    }

    pub(crate) fn entry_index(&self, name: &str) -> Result<usize> {
        self.0.program.entry_index(name).map_err(|e| e.file(&self.0.file))
    }

    /// Returns the variant of CPU kernels in use; `None` if the plan has no kernels, or on another device.
    pub fn level(&self) -> Option<Level> {
        self.0.device.level()
    }

    /// Returns the device that the model was loaded for.
    pub fn device_name(&self) -> &DeviceName {
        &self.0.device_name
    }

    /// Returns the GPU that the model runs on; `None` if it runs on no GPU of this machine.
    pub fn gpu(&self) -> Option<Gpu> {
        self.0.device.gpu()
    }

    /// Returns the number of choices of tiles for which the artifact has code for this GPU: more than 1 only if the
    /// artifact is for measuring tiles.
    pub fn candidates(&self) -> usize {
        let Some(target) = self.0.device.target() else { return 1 };
        let own = target.split_once('~').map_or(target, |(own, _)| own);
        let all = self.program().kernels.first().map_or(&[][..], |kernel| &kernel.targets);
        let has = |i: &usize| all.iter().any(|t| t.target == candidate_target(own, *i));
        (1..).take_while(has).count() + 1
    }

    /// Returns the report of a simulated device since the model was loaded; `None` on real devices.
    pub fn device_report(&self) -> Option<DeviceReport> {
        self.0.device.report()
    }

    /// Whether `self` and `other` are the same loaded model.
    pub(crate) fn is(&self, other: &Model) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a file that is attached to the artifact, such as `tokenizer.json`.
    pub fn attached(&self, name: &str) -> Option<&[u8]> {
        self.0.attached.iter().find(|(given, _)| given == name).map(|(_, bytes)| bytes.as_ref())
    }

    /// Returns the names of the files that are attached to the artifact.
    pub fn attached_names(&self) -> impl Iterator<Item = &str> {
        self.0.attached.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the path of the file, or the name that [`from_bytes`](Model::from_bytes) was given.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.0.device
    }

    pub(crate) fn constants(&self) -> &[Address] {
        &self.0.constants
    }
}

/// Verifies the hashes of the weights that the ranks of `programs` need, each range once. Errors: E0401.
fn checked(artifact: &Artifact, programs: &[Program]) -> Result<()> {
    let all = programs.iter().flat_map(|program| {
        let constants = program.constants.iter().zip(&program.hashes).zip(&program.needed);
        constants.filter(|(_, needed)| **needed).map(|(constant, _)| constant)
    });
    let distinct: BTreeMap<usize, (&Range<usize>, &String)> = all.map(|(r, hash)| (r.start, (r, hash))).collect();
    for (range, hash) in distinct.into_values().filter(|(range, _)| !range.is_empty()) {
        artifact.check_constant(range.clone(), hash)?;
    }
    Ok(())
}

/// Returns the address of each constant on the device, and the memory that was allocated for them.
fn place_constants(device: &Arc<dyn Device>, program: &Program, weights: &Bytes) -> Result<(Vec<Address>, Vec<Block>)> {
    if device.memory() == Memory::Host {
        // Kernels and copies never write to constants (`program::verify`).
        let start = device::host_address(weights.as_ptr());
        return Ok((program.constants.iter().map(|range| start + range.start as u64).collect(), vec![]));
    }
    let (mut addresses, mut blocks) = (vec![], vec![]);
    for (i, range) in program.constants.iter().enumerate() {
        if !program.needed[i] {
            // This rank never reads the constant.
            addresses.push(0);
            continue;
        }
        let block = device.clone().allocate(range.len(), &|| format!("constant {i}"))?;
        device.write(&block, &weights[range.clone()])?;
        addresses.push(block.address());
        blocks.push(block);
    }
    Ok((addresses, blocks))
}

//! The commands run, check, bench, inspect …, shared by `sardonyx-run` and the compiler's command line
//!
//! Every command takes its parsed arguments, writes to the given output, and returns errors as values.

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

mod bench;
#[cfg(feature = "topology")]
mod calibrate;
mod call_bytes;
mod check;
mod collectives;
mod completions;
mod data_set;
mod inputs;
mod inspect;
mod literal;
pub mod page;
#[cfg(feature = "topology")]
mod predicted;
mod run;
mod show;
mod tune;
pub mod values;

pub use bench::{BenchArgs, bench};
#[cfg(feature = "topology")]
pub use calibrate::{CalibrateArgs, calibrate};
pub use check::{BF16_OF_MAX, CODES_RELATIVE, CheckArgs, CheckSummary, DataArgs, Reference, check, check_model};
pub use collectives::{CollectivesArgs, collectives};
pub use completions::{CompletionsArgs, completions};
pub use data_set::{DataSet, find_sets};
pub use inputs::{InputArgs, synthetic_inputs};
pub use inspect::{InspectArgs, inspect};
pub use run::{RunArgs, run};
pub use tune::{TuneArgs, tune};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sardonyx_base::cpu::Level;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_format::Verify;
use sardonyx_runtime::{DeviceName, LoadOptions, Model, Session, SessionOptions, Transport, Trust, Wire, is_launched};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Run a model once and print or save its outputs
    Run(RunArgs),
    /// Compare a model's outputs with expected ones
    Check(CheckArgs),
    /// Measure the time of a call of a model
    Bench(Box<BenchArgs>),
    /// Show the contents of an artifact
    Inspect(InspectArgs),
    /// Measure the time of collectives among ranks, or predict it on a described cluster
    Collectives(CollectivesArgs),
    /// Measure the links between ranks, and write them as a topology
    #[cfg(feature = "topology")]
    Calibrate(CalibrateArgs),
    /// Measure the tiles that kernels can have on a GPU, and write the fastest
    Tune(TuneArgs),
}

impl Command {
    /// Runs the command. Returns the exit code: 0, or 1 if a comparison failed.
    pub fn execute(&self, out: &mut dyn Write) -> Result<i32> {
        match self {
            Command::Run(args) => run(args, out),
            Command::Check(args) => check(args, out).map(|summary| summary.exit_code()),
            Command::Bench(args) => bench(args, out).map(|()| 0),
            Command::Inspect(args) => inspect(args, out).map(|()| 0),
            Command::Collectives(args) => collectives(args, out).map(|()| 0),
            #[cfg(feature = "topology")]
            Command::Calibrate(args) => calibrate(args, out).map(|()| 0),
            Command::Tune(args) => tune(args, out).map(|()| 0),
        }
    }
}

/// Refuses an output that is the artifact, whatever path or link leads to it. Errors: E0001.
fn refuse_replacing(output: &Path, artifact: &Path) -> Result<()> {
    match (output.canonicalize(), artifact.canonicalize()) {
        (Ok(to), Ok(from)) if to == from => {
            let message = format!("the output {} is the artifact", output.display());
            Err(Error::user("E0001", message).help("name another file"))
        }
        _ => Ok(()),
    }
}

/// The artifact and how to load it.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    /// The artifact, a file written by `sardonyx compile`
    #[arg(value_name = "MODEL.sdx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub load: LoadArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Load only an artifact with this seal, which `inspect` prints; may be repeated. Without `--pin` and `--key` the
    /// given file is trusted, and its code is executed
    #[arg(long, value_name = "SEAL")]
    pub pin: Vec<String>,
    /// Load only an artifact that is signed with this Ed25519 key: a PEM file with the public key; may be repeated
    #[arg(long, value_name = "PUBLIC.pem")]
    pub key: Vec<PathBuf>,
    /// Read the artifact into memory instead of mapping the file, so that later changes of the file have no effect
    #[arg(long)]
    pub copy: bool,
    /// Which hashes to check on loading: all (`full`), all but the hash of the weights (`lazy`), or none (`off`)
    #[arg(long, default_value = "full", value_parser = verify_parser())]
    pub verify: Verify,
    /// Device to run on: cpu, sim:sm_80 or sim:sm_90a (a simulated GPU), or cuda:N
    #[arg(long, value_name = "NAME", default_value_t = DeviceName::Cpu, value_parser = device_name)]
    pub device: DeviceName,
    /// Highest CPU level whose kernels may be used [default: the highest that this CPU supports]
    #[arg(long, value_name = "LEVEL", value_parser = level_parser())]
    pub cpu: Option<Level>,
    /// Skip the artifact's self-test, a call with known results
    #[arg(long)]
    pub no_selftest: bool,
    /// Refuse an artifact that is not compiled for this number of ranks
    #[arg(long, value_name = "N")]
    pub ranks: Option<std::num::NonZeroUsize>,
    /// Where the ranks run: threads of this process, processes of this host, or what an MPI launcher has started
    /// [default: mpi under a launcher, else threads]
    #[arg(long, value_name = "WHERE", value_parser = transport_parser())]
    pub transport: Option<Transport>,
    /// Emulate links with this latency and bandwidth, in bytes per second, between ranks of this host, to try a plan:
    /// 50us,1G
    #[arg(long, value_name = "LATENCY,BYTES", value_parser = values::wire)]
    pub links: Option<Wire>,
}

impl ModelArgs {
    /// Loads the artifact. Errors: those of [`LoadArgs::load`].
    pub fn load(&self) -> Result<Model> {
        self.load.load(&self.model)
    }
}

impl LoadArgs {
    /// Loads an artifact. Errors: E0001 for an invalid pin or key, E0002 for an unreadable key file, and those of
    /// [`Model::load`].
    pub fn load(&self, model: &Path) -> Result<Model> {
        Model::load(model, &self.options()?)
    }

    /// The options with which the artifact is loaded. Errors: E0001 for an invalid pin or key, E0002 for an unreadable
    /// key file.
    pub fn options(&self) -> Result<LoadOptions> {
        let options = LoadOptions::new(self.trust()?)
            .copied(self.copy)
            .verify(self.verify)
            .device(self.device.clone())
            .cpu(self.cpu)
            .selftest(!self.no_selftest)
            .transport(self.transport.unwrap_or(if is_launched() { Transport::Mpi } else { Transport::Threads }))
            .wire(self.links)
            .ranks(self.ranks.map(std::num::NonZeroUsize::get));
        Ok(options)
    }

    fn trust(&self) -> Result<Trust> {
        if self.pin.is_empty() && self.key.is_empty() {
            // SAFETY: naming a file on the command line is consent to execute it, as with any other command.
            return Ok(unsafe { Trust::file() });
        }
        let key = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
            Trust::key(&text).map_err(|e| e.file(path.display().to_string()))
        };
        self.pin.iter().map(|pin| Trust::pin(pin)).chain(self.key.iter().map(key)).collect()
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct EntryArgs {
    /// Entry point to call; `inspect` lists them
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub entry: String,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ThreadArgs {
    /// Number of threads of each rank [default: the processors that this process may use, divided among the ranks]
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Pin each thread but the first to a processor of its own
    #[arg(long)]
    pub pin_threads: bool,
    /// Cancel a call that takes longer than this: 250ms, 2s
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub deadline: Option<Duration>,
    /// Memory that a call may use for intermediate results, scratch, outputs and caches: 512M [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = values::byte_count)]
    pub memory_limit: Option<u64>,
}

impl ThreadArgs {
    /// Creates a session with these threads and limits. Errors: those of [`Model::session`].
    pub fn session(&self, model: &Model) -> Result<Session> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let threads = self.threads.map_or((processors / model.ranks()).max(1), std::num::NonZeroUsize::get);
        // A limit beyond the address space is no limit.
        let limit = self.memory_limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let options = SessionOptions::default().threads(threads).pinned(self.pin_threads);
        model.session(&options.time_max(self.deadline).memory_bytes_max(limit))
    }
}

fn device_name(text: &str) -> std::result::Result<DeviceName, String> {
    text.parse().map_err(|e: Box<Error>| e.help.unwrap_or(e.message))
}

fn verify_parser() -> impl TypedValueParser<Value = Verify> {
    PossibleValuesParser::new(["full", "lazy", "off"]).map(|s| match s.as_str() {
        "lazy" => Verify::Lazy,
        "off" => Verify::Off,
        _ => Verify::Full,
    })
}

/// Transports by their names on the command line.
static TRANSPORTS: [(&str, Transport); 3] =
    [("threads", Transport::Threads), ("processes", Transport::Processes), ("mpi", Transport::Mpi)];

fn transport_parser() -> impl TypedValueParser<Value = Transport> {
    let known = |name: &str| TRANSPORTS.iter().find(|(known, _)| *known == name);
    PossibleValuesParser::new(TRANSPORTS.map(|(name, _)| name))
        .map(move |name| known(&name).map_or(Transport::Threads, |(_, transport)| *transport))
}

fn level_parser() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::names()).try_map(|s| Level::from_name(&s).ok_or("is no level"))
}

/// If another process started this one as a rank, serves that process and exits. Must be called first in `main`.
pub fn serve_rank() {
    if let Some(code) = sardonyx_runtime::serve_rank() {
        std::process::exit(code);
    }
}

/// Returns the parser of a program's command line. In the examples of subcommands, which several programs share, the
/// name of the program replaces `{bin}`.
pub fn command<C: clap::CommandFactory>() -> clap::Command {
    let command = C::command();
    let name = command.get_name().to_string();
    command.mut_subcommands(|sub| {
        let examples = sub.get_after_help().map(|text| text.to_string().replace("{bin}", &name));
        match examples {
            Some(examples) => sub.after_help(examples),
            None => sub,
        }
    })
}

/// Parses a command line. `Err` is the exit code, after help (0) or a diagnostic (2) has been printed.
pub fn parse<C: clap::Parser>(args: impl IntoIterator<Item = OsString>) -> std::result::Result<C, i32> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    let mut command = command::<C>();
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| C::from_arg_matches(&matches));
    parsed.map_err(|e| match e.kind() {
        DisplayHelp | DisplayVersion => {
            // A failure to print the help is ignored.
            let _ = e.print();
            0
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = format!("`{} --help` lists the commands", command.get_name());
            report(&Error::user("E0001", "no command is given").help(help))
        }
        _ => report(&usage_error(&e.format(&mut command))),
    })
}

/// Prints an error, and if `--json` was given, also prints it as a JSON object to standard output. Returns the exit
/// code.
fn report(error: &Error) -> i32 {
    eprintln!("{error}");
    if std::env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json") {
        // A closed pipe is ignored: the exit code still reports the error.
        let _ = writeln!(std::io::stdout(), "{}", Json::Object(vec![("error", error.json())]));
    }
    error.fault.exit_code()
}

/// Converts a message of the command-line parser to the format of all other errors.
fn usage_error(e: &clap::Error) -> Box<Error> {
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let rest = rest.replace("\n\nFor more information, try '--help'.", "");
    // The tip to pass an unknown option as a value is left out: usually the option is misspelt.
    let lines = rest.split('\n').map(|line| line.trim().trim_start_matches("tip: "));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.contains("as a value, use")).collect();
    let rest = lines.join("\n        ");
    let error = Error::user("E0001", message);
    if rest.is_empty() { error } else { error.help(rest) }
}

/// Runs a command and returns the exit code. Errors are printed; a panic is reported as a defect (3).
pub fn execute(command: impl FnOnce(&mut dyn Write) -> Result<i32> + std::panic::UnwindSafe) -> i32 {
    // As in other filters, a closed pipe ends the program silently.
    // SAFETY: setting a default disposition runs no code of this program.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let result = std::panic::catch_unwind(|| {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let result = command(&mut out);
        let flushed = out.flush().map_err(|e| write_error(&e));
        result.and_then(|code| flushed.map(|()| code))
    });
    match result {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => report(&error),
        Err(_) => {
            let help = "please report it with the command that was run";
            report(&Error::defect("the program failed where it should not have").help(help))
        }
    }
}

pub(crate) fn write_error(e: &std::io::Error) -> Box<Error> {
    Error::user("E0002", format!("cannot write the output: {e}"))
}

/// `writeln!` that converts a failure to an [`Error`].
macro_rules! put {
    ($out:expr, $($arg:tt)*) => { writeln!($out, $($arg)*).map_err(|e| $crate::write_error(&e)) };
}
pub(crate) use put;

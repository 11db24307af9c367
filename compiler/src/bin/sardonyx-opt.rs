//! sardonyx-opt FILE.mlir --pass-pipeline='builtin.module(…)'  =>  the IR after the given passes, ours or MLIR's, for
//! tests with FileCheck; with `--emit ptx:sm_80`, the kernels as PTX

use clap::Parser;
use melior::diagnostic::{Diagnostic, DiagnosticSeverity};
use melior::ir::Module;
use melior::ir::operation::{OperationLike, OperationPrintingFlags};
use regex_lite::Regex;
use sardonyx::commands::passes_named;
use sardonyx::meaning::{describe, functions};
use sardonyx_base::error::Fault;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_dialects::mlir::Operation;
use sardonyx_kernels::Target;
use sardonyx_kernels::codegen::ptx::text_of;
use sardonyx_passes::egraph::explain_node;
use sardonyx_passes::options;
use sardonyx_passes::{Params, Remark, Rewrites};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Runs passes on an MLIR file and prints the result.
#[derive(Parser)]
#[command(version, after_help = after_help())]
struct Options {
    /// The file; `-` for standard input
    #[arg(default_value = "-")]
    file: String,
    /// The passes to run, in MLIR's syntax: `builtin.module(pass1,func.func(pass2))`
    #[arg(long, default_value = "builtin.module()")]
    pass_pipeline: String,
    /// Print the kernels as PTX for a target instead: `ptx:sm_80`. The module is a plan or has functions of the level `flow`
    #[arg(long, value_name = "FORM", value_parser = form)]
    emit: Option<Target>,
    /// Apply only the first N rewrites of our passes, in each part of the file
    #[arg(long, value_name = "N")]
    fuel: Option<usize>,
    /// Print the rewrites that were applied as comments before the result, numbered as `--fuel` counts them
    #[arg(long)]
    list_rewrites: bool,
    /// Print to standard error what passes whose names match (or `all`) could not do, and the node in the way
    #[arg(long, value_name = "REGEX", value_parser = passes_named)]
    remarks: Option<Regex>,
    /// An option of the passes, such as `precision=bf16`. A line `// OPTION: precision=bf16` sets it for one part of the
    /// file
    #[arg(long, value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// Fill the f32 and i8 parameters with synthetic values, for passes that compute with them: one element in N is not 0
    #[arg(long, value_name = "N")]
    one_in: Option<usize>,
    /// Check each rewrite on random operands at small sizes, and print what was checked to standard error
    #[arg(long)]
    validate: bool,
    /// Process each part of the file on its own; lines of `// -----` separate the parts
    #[arg(long)]
    split_input_file: bool,
    /// Print, instead of the result, what its functions compute: the interpreter's outputs for synthetic call number N
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    interpret: Option<usize>,
    /// Print, instead of the result, the operations that the e-graph would make of an ONNX node, and by which rules
    #[arg(long, value_name = "NAME")]
    explain_node: Option<String>,
    /// Print the location of each operation, which names its ONNX nodes
    #[arg(long)]
    print_locations: bool,
}

fn form(text: &str) -> std::result::Result<Target, String> {
    let target = text.strip_prefix("ptx:").and_then(Target::from_ptx);
    target.ok_or_else(|| {
        let known = Target::all().filter_map(Target::ptx).map(|name| format!("`ptx:{name}`"));
        format!("the forms are {}", known.collect::<Vec<_>>().join(", "))
    })
}

fn after_help() -> String {
    let rows = sardonyx_passes::PASSES.iter().map(|p| format!("  {:<20} {}\n", p.name, p.summary));
    format!("Passes (and all of MLIR's):\n{}", rows.collect::<String>())
}

/// Runs the tool with the arguments of the process.
pub fn main() {
    let options = Options::parse();
    std::process::exit(run(&options).unwrap_or_else(|e| {
        eprintln!("{e}");
        e.fault.exit_code()
    }));
}

/// Processes the parts of the file and returns the highest exit code. If a part fails, its error is printed and the
/// next part follows. Invalid options end the run.
fn run(options: &Options) -> Result<i32> {
    let text = read(&options.file)?;
    let parts: Vec<String> = match options.split_input_file {
        true => split(&text),
        false => vec![text],
    };
    let context = sardonyx_passes::context();
    let file = if options.file == "-" { "<stdin>".to_string() } else { options.file.clone() };
    context.attach_diagnostic_handler(move |d| {
        report(&file, &d);
        true
    });
    let mut worst = 0;
    for (i, part) in parts.iter().enumerate() {
        if part.contains('\0') {
            eprintln!("{}: error: the text has a zero byte", options.file);
        }
        let Some(mut module) = sardonyx_passes::parse(&context, part) else {
            worst = worst.max(Fault::User.exit_code());
            continue;
        };
        let mut requested = requested_options(options, part)?;
        if let Some(n) = options.one_in {
            requested.params = sparse_params(&module, n)?;
        }
        let mut rewrites = Rewrites::new(requested);
        let pipeline = &options.pass_pipeline;
        if let Err(e) = sardonyx_passes::run_pipeline_with(&context, &mut module, pipeline, &mut rewrites) {
            eprintln!("{e}");
            worst = worst.max(e.fault.exit_code());
            continue;
        }
        rewrites.validation().iter().for_each(|v| eprintln!("{}", v.line()));
        let shown = |r: &&Remark| options.remarks.as_ref().is_some_and(|shown| shown.is_match(r.pass));
        rewrites.remarks().iter().filter(shown).for_each(|r| eprintln!("{r}"));
        let out = match print(&module, options) {
            Ok(out) => out,
            Err(e) => {
                eprintln!("{e}");
                worst = worst.max(e.fault.exit_code());
                continue;
            }
        };
        let separator = if i > 0 { "// -----\n" } else { "" };
        let mut stdout = std::io::stdout().lock();
        // A closed pipe (FileCheck has seen enough) is not an error.
        let listed = rewrites.applied().iter().filter(|_| options.list_rewrites);
        let listed: String = listed.map(|r| format!("// rewrite {}\n", r.line())).collect();
        let _ = writeln!(stdout, "{separator}{listed}{out}");
    }
    Ok(worst)
}

/// Returns the options of the passes, from the command line and from the `// OPTION:` lines of a part. Errors: E0001.
fn requested_options(options: &Options, part: &str) -> Result<options::Options> {
    let (fuel, remarks, validate) = (options.fuel, options.remarks.is_some(), options.validate);
    let mut requested = options::Options { fuel, remarks, validate, ..options::Options::default() };
    let own = part.lines().filter_map(|line| line.strip_prefix("// OPTION: "));
    options.option.iter().map(String::as_str).chain(own).try_for_each(|text| requested.set(text))?;
    Ok(requested)
}

/// Returns synthetic values for the f32 and i8 parameters of a module's functions: every `n`-th element is non-zero.
fn sparse_params(module: &Module, n: usize) -> Result<Params> {
    let mut values = BTreeMap::new();
    for function in functions(module)? {
        for (name, (dtype, dims)) in function.params() {
            // Non-zeros are placed by flat index, so that adjacent rows usually have them in different columns.
            let value = |i: usize| if i.is_multiple_of(n.max(1)) { 1 + (i % 7) as i8 } else { 0 };
            let all = 0..dims.iter().product();
            let made = match dtype {
                DType::F32 => Tensor::from_vec(dims, all.map(|i| f32::from(value(i))).collect()),
                DType::I8 => Tensor::from_vec(dims, all.map(value).collect()),
                _ => continue,
            };
            values.insert(name, made);
        }
    }
    Ok(Params::new(values))
}

fn print(module: &Module, options: &Options) -> Result<String> {
    if let Some(target) = options.emit {
        return text_of(Operation::of_module(module), target);
    }
    if let Some(call) = options.interpret {
        let functions = functions(module)?;
        let help = "those of the levels `sdx` and `flow` have";
        return match functions.is_empty() {
            true => Err(Error::user("E0001", "no function of the result has a meaning of its own").help(help)),
            false => describe(&functions, call),
        };
    }
    if let Some(name) = &options.explain_node {
        return Ok(explain_node(Operation::of_module(module), name)?.join("\n"));
    }
    let flags = OperationPrintingFlags::new().enable_debug_info(options.print_locations, false);
    module.as_operation().to_string_with_flags(flags).map_err(|e| Error::defect(e.to_string()))
}

/// The parts between lines of `// -----`, each padded with empty lines to keep line numbers in diagnostics correct.
fn split(text: &str) -> Vec<String> {
    let mut line = 0;
    let part = |body: &str| {
        let padded = "\n".repeat(line) + body;
        line += body.lines().count() + 1;
        padded
    };
    text.split("// -----\n").map(part).collect()
}

/// Prints `FILE:LINE:COLUMN: error: …`, as MLIR's own tools do; MLIR names the text that it parses `-`.
fn report(file: &str, d: &Diagnostic) {
    let message = d.to_string();
    // Errors of our own passes are reported by the caller of the pass.
    if message.starts_with("error[E") {
        return;
    }
    let severity = match d.severity() {
        DiagnosticSeverity::Error => "error",
        DiagnosticSeverity::Warning => "warning",
        DiagnosticSeverity::Note => "note",
        DiagnosticSeverity::Remark => "remark",
    };
    let location = d.location().to_string();
    match location.strip_prefix("loc(\"-\":").and_then(|l| l.strip_suffix(')')) {
        Some(at) => eprintln!("{file}:{at}: {severity}: {message}"),
        None => eprintln!("{file}: {location}: {severity}: {message}"),
    }
}

fn read(file: &str) -> Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file).map_err(|e| Error::io(file, "read", &e));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| Error::io("standard input", "read", &e))?;
    Ok(text)
}

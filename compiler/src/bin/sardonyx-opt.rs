//! sardonyx-opt FILE.mlir --pass-pipeline='builtin.module(…)': every pass by name, ours and MLIR's, for FileCheck

use clap::Parser;
use melior::ir::Module;
use melior::ir::operation::{OperationLike, OperationPrintingFlags};
use sardonyx_runtime::{Error, Result};
use std::io::{Read, Write};

/// Runs passes over an MLIR file and prints the result.
#[derive(Parser)]
#[command(version, after_help = after_help())]
struct Options {
    /// The file; `-` for standard input
    #[arg(default_value = "-")]
    file: String,
    /// `builtin.module(pass1,func.func(pass2))`
    #[arg(long, default_value = "builtin.module()")]
    pass_pipeline: String,
    /// Treat the file as several, separated by lines of `// -----`
    #[arg(long)]
    split_input_file: bool,
    /// Print locations (the ONNX nodes)
    #[arg(long)]
    print_locations: bool,
}

fn after_help() -> String {
    let rows = sardonyx_passes::PASSES.iter().map(|p| format!("  {:<20} {}\n", p.name, p.summary));
    format!("Passes (and all of MLIR's):\n{}", rows.collect::<String>())
}

fn main() {
    let options = Options::parse();
    std::process::exit(match run(&options) {
        Ok(true) => 0,
        Ok(false) => 2,
        Err(e) => {
            eprintln!("{e}");
            e.fault.exit_code()
        }
    });
}

/// False where a part failed; MLIR has then reported why.
fn run(options: &Options) -> Result<bool> {
    let text = read(&options.file)?;
    let parts: Vec<&str> = match options.split_input_file {
        true => text.split("// -----\n").collect(),
        false => vec![&text],
    };
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|d| {
        eprintln!("{}: {d}", d.location());
        true
    });
    let mut ok = true;
    for (i, part) in parts.iter().enumerate() {
        let Some(mut module) = Module::parse(&context, part) else {
            ok = false;
            continue;
        };
        if let Err(e) = sardonyx_passes::run_pipeline(&context, &mut module, &options.pass_pipeline) {
            eprintln!("{e}");
            ok = false;
            continue;
        }
        let flags = OperationPrintingFlags::new().enable_debug_info(options.print_locations, true);
        let out = module.as_operation().to_string_with_flags(flags).map_err(|e| Error::defect(e.to_string()))?;
        let separator = if i > 0 { "// -----\n" } else { "" };
        let mut stdout = std::io::stdout().lock();
        // A closed pipe (FileCheck that has seen enough) is no error.
        let _ = writeln!(stdout, "{separator}{out}");
    }
    Ok(ok)
}

fn read(file: &str) -> Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file).map_err(|e| Error::io(file, "read", &e));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| Error::io("standard input", "read", &e))?;
    Ok(text)
}

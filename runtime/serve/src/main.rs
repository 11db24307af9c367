//! sardonyx-serve: serves .sdx files over HTTP and gRPC

use sardonyx_run as commands;
use sardonyx_serve::{ServeArgs, serve};

fn main() {
    commands::serve_rank();
    let code = match commands::parse::<ServeArgs>(std::env::args_os()) {
        Ok(args) => commands::execute(|out| serve(&args, out)),
        Err(code) => code,
    };
    std::process::exit(code);
}

//! completions bash|zsh|fish  =>  a script with which the shell completes this program's command line

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::write_error;
use clap::builder::PossibleValuesParser;
use clap_complete::aot::{Bash, Fish, Zsh, generate};
use sardonyx_base::Result;
use std::io::Write;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} completions bash > ~/.local/share/bash-completion/completions/{bin}
  {bin} completions zsh > ~/.zfunc/_{bin}
  {bin} completions fish > ~/.config/fish/completions/{bin}.fish")]
pub struct CompletionsArgs {
    /// Shell to write the script for
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    pub shell: String,
}

/// Writes the completion script of the program whose parser is `C`.
pub fn completions<C: clap::CommandFactory>(args: &CompletionsArgs, out: &mut dyn Write) -> Result<()> {
    let mut command = super::command::<C>();
    let name = command.get_name().to_string();
    let mut script = Vec::new();
    match args.shell.as_str() {
        "bash" => generate(Bash, &mut command, name, &mut script),
        "zsh" => generate(Zsh, &mut command, name, &mut script),
        // The parser accepts no other shell.
        _ => generate(Fish, &mut command, name, &mut script),
    }
    out.write_all(&script).map_err(|e| write_error(&e))
}

//! `cargo xtask test`  =>  setup, models with their weights, then `cargo test --workspace`

use crate::context::{Context, Result, run};
use crate::{fetch, models, setup};

/// The whole default suite; further arguments go to `cargo test`.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    setup::ensure()?;
    fetch::command(context, &[])?;
    models::ensure_default(context)?;
    println!("test: cargo test --workspace {}", args.join(" "));
    run(context.cargo(["test", "--workspace"]).args(args))
}

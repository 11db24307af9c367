//! the artifact's PTX for a target, compared with the plan's description of its kernels

use super::{Source, no_code};
use crate::code::compare_declared;
use sardonyx_base::plan::{KERNELS_COMMENT, candidate_target};
use sardonyx_base::{Error, Result};

/// An entry of a PTX module, with its launch parameters.
pub struct Entry {
    pub symbol: String,
    pub block: u32,
    pub shared_bytes: u32,
}

/// Returns the name of the code for a target that is to be loaded: with the tiles that were asked for.
pub fn selected(source: &Source, target: &str) -> String {
    candidate_target(target, source.candidate)
}

/// Returns the PTX of a target and the plan's kernels in it; `None` if the plan has no kernels. Errors: E0401, E0403.
pub fn module<'a>(source: &'a Source, target: &str) -> Result<Option<(&'a str, Vec<Entry>)>> {
    if source.program.kernels.is_empty() {
        return Ok(None);
    }
    let found = source.ptx.iter().find(|(name, _)| name == target);
    let (_, bytes) = found.ok_or_else(|| no_code(source, target, &format!("cuda:{target}")))?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| wrong(format!("the PTX for {target} is not text")))?;
    check_declared(text, source)?;
    let entry = |(i, kernel): (usize, &crate::program::Kernel)| {
        let found = kernel.targets.iter().find(|t| t.target == target);
        let launch =
            found.ok_or_else(|| wrong(format!("kernel {i} `{}` has no launch for {target}", kernel.symbol)))?;
        Ok(Entry { symbol: kernel.symbol.clone(), block: launch.block, shared_bytes: launch.shared_bytes })
    };
    Ok(Some((text, source.program.kernels.iter().enumerate().map(entry).collect::<Result<_>>()?)))
}

/// Checks that the plan describes the kernels as the PTX itself does: PTX is trusted, plans are not (see
/// [`crate::program`]). PTX without a [`KERNELS_COMMENT`] describes nothing, and is not checked.
fn check_declared(text: &str, source: &Source) -> Result<()> {
    let Some(digits) = text.lines().find_map(|line| line.strip_prefix(KERNELS_COMMENT)) else { return Ok(()) };
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    compare_declared(&bytes.ok_or_else(|| wrong("the PTX's own kernels do not decode".into()))?, &source.plan.kernels)
}

fn wrong(message: String) -> Box<Error> {
    Error::user("E0401", message).help("compile the model again")
}

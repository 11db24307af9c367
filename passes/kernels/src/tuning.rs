//! a GPU kernel, times measured on a GPU  =>  the tile that its code has

use crate::linear::Lowered;
use crate::ptx::PtxKernel;
use crate::target::Target;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Tiles of kernels for GPUs that were the fastest when they were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Names of tiles, by the target's name in PTX, such as `sm_80`, and the key of the kernel.
    tiles: BTreeMap<(String, String), String>,
    /// The files that the tiles were read from.
    pub files: Vec<PathBuf>,
}

impl Tuning {
    /// Returns a tuning without measured tiles: each kernel has the tile that is expected to be the fastest.
    pub const fn expected() -> Tuning {
        Tuning { tiles: BTreeMap::new(), files: vec![] }
    }

    /// Adds the tile of a kernel on a target. Errors: E0110 if the kernel already has another tile there.
    pub fn add(&mut self, target: &str, key: &str, tile: &str) -> Result<()> {
        let known = self.tiles.entry((target.to_string(), key.to_string())).or_insert_with(|| tile.to_string());
        match known == tile {
            true => Ok(()),
            false => Err(Error::user("E0110", format!("kernel {key} has two tiles for {target}: {known} and {tile}"))
                .help("give one lock file for each GPU")),
        }
    }

    /// The tile of a kernel on a target; `None` if it was not measured there.
    pub fn tile(&self, target: Target, key: &str) -> Option<&str> {
        self.tiles.get(&(target.ptx()?.to_string(), key.to_string())).map(String::as_str)
    }

    /// Returns the number of tiles, counted over all kernels and targets.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// Returns whether no kernel has a tile.
    pub fn is_empty(&self) -> bool {
        self.tiles.is_empty()
    }
}

/// Which tiles the kernels of a module have.
#[derive(Clone, Copy, Debug)]
pub enum Tiles<'a> {
    /// Tiles that were measured to be the fastest. Each kernel without a measured tile has the tile that its sizes
    /// alone suggest to be the fastest.
    Measured(&'a Tuning),
    /// The candidate with this number, for measuring. Kernels with fewer candidates have their last one.
    Candidate(usize),
}

/// A kernel's code with one of its tiles.
pub struct Tiled {
    /// The entry and its launch.
    pub emitted: PtxKernel,
    /// Key of the kernel and name of the tile, if the tile was selected.
    pub selected: Option<(String, String)>,
}

/// Identifies a kernel in files of measured tiles by a hash of its code with the tile that is expected to be the
/// fastest. So a kernel has the same key in every model, until the compiler generates other code for it. Errors: E0202,
/// E0901.
pub fn key(lowered: &Lowered, target: Target) -> Result<String> {
    let code = lowered.for_gpu(target).emit("kernel")?.text;
    Ok(blake3::hash(code.as_bytes()).as_bytes()[..16].iter().map(|b| format!("{b:02x}")).collect())
}

/// Returns the number of candidates of the kernel that has the most candidates.
pub fn candidates<'a>(lowered: impl IntoIterator<Item = &'a Lowered>, target: Target) -> usize {
    lowered.into_iter().map(|l| l.for_gpu(target).candidates().len()).max().unwrap_or(0)
}

/// Emits a kernel with one of its tiles. Errors: E0110 if no candidate has the name of the measured tile, E0202, E0901.
pub fn emit(symbol: &str, lowered: &Lowered, target: Target, tiles: Tiles) -> Result<Tiled> {
    let expected = || lowered.for_gpu(target);
    let others = match tiles {
        Tiles::Measured(tuning) if tuning.is_empty() => vec![],
        _ => expected().candidates(),
    };
    if others.is_empty() {
        return Ok(Tiled { emitted: expected().emit(symbol)?, selected: None });
    }
    let key = key(lowered, target)?;
    let names: Vec<String> = others.iter().map(|(tile, _)| tile.clone()).collect();
    let found = match tiles {
        Tiles::Candidate(i) => {
            let last = others.len() - 1;
            others.into_iter().nth(i.min(last))
        }
        Tiles::Measured(tuning) => match tuning.tile(target, &key) {
            None => return Ok(Tiled { emitted: expected().emit(symbol)?, selected: None }),
            Some(wanted) => {
                let found = others.into_iter().find(|(tile, _)| tile == wanted);
                Some(found.ok_or_else(|| {
                    let all = names.join(", ");
                    let message = format!("`{wanted}` was measured for kernel {key}, which can have {all}");
                    Error::user("E0110", message)
                })?)
            }
        },
    };
    let (tile, kernel) = found.ok_or_else(|| Error::defect("a kernel without candidates"))?;
    Ok(Tiled { emitted: kernel.emit(symbol)?, selected: Some((key, tile)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_one_measured_tile_for_each_target() {
        let mut tuning = Tuning::default();
        tuning.add("sm_80", "k", "warps-64x64x64").unwrap();
        tuning.add("sm_80", "k", "warps-64x64x64").unwrap();
        tuning.add("sm_90a", "k", "warps-32x32x64").unwrap();
        let tile = |name: &str, key: &str| tuning.tile(Target::from_ptx(name).unwrap(), key);
        assert_eq!(tile("sm_80", "k"), Some("warps-64x64x64"));
        assert_eq!(tile("sm_90a", "k"), Some("warps-32x32x64"));
        assert_eq!((tile("sm_80", "l"), tuning.len()), (None, 2));
        let e = tuning.clone().add("sm_80", "k", "warps-32x32x64").unwrap_err();
        assert_eq!(e.code, "E0110");
    }
}

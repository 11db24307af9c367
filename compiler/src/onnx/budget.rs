//! Bounds on the memory that a small file may expand to: inlined functions, names, sparse tensors

use sardonyx_base::{Error, Result};

/// Remaining allowance for memory that is allocated rather than mapped. Without a limit, a hostile file of a kilobyte
/// could request terabytes through functions that call others ten times each, or through a sparse tensor with large
/// dimensions.
pub struct Budget {
    left_bytes: u64,
}

const BASE_BYTES: u64 = 256 << 20;
const BYTES_PER_FILE_BYTE: u64 = 64;

/// Largest nesting depth of graphs and function calls. Exporters nest about 6 levels; a file with more than this is
/// hostile, and recursion over it could exhaust the stack.
pub const NESTING_MAX: usize = 48;

impl Budget {
    pub fn for_file(bytes: usize) -> Budget {
        Budget { left_bytes: BASE_BYTES.saturating_add((bytes as u64).saturating_mul(BYTES_PER_FILE_BYTE)) }
    }

    pub fn charge(&mut self, bytes: usize, what: &str) -> Result<()> {
        match self.left_bytes.checked_sub(bytes as u64) {
            Some(left) => {
                self.left_bytes = left;
                Ok(())
            }
            None => {
                let message = format!("{what} would need {bytes} bytes more than a model of this size may expand to");
                Err(Error::user("E0202", message)
                    .help("store large tensors as dense raw data, and inline functions with onnx.inliner"))
            }
        }
    }
}

/// Refuses nesting that no exporter writes.
pub fn check_nesting(depth: usize) -> Result<()> {
    if depth <= NESTING_MAX {
        return Ok(());
    }
    Err(Error::user("E0104", format!("subgraphs and function calls are nested deeper than {NESTING_MAX} levels"))
        .help("flatten the nested control flow or inline the functions before compiling"))
}

//! A bound on what a small file may expand to: inlined functions, names, sparse tensors

use sardonyx_base::{Error, Result};

/// Memory that is made rather than mapped. A hostile file of a kilobyte could otherwise ask for terabytes, through
/// functions that call functions ten times each, or through a sparse tensor with large dimensions.
pub struct Budget {
    left_bytes: u64,
}

const BASE_BYTES: u64 = 256 << 20;
const BYTES_PER_FILE_BYTE: u64 = 64;

/// Graphs and function calls inside each other. Exporters nest to about 6; beyond this a file is hostile, and
/// recursion over it could exhaust the stack.
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

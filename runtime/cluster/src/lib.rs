//! Clusters as data: how devices are connected, and how long collectives take on them
//!
//! | file | what it is |
//! |---|---|
//! | `topology.rs` | a TOML file with levels of links, each figure with its source |
//! | `route.rs` | the links that a message passes |
//! | `simulate.rs` | the times of the messages of a schedule on these links, with contention |
//! | `cycles.rs` | two edge-disjoint Hamiltonian cycles of a torus |
//! | `schedules.rs` | the order and the times of the work in a pipeline: GPipe, 1F1B, interleaved, Chimera |
//! | `select.rs` | the predicted times of the algorithms of a collective, the fastest first |
//!
//! Nothing here is measured: all results are derived from the figures in the topology file.

mod cycles;
mod route;
mod schedules;
mod select;
mod simulate;
mod topology;

pub use cycles::edge_disjoint_cycles;
pub use route::{Link, Way};
pub use schedules::{Direction, Schedule, Slot, Timeline, Work};
pub use select::{Candidate, Comparison, Fastest, Groups, Means, compare, compare_in_groups};
pub use simulate::{Effect, Group, Outcome, Simulation, simulate, simulate_groups};
pub use topology::{Attached, Device, Figure, InNetwork, Kind, Level, PRESETS, Topology};

//! ranks  =>  exchanges among them, and the calls that all of them make together
//!
//! | file | what it is |
//! |---|---|
//! | `schedule.rs` | what each rank copies and combines in a collective: data, whatever carries the bytes |
//! | `segment.rs` | the memory that the ranks of one host share |
//! | `shared.rs` | a collective over that memory: ranks read each other's operands where they lie |
//! | `order.rs` | what the first rank tells the others to do |
//! | `team.rs` | the first rank's calls, and the others that serve them |
//!
//! In a call every rank runs the same steps. A collective is met by the ranks that differ in one coordinate of the mesh, in the
//! same order everywhere. Each says where its operand is, waits until all have, and computes its own result from what the
//! others have; reductions combine in the order of the ranks, so that bits do not depend on who came when.

mod order;
mod schedule;
mod segment;
mod shared;
mod team;

pub(crate) use order::CacheRef;
pub(crate) use schedule::Operand;
pub(crate) use segment::AXES_MAX;
pub(crate) use shared::{Exchange, Rank};
pub(crate) use team::{CacheIds, Team};

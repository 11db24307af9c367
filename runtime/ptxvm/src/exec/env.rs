//! The environment of a running block: shared memory, shadow, findings, counters

use super::Context;
use super::agents::Agents;
use super::mbarrier::Mbarriers;
use super::notes::Notes;
use super::tally::Tally;
use crate::report::Kind;
use crate::shadow::{self, Problem, ProblemKind};
use crate::text::types::Space;

pub struct Env<'a> {
    pub context: &'a Context<'a>,
    pub block: u64,
    pub shared: Vec<u32>,
    pub shadow: Option<shadow::Block<'a>>,
    pub notes: &'a mut Notes,
    pub tally: &'a mut Tally,
    pub agents: Agents,
    pub mbarriers: Mbarriers,
    pub problems: Vec<Problem>,
    /// Number of warp instructions executed by this block, which is also its clock.
    pub clock: u64,
    /// Operand registers of the last matrix product, kept only to reuse the vector.
    pub fragments: Vec<[u32; 32]>,
    /// Indices of recently accessed allocations; an instruction looks at the entry selected by the low bits of its
    /// number.
    pub hints: [u32; 16],
}

/// Formats a linear index, in which x varies fastest, as coordinates such as `(1, 2, 0)`.
pub fn position(index: u64, extents: [u32; 3]) -> String {
    let [x, y, _] = extents.map(|extent| u64::from(extent).max(1));
    format!("({}, {}, {})", index % x, index / x % y, index / x / y)
}

impl<'a> Env<'a> {
    pub fn new(
        context: &'a Context<'a>,
        block: u64,
        shadow: Option<shadow::Block<'a>>,
        notes: &'a mut Notes,
        tally: &'a mut Tally,
        mut shared: Vec<u32>,
    ) -> Self {
        shared.clear();
        shared.resize(context.shared_bytes.div_ceil(4) as usize, 0);
        let agents = Agents::new(context.n_threads.div_ceil(32) as usize);
        let problems = Vec::new();
        Env {
            context,
            block,
            shared,
            shadow,
            notes,
            tally,
            agents,
            mbarriers: Mbarriers::default(),
            problems,
            clock: 0,
            fragments: Vec::new(),
            hints: [0; 16],
        }
    }

    pub fn thread(&self, warp: u32, lane: u32) -> String {
        let thread = position(u64::from(warp * 32 + lane), self.context.launch.block);
        format!("thread {thread} of block {}", position(self.block, self.context.launch.grid))
    }

    pub fn note(&mut self, kind: Kind, line: u32, count: u64, message: impl FnOnce(&Self) -> String) {
        // The message is formatted while all of `self` is borrowed, so the collector is moved out meanwhile.
        let mut notes = std::mem::take(self.notes);
        notes.add(kind, line, self.block, count, || format!("`{}`: {}", self.context.text(line), message(self)));
        *self.notes = notes;
    }

    /// Adds a finding about one lane.
    pub fn note_lane(&mut self, kind: Kind, line: u32, warp: u32, lane: u32, what: impl FnOnce(&Self) -> String) {
        self.note(kind, line, 1, |env| format!("{} {}", env.thread(warp, lane), what(env)));
    }

    pub fn note_lanes(&mut self, kind: Kind, line: u32, warp: u32, mask: u32, what: impl FnOnce(&Self) -> String) {
        if mask != 0 {
            let count = u64::from(mask.count_ones());
            self.note(kind, line, count, |env| format!("{} {}", env.thread(warp, mask.trailing_zeros()), what(env)));
        }
    }

    /// Describes an address for a finding.
    pub fn place(&self, space: Space, address: u64) -> String {
        match space {
            Space::Shared => self.shared_place(address),
            Space::Local => format!("local address {address}"),
            Space::Param => format!("parameter address {address}"),
            Space::Generic | Space::Global | Space::Const => self.context.place(address),
        }
    }

    fn shared_place(&self, offset: u64) -> String {
        let total = self.context.shared_bytes;
        let variables = &self.context.program.shared_variables;
        let named = variables.iter().find(|(_, at, bytes)| offset.wrapping_sub(u64::from(*at)) < u64::from(*bytes));
        match named {
            Some((name, at, bytes)) => {
                format!("shared address {offset}, byte {} of `{name}` ({bytes} bytes)", offset - u64::from(*at))
            }
            None => format!("shared address {offset} ({total} bytes)"),
        }
    }

    /// Converts the problems that the shadow found in the most recent access to findings. Overlaps for which `benign`
    /// returns true are dropped.
    pub fn note_problems(&mut self, space: Space, warp: u32, line: u32, benign: impl Fn(u32, u32) -> bool) {
        if self.problems.is_empty() {
            return;
        }
        let problems = std::mem::take(&mut self.problems);
        for problem in &problems {
            if problem.kind == ProblemKind::Overlap
                && problem.other.is_some_and(|other| benign(problem.lane, other.lane))
            {
                continue;
            }
            self.note_problem(space, warp, line, problem);
        }
        self.problems = problems;
        self.problems.clear();
    }

    fn note_problem(&mut self, space: Space, warp: u32, line: u32, problem: &Problem) {
        let (kind, what) = match problem.kind {
            ProblemKind::Uninitialised => (Kind::UninitialisedMemory, "reads memory that nothing wrote"),
            ProblemKind::Race => (Kind::Race, "is not ordered with an earlier access"),
            ProblemKind::Overlap => (Kind::Race, "stores another value to the address of a lane of its own warp"),
            ProblemKind::InFlight => (Kind::InFlight, "touches the destination of a copy that was not waited for"),
            ProblemKind::Unfenced => {
                (Kind::MissingFence, "reads or replaces what was written without a fence.proxy.async since")
            }
            ProblemKind::InFlightSource => (Kind::InFlight, "overwrites the source of a copy that was not waited for"),
        };
        self.note_lane(kind, line, warp, problem.lane, |env| {
            let mut text = format!("{what}, at {}", env.place(space, problem.address));
            if let Some(other) = problem.other {
                let verb = if other.write { "wrote" } else { "read" };
                text += &format!("; {} {verb} it in line {}", env.thread(other.warp, other.lane), other.line);
            }
            text
        });
    }
}

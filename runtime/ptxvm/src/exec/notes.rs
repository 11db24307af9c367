//! The findings of the blocks of one worker, merged by kind and line

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::report::{Finding, Kind};

#[derive(Debug, Default)]
pub struct Notes {
    /// The finding of each line and kind, with the number of the lowest block that reported it; the message is from
    /// that block.
    found: BTreeMap<(u32, Kind), (u64, Finding)>,
}

impl Notes {
    /// Adds occurrences of a finding. `message` is called only if its result is kept.
    pub fn add(&mut self, kind: Kind, line: u32, block: u64, count: u64, message: impl FnOnce() -> String) {
        match self.found.entry((line, kind)) {
            Entry::Vacant(entry) => {
                entry.insert((block, Finding { kind, line, message: message(), count }));
            }
            Entry::Occupied(mut entry) => {
                let (first, finding) = entry.get_mut();
                if block < *first {
                    *first = block;
                    finding.message = message();
                }
                finding.count += count;
            }
        }
    }

    pub fn merge(&mut self, other: Notes) {
        for ((line, kind), (block, finding)) in other.found {
            self.add(kind, line, block, finding.count, || finding.message);
        }
    }

    pub fn into_findings(self) -> Vec<Finding> {
        self.found.into_values().map(|(_, finding)| finding).collect()
    }
}

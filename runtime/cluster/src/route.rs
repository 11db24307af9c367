//! two devices  =>  the links that a message between them passes
//!
//! The route between two devices is always the same. In grids, it follows one dimension after the other, in the shorter
//! direction, or towards higher coordinates if both directions are equally long.

use crate::topology::{Attached, Kind, Level, Topology};
use std::fmt;

/// A link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// Index in [`Topology::level`]; 0 is the level that joins devices.
    pub level: usize,
    /// Number of the member to which the link is attached, counted over all groups of the level. If the links of the
    /// level are attached to devices, the number of the device.
    pub member: usize,
    /// Which of the member's links it is, and in which direction.
    pub way: Way,
}

/// A link of a member, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// The link to a switch, over one of the parallel links.
    Up {
        /// Index of the parallel link; 0 if links are attached to devices.
        lane: usize,
    },
    /// The link from a switch, over one of the parallel links.
    Down {
        /// Index of the parallel link, as in `Up`.
        lane: usize,
    },
    /// The link to another member.
    To {
        /// Number of the other member, counted over all groups of the level.
        member: usize,
    },
    /// The link from a device to the switch of its line of boards ([`Kind::Lines`]) along a dimension.
    IntoLine {
        /// Dimension of the grid of boards along which the line runs: 0 or 1.
        dim: usize,
    },
    /// The link from the switch of a line of boards along a dimension to a device.
    OutOfLine {
        /// Dimension of the grid of boards, as in `IntoLine`.
        dim: usize,
    },
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Link { level, member, way } = self;
        write!(f, "level {level}: {member} ")?;
        match way {
            Way::Up { lane } => write!(f, "up {lane}"),
            Way::Down { lane } => write!(f, "down {lane}"),
            Way::To { member } => write!(f, "to {member}"),
            Way::IntoLine { dim } => write!(f, "into line {dim}"),
            Way::OutOfLine { dim } => write!(f, "out of line {dim}"),
        }
    }
}

impl Topology {
    /// The links from one device to another, in order; empty if both are the same device.
    pub fn route(&self, from: usize, to: usize) -> Vec<Link> {
        let Some(top) = (0..self.level.len()).rev().find(|l| self.member(*l, from) != self.member(*l, to)) else {
            return vec![];
        };
        let level = &self.level[top];
        let below = match level.attached {
            Attached::Group => 0..top,
            Attached::Device => 0..0,
        };
        // On the levels below `top`, a message only passes the links to switches. In a grid, or if members are joined
        // directly, every device reaches the links of the next level without passing links of its own level.
        let is_switch = |l: &usize| self.level[*l].kind == Kind::Switch;
        let mut links: Vec<Link> = below.clone().filter(is_switch).map(|l| self.to_switch(l, from)[0]).collect();
        match level.kind {
            Kind::Switch => links.extend([self.to_switch(top, from)[0], self.to_switch(top, to)[1]]),
            Kind::Direct => links.push(between(top, self.member(top, from), self.member(top, to))),
            Kind::Torus | Kind::Mesh => {
                links.extend(over_grid(level, top, self.member(top, from), self.member(top, to)));
            }
            Kind::Lines => links.extend(self.over_lines(from, to)),
        }
        links.extend(below.rev().filter(is_switch).map(|l| self.to_switch(l, to)[1]));
        links
    }

    /// The member of a level that contains a device.
    fn member(&self, level: usize, device: usize) -> usize {
        device / self.devices_below(level)
    }

    /// The links between the member that contains a device and the member's switch: [up, down].
    fn to_switch(&self, level: usize, device: usize) -> [Link; 2] {
        let (member, lane) = match self.level[level].attached {
            Attached::Group => {
                (self.member(level, device), device % self.devices_below(level) % self.level[level].lanes)
            }
            Attached::Device => (device, 0),
        };
        [Way::Up { lane }, Way::Down { lane }].map(|way| Link { level, member, way })
    }

    /// Routes along the row of boards to the right column, then along this column; on each board, the route follows the
    /// mesh.
    fn over_lines(&self, from: usize, to: usize) -> Vec<Link> {
        let (board, boards) = (&self.level[0].members, &self.level[1].members);
        let size = board[0] * board[1];
        let place = |device: usize| {
            let (b, d) = (device / size, device % size);
            [[b / boards[1] % boards[0], b % boards[1]], [d / board[1], d % board[1]]]
        };
        // If there is a level above, boards are numbered over all of its groups.
        let group = from / size / (boards[0] * boards[1]);
        let number =
            |[b, d]: [[usize; 2]; 2]| ((group * boards[0] + b[0]) * boards[1] + b[1]) * size + d[0] * board[1] + d[1];
        let (mut at, end) = (place(from), place(to));
        let mut links = vec![];
        let walk = |links: &mut Vec<Link>, at: &mut [[usize; 2]; 2], dim: usize, goal: usize| {
            while at[1][dim] != goal {
                let before = number(*at);
                at[1][dim] = if at[1][dim] < goal { at[1][dim] + 1 } else { at[1][dim] - 1 };
                links.push(between(0, before, number(*at)));
            }
        };
        for dim in [1, 0] {
            if at[0][dim] != end[0][dim] {
                let edge = |d: usize| if d * 2 < board[dim] { 0 } else { board[dim] - 1 };
                let leaves_at = edge(at[1][dim]);
                walk(&mut links, &mut at, dim, leaves_at);
                links.push(Link { level: 1, member: number(at), way: Way::IntoLine { dim } });
                (at[0][dim], at[1][dim]) = (end[0][dim], edge(end[1][dim]));
                links.push(Link { level: 1, member: number(at), way: Way::OutOfLine { dim } });
            }
            walk(&mut links, &mut at, dim, end[1][dim]);
        }
        links
    }
}

fn between(level: usize, from: usize, to: usize) -> Link {
    Link { level, member: from, way: Way::To { member: to } }
}

fn over_grid(level: &Level, at: usize, from: usize, to: usize) -> Vec<Link> {
    let mut links = vec![];
    let mut now = from;
    let mut stride = 1;
    for n in level.members.iter().rev() {
        loop {
            let (here, goal) = (now / stride % n, to / stride % n);
            if here == goal {
                break;
            }
            let forward = (goal + n - here) % n;
            let goes_up = match level.kind {
                Kind::Torus => forward * 2 <= *n,
                _ => here < goal,
            };
            let next = if goes_up { (here + 1) % n } else { (here + n - 1) % n };
            let after = now - here * stride + next * stride;
            links.push(between(at, now, after));
            now = after;
        }
        stride *= n;
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::PRESETS;
    use std::collections::BTreeSet;

    fn route(topology: &str, from: usize, to: usize) -> Vec<String> {
        let topology = Topology::preset(topology).unwrap().unwrap();
        topology.route(from, to).iter().map(Link::to_string).collect()
    }

    #[test]
    fn messages_climb_as_far_as_needed() {
        assert_eq!(route("dgx-h100", 1, 6), ["level 0: 1 up 0", "level 0: 6 down 0"]);
        // Each device has its own network adapter.
        assert_eq!(route("dgx-h100", 1, 14), ["level 1: 1 up 0", "level 1: 14 down 0"]);
        assert_eq!(route("one-host", 3, 3), [] as [&str; 0]);
        let far = route("fat-tree", 0, 1023);
        assert_eq!(far.len() % 2, 0);
        assert_eq!(far[0], "level 0: 0 up 0");
    }

    #[test]
    fn grids_are_crossed_the_shorter_way() {
        assert_eq!(route("torus-2d", 0, 1), ["level 0: 0 to 1"]);
        assert_eq!(route("torus-2d", 0, 7), ["level 0: 0 to 7"]);
        assert_eq!(route("torus-2d", 0, 18).len(), 4);
        assert_eq!(route("torus-3d", 0, 7 * 64 + 7 * 8 + 7).len(), 3);
    }

    #[test]
    fn boards_are_joined_by_lines() {
        let topology = Topology::preset("hamming-mesh").unwrap().unwrap();
        let size: usize = topology.level[0].members.iter().product();
        assert_eq!(topology.route(0, 1).len(), 1);
        let lines = |to: usize| topology.route(0, to).iter().filter(|l| l.level == 1).count();
        assert_eq!((lines(size - 1), lines(size), lines(topology.devices() - 1)), (0, 2, 4));
        // Each link begins where the previous one ends.
        let (_, text) = PRESETS.iter().find(|(name, _)| *name == "hamming-mesh").unwrap();
        let wide = Topology::parse(&text.replace("[2, 2]", "[4, 4]")).unwrap();
        let across: Vec<String> = wide.route(1, 18).iter().map(Link::to_string).collect();
        let expected = ["level 0: 1 to 0", "level 1: 0 into line 1", "level 1: 19 out of line 1", "level 0: 19 to 18"];
        assert_eq!(across, expected);
    }

    #[test]
    fn links_are_distinct_and_there_for_every_pair() {
        for name in ["one-host", "dragonfly", "torus-2d"] {
            let topology = Topology::preset(name).unwrap().unwrap();
            let n = topology.devices().min(72);
            for (from, to) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
                let links = topology.route(from, to);
                assert_eq!(links.is_empty(), from == to, "{name} {from} {to}");
                assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len());
            }
        }
    }
}

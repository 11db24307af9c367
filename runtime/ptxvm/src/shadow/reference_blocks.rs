//! random programs of several blocks  =>  the same racy pages as a comparison of all pairs of accesses finds
#![cfg(test)]

use std::collections::{BTreeSet, HashMap};

use super::reference::Random;
use super::*;

const N_BLOCKS: usize = 4;
const BASE: u64 = 0x10000;

struct Past {
    block: usize,
    /// The block's epoch at the time of the access.
    time: u32,
    /// Epochs that the block had seen at that time.
    seen: [u32; N_BLOCKS],
    kind: Kind,
    at: u64,
    bytes: u64,
}

fn is_atomic(kind: Kind) -> bool {
    matches!(kind, Kind::Atomic | Kind::AtomicRead | Kind::AtomicWrite)
}

fn is_write(kind: Kind) -> bool {
    matches!(kind, Kind::Atomic | Kind::Write | Kind::AtomicWrite)
}

fn races(a: &Past, b: &Past) -> bool {
    let overlap = a.at < b.at + b.bytes && b.at < a.at + a.bytes;
    let conflict = (is_write(a.kind) || is_write(b.kind)) && !(is_atomic(a.kind) && is_atomic(b.kind));
    let ordered = b.seen[a.block] >= a.time || a.seen[b.block] >= b.time;
    a.block != b.block && overlap && conflict && !ordered
}

#[derive(Clone, Copy, Default)]
struct State {
    seen: [u32; N_BLOCKS],
    pending: [u32; N_BLOCKS],
    fenced: Option<[u32; N_BLOCKS]>,
    time: u32,
}

fn join(mine: &mut [u32; N_BLOCKS], theirs: &[u32; N_BLOCKS]) {
    mine.iter_mut().zip(theirs).for_each(|(m, t)| *m = (*m).max(*t));
}

impl State {
    fn release(&mut self, block: usize) -> [u32; N_BLOCKS] {
        let mut visible = self.seen;
        visible[block] = self.time;
        self.time += 1;
        visible
    }
}

fn play(seed: u64) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let mut random = Random::new(seed);
    let mut memory = Global::new();
    memory.alloc(BASE, 4096);
    memory.host_write(BASE, 4096);
    let launch = memory.launch(N_BLOCKS as u64);
    let mut blocks: Vec<Option<Block>> = (0..N_BLOCKS).map(|id| Some(Block::new(&launch, id as u64, 32, 0))).collect();
    let mut states = [State { time: 1, ..State::default() }; N_BLOCKS];
    let mut places: HashMap<u64, [u32; N_BLOCKS]> = HashMap::new();
    let mut history = Vec::new();
    let (sync, spread) = (random.below(3) * 35, 4 + random.below(40));
    for _ in 0..30 {
        let id = random.below(N_BLOCKS as u64) as usize;
        if random.below(100) < 5
            && let Some(block) = blocks[id].take()
        {
            block.finish();
        }
        let (Some(block), state) = (&mut blocks[id], &mut states[id]) else { continue };
        if random.below(100) < sync {
            let address = BASE + 2048 + 4 * random.below(2);
            let place = Place::Global(address);
            let strong = random.below(2) == 0;
            match random.below(3) {
                0 => {
                    block.fence(0, 1, Scope::Device);
                    let pending = std::mem::take(&mut state.pending);
                    join(&mut state.seen, &pending);
                    state.fenced = Some(state.release(id));
                }
                1 => {
                    block.publish(0, 0, place, strong, true, Scope::Device);
                    let visible = if strong { Some(state.release(id)) } else { state.fenced };
                    let known = places.entry(address).or_default();
                    visible.iter().for_each(|visible| join(known, visible));
                }
                _ => {
                    block.observe(0, 0, place, strong, Scope::Device);
                    if let Some(known) = places.get(&address) {
                        join(if strong { &mut state.seen } else { &mut state.pending }, known);
                    }
                }
            }
            continue;
        }
        let kinds = [Kind::Read, Kind::Read, Kind::Write, Kind::Atomic, Kind::AtomicRead, Kind::AtomicWrite];
        let (kind, bytes) = (kinds[random.below(6) as usize], 1 << random.below(4));
        let at = BASE + random.below(8) * 256 + random.below(spread) * bytes;
        let access = Access { warp: 0, mask: 1, bytes: bytes as u32, kind, collective: false, line: 1 };
        block.global(&access, &[at; 32], &mut Vec::new());
        history.push(Past { block: id, time: state.time, seen: state.seen, kind, at, bytes });
    }
    blocks.into_iter().flatten().for_each(Block::finish);
    let ours = launch.finish().crossings.iter().map(|crossing| crossing.address / 256).collect();
    let pairs = history.iter().flat_map(|a| history.iter().map(move |b| (a, b)));
    let theirs = pairs.filter(|(a, b)| races(a, b)).map(|(a, _)| a.at / 256).collect();
    (ours, theirs)
}

#[test]
fn the_racy_pages_of_random_blocks_are_found_and_no_others() {
    let mut n_racy = 0;
    for seed in 0..5_000 {
        let (ours, theirs) = play(seed);
        assert_eq!(ours, theirs, "seed {seed}");
        n_racy += usize::from(!ours.is_empty());
    }
    assert!((1000..4900).contains(&n_racy), "{n_racy}");
}

//! kernels in order, candidate layouts of the containers between them  =>  the layouts with the least total cost

use super::Choice;
use super::pace::Pricer;
use crate::steps::kernel;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Layout, Program};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of states kept after each kernel; the cheapest are kept. A state holds the layouts of all containers
/// that later kernels read.
const STATES_MAX: usize = 64;
/// Maximum number of layout combinations considered for one kernel.
const WAYS_MAX: usize = 64;

/// Result of the search.
pub struct Found {
    /// The chosen layout of each container in `choices`, in the same order.
    pub layouts: Vec<(Id, Layout)>,
    /// Total cost of all kernels, in ps.
    pub cost: u64,
    /// Total cost if each kernel had the layouts that are best for it alone, in ps.
    pub best_alone: u64,
    /// Total cost if all containers were row-major, in ps.
    pub plain: u64,
}

/// The layouts of some containers, as indices into their candidates; all other containers are row-major.
type State = Vec<(Id, usize)>;

/// The least cost at which a state is reached, and the index in `trail` of the last choice that leads to it. Each entry
/// of `trail` has the index of the choice before it.
struct Reached {
    cost: u64,
    way: Option<usize>,
}

pub fn shortest(program: &Program, choices: &[Choice], pricer: &Pricer) -> Found {
    let of: HashMap<Id, &Choice> = choices.iter().map(|c| (c.id, c)).collect();
    let last_reader = last_readers(program);
    let mut trail: Vec<(Option<usize>, State)> = vec![];
    let mut states = BTreeMap::from([(State::new(), Reached { cost: 0, way: None })]);
    let (mut best_alone, mut plain) = (0, 0);
    let producers = program.producers();
    for (at, step) in program.steps.iter().enumerate() {
        if kernel(step).is_none() {
            continue;
        }
        let has_choice = |id: &&Id| of.contains_key(id);
        let mut own: Vec<Id> = step.args.iter().chain(&step.results).filter(has_choice).copied().collect();
        own.sort();
        own.dedup();
        // The layouts of constants that only this kernel reads are chosen here, too.
        let is_fresh =
            |id: &Id| producers[*id] == Some(at) || producers[*id].is_some_and(|p| kernel(&program.steps[p]).is_none());
        let (fresh, given): (Vec<Id>, Vec<Id>) = own.iter().partition(|id| is_fresh(id));
        let ways = assignments(few(&fresh, &of), &of);
        let mut prices: BTreeMap<State, u64> = BTreeMap::new();
        let mut price = |own: State| match prices.get(&own) {
            Some(known) => *known,
            None => {
                let cost = pricer.cost(at, &|id| layout(&of, &own, id));
                prices.insert(own, cost);
                cost
            }
        };
        plain += price(State::new());
        let mut next: BTreeMap<State, Reached> = BTreeMap::new();
        for (state, reached) in &states {
            let before: State = state.iter().filter(|(id, _)| given.contains(id)).copied().collect();
            for fresh in &ways {
                let mut own: State = before.iter().chain(fresh).copied().filter(|(_, choice)| *choice > 0).collect();
                own.sort();
                let total = reached.cost.saturating_add(price(own));
                let mut after: State = state.iter().chain(fresh).copied().collect();
                after.retain(|(id, _)| last_reader.get(id).is_some_and(|last| *last > at));
                after.sort();
                if next.get(&after).is_some_and(|r| r.cost <= total) {
                    continue;
                }
                let way = if fresh.is_empty() {
                    reached.way
                } else {
                    trail.push((reached.way, fresh.clone()));
                    Some(trail.len() - 1)
                };
                next.insert(after, Reached { cost: total, way });
            }
        }
        if few(&own, &of).len() == own.len() {
            for own in assignments(&own, &of) {
                price(own.into_iter().filter(|(_, choice)| *choice > 0).collect());
            }
        }
        best_alone += prices.values().min().copied().unwrap_or(0);
        states = cheapest(next);
    }
    let (cost, mut way) = states.into_values().map(|r| (r.cost, r.way)).min_by_key(|r| r.0).unwrap_or((0, None));
    let mut chosen: HashMap<Id, usize> = HashMap::new();
    while let Some(at) = way {
        chosen.extend(trail[at].1.iter().copied());
        way = trail[at].0;
    }
    let layouts = choices.iter().map(|c| (c.id, c.layouts[chosen.get(&c.id).copied().unwrap_or(0)].clone())).collect();
    Found { layouts, cost, best_alone, plain }
}

fn cheapest(states: BTreeMap<State, Reached>) -> BTreeMap<State, Reached> {
    if states.len() <= STATES_MAX {
        return states;
    }
    let mut all: Vec<(State, Reached)> = states.into_iter().collect();
    all.sort_by_key(|(_, r)| r.cost);
    all.truncate(STATES_MAX);
    all.into_iter().collect()
}

/// Returns the longest prefix of the containers whose layouts have at most `WAYS_MAX` combinations; the other
/// containers stay row-major.
fn few<'i>(ids: &'i [Id], of: &HashMap<Id, &Choice>) -> &'i [Id] {
    let mut ways = 1;
    let fits = |id: &&Id| {
        ways *= of.get(id).map_or(1, |c| c.layouts.len());
        ways <= WAYS_MAX
    };
    &ids[..ids.iter().take_while(fits).count()]
}

/// Returns the last step that reads each container.
fn last_readers(program: &Program) -> HashMap<Id, usize> {
    let mut last = HashMap::new();
    for (at, step) in program.steps.iter().enumerate() {
        last.extend(step.args.iter().map(|id| (*id, at)));
    }
    last
}

/// Returns every combination of layouts of these containers.
pub fn assignments(ids: &[Id], of: &HashMap<Id, &Choice>) -> Vec<State> {
    let mut all = vec![State::new()];
    for id in ids {
        let n = of.get(id).map_or(1, |c| c.layouts.len());
        all = all.into_iter().flat_map(|s| (0..n).map(move |c| [s.clone(), vec![(*id, c)]].concat())).collect();
    }
    all
}

pub fn layout<'c>(of: &HashMap<Id, &'c Choice>, state: &State, id: Id) -> Option<&'c Layout> {
    let (_, choice) = state.iter().find(|(own, _)| *own == id)?;
    Some(&of.get(&id)?.layouts[*choice])
}

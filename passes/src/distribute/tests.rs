//! random programs on random switches: the search agrees with exhaustive search, and plans fit the memory

use super::search::Search;
use super::*;
use crate::random::Random;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Node, Op, TensorType, Value};

/// Builds a random switch for this many ranks.
fn topology(random: &mut Random, ranks: usize) -> Topology {
    let latency = [0.1, 1.0, 20.0][random.below(3)];
    let rate = [0.5, 8.0, 100.0][random.below(3)];
    let figure = |value: f64| format!("{{ value = {value:?}, source = \"test\" }}");
    let text = format!(
        "name = \"t\"\nabout = \"t\"\noverhead_us = {}\ncombine_gb_s = {}\n[sources]\ntest = \"of the test\"\n\
         [[level]]\nkind = \"switch\"\nmembers = [{ranks}]\nlatency_us = {}\ngb_s = {}\n",
        figure(0.1),
        figure(8.0),
        figure(latency),
        figure(rate)
    );
    Topology::parse(&text).unwrap()
}

fn matrix(dims: [i64; 2]) -> TensorType {
    TensorType::new(DType::F32, dims.map(Dim::constant).to_vec())
}

fn add(graph: &mut Graph, op: Op, args: Vec<Value>, ty: TensorType) -> Value {
    let origins = vec![format!("n{}", graph.nodes.len())];
    graph.push(Node { op, args, ty, origins })
}

fn parameter(graph: &mut Graph, dims: [i64; 2]) -> Value {
    let name = format!("w{}", graph.nodes.len());
    add(graph, Op::Param { name, parts: vec![], bounded: true }, vec![], matrix(dims))
}

/// Builds a random program of contractions with parameters, elementwise functions and reductions of earlier matrices.
fn program(random: &mut Random) -> Graph {
    let mut graph = Graph { name: "main".into(), ..Graph::default() };
    let first = [[64, 256], [512, 128]][random.below(2)];
    let input = add(&mut graph, Op::Input { name: "x".into(), parts: vec![] }, vec![], matrix(first));
    let mut made = vec![input];
    for _ in 0..4 {
        let arg = made[made.len() - 1 - random.below(made.len().min(2))];
        let [rows, columns] = [0, 1].map(|dim| graph.ty(arg).dims[dim].as_const().unwrap());
        let alike: Vec<Value> = made.iter().copied().filter(|v| graph.ty(*v).dims == graph.ty(arg).dims).collect();
        let next = match random.below(4) {
            0 => add(&mut graph, Op::Map(ScalarFn::Abs), vec![arg], matrix([rows, columns])),
            1 => {
                let other = random.pick(&alike);
                add(&mut graph, Op::Map(ScalarFn::Add), vec![arg, other], matrix([rows, columns]))
            }
            2 => {
                let f = Op::Reduce { f: ReduceFn::Add, axes: vec![1] };
                let sums = add(&mut graph, f, vec![arg], TensorType::new(DType::F32, vec![Dim::constant(rows)]));
                add(&mut graph, Op::Broadcast { dims: vec![0] }, vec![sums], matrix([rows, columns]))
            }
            _ => {
                let to = [columns, 512][random.below(2)];
                let weights = parameter(&mut graph, [columns, to]);
                let spec = ContractSpec::parse("mk,kn->mn").unwrap();
                add(&mut graph, Op::Contract(spec), vec![arg, weights], matrix([rows, to]))
            }
        };
        made.push(next);
    }
    graph.outputs = vec![("y".into(), made[made.len() - 1])];
    graph
}

fn rates() -> Rates {
    let (bytes_per_s, ops) = (10e9, 100e9);
    Rates {
        bytes_per_s,
        cache: None,
        vector_ops_per_s: ops,
        contract_ops_per_s: ops,
        contract_bf16_ops_per_s: ops,
        launch_s: 1e-6,
    }
}

fn spaces<'g>(graph: &'g Graph, sizes: &'g Sizes, ranks: usize) -> Vec<Space<'g>> {
    let ranks = Ranks { axis: 0, size: ranks as i64, coordinate: Dim::constant(0) };
    vec![Space::new(graph, ranks, sizes).unwrap()]
}

/// Returns all choices of strategies along the one axis.
fn all_choices(space: &Space) -> Vec<Choice> {
    let mut all: Vec<Vec<usize>> = vec![vec![]];
    for ways in &space.ways {
        let numbers = 0..ways.len().max(1);
        all = all.iter().flat_map(|c| numbers.clone().map(|w| [c.as_slice(), &[w]].concat())).collect();
    }
    all.into_iter().map(|choice| vec![choice]).collect()
}

#[test]
fn what_is_chosen_is_what_a_search_through_all_ways_finds() {
    let mut random = Random::new(27);
    let mut split = 0;
    for _ in 0..300 {
        let ranks = [2, 4, 8][random.below(3)];
        let (graph, topology) = (program(&mut random), topology(&mut random, ranks));
        let sizes = Sizes::new();
        let spaces = spaces(&graph, &sizes, ranks);
        let times = Times::new(&topology);
        let machine = Machine::new(rates(), &[ranks as i64], &times);
        let search = Search { machine: &machine, spaces: &spaces, us_per_byte: 0.0 };
        let costs = all_choices(&spaces[0]).into_iter().map(|choice| search.cost(0, &choice).unwrap());
        let least = costs.fold(f64::INFINITY, f64::min);
        let mut choice = search.replicated();
        let found = search.improve(0, &mut choice).unwrap();
        assert!((found - least).abs() <= 1e-9 * least, "{found} is not {least}");
        assert!((search.cost(0, &choice).unwrap() - least).abs() <= 1e-9 * least);
        split += usize::from(choice[0].iter().any(|way| *way != 0));
    }
    assert!((50..300).contains(&split), "{split} of 300 were worth splitting");
}

#[test]
fn a_plan_is_within_the_memory_or_none_is_given() {
    let mut random = Random::new(3);
    let (mut within, mut without) = (0, 0);
    for _ in 0..40 {
        let (graph, topology) = (program(&mut random), topology(&mut random, 4));
        let sizes = Sizes::new();
        let task = |memory| Task {
            graph: &graph,
            sizes: &sizes,
            topology: &topology,
            rates: rates(),
            ranks: 4,
            memory,
            times: Times::new(&topology),
        };
        let free = plan(&task(None)).unwrap();
        // Only pipelines may have no estimate: micro-batches of a fixed batch may have too few rows.
        assert!(free[0].fits && free.iter().all(|c| c.estimate.is_ok() || c.stages.is_some()), "{free:?}");
        let times: Vec<f64> = free.iter().filter_map(|c| Some(c.estimate.as_ref().ok()?.time_us())).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "the fastest is first");
        let limit = free[0].estimate.as_ref().unwrap().bytes() * 0.7;
        let narrow = plan(&task(Some(limit))).unwrap();
        if narrow[0].fits {
            assert!(narrow[0].estimate.as_ref().unwrap().bytes() <= limit);
            within += 1;
        } else {
            assert!(narrow.iter().all(|c| !c.fits));
            without += 1;
        }
    }
    assert!(within > 0 && without > 0, "{within} within, {without} not");
}

/// Returns the best plan for two hosts of two ranks each, and a chain of eight contractions with 4 MB of weights each.
fn best_over_hosts(between_hosts_gb_s: f64) -> Candidate {
    let figure = |value: f64| format!("{{ value = {value:?}, source = \"test\" }}");
    let level = |gb_s: f64| {
        let (latency, rate) = (figure(1.0), figure(gb_s));
        format!("[[level]]\nkind = \"switch\"\nmembers = [2]\nlatency_us = {latency}\ngb_s = {rate}\n")
    };
    let text = format!(
        "name = \"t\"\nabout = \"t\"\noverhead_us = {}\ncombine_gb_s = {}\n[sources]\ntest = \"of the test\"\n{}{}",
        figure(0.1),
        figure(100.0),
        level(100.0),
        level(between_hosts_gb_s)
    );
    let topology = Topology::parse(&text).unwrap();
    let mut graph = Graph { name: "main".into(), ..Graph::default() };
    let mut x = add(&mut graph, Op::Input { name: "x".into(), parts: vec![] }, vec![], matrix([256, 1024]));
    for _ in 0..8 {
        let w = parameter(&mut graph, [1024, 1024]);
        let product = Op::Contract(ContractSpec::parse("nk,kj->nj").unwrap());
        let y = add(&mut graph, product, vec![x, w], matrix([256, 1024]));
        x = add(&mut graph, Op::Map(ScalarFn::Abs), vec![y], matrix([256, 1024]));
    }
    graph.outputs = vec![("y".into(), x)];
    let sizes = Sizes::new();
    // The memory of a rank in bytes: a quarter of the weights, and some space for activations.
    let memory = Some(14e6);
    let task = Task {
        graph: &graph,
        sizes: &sizes,
        topology: &topology,
        rates: rates(),
        ranks: 4,
        memory,
        times: Times::new(&topology),
    };
    let all = plan(&task).unwrap();
    assert!(all[0].fits, "{all:?}");
    all[0].clone()
}

#[test]
fn cubes_are_cut_along_all_three_extents() {
    let mut random = Random::new(8);
    let topology = topology(&mut random, 8);
    let mut graph = Graph { name: "main".into(), ..Graph::default() };
    let mut x = add(&mut graph, Op::Input { name: "x".into(), parts: vec![] }, vec![], matrix([4096, 4096]));
    for _ in 0..2 {
        let w = parameter(&mut graph, [4096, 4096]);
        let product = Op::Contract(ContractSpec::parse("nk,kj->nj").unwrap());
        x = add(&mut graph, product, vec![x, w], matrix([4096, 4096]));
    }
    graph.outputs = vec![("y".into(), x)];
    let (sizes, times) = (Sizes::new(), Times::new(&topology));
    let task =
        Task { graph: &graph, sizes: &sizes, topology: &topology, rates: rates(), ranks: 8, memory: None, times };
    let all = plan(&task).unwrap();
    let found = all.iter().find(|c| c.found_by == FoundBy::SearchFromGrid).unwrap();
    assert_eq!(found.mesh, [2, 2, 2]);
    // Each rank computes an eighth of the products.
    let whole = 2.0 * 2.0 * 4096f64.powi(3) / rates().contract_ops_per_s * 1e6;
    let estimate = found.estimate.as_ref().unwrap();
    assert!(estimate.compute_us < whole / 8.0 * 1.3, "{} of {whole}", estimate.compute_us);
    assert!(found.places.iter().any(|place| place.place.mesh == 2), "{:?}", found.places);
}

#[test]
fn slow_links_carry_what_goes_from_stage_to_stage() {
    let slow = best_over_hosts(0.05);
    assert!(slow.stages.is_some(), "{slow:?}");
    let fast = best_over_hosts(100.0);
    assert!(fast.stages.is_none(), "{fast:?}");
}

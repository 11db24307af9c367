//! TreeEnsemble(x)  =>  all trees level by level: node = gather(next, node), once per level of the deepest tree
//!
//! The nodes of all trees are rows of constant tables, in which leaves point to themselves. Because gathering takes
//! most of the time, the f32 threshold, the feature and the children of a node are packed into one i64 if feature and
//! children fit into 31 bits (`Packed`). The weights of the leaves are another table, which is gathered at the end and
//! reduced over the trees.

use super::builder::Builder;
use super::coordinates::{flat, gather_flat, iota};
use super::ml_features::{floats, integers, rows};
use super::ml_models::{best_label, integer_labels, transformed};
use super::node::Node;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};
use std::collections::BTreeMap;

type Outputs = Result<Vec<Value>>;

/// Maximum number of levels; the program has separate operations for each level.
const LEVELS_MAX: usize = 128;

/// Maximum number of elements in the table of weights.
const WEIGHTS_MAX: usize = 1 << 26;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    LessEqual,
    Less,
    GreaterEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether the feature is in the node's list of members.
    Member,
}

/// Tables with one row per node of all trees.
#[derive(Default)]
struct Forest {
    feature: Vec<i64>,
    value: Vec<f64>,
    test: Vec<Test>,
    /// Whether NaN takes the branch for true.
    nan_is_true: Vec<bool>,
    on_true: Vec<i64>,
    on_false: Vec<i64>,
    /// Pairs (node, member) of `Test::Member`.
    members: Vec<(i64, f64)>,
    roots: Vec<i64>,
    /// (node, target, weight)
    leaves: Vec<(i64, i64, f64)>,
}

impl Forest {
    fn len(&self) -> usize {
        self.feature.len()
    }

    fn leaf(&mut self) -> i64 {
        let at = self.len() as i64;
        self.feature.push(0);
        self.value.push(0.0);
        self.test.push(Test::LessEqual);
        self.nan_is_true.push(false);
        self.on_true.push(at);
        self.on_false.push(at);
        at
    }

    /// Returns the number of levels below the roots. The error says that a root or child does not exist, or that there
    /// are more than `LEVELS_MAX` levels, which is so for a cycle.
    fn levels(&self) -> std::result::Result<usize, String> {
        let n = self.len() as i64;
        let next = |at: i64| [self.on_true[at as usize], self.on_false[at as usize]];
        let mut level: Vec<i64> = self.roots.clone();
        for depth in 0..=LEVELS_MAX {
            if let Some(odd) = level.iter().find(|at| !(0..n).contains(at)) {
                return Err(format!("there is no node {odd}"));
            }
            level = level.iter().filter(|&&at| next(at) != [at; 2]).flat_map(|&at| next(at)).collect();
            level.sort();
            level.dedup();
            if level.is_empty() {
                return Ok(depth);
            }
        }
        Err(format!("they have more than {LEVELS_MAX} levels, or no end"))
    }
}

/// A forest whose nodes are numbered so that the child for true is followed by the child for false.
struct Packed {
    /// For each node, from the highest to the lowest bits: the child for true, the feature, a bit that is set if the
    /// node has children, and in 32 bits the threshold as f32. A leaf is its own child.
    nodes: Vec<i64>,
    /// Number of bits of a feature.
    feature_bits: u32,
}

impl Packed {
    /// Returns the forest with its nodes renumbered, and its packed nodes; `None` if a node has two parents, or if
    /// child, feature and bit of a node together need more than 31 bits. Nodes that belong to no tree are left out.
    fn new(forest: &Forest) -> Option<(Forest, Packed)> {
        let mut place: Vec<Option<usize>> = vec![None; forest.len()];
        let mut order: Vec<usize> = vec![];
        let mut put = |node: i64, order: &mut Vec<usize>| {
            let node = usize::try_from(node).ok()?;
            let free = place.get_mut(node)?.replace(order.len()).is_none();
            order.push(node);
            free.then_some(())
        };
        for root in &forest.roots {
            put(*root, &mut order)?;
        }
        let mut at = 0;
        let mut children = vec![];
        while let Some(&node) = order.get(at) {
            let next = [forest.on_true[node], forest.on_false[node]];
            let inner = next != [node as i64; 2];
            children.push((if inner { order.len() } else { at }, inner));
            for child in next.into_iter().filter(|_| inner) {
                put(child, &mut order)?;
            }
            at += 1;
        }
        let feature_max = order.iter().map(|node| forest.feature[*node]).max()?;
        let feature_bits = 64 - u64::try_from(feature_max).ok()?.leading_zeros();
        let packed = |(node, (child, inner)): (&usize, &(usize, bool))| {
            let above = i64::try_from(*child).ok()?.checked_mul(1i64.checked_shl(feature_bits)?)?;
            let high = above.checked_add(forest.feature[*node])?.checked_mul(2)? + i64::from(*inner);
            let low = i64::from((forest.value[*node] as f32).to_bits());
            Some(i64::from(i32::try_from(high).ok()?) << 32 | low)
        };
        let nodes = order.iter().zip(&children).map(packed).collect::<Option<Vec<i64>>>()?;
        let own = |node: &usize| place[*node].map_or(0, |at| at as i64);
        let mut renumbered = Forest::default();
        for node in &order {
            renumbered.feature.push(forest.feature[*node]);
            renumbered.value.push(forest.value[*node]);
            renumbered.test.push(forest.test[*node]);
            renumbered.nan_is_true.push(forest.nan_is_true[*node]);
            renumbered.on_true.push(own(&(forest.on_true[*node] as usize)));
            renumbered.on_false.push(own(&(forest.on_false[*node] as usize)));
        }
        let moved = |node: i64| place.get(usize::try_from(node).ok()?).copied().flatten().map(|at| at as i64);
        renumbered.members = forest.members.iter().filter_map(|(node, x)| Some((moved(*node)?, *x))).collect();
        renumbered.roots = forest.roots.iter().filter_map(|node| moved(*node)).collect();
        renumbered.leaves = forest.leaves.iter().filter_map(|(node, t, w)| Some((moved(*node)?, *t, *w))).collect();
        Some((renumbered, Packed { nodes, feature_bits }))
    }
}

/// How the weights of the leaves that a row reaches are combined into one score per target.
struct Votes {
    n_targets: usize,
    aggregate: String,
    base: Vec<f64>,
}

fn scores(b: &mut Builder, node: &Node, x: Value, forest: &Forest, votes: &Votes) -> Result<Value> {
    let refuse = |reason: String| node.error("E0106", format!("its nodes are no trees: {reason}"));
    let levels = forest.levels().map_err(refuse)?;
    let n_trees = forest.roots.len();
    let n_features = b.dims(x)[1].clone();
    let read_max = forest.feature.iter().copied().max().unwrap_or(0);
    if forest.feature.iter().any(|f| *f < 0) {
        return Err(refuse("a feature is negative".into()));
    }
    b.require_at_most(&Dim::constant(read_max.saturating_add(1)), &n_features)?;
    let known = |target: i64| usize::try_from(target).is_ok_and(|t| t < votes.n_targets);
    if forest.leaves.iter().any(|(_, target, _)| !known(*target)) {
        return Err(node.error("E0106", format!("a leaf gives a target that is not among {}", votes.n_targets)));
    }
    let found = Packed::new(forest);
    let (forest, packed) = found.as_ref().map_or((forest, None), |(forest, packed)| (forest, Some(packed)));
    let places = [b.dims(x)[0].clone(), Dim::constant(n_trees as i64)];
    let roots = integers(b, &forest.roots)?;
    let mut at = b.broadcast(roots, &places)?;
    for _ in 0..levels {
        at = step(b, x, (forest, packed), at)?;
    }
    let table = weights(b, node, b.dtype(x), forest, votes)?;
    // [n, trees, targets]
    let all = b.add(Op::Gather { axis: 0 }, &[table, at])?;
    let f = match votes.aggregate.as_str() {
        "SUM" | "AVERAGE" => ReduceFn::Add,
        "MIN" => ReduceFn::Min,
        "MAX" => ReduceFn::Max,
        other => return Err(node.error("E0106", format!("the aggregation `{other}` is not known"))),
    };
    let mut y = b.reduce(f, all, &[1], false)?;
    if votes.aggregate == "AVERAGE" {
        y = b.map_const(ScalarFn::Div, y, n_trees as f64)?;
    }
    match votes.base.is_empty() {
        true => Ok(y),
        false => {
            let base = floats(b, b.dtype(y), &votes.base)?;
            b.map2(ScalarFn::Add, y, base)
        }
    }
}

/// Returns the weights of the leaves as [nodes, targets]. A weight that a leaf lacks is 0 for SUM and AVERAGE, the
/// largest finite number for MIN and the lowest one for MAX.
fn weights(b: &mut Builder, node: &Node, dtype: DType, forest: &Forest, votes: &Votes) -> Result<Value> {
    let nothing = match (votes.aggregate.as_str(), dtype) {
        ("MIN", DType::F64) => f64::MAX,
        ("MAX", DType::F64) => f64::MIN,
        ("MIN", _) => f64::from(f32::MAX),
        ("MAX", _) => f64::from(f32::MIN),
        _ => 0.0,
    };
    let size = forest.len().checked_mul(votes.n_targets).filter(|n| (1..=WEIGHTS_MAX).contains(n));
    let Some(size) = size else {
        return Err(
            node.error("E0203", format!("{} nodes with {} targets are too many", forest.len(), votes.n_targets))
        );
    };
    let mut table = vec![nothing; size];
    for &(leaf, target, weight) in &forest.leaves {
        let target = usize::try_from(target).ok().filter(|t| *t < votes.n_targets);
        let cell = target.zip(usize::try_from(leaf).ok()).map(|(t, l)| l.saturating_mul(votes.n_targets) + t);
        let cell = cell.and_then(|c| table.get_mut(c));
        let cell = cell.ok_or_else(|| Error::defect("a leaf gives a target that is not known"))?;
        *cell = match votes.aggregate.as_str() {
            "MIN" => cell.min(weight),
            "MAX" => cell.max(weight),
            _ => *cell + weight,
        };
    }
    let table = b.constant(Tensor::from_vec(vec![forest.len(), votes.n_targets], table))?;
    b.convert(table, dtype)
}

/// Returns the next node, for each row and each tree.
fn step(b: &mut Builder, x: Value, (forest, packed): (&Forest, Option<&Packed>), at: Value) -> Result<Value> {
    let dims = b.dims(at);
    let pick = |b: &mut Builder, table: Value| b.add(Op::Gather { axis: 0 }, &[table, at]);
    let of_integers = |b: &mut Builder, values: &[i64]| {
        let table = integers(b, values)?;
        pick(b, table)
    };
    let numbers = packed.map(|packed| unpacked(b, packed, at)).transpose()?;
    let feature = match numbers {
        Some(Unpacked { feature, .. }) => feature,
        None => of_integers(b, &forest.feature)?,
    };
    let row = iota(b, 0, &dims)?;
    let extents = b.dims(x);
    let place = flat(b, &[row, feature], &extents)?;
    let read = gather_flat(b, x, place)?;
    let value = match numbers {
        Some(Unpacked { threshold, .. }) if b.dtype(x) == DType::F32 => threshold,
        _ => {
            let table = floats(b, b.dtype(x), &forest.value)?;
            pick(b, table)?
        }
    };
    let mut kinds = forest.test.clone();
    kinds.sort();
    kinds.dedup();
    let tests: Vec<i64> = forest.test.iter().map(|t| *t as i64).collect();
    let mut holds: Option<Value> = None;
    for kind in kinds {
        let own = compare(b, forest, kind, (read, value), at)?;
        holds = Some(match holds {
            None => own,
            Some(so_far) => {
                let number = of_integers(b, &tests)?;
                let this = b.map_const(ScalarFn::Eq, number, f64::from(kind as u8))?;
                b.select(this, own, so_far)?
            }
        });
    }
    let Some(mut holds) = holds else { return Ok(at) };
    if forest.nan_is_true.contains(&true) {
        let known: Vec<i64> = forest.nan_is_true.iter().map(|&t| i64::from(t)).collect();
        let known = of_integers(b, &known)?;
        let (known, nan) = (b.convert(known, DType::Bool)?, b.map1(ScalarFn::IsNan, read)?);
        let follows = b.map2(ScalarFn::And, known, nan)?;
        holds = b.map2(ScalarFn::Or, holds, follows)?;
    }
    let (on_true, on_false) = match numbers {
        Some(Unpacked { on_true, on_false, .. }) => (on_true, on_false),
        None => (of_integers(b, &forest.on_true)?, of_integers(b, &forest.on_false)?),
    };
    let next = b.select(holds, on_true, on_false)?;
    b.convert(next, DType::I64)
}

/// The parts of the packed numbers of nodes; the children are i32.
struct Unpacked {
    threshold: Value,
    feature: Value,
    on_true: Value,
    on_false: Value,
}

fn unpacked(b: &mut Builder, packed: &Packed, at: Value) -> Result<Unpacked> {
    let table = integers(b, &packed.nodes)?;
    let both = b.add(Op::Gather { axis: 0 }, &[table, at])?;
    let threshold = b.convert(both, DType::I32)?;
    let threshold = b.reinterpret(threshold, DType::F32)?;
    let number = b.map_const(ScalarFn::Shr, both, 32.0)?;
    let number = b.convert(number, DType::I32)?;
    let bits = f64::from(packed.feature_bits);
    let feature = b.map_const(ScalarFn::Shr, number, 1.0)?;
    let feature = b.map_const(ScalarFn::BitAnd, feature, bits.exp2() - 1.0)?;
    let feature = b.convert(feature, DType::I64)?;
    let on_true = b.map_const(ScalarFn::Shr, number, bits + 1.0)?;
    let inner = b.map_const(ScalarFn::BitAnd, number, 1.0)?;
    let on_false = b.map2(ScalarFn::Add, on_true, inner)?;
    Ok(Unpacked { threshold, feature, on_true, on_false })
}

fn compare(b: &mut Builder, forest: &Forest, kind: Test, pair: (Value, Value), at: Value) -> Result<Value> {
    let (read, value) = pair;
    match kind {
        Test::LessEqual => b.map2(ScalarFn::Le, read, value),
        Test::Less => b.map2(ScalarFn::Lt, read, value),
        Test::GreaterEqual => b.map2(ScalarFn::Le, value, read),
        Test::Greater => b.map2(ScalarFn::Lt, value, read),
        Test::Equal => b.map2(ScalarFn::Eq, read, value),
        Test::NotEqual => {
            let equal = b.map2(ScalarFn::Eq, read, value)?;
            b.map1(ScalarFn::Not, equal)
        }
        Test::Member => {
            // All members are compared, as [n, trees, members]; a member counts only if it belongs to the node.
            let (owners, members): (Vec<i64>, Vec<f64>) = forest.members.iter().copied().unzip();
            let mut all = b.dims(at);
            all.push(Dim::constant(members.len() as i64));
            let (owners, members) = (integers(b, &owners)?, floats(b, b.dtype(read), &members)?);
            let (owners, members) = (b.broadcast(owners, &all)?, b.broadcast(members, &all)?);
            let (at, read) = (b.broadcast_at(at, vec![0, 1], &all)?, b.broadcast_at(read, vec![0, 1], &all)?);
            let (own, same) = (b.map2(ScalarFn::Eq, at, owners)?, b.map2(ScalarFn::Eq, read, members)?);
            let found = b.map2(ScalarFn::And, own, same)?;
            let found = b.convert(found, DType::I64)?;
            let found = b.reduce(ReduceFn::Max, found, &[2], false)?;
            b.map_const(ScalarFn::Eq, found, 1.0)
        }
    }
}

static TRANSFORMS: [&str; 5] = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
static AGGREGATES: [&str; 4] = ["AVERAGE", "SUM", "MIN", "MAX"];
static TESTS: [Test; 7] =
    [Test::LessEqual, Test::Less, Test::GreaterEqual, Test::Greater, Test::Equal, Test::NotEqual, Test::Member];

fn numbers(node: &Node, name: &str) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = node.tensor(name)? else { return Ok(None) };
    let read = |i| tensor.get_f64(i).or_else(|| tensor.get_i64(i).map(|v| v as f64));
    let all: Option<Vec<f64>> = (0..tensor.len()).map(read).collect();
    all.map(Some).ok_or_else(|| node.error("E0106", format!("`{name}` holds no numbers")))
}

fn chosen(node: &Node, names: &[&'static str], attribute: &str, default: i64) -> Result<&'static str> {
    let code = node.int_or(attribute, default)?;
    let name = usize::try_from(code).ok().and_then(|c| names.get(c));
    name.copied().ok_or_else(|| node.error("E0106", format!("`{attribute}` = {code} is not known")))
}

/// Checks that an attribute's list has `n` entries.
fn same_length<T>(node: &Node, name: &str, list: Vec<T>, n: usize) -> Result<Vec<T>> {
    match list.len() == n {
        true => Ok(list),
        false => Err(node.error("E0106", format!("`{name}` has {} entries, not {n}", list.len()))),
    }
}

fn ints(node: &Node, name: &str, n: usize) -> Result<Vec<i64>> {
    same_length(node, name, node.require(name, node.ints(name)?)?, n)
}

/// TreeEnsemble of ai.onnx.ml 5, whose inner nodes and leaves are in separate lists.
pub fn tree_ensemble(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if !b.dtype(x).is_float() || b.rank(x) != 2 {
        return Err(node.error("E0201", format!("takes rows of floats, not {}", b.ty(x))));
    }
    let n_targets = usize::try_from(node.require("n_targets", node.int("n_targets")?)?).unwrap_or(0);
    let aggregate = chosen(node, &AGGREGATES, "aggregate_function", 1)?.to_string();
    let forest = read_forest(node)?;
    // Features narrower than f32 are compared as f32, which represents them exactly.
    let wide = if b.dtype(x) == DType::F64 { x } else { b.convert(x, DType::F32)? };
    let y = scores(b, node, wide, &forest, &Votes { n_targets, aggregate, base: vec![] })?;
    let y = transformed(b, node, y, chosen(node, &TRANSFORMS, "post_transform", 0)?)?;
    Ok(vec![b.convert(y, b.dtype(x))?])
}

fn read_forest(node: &Node) -> Result<Forest> {
    let feature = node.require("nodes_featureids", node.ints("nodes_featureids")?)?;
    let n = feature.len();
    let list = |name: &str| ints(node, name, n);
    let (on_true, on_false) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (true_leaf, false_leaf) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?);
    let value = node.require("nodes_splits", numbers(node, "nodes_splits")?)?;
    let value = same_length(node, "nodes_splits", value, n)?;
    let modes = node.require("nodes_modes", numbers(node, "nodes_modes")?)?;
    let test = |code: &f64| TESTS.get(*code as usize).copied().filter(|_| *code >= 0.0);
    let test: Option<Vec<Test>> = modes.iter().map(test).collect();
    let test = test.ok_or_else(|| node.error("E0106", "a mode of `nodes_modes` is not known"))?;
    let test = same_length(node, "nodes_modes", test, n)?;
    let nan = node.ints("nodes_missing_value_tracks_true")?.unwrap_or_else(|| vec![0; n]);
    let nan = same_length(node, "nodes_missing_value_tracks_true", nan, n)?;
    let to = |list: &[i64], leaf: &[i64]| -> Vec<i64> {
        let place = |(&at, &is_leaf): (&i64, &i64)| if is_leaf != 0 { at.saturating_add(n as i64) } else { at };
        list.iter().zip(leaf).map(place).collect()
    };
    let mut forest = Forest {
        value,
        nan_is_true: nan.iter().map(|&t| t != 0).collect(),
        on_true: to(&on_true, &true_leaf),
        on_false: to(&on_false, &false_leaf),
        roots: node.require("tree_roots", node.ints("tree_roots")?)?,
        members: members(node, &test)?,
        feature,
        test,
        leaves: vec![],
    };
    let weights = node.require("leaf_weights", numbers(node, "leaf_weights")?)?;
    let targets = ints(node, "leaf_targetids", weights.len())?;
    for (weight, target) in weights.into_iter().zip(targets) {
        let leaf = forest.leaf();
        forest.leaves.push((leaf, target, weight));
    }
    Ok(forest)
}

/// Returns pairs (node, member). The attribute holds the lists of members in the order of their nodes, each terminated
/// by a NaN.
fn members(node: &Node, test: &[Test]) -> Result<Vec<(i64, f64)>> {
    let owners: Vec<usize> = (0..test.len()).filter(|&i| test[i] == Test::Member).collect();
    if owners.is_empty() {
        return Ok(vec![]);
    }
    let values = node.require("membership_values", numbers(node, "membership_values")?)?;
    let lists: Vec<&[f64]> = values.split(|v| v.is_nan()).collect();
    if lists.len() < owners.len() {
        return Err(node.error("E0106", format!("{} lists of members for {} nodes", lists.len(), owners.len())));
    }
    let own = |(&owner, list): (&usize, &&[f64])| list.iter().map(|&m| (owner as i64, m)).collect::<Vec<_>>();
    Ok(owners.iter().zip(&lists).flat_map(own).collect())
}

/// Returns the floats of attribute `name`, or else the elements of the tensor `{name}_as_tensor`.
fn floats_or_tensor(node: &Node, name: &str) -> Result<Option<Vec<f64>>> {
    match node.floats(name)? {
        Some(list) => Ok(Some(list)),
        None => numbers(node, &format!("{name}_as_tensor")),
    }
}

/// Reads the trees of ai.onnx.ml 1 and 3, which identify a node by its tree and a number; `prefix` begins the names of
/// the attributes that list the leaves.
fn read_named_forest(node: &Node, prefix: &str) -> Result<Forest> {
    let tree = node.require("nodes_treeids", node.ints("nodes_treeids")?)?;
    let n = tree.len();
    let list = |name: &str| ints(node, name, n);
    let (own, feature) = (list("nodes_nodeids")?, list("nodes_featureids")?);
    let (on_true, on_false) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let value = node.require("nodes_values", floats_or_tensor(node, "nodes_values")?)?;
    let value = same_length(node, "nodes_values", value, n)?;
    let modes = node.require("nodes_modes", node.strs("nodes_modes")?)?;
    let modes = same_length(node, "nodes_modes", modes, n)?;
    let nan = node.ints("nodes_missing_value_tracks_true")?.filter(|l| !l.is_empty()).unwrap_or_else(|| vec![0; n]);
    let nan = same_length(node, "nodes_missing_value_tracks_true", nan, n)?;
    let names: BTreeMap<(i64, i64), i64> = (0..n).map(|i| ((tree[i], own[i]), i as i64)).collect();
    let find = |tree: i64, own: i64| {
        let missing = || node.error("E0106", format!("there is no node {own} in tree {tree}"));
        names.get(&(tree, own)).copied().ok_or_else(missing)
    };
    let mut forest = Forest { value, nan_is_true: nan.iter().map(|&t| t != 0).collect(), feature, ..Forest::default() };
    for i in 0..n {
        let at = i as i64;
        let (test, next) = match modes[i].as_str() {
            "LEAF" => (Test::LessEqual, [at, at]),
            other => (named_test(node, other)?, [find(tree[i], on_true[i])?, find(tree[i], on_false[i])?]),
        };
        if next == [at; 2] {
            forest.feature[i] = 0;
        }
        forest.test.push(test);
        forest.on_true.push(next[0]);
        forest.on_false.push(next[1]);
    }
    // The first node of each tree is its root.
    let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
    for (i, id) in tree.iter().enumerate() {
        seen.entry(*id).or_insert(i as i64);
    }
    forest.roots = seen.into_values().collect();
    let weights_name = format!("{prefix}_weights");
    let weights = node.require(&weights_name, floats_or_tensor(node, &weights_name)?)?;
    let leaf = |part: &str| ints(node, &format!("{prefix}_{part}"), weights.len());
    let (trees, nodes, ids) = (leaf("treeids")?, leaf("nodeids")?, leaf("ids")?);
    for (i, &weight) in weights.iter().enumerate() {
        forest.leaves.push((find(trees[i], nodes[i])?, ids[i], weight));
    }
    Ok(forest)
}

fn named_test(node: &Node, name: &str) -> Result<Test> {
    Ok(match name {
        "BRANCH_LEQ" => Test::LessEqual,
        "BRANCH_LT" => Test::Less,
        "BRANCH_GTE" => Test::GreaterEqual,
        "BRANCH_GT" => Test::Greater,
        "BRANCH_EQ" => Test::Equal,
        "BRANCH_NEQ" => Test::NotEqual,
        other => return Err(node.error("E0106", format!("the mode `{other}` is not known"))),
    })
}

pub fn tree_ensemble_regressor(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let forest = read_named_forest(node, "target")?;
    let n_targets = usize::try_from(node.require("n_targets", node.int("n_targets")?)?).unwrap_or(0);
    let base = floats_or_tensor(node, "base_values")?.unwrap_or_default();
    let votes = Votes { n_targets, aggregate: node.str_or("aggregate_function", "SUM")?, base };
    let y = scores(b, node, x, &forest, &votes)?;
    let y = transformed(b, node, y, &node.str_or("post_transform", "NONE")?)?;
    Ok(vec![b.convert(y, DType::F32)?])
}

/// TreeEnsembleClassifier. If there are at most two classes and all leaves vote for the same one, whose score is s, the
/// other class gets 1 - s for the transforms NONE and PROBIT, else -s.
pub fn tree_ensemble_classifier(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let forest = read_named_forest(node, "class")?;
    let labels = integer_labels(node, "classlabels_int64s")?;
    let kind = node.str_or("post_transform", "NONE")?;
    let base = floats_or_tensor(node, "base_values")?.unwrap_or_default();
    let voted: Vec<i64> = forest.leaves.iter().map(|(_, class, _)| *class).collect();
    let binary = labels.len() <= 2 && voted.windows(2).all(|w| w[0] == w[1]);
    let n_targets = if binary { voted.first().map_or(1, |c| c.saturating_add(1)) } else { labels.len() as i64 };
    let n_targets = usize::try_from(n_targets).unwrap_or(0).min(labels.len().max(1));
    let votes = Votes { n_targets, aggregate: "SUM".into(), base: if binary { vec![] } else { base.clone() } };
    let mut y = scores(b, node, x, &forest, &votes)?;
    let mut names = labels.clone();
    if binary {
        let last = Dim::constant(n_targets as i64 - 1);
        let mut own = b.slice_axis(y, 1, last, 1, Dim::constant(1))?;
        if let Some(&base) = base.last() {
            own = b.map_const(ScalarFn::Add, own, base)?;
        }
        let one = b.splat(b.dtype(own), 1.0, &[])?;
        let other = match kind.as_str() {
            "NONE" | "PROBIT" => b.map2(ScalarFn::Sub, one, own)?,
            _ => b.map1(ScalarFn::Neg, own)?,
        };
        y = b.add(Op::Concat { axis: 1 }, &[other, own])?;
        if let [only] = labels.as_slice() {
            names = vec![0, *only];
        }
    }
    let y = transformed(b, node, y, &kind)?;
    Ok(vec![best_label(b, y, &names)?, b.convert(y, DType::F32)?])
}

//! "(mul ?x 1) => ?x", or a function of a site: the definition of rules, and their text syntax

use super::expr::{Expr, Site, class, map, scalar, splat};
use super::table::names;
use crate::class::Class;
use egg::Id;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::Op;
use std::collections::{BTreeMap, BTreeSet};

pub type Apply = fn(&Site) -> Vec<Expr>;

#[derive(Clone, Copy)]
pub enum Form {
    /// `pattern => pattern if condition ?x, …`; `<=>` applies in both directions. Patterns consist of scalar functions,
    /// `?names`, and numbers, which match values whose elements all equal the number.
    Text(&'static str),
    /// A sketch of the left side, from which tests generate instances, and a function that returns what the site
    /// equals. In `contract in (…)`, the site is a contraction within the sketch.
    Code(&'static str, Apply),
}

#[derive(Clone, Copy)]
pub struct Rule {
    pub name: &'static str,
    pub class: Class,
    pub form: Form,
}

pub const fn rule(name: &'static str, class: Class, text: &'static str) -> Rule {
    Rule { name, class, form: Form::Text(text) }
}

pub const fn code(name: &'static str, class: Class, sketch: &'static str, apply: Apply) -> Rule {
    Rule { name, class, form: Form::Code(sketch, apply) }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    Var(usize),
    Number(f64),
    Map(ScalarFn, Vec<Pattern>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Float,
    Integer,
    /// All elements have one known value.
    Splat,
    /// A splat ±2ⁿ whose reciprocal is a normal number too.
    PowerOfTwo,
    /// A splat of magnitude 2⁻¹⁴ to 2¹⁴: multiplying by it causes no overflow by itself.
    Scale,
    Finite,
    NonNegative,
    NeverNan,
    /// No consumer rounds the site to integers, where a different last bit could give another integer. The condition
    /// tests the site itself, whichever variable the rule names.
    Unrounded,
}

static CONDITIONS: &[(&str, Condition)] = &[
    ("finite", Condition::Finite),
    ("float", Condition::Float),
    ("integer", Condition::Integer),
    ("never-nan", Condition::NeverNan),
    ("non-negative", Condition::NonNegative),
    ("power-of-two", Condition::PowerOfTwo),
    ("scale", Condition::Scale),
    ("splat", Condition::Splat),
    ("unrounded", Condition::Unrounded),
];

/// One direction of a rule, ready to match.
pub struct Compiled {
    /// Index into the list of rules.
    pub rule: usize,
    pub name: String,
    pub class: Class,
    /// The name of the operation at the root.
    pub head: String,
    matcher: Matcher,
}

enum Matcher {
    Text { left: Pattern, right: Pattern, conditions: Vec<(Condition, usize)> },
    Code(Apply),
}

/// Compiles all directions of all rules. Panics if a rule is malformed: rules are built in, and a test parses them.
pub fn compile(rules: &[Rule]) -> Vec<Compiled> {
    let mut out = vec![];
    for (i, r) in rules.iter().enumerate() {
        match r.form {
            Form::Code(sketch, apply) => {
                let head = match sketch.split_once(" in ") {
                    Some((head, _)) => head,
                    None => sketch.trim_start_matches('(').split([' ', ')', '#']).next().unwrap_or_default(),
                };
                let (name, head) = (r.name.to_string(), head.to_string());
                out.push(Compiled { rule: i, name, class: r.class, head, matcher: Matcher::Code(apply) });
            }
            Form::Text(text) => {
                let (left, right, both, conditions) = parse_rule(text).unwrap_or_else(|e| panic!("{}: {e}", r.name));
                let mut push = |name: String, left: Pattern, right: Pattern| {
                    let Pattern::Map(f, _) = &left else { panic!("{name}: the left side is no function") };
                    let head = f.name().to_string();
                    let matcher = Matcher::Text { left, right, conditions: conditions.clone() };
                    out.push(Compiled { rule: i, name, class: r.class, head, matcher });
                };
                push(r.name.to_string(), left.clone(), right.clone());
                if both {
                    push(format!("{}-back", r.name), right, left);
                }
            }
        }
    }
    out
}

type Parsed = (Pattern, Pattern, bool, Vec<(Condition, usize)>);

pub fn parse_rule(text: &str) -> Result<Parsed, String> {
    let (sides, conditions) = text.split_once(" if ").unwrap_or((text, ""));
    let (left, right, both) = match (sides.split_once(" <=> "), sides.split_once(" => ")) {
        (Some((l, r)), _) => (l, r, true),
        (None, Some((l, r))) => (l, r, false),
        (None, None) => return Err("neither `=>` nor `<=>`".into()),
    };
    let mut vars: Vec<String> = vec![];
    let left = parse_side(left, &mut vars)?;
    let bound = vars.len();
    let right = parse_side(right, &mut vars)?;
    if vars.len() > bound {
        return Err(format!("{} is not bound on the left", vars[bound]));
    }
    let condition = |c: &str| -> Result<(Condition, usize), String> {
        let (name, var) = c.trim().split_once(' ').ok_or(format!("`{c}` is no condition"))?;
        let row = CONDITIONS.binary_search_by(|(n, _)| n.cmp(&name)).map_err(|_| format!("no condition `{name}`"))?;
        let var = vars.iter().position(|v| v == var).ok_or(format!("no variable `{var}`"))?;
        Ok((CONDITIONS[row].1, var))
    };
    let conditions = conditions.split(',').filter(|c| !c.is_empty()).map(condition).collect::<Result<_, String>>()?;
    Ok((left, right, both, conditions))
}

fn parse_side(text: &str, vars: &mut Vec<String>) -> Result<Pattern, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut tokens = spaced.split_whitespace();
    let pattern = parse_pattern(&mut tokens, vars)?;
    match tokens.next() {
        None => Ok(pattern),
        Some(t) => Err(format!("`{t}` after the pattern")),
    }
}

const CLOSED: &str = "a list ends early";

fn parse_pattern<'a>(tokens: &mut impl Iterator<Item = &'a str>, vars: &mut Vec<String>) -> Result<Pattern, String> {
    match tokens.next().ok_or("the pattern ends early")? {
        "(" => {
            let name = tokens.next().ok_or("a function is missing")?;
            let f = ScalarFn::from_name(name).ok_or(format!("`{name}` is no scalar function"))?;
            let few = || format!("`{name}` takes {} operands", f.row().operands);
            let arg = |_| parse_pattern(tokens, vars).map_err(|e| if e == CLOSED { few() } else { e });
            let args = (0..f.row().operands).map(arg).collect::<Result<_, String>>()?;
            match tokens.next() {
                Some(")") => Ok(Pattern::Map(f, args)),
                _ => Err(few()),
            }
        }
        var if var.starts_with('?') => {
            let at = vars.iter().position(|v| v == var).unwrap_or(vars.len());
            if at == vars.len() {
                vars.push(var.into());
            }
            Ok(Pattern::Var(at))
        }
        ")" => Err(CLOSED.into()),
        number => number.parse().map(Pattern::Number).map_err(|_| format!("`{number}` is no number")),
    }
}

impl Compiled {
    /// Expressions that the site equals by this rule.
    pub fn apply(&self, site: &Site) -> Vec<Expr> {
        match &self.matcher {
            Matcher::Code(apply) => apply(site),
            Matcher::Text { left, right, conditions } => {
                let mut out = vec![];
                let Pattern::Map(_, args) = left else { return out };
                let mut bound = BTreeMap::new();
                match_args(site, args, &site.node.args, &mut bound, &mut |bound| {
                    if conditions.iter().all(|(c, v)| bound.get(v).is_some_and(|id| holds(site, *c, *id))) {
                        let model = bound.values().next().copied().unwrap_or(site.class);
                        out.extend(build(site, right, bound, model));
                    }
                });
                out
            }
        }
    }

    /// Whether the rule applies to sites with this operation.
    pub fn is_of(&self, op: &Op) -> bool {
        names(op).contains(&self.head.as_str())
    }
}

type Bound = BTreeMap<usize, Id>;

fn match_args(site: &Site, patterns: &[Pattern], args: &[Id], bound: &mut Bound, then: &mut dyn FnMut(&mut Bound)) {
    let Some((first, rest)) = patterns.split_first() else { return then(bound) };
    match_one(site, first, args[0], bound, &mut |bound| match_args(site, rest, &args[1..], bound, then));
}

fn match_one(site: &Site, pattern: &Pattern, id: Id, bound: &mut Bound, then: &mut dyn FnMut(&mut Bound)) {
    match pattern {
        Pattern::Var(v) => match bound.get(v) {
            Some(known) if site.same(*known, id) => then(bound),
            Some(_) => {}
            None => {
                bound.insert(*v, id);
                then(bound);
                bound.remove(v);
            }
        },
        Pattern::Number(n) => {
            if site.splat(id).is_some_and(|v| v.to_bits() == n.to_bits()) {
                then(bound);
            }
        }
        Pattern::Map(f, args) => {
            for node in site.nodes(id).iter().filter(|n| *site.op_of(n) == Op::Map(*f)) {
                match_args(site, args, &node.args, bound, then);
            }
        }
    }
}

/// Builds the right side of a rule. Numbers take the type of `model`, another operand of the same function; `None` if
/// that type cannot hold the number.
fn build(site: &Site, pattern: &Pattern, bound: &Bound, model: Id) -> Option<Expr> {
    match pattern {
        Pattern::Var(v) => bound.get(v).map(|id| class(*id)),
        Pattern::Number(n) => {
            let ty = site.ty_of(model);
            Some(splat(scalar(ty.dtype, *n)?, &ty.dims))
        }
        Pattern::Map(f, args) => {
            // The condition of a select does not have the type of its branches.
            let alike = if *f == ScalarFn::Select { &args[1..] } else { args };
            let beside = alike.iter().rev().find_map(variable).and_then(|v| bound.get(&v).copied());
            let model = beside.unwrap_or(model);
            let args = args.iter().map(|a| build(site, a, bound, model)).collect::<Option<_>>()?;
            Some(map(*f, args))
        }
    }
}

/// Returns a variable of the pattern that has the same type as the pattern's value.
fn variable(pattern: &Pattern) -> Option<usize> {
    match pattern {
        Pattern::Var(v) => Some(*v),
        Pattern::Number(_) => None,
        Pattern::Map(ScalarFn::Select, args) => args[1..].iter().find_map(variable),
        // The operands of a comparison have another type than its result.
        Pattern::Map(f, _) if f.row().result == sardonyx_dialects::scalar::ResultType::Bool => None,
        Pattern::Map(_, args) => args.iter().find_map(variable),
    }
}

pub fn holds(site: &Site, condition: Condition, id: Id) -> bool {
    let dtype = site.ty_of(id).dtype;
    let value = site.splat(id);
    match condition {
        Condition::Float => dtype.is_float(),
        Condition::Integer => dtype.is_int(),
        Condition::Splat => value.is_some(),
        Condition::PowerOfTwo => dtype.is_float() && value.is_some_and(is_power_of_two),
        Condition::Scale => value.is_some_and(|v| (2f64.powi(-14)..=2f64.powi(14)).contains(&v.abs())),
        Condition::Finite => site.range(id).finite(),
        Condition::NonNegative => site.range(id).lo >= 0.0 && !site.range(id).nan,
        Condition::NeverNan => !site.range(id).nan,
        Condition::Unrounded => !(site.ty().dtype.is_float() && is_rounded(site, site.class, ROUNDED_DEPTH)),
    }
}

/// Maximum number of operations between a value and its rounding: enough for a quantisation with a computed scale.
const ROUNDED_DEPTH: usize = 4;

/// Whether a value is rounded to integers within `depth` operations. Each user is visited once, as the e-graph holds
/// many paths to it.
fn is_rounded(site: &Site, id: Id, depth: usize) -> bool {
    let (mut seen, mut layer) = (BTreeSet::from([id]), vec![id]);
    for _ in 0..depth {
        let mut next = vec![];
        for read in layer {
            for user in site.users(read) {
                if seen.contains(&user) {
                    continue;
                }
                match passes_on(site, read, user) {
                    Some(true) => return true,
                    Some(false) if seen.insert(user) => next.push(user),
                    _ => {}
                }
            }
        }
        layer = next;
    }
    false
}

/// Whether the user rounds the value (true) or passes it on (false); `None` if it computes something else.
fn passes_on(site: &Site, id: Id, user: Id) -> Option<bool> {
    let whole = site.ty_of(user).dtype.is_int();
    let reads = |op: &Op| match op {
        Op::Map(ScalarFn::Round | ScalarFn::Floor | ScalarFn::Ceil) => Some(true),
        Op::Convert(Conversion::Value) if whole => Some(true),
        Op::Map(_) | Op::Convert(_) | Op::Broadcast { .. } | Op::Reshape | Op::Transpose { .. } => Some(false),
        Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Gather { .. } | Op::Window(_) => Some(false),
        _ => None,
    };
    let found = site.find(user, reads).filter(|(_, n)| n.args.iter().any(|a| site.same(*a, id)));
    found.map(|(rounds, _)| rounds).max()
}

/// Whether v is ±2ⁿ. Its magnitude is limited so that the reciprocal is a normal number of every float type.
fn is_power_of_two(v: f64) -> bool {
    v.abs().log2().fract() == 0.0 && (2f64.powi(-14)..=2f64.powi(14)).contains(&v.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let (left, right, both, conditions) = parse_rule("(mul ?x ?c) => (mul ?c ?x) if splat ?c").unwrap();
        let mul = |a, b| Pattern::Map(ScalarFn::Mul, vec![Pattern::Var(a), Pattern::Var(b)]);
        assert_eq!((left, right, both), (mul(0, 1), mul(1, 0), false));
        assert_eq!(conditions, [(Condition::Splat, 1)]);
        assert!(CONDITIONS.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn wrong_rules_are_refused() {
        for (text, why) in [
            ("(mul ?x 1)", "neither"),
            ("(mul ?x) => ?x", "`mul` takes 2"),
            ("(mul ?x 1) => ?y", "?y is not bound"),
            ("(mull ?x 1) => ?x", "`mull` is no scalar function"),
            ("(neg ?x) => ?x if odd ?x", "no condition `odd`"),
            ("(neg ?x ?y) => ?x", "`neg` takes 1"),
        ] {
            let error = parse_rule(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

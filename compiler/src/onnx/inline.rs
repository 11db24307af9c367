//! y = f(x) with f = {t = Relu(a); b = Neg(t)}  =>  call/t = Relu(x); y = Neg(call/t)

use super::budget::check_nesting;
use super::model::{Attribute, Graph, Node};
use super::opsets;
use super::proto::{AttributeProto, FunctionProto, NodeProto};
use super::reader::{Env, Reader};
use bytes::Bytes;
use sardonyx_base::{Error, Result, Tensor};
use std::collections::{BTreeMap, HashMap};

/// Estimated bytes of a node of an inlined function body, beyond its payload.
const NODE_BYTES: usize = 256;

/// What the names in a function body refer to in one call.
struct Binding<'m> {
    scope: HashMap<&'m str, Option<String>>,
    /// Outputs that are also inputs of the function or outputs already bound: since no node of the body can define them
    /// under the caller's name, they are copied.
    passed_on: Vec<(&'m str, String)>,
}

impl<'m> Reader<'m> {
    /// Appends the body of `function` to `out`, with its names replaced by those of `call`.
    pub(super) fn inline(&mut self, function: &'m FunctionProto, call: Node, out: &mut Graph) -> Result<()> {
        let key = (opsets::domain(&function.domain), function.name.as_str(), function.overload.as_str());
        if self.calls.contains(&key) {
            let mut chain: Vec<&str> = self.calls.iter().map(|key| key.1).skip_while(|name| *name != key.1).collect();
            chain.push(key.1);
            return Err(Error::user("E0104", format!("function `{}` calls itself: {}", key.1, chain.join(" -> ")))
                .help("ONNX functions cannot be recursive; use a Loop or Scan"));
        }
        self.calls.push(key);
        self.depth += 1;
        let done = check_nesting(self.depth).and_then(|()| self.inline_body(function, call, out));
        self.depth -= 1;
        self.calls.pop();
        done
    }

    fn inline_body(&mut self, function: &'m FunctionProto, call: Node, out: &mut Graph) -> Result<()> {
        check_arity(function, &call)?;
        let opsets = opsets::resolve(&function.opset_import)?;
        let Binding { scope, passed_on } = self.bind(function, &call)?;
        let name = call.name.clone();
        let mut env = Env { caller: Some(call.name), scopes: vec![scope], attributes: BTreeMap::new(), opsets };
        let mut attributes = self.attributes(&function.attribute_proto, &mut env)?;
        attributes.extend(call.attributes);
        env.attributes = attributes;
        self.nodes(&function.node, &mut env, out)?;
        for (from, to) in passed_on {
            let Some(from) = env.value(from)? else {
                let message = format!("output `{to}` of the call is input `{from}` of the function, which is absent");
                return Err(Error::user("E0104", message).help("give the call that input, or do not use the output"));
            };
            let opset = env.opsets.versions().get("").copied().unwrap_or(*opsets::OPSETS.end());
            out.nodes.push(Node {
                name: self.node_names.fresh(&format!("{name}/Identity")),
                op_type: "Identity".into(),
                domain: String::new(),
                inputs: vec![Some(from)],
                outputs: vec![Some(to)],
                attributes: BTreeMap::new(),
                opset,
                places: vec![],
            });
        }
        Ok(())
    }

    fn bind(&mut self, function: &'m FunctionProto, call: &Node) -> Result<Binding<'m>> {
        let mut scope = HashMap::new();
        for (i, formal) in function.input.iter().enumerate() {
            if scope.insert(formal.as_str(), call.inputs.get(i).cloned().flatten()).is_some() {
                return Err(duplicate(function, formal));
            }
        }
        let inner = || function.node.iter().flat_map(|n| n.output.iter().map(String::as_str)).filter(|n| !n.is_empty());
        if let Some(name) = inner().find(|name| scope.contains_key(name)) {
            return Err(duplicate(function, name));
        }
        let mut passed_on = vec![];
        for (i, formal) in function.output.iter().enumerate() {
            match (scope.contains_key(formal.as_str()), call.outputs.get(i).cloned().flatten()) {
                (true, Some(actual)) => passed_on.push((formal.as_str(), actual)),
                (false, Some(actual)) => drop(scope.insert(formal, Some(actual))),
                (_, None) => {}
            }
        }
        for name in inner() {
            if !scope.contains_key(name) {
                scope.insert(name, Some(self.fresh_value(&call.name, name)?));
            }
        }
        Ok(Binding { scope, passed_on })
    }

    /// The attribute that `ref_attr_name` refers to: the value given by the call, or the function's default.
    pub(super) fn referred_attribute(&mut self, proto: &AttributeProto, env: &Env) -> Result<Option<Attribute>> {
        let (name, target) = (&proto.name, &proto.ref_attr_name);
        if env.caller.is_none() {
            let message = format!("attribute `{name}` refers to attribute `{target}` of a function, but is in none");
            return Err(Error::user("E0106", message).help("only nodes of a function body may have ref_attr_name"));
        }
        let Some(attribute) = env.attributes.get(target) else { return Ok(None) };
        if proto.r#type != 0 && proto.r#type != attribute.onnx_type() {
            let message = format!(
                "the call gives a {} for attribute `{target}`, but `{name}` needs another type",
                attribute.kind()
            );
            return Err(Error::user("E0106", message).help("correct the attribute of the function's call"));
        }
        self.budget.charge(weight_bytes(attribute), "inlining its functions")?;
        check_nesting(self.depth + attribute.graphs().iter().map(nesting).max().unwrap_or(0))?;
        let mut attribute = attribute.clone();
        // A graph may be referred to twice, but node names must stay unique.
        attribute.graphs_mut().iter_mut().for_each(|graph| self.rename_nodes(graph));
        Ok(Some(attribute))
    }

    fn rename_nodes(&mut self, graph: &mut Graph) {
        for node in &mut graph.nodes {
            node.name = self.node_names.fresh(&node.name);
            node.attributes.values_mut().flat_map(|a| a.graphs_mut()).for_each(|graph| self.rename_nodes(graph));
        }
    }
}

/// Estimated bytes of another copy of a node of a function body; raw tensors are shared between copies.
pub(super) fn cost_bytes(proto: &NodeProto, name: &str) -> usize {
    let names = proto.input.iter().chain(&proto.output).map(|name| NODE_BYTES / 4 + name.len()).sum::<usize>();
    let lists = proto.attribute.iter().map(|a| {
        let strings = a.strings.iter().map(|s| s.len() + size_of::<Bytes>()).sum::<usize>();
        NODE_BYTES / 2 + a.name.len() + a.s.len() + 4 * a.floats.len() + 8 * a.ints.len() + strings
    });
    NODE_BYTES + 2 * name.len() + names + lists.sum::<usize>()
}

fn check_arity(function: &FunctionProto, call: &Node) -> Result<()> {
    let pairs =
        [("inputs", call.inputs.len(), function.input.len()), ("outputs", call.outputs.len(), function.output.len())];
    match pairs.iter().find(|(_, given, taken)| given > taken) {
        None => Ok(()),
        Some((what, given, taken)) => {
            let message =
                format!("the call of function `{}` has {given} {what}, but the function has {taken}", function.name);
            Err(Error::user("E0104", message).help("export the model again, or correct the call"))
        }
    }
}

fn duplicate(function: &FunctionProto, name: &str) -> Box<Error> {
    Error::user("E0104", format!("function `{}` defines `{name}` twice", function.name))
        .help("every value of a function needs a name of its own")
}

fn nesting(graph: &Graph) -> usize {
    1 + graph.nodes.iter().flat_map(|n| n.subgraphs()).map(nesting).max().unwrap_or(0)
}

fn weight_bytes(attribute: &Attribute) -> usize {
    let strings = |values: &[Vec<u8>]| values.iter().map(|s| s.len() + size_of::<Vec<u8>>()).sum::<usize>();
    // The payloads of both kinds of tensors are shared.
    let tensor = |data: &Tensor| 8 * data.rank();
    NODE_BYTES
        + match attribute {
            Attribute::Float(_) | Attribute::Int(_) | Attribute::Type(_) => 0,
            Attribute::String(s) => s.len(),
            Attribute::Tensor(t) | Attribute::SparseTensor(t) => tensor(t),
            Attribute::Graph(graph) => graph_bytes(graph),
            Attribute::Floats(v) => 4 * v.len(),
            Attribute::Ints(v) => 8 * v.len(),
            Attribute::Strings(v) => strings(v),
            Attribute::Tensors(v) | Attribute::SparseTensors(v) => v.iter().map(tensor).sum(),
            Attribute::Graphs(graphs) => graphs.iter().map(graph_bytes).sum(),
            Attribute::Types(v) => NODE_BYTES * v.len(),
        }
}

fn graph_bytes(graph: &Graph) -> usize {
    let values = graph.inputs.len() + graph.outputs.len() + graph.initializers.len();
    let node = |n: &Node| {
        let names = n.inputs.iter().chain(&n.outputs).flatten().map(|name| name.len()).sum::<usize>();
        NODE_BYTES + n.name.len() + names + n.attributes.values().map(weight_bytes).sum::<usize>()
    };
    NODE_BYTES * (1 + values) + graph.nodes.iter().map(node).sum::<usize>()
}

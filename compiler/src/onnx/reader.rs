//! GraphProto  =>  Graph: names and opset versions resolved, calls of functions replaced by their bodies

use super::budget::{Budget, check_nesting};
use super::external::External;
use super::model::{Attribute, Graph, Initializer, Node};
use super::names::{Names, reserve_all};
use super::opsets::{self, Opsets};
use super::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, attribute_type};
use super::{constant, sparse, tensor, types};
use sardonyx_base::{Error, Result, Tensor};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Domain, name and overload of a function.
pub(super) type FunctionKey<'m> = (&'m str, &'m str, &'m str);

/// State shared by all graphs of a model while it is read.
pub(super) struct Reader<'m> {
    pub functions: HashMap<FunctionKey<'m>, &'m FunctionProto>,
    model: &'m ModelProto,
    pub external: External,
    pub budget: Budget,
    pub node_names: Names,
    pub value_names: Names,
    /// The functions being inlined, outermost first.
    pub calls: Vec<FunctionKey<'m>>,
    /// Number of enclosing subgraphs and calls.
    pub depth: usize,
}

/// Context in which value names and opset versions are resolved: the model's own graph, or one call of a function.
pub(super) struct Env<'m> {
    /// Name of the node whose call is being inlined; `None` in the model's own graph, where value names do not change.
    pub caller: Option<String>,
    /// In a call: maps from value names in the function to names in the result, one for the function body and one for
    /// each enclosing subgraph, innermost last. An input that the call does not give is mapped to `None`.
    pub scopes: Vec<HashMap<&'m str, Option<String>>>,
    /// In a call: the attributes that `ref_attr_name` can refer to.
    pub attributes: BTreeMap<String, Attribute>,
    pub opsets: Opsets,
}

impl<'m> Env<'m> {
    pub fn of_model(opsets: Opsets) -> Env<'m> {
        Env { caller: None, scopes: vec![], attributes: BTreeMap::new(), opsets }
    }

    /// Returns the resolved name of a use or definition of `name`. `None` for "", with which ONNX denotes an absent
    /// value, and for a function input that the call does not give.
    pub fn value(&self, name: &str) -> Result<Option<String>> {
        let Some(caller) = &self.caller else { return Ok((!name.is_empty()).then(|| name.to_string())) };
        if name.is_empty() {
            return Ok(None);
        }
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found.cloned().ok_or_else(|| {
            Error::user(
                "E0104",
                format!("`{name}` is used in the function called by `{caller}`, but nothing defines it"),
            )
            .help("a function sees only its own inputs and the outputs of its own nodes")
        })
    }

    fn required(&self, name: &str, what: &str) -> Result<String> {
        self.value(name)?.ok_or_else(|| {
            Error::user("E0104", format!("{what} has no name")).help("every input, output and initializer needs a name")
        })
    }

    fn node_name(&self, proto: &NodeProto, index: usize, names: &mut Names) -> String {
        let own = match proto.name.as_str() {
            "" => Cow::Owned(format!("{}_{index}", proto.op_type)),
            name => Cow::Borrowed(name),
        };
        match (&self.caller, proto.name.is_empty()) {
            (Some(caller), _) => names.fresh(&format!("{caller}/{own}")),
            (None, true) => names.fresh(&own),
            (None, false) => names.claim(&own),
        }
    }
}

impl<'m> Reader<'m> {
    pub fn new(model: &'m ModelProto, external: External, budget: Budget) -> Result<Reader<'m>> {
        let mut functions = HashMap::new();
        for f in &model.functions {
            let key = (opsets::domain(&f.domain), f.name.as_str(), f.overload.as_str());
            if functions.insert(key, f).is_some() {
                return Err(Error::user(
                    "E0104",
                    format!("function `{}` of domain `{}` is defined twice", f.name, f.domain),
                )
                .help("give the functions different names, domains or overloads"));
            }
        }
        let (node_names, value_names) = (Names::default(), Names::default());
        Ok(Reader { functions, model, external, budget, node_names, value_names, calls: vec![], depth: 0 })
    }

    /// Reads the model's own graph. `initializers` is passed separately so that each `TensorProto` is freed once
    /// it is read.
    pub fn model_graph(
        &mut self,
        proto: &'m GraphProto,
        initializers: Vec<TensorProto>,
        opsets: Opsets,
    ) -> Result<Graph> {
        reserve_all(proto, &mut self.node_names, &mut self.value_names);
        initializers.iter().for_each(|t| self.value_names.reserve(&t.name));
        self.graph(proto, initializers.into_iter().map(Cow::Owned).collect(), &mut Env::of_model(opsets))
    }

    fn graph(
        &mut self,
        proto: &'m GraphProto,
        initializers: Vec<Cow<TensorProto>>,
        env: &mut Env<'m>,
    ) -> Result<Graph> {
        check_nesting(self.depth)?;
        let mut graph = Graph { name: proto.name.clone(), ..Default::default() };
        for t in initializers {
            let name = env.required(&t.name, "an initializer")?;
            let data = self.tensor(&t, env)?;
            graph.initializers.push(Initializer { name, data });
        }
        for t in &proto.sparse_initializer {
            let name = env.required(sparse::sparse_name(t), "a sparse initializer")?;
            graph
                .initializers
                .push(Initializer { name, data: sparse::dense(t, &mut self.external, &mut self.budget)? });
        }
        // IR version 3 lists all initializers as inputs too; in later versions such inputs have a default value.
        let given: HashSet<&str> = graph.initializers.iter().map(|i| i.name.as_str()).collect();
        for v in &proto.input {
            let name = env.required(&v.name, "an input")?;
            if !given.contains(name.as_str()) {
                graph.inputs.push(types::value_info(v, name)?);
            }
        }
        self.nodes(&proto.node, env, &mut graph)?;
        for v in &proto.output {
            graph.outputs.push(types::value_info(v, env.required(&v.name, "an output")?)?);
        }
        Ok(graph)
    }

    fn subgraph(&mut self, proto: &'m GraphProto, env: &mut Env<'m>) -> Result<Graph> {
        if env.caller.is_some() {
            let scope = self.declare(proto, env)?;
            env.scopes.push(scope);
        }
        self.depth += 1;
        let graph = self.graph(proto, proto.initializer.iter().map(Cow::Borrowed).collect(), env);
        self.depth -= 1;
        if env.caller.is_some() {
            env.scopes.pop();
        }
        graph
    }

    /// Allocates new names for the values that a subgraph of a function body defines. A name that is defined twice is
    /// mapped once, so that the check of the graph still detects the duplicate.
    fn declare(&mut self, proto: &'m GraphProto, env: &Env<'m>) -> Result<HashMap<&'m str, Option<String>>> {
        let inputs = proto.input.iter().map(|v| v.name.as_str());
        let initializers = proto.initializer.iter().map(|t| t.name.as_str());
        let sparse = proto.sparse_initializer.iter().map(sparse::sparse_name);
        let outputs = proto.node.iter().flat_map(|n| n.output.iter().map(String::as_str));
        let mut scope = HashMap::new();
        for name in inputs.chain(initializers).chain(sparse).chain(outputs).filter(|name| !name.is_empty()) {
            if !scope.contains_key(name) {
                scope.insert(name, Some(self.fresh_value(env.caller.as_deref().unwrap_or(""), name)?));
            }
        }
        Ok(scope)
    }

    /// Allocates a unique name for a value of a function body: `caller/inner`, with a suffix if that name exists.
    pub fn fresh_value(&mut self, caller: &str, inner: &str) -> Result<String> {
        self.budget.charge(64 + 3 * (caller.len() + inner.len()), "inlining its functions")?;
        Ok(self.value_names.fresh(&format!("{caller}/{inner}")))
    }

    pub fn nodes(&mut self, protos: &'m [NodeProto], env: &mut Env<'m>, out: &mut Graph) -> Result<()> {
        for (index, proto) in protos.iter().enumerate() {
            let name = env.node_name(proto, index, &mut self.node_names);
            self.node(proto, name.clone(), env, out).map_err(|e| e.node(name))?;
        }
        Ok(())
    }

    fn node(&mut self, proto: &'m NodeProto, name: String, env: &mut Env<'m>, out: &mut Graph) -> Result<()> {
        if proto.op_type.is_empty() {
            return Err(
                Error::user("E0103", "a node has no operator type").help("the file is damaged; export it again")
            );
        }
        if env.caller.is_some() {
            self.budget.charge(super::inline::cost_bytes(proto, &name), "inlining its functions")?;
        }
        let domain = opsets::domain(&proto.domain);
        let function = self.functions.get(&(domain, proto.op_type.as_str(), proto.overload.as_str())).copied();
        let opset = match function {
            Some(_) => env.opsets.versions().get(domain).copied().unwrap_or(0),
            None => env.opsets.version_of(domain, &proto.op_type)?,
        };
        let mut node = Node {
            name,
            op_type: proto.op_type.clone(),
            domain: domain.to_string(),
            inputs: proto.input.iter().map(|name| env.value(name)).collect::<Result<_>>()?,
            outputs: proto.output.iter().map(|name| env.value(name)).collect::<Result<_>>()?,
            attributes: self.attributes(&proto.attribute, env)?,
            opset,
            places: super::devices::places(proto, self.model)?,
        };
        if let Some(function) = function {
            return self.inline(function, node, out);
        }
        name_operands(&mut node, env)?;
        if constant::is_constant(&node) {
            let data = constant::value(&node)?;
            let names = node.outputs.into_iter().flatten();
            out.initializers.extend(names.map(|name| Initializer { name, data: data.clone() }));
        } else {
            out.nodes.push(node);
        }
        Ok(())
    }

    pub fn attributes(
        &mut self,
        protos: &'m [AttributeProto],
        env: &mut Env<'m>,
    ) -> Result<BTreeMap<String, Attribute>> {
        let mut attributes = BTreeMap::new();
        for proto in protos {
            let Some(attribute) = self.attribute(proto, env)? else { continue };
            if proto.name.is_empty() || attributes.insert(proto.name.clone(), attribute).is_some() {
                return Err(Error::user("E0106", format!("attribute `{}` is unnamed or given twice", proto.name))
                    .help("the file is damaged or was written by a faulty tool; export it again"));
            }
        }
        Ok(attributes)
    }

    /// Resolves an attribute. Returns `None` if it refers to an attribute that the call does not give and that has no
    /// default.
    fn attribute(&mut self, proto: &'m AttributeProto, env: &mut Env<'m>) -> Result<Option<Attribute>> {
        if !proto.ref_attr_name.is_empty() {
            return self.referred_attribute(proto, env);
        }
        let lacks_value = || {
            Error::user(
                "E0106",
                format!("attribute `{}` lacks the value that its type {} promises", proto.name, proto.r#type),
            )
            .help("the file is damaged; export it again")
        };
        use attribute_type::*;
        Ok(Some(match proto.r#type {
            FLOAT => Attribute::Float(proto.f),
            INT => Attribute::Int(proto.i),
            STRING => Attribute::String(proto.s.to_vec()),
            TENSOR => Attribute::Tensor(self.tensor(proto.t.as_ref().ok_or_else(lacks_value)?, env)?),
            GRAPH => Attribute::Graph(Box::new(self.subgraph(proto.g.as_ref().ok_or_else(lacks_value)?, env)?)),
            FLOATS => Attribute::Floats(proto.floats.clone()),
            INTS => Attribute::Ints(proto.ints.clone()),
            STRINGS => Attribute::Strings(proto.strings.iter().map(|s| s.to_vec()).collect()),
            TENSORS => Attribute::Tensors(proto.tensors.iter().map(|t| self.tensor(t, env)).collect::<Result<_>>()?),
            GRAPHS => Attribute::Graphs(proto.graphs.iter().map(|g| self.subgraph(g, env)).collect::<Result<_>>()?),
            SPARSE_TENSOR => {
                let proto = proto.sparse_tensor.as_ref().ok_or_else(lacks_value)?;
                Attribute::SparseTensor(sparse::dense(proto, &mut self.external, &mut self.budget)?)
            }
            SPARSE_TENSORS => {
                let expanded =
                    proto.sparse_tensors.iter().map(|s| sparse::dense(s, &mut self.external, &mut self.budget));
                Attribute::SparseTensors(expanded.collect::<Result<_>>()?)
            }
            TYPE_PROTO => {
                let ty = types::value_type(proto.tp.as_ref().ok_or_else(lacks_value)?)?;
                Attribute::Type(ty.ok_or_else(lacks_value)?)
            }
            TYPE_PROTOS => {
                let types = proto.type_protos.iter().map(|t| types::value_type(t)?.ok_or_else(lacks_value));
                Attribute::Types(types.collect::<Result<_>>()?)
            }
            code => {
                let message = format!("attribute `{}` has the unknown type {code}", proto.name);
                return Err(Error::user("E0106", message).help("types 1 to 14 are known; export the model again"));
            }
        }))
    }

    fn tensor(&mut self, proto: &TensorProto, env: &Env) -> Result<Tensor> {
        // The `TensorProto` of a function body is kept for further calls, so each call makes its own copy of data that
        // is not raw.
        if env.caller.is_some() && proto.raw_data.is_empty() {
            self.budget.charge(prost::Message::encoded_len(proto), "inlining its functions")?;
        }
        tensor::tensor_data(proto, &mut self.external)
    }
}

/// Adds the tensors that a `Gradient` node names in its attributes `y` and `xs` to the inputs of the node, so that they
/// are available when the gradient is computed.
fn name_operands(node: &mut Node, env: &Env) -> Result<()> {
    if (node.domain.as_str(), node.op_type.as_str()) != ("ai.onnx.preview.training", "Gradient") {
        return Ok(());
    }
    let mut names = vec![];
    if let Some(Attribute::String(y)) = node.attributes.get("y") {
        names.push(String::from_utf8_lossy(y).into_owned());
    }
    if let Some(Attribute::Strings(xs)) = node.attributes.get("xs") {
        names.extend(xs.iter().map(|x| String::from_utf8_lossy(x).into_owned()));
    }
    for name in names {
        node.inputs.push(env.value(&name)?);
    }
    Ok(())
}

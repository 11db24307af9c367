//! vectors of tokens [batch, positions, width]  =>  one vector for each text, computed by nodes added to the model

use super::{Layer, Pooling};
use crate::onnx::{Attribute, Graph, Initializer, Node, ValueInfo, ValueType};
use sardonyx_base::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;

/// Output of a model that computes embeddings: `[batch, width]`, f32.
pub const OUTPUT: &str = "sentence_embedding";
/// The input that tells tokens from padding.
pub const MASK: &str = "attention_mask";

/// The opset of the nodes added here, independent of the model's.
const OPSET: i64 = 18;

/// Makes the embedding the model's only output. A model that already has the output `OUTPUT` is not pooled again, only
/// normalised if `layers` say so. Errors: E0107 for a model without vectors of tokens or without a mask.
pub fn pool(graph: &mut Graph, poolings: &[Pooling], layers: &[Layer]) -> Result<()> {
    let rank = |output: &ValueInfo| match &output.ty {
        Some(ValueType::Tensor { dims, .. }) => dims.as_ref().map(Vec::len),
        _ => None,
    };
    let own = graph.outputs.iter().any(|o| o.name == OUTPUT && rank(o).is_none_or(|rank| rank == 2));
    let tokens = ["last_hidden_state", "token_embeddings"];
    let named = graph.outputs.iter().find(|o| tokens.contains(&o.name.as_str()));
    let tokens = named.or_else(|| graph.outputs.iter().find(|o| rank(o) == Some(3))).map(|o| o.name.clone());
    let mut nodes = Nodes::new(graph);
    let embedding = if own {
        let embedding = nodes.cast(OUTPUT);
        match layers.iter().any(Layer::is_normalize) {
            true => nodes.layer(&embedding, &Layer::Normalize),
            false => embedding,
        }
    } else {
        let tokens = tokens.ok_or_else(|| {
            Error::user("E0107", "the model has no output with a vector for each token")
                .help("pooling reads `last_hidden_state`, `token_embeddings` or an output of three dimensions")
        })?;
        if !nodes.graph.inputs.iter().any(|input| input.name == MASK) {
            return Err(Error::user("E0107", format!("the model has no input `{MASK}`, which pooling follows"))
                .help("export the model with its attention mask"));
        }
        let kept = nodes.kept(&tokens);
        let pooled: Vec<String> = poolings.iter().map(|pooling| nodes.pooled(&kept, *pooling)).collect();
        let pooled = match &pooled[..] {
            [one] => one.clone(),
            several => nodes.node("Concat", several, &[("axis", Attribute::Int(1))]),
        };
        layers.iter().fold(pooled, |value, layer| nodes.layer(&value, layer))
    };
    nodes.finish(embedding);
    Ok(())
}

/// Vectors of the tokens, and the mask, both as f32.
struct Kept {
    tokens: String,
    /// `[batch, positions, 1]`: 1 for a token, 0 for padding.
    mask: String,
}

/// A graph to which nodes are added, and a prefix for their names that no other name starts with.
struct Nodes<'g> {
    graph: &'g mut Graph,
    prefix: String,
    count: usize,
}

impl<'g> Nodes<'g> {
    fn new(graph: &'g mut Graph) -> Nodes<'g> {
        let mut prefix = "pooling".to_string();
        let begins = |graph: &Graph, prefix: &str| {
            let values = graph.nodes.iter().flat_map(|n| n.outputs.iter().flatten().chain([&n.name]));
            let ports = graph.inputs.iter().map(|i| &i.name).chain(graph.initializers.iter().map(|i| &i.name));
            values.chain(ports).any(|name| name.starts_with(prefix))
        };
        while begins(graph, &prefix) {
            prefix.push('_');
        }
        Nodes { graph, prefix, count: 0 }
    }

    fn fresh(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{}/{what}_{}", self.prefix, self.count)
    }

    fn node<S: AsRef<str>>(&mut self, op_type: &str, inputs: &[S], attributes: &[(&str, Attribute)]) -> String {
        let name = self.fresh(op_type);
        self.push(op_type, inputs, attributes, name.clone());
        name
    }

    fn push<S: AsRef<str>>(&mut self, op_type: &str, inputs: &[S], attributes: &[(&str, Attribute)], output: String) {
        let name = match output.starts_with(&self.prefix) {
            true => output.clone(),
            false => self.fresh(op_type),
        };
        self.graph.nodes.push(Node {
            name,
            op_type: op_type.to_string(),
            domain: String::new(),
            inputs: inputs.iter().map(|name| Some(name.as_ref().to_string())).collect(),
            outputs: vec![Some(output)],
            attributes: attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            opset: OPSET,
            places: vec![],
        });
    }

    fn initializer(&mut self, data: Tensor) -> String {
        let name = self.fresh("constant");
        self.graph.initializers.push(Initializer { name: name.clone(), data });
        name
    }

    /// A weight of any floating-point type, as f32.
    fn weight(&mut self, data: &Tensor) -> String {
        let weight = self.initializer(data.clone());
        self.cast(&weight)
    }

    fn number(&mut self, x: f32) -> String {
        self.initializer(Tensor::from_vec(vec![], vec![x]))
    }

    fn axes(&mut self, axes: &[i64]) -> String {
        self.initializer(Tensor::from_vec(vec![axes.len()], axes.to_vec()))
    }

    fn cast(&mut self, value: &str) -> String {
        self.node("Cast", &[value], &[("to", Attribute::Int(DType::F32.onnx_code().into()))])
    }

    fn kept(&mut self, tokens: &str) -> Kept {
        let tokens = self.cast(tokens);
        // Any non-zero number in the mask marks a token.
        let is_kept = self.node("Cast", &[MASK], &[("to", Attribute::Int(DType::Bool.onnx_code().into()))]);
        let mask = self.cast(&is_kept);
        let last = self.axes(&[2]);
        Kept { tokens, mask: self.node("Unsqueeze", &[mask, last], &[]) }
    }

    /// The sum of a value over the positions: `[batch, width]`.
    fn sum(&mut self, value: &str) -> String {
        let axes = self.axes(&[1]);
        self.node("ReduceSum", &[value, &axes], &[("keepdims", Attribute::Int(0))])
    }

    fn weighted_sum(&mut self, kept: &Kept, weights: &str) -> String {
        let weighted = self.node("Mul", &[kept.tokens.as_str(), weights], &[]);
        self.sum(&weighted)
    }

    /// The sum of the weights of a text, clamped to at least 1e-9, so that it can be a divisor.
    fn total(&mut self, weights: &str) -> String {
        let (sum, least) = (self.sum(weights), self.number(1e-9));
        self.node("Max", &[sum, least], &[])
    }

    /// 1, 2, 3, … along the positions: `[positions, 1]`.
    fn positions(&mut self) -> String {
        let shape = self.node("Shape", &[MASK], &[("start", Attribute::Int(1)), ("end", Attribute::Int(2))]);
        let (axis, one) = (self.axes(&[0]), self.initializer(Tensor::from_vec(vec![], vec![1i64])));
        let count = self.node("Squeeze", &[shape, axis], &[]);
        let end = self.node("Add", &[&count, &one], &[]);
        let counted = self.node("Range", &[&one, &end, &one], &[]);
        let counted = self.cast(&counted);
        let last = self.axes(&[1]);
        self.node("Unsqueeze", &[counted, last], &[])
    }

    fn pooled(&mut self, kept: &Kept, pooling: Pooling) -> String {
        match pooling {
            Pooling::Mean => {
                let (sum, total) = (self.weighted_sum(kept, &kept.mask), self.total(&kept.mask));
                self.node("Div", &[sum, total], &[])
            }
            Pooling::MeanSqrtLen => {
                let (sum, total) = (self.weighted_sum(kept, &kept.mask), self.total(&kept.mask));
                let root = self.node("Sqrt", &[total], &[]);
                self.node("Div", &[sum, root], &[])
            }
            Pooling::WeightedMean => {
                let positions = self.positions();
                let weights = self.node("Mul", &[kept.mask.as_str(), &positions], &[]);
                let (sum, total) = (self.weighted_sum(kept, &weights), self.total(&weights));
                self.node("Div", &[sum, total], &[])
            }
            Pooling::Cls => {
                let first = self.initializer(Tensor::from_vec(vec![], vec![0i64]));
                self.node("Gather", &[&kept.tokens, &first], &[("axis", Attribute::Int(1))])
            }
            Pooling::Max => {
                let lowest = self.number(-1e9);
                let mask = self.node("Cast", &[&kept.mask], &[("to", Attribute::Int(DType::Bool.onnx_code().into()))]);
                let hidden = self.node("Where", &[mask.as_str(), &kept.tokens, &lowest], &[]);
                let axes = self.axes(&[1]);
                self.node("ReduceMax", &[hidden, axes], &[("keepdims", Attribute::Int(0))])
            }
            Pooling::LastToken => {
                let positions = self.positions();
                let numbered = self.node("Mul", &[kept.mask.as_str(), &positions], &[]);
                let axes = self.axes(&[1]);
                let last = self.node("ReduceMax", &[numbered.as_str(), &axes], &[("keepdims", Attribute::Int(1))]);
                let is_last = self.node("Equal", &[numbered, last], &[]);
                let is_last = self.cast(&is_last);
                let weights = self.node("Mul", &[is_last.as_str(), &kept.mask], &[]);
                self.weighted_sum(kept, &weights)
            }
        }
    }

    fn layer(&mut self, value: &str, layer: &Layer) -> String {
        match layer {
            Layer::Normalize => {
                let (axes, least) = (self.axes(&[1]), self.number(1e-12));
                let norm = self.node("ReduceL2", &[value, &axes], &[("keepdims", Attribute::Int(1))]);
                let norm = self.node("Max", &[norm, least], &[]);
                self.node("Div", &[value, &norm], &[])
            }
            Layer::Dense { weight, bias, activation } => {
                let mut inputs = vec![value.to_string(), self.weight(weight)];
                inputs.extend(bias.as_ref().map(|bias| self.weight(bias)));
                let made = self.node("Gemm", &inputs, &[("transB", Attribute::Int(1))]);
                match activation {
                    None => made,
                    Some(op_type) => self.node(op_type, &[made], &[]),
                }
            }
            Layer::LayerNorm { scale, bias } => {
                let (scale, bias) = (self.weight(scale), self.weight(bias));
                let attributes = [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(1e-5))];
                self.node("LayerNormalization", &[value, &scale, &bias], &attributes)
            }
        }
    }

    /// Names the embedding `OUTPUT`. If another value of the model has that name, that value is renamed.
    fn finish(mut self, embedding: String) {
        let other = self.fresh(OUTPUT);
        let renamed: BTreeMap<&str, &str> = [(OUTPUT, other.as_str())].into();
        let rename = |name: &mut String| renamed.get(name.as_str()).iter().for_each(|new| *name = new.to_string());
        for node in &mut self.graph.nodes {
            node.inputs.iter_mut().chain(&mut node.outputs).flatten().for_each(rename);
        }
        let embedding = if embedding == OUTPUT { other.clone() } else { embedding };
        self.push("Identity", &[embedding], &[], OUTPUT.to_string());
        self.graph.outputs = vec![ValueInfo { name: OUTPUT.to_string(), ty: None }];
    }
}

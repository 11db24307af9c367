//! whole tensors of a caller  <=>  the parts that a rank holds, for inputs and outputs that are split across ranks

use super::World;
use crate::params::Part;
use crate::sdx::{Symbol, SymbolKind};
use sardonyx_base::host::Collective;
use sardonyx_base::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// Cuts the inputs of a rank, and joins its outputs with those of the other ranks.
pub struct Ports<'a> {
    pub symbols: &'a BTreeMap<String, Symbol>,
    pub world: &'a dyn World,
}

impl Ports<'_> {
    /// The rank's parts of the inputs; `parts` returns the cuts that give a named input's part, applied in order.
    pub fn cut<'p>(
        &self,
        inputs: &[(String, Tensor)],
        parts: impl Fn(&str) -> &'p [Part],
    ) -> Result<Vec<(String, Tensor)>> {
        let one = |(name, whole): &(String, Tensor)| {
            let cut = |t: Tensor, part: &Part| part.cut(&t, &|symbol| self.coordinate(symbol));
            let own = parts(name).iter().try_fold(whole.clone(), cut).map_err(|e| e.node(name))?;
            Ok((name.clone(), own))
        };
        inputs.iter().map(one).collect()
    }

    /// The whole output, gathered from all ranks, given this rank's part; `parts` are the cuts that gave it.
    pub fn gather_output(&self, own: Tensor, parts: &[Part]) -> Result<Tensor> {
        parts.iter().rev().try_fold(own, |own, part| self.joined(own, part))
    }

    fn joined(&self, own: Tensor, part: &Part) -> Result<Tensor> {
        let axis = part.start.names().into_iter().find_map(|name| match self.symbols.get(&*name)?.kind {
            SymbolKind::Rank { axis } => Some(axis),
            _ => None,
        });
        let mesh = axis.ok_or_else(|| Error::defect("a part that is the same on all ranks"))?;
        let (dims, [outer, unit]) = (own.dims().to_vec(), [part.outer, part.unit].map(|n| n as usize));
        let mut open = dims.clone();
        open.splice(part.axis..=part.axis, [outer, dims[part.axis] / (outer * unit), unit]);
        let all = self.world.exchange(&Collective::AllGather { mesh, dim: part.axis + 1 }, &own.with_dims(open)?)?;
        let mut dims = dims;
        dims[part.axis] = outer * all.dims()[part.axis + 1] * unit;
        all.with_dims(dims)
    }

    fn coordinate(&self, symbol: &str) -> Option<i64> {
        match self.symbols.get(symbol)?.kind {
            SymbolKind::Rank { axis } => self.world.coordinate(axis),
            _ => None,
        }
    }
}

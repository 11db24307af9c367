//! Invariants of a kernel, checked by the verifier of `flow.kernel`

use super::kernel::{Body, Kernel, Level, Memlet};
use sardonyx_base::DType;
use sardonyx_base::dim::Symbol;

impl Kernel {
    /// Checks the invariants; the error describes the first one that does not hold.
    pub fn check(&self) -> Result<(), String> {
        for (k, statement) in self.body.iter().enumerate() {
            self.check_statement(k).map_err(|e| format!("statement ${k} ({}): {e}", statement.dtype))?;
        }
        let levels = self.levels();
        for store in &self.stores {
            let Some(container) = self.writes.get(store.memlet.container) else {
                return Err(format!("a store to result {}, of {}", store.memlet.container, self.writes.len()));
            };
            if store.value >= self.body.len() {
                return Err("a store of a value that is not there".into());
            }
            if self.body[store.value].dtype != container.dtype {
                return Err(format!("a store of {} to {}", self.body[store.value].dtype, container.dtype));
            }
            self.check_index(&store.memlet, container.dims.len(), self.body.len())?;
            let place = store.memlet.index.iter().map(|d| self.level_of(d, &levels)).max().unwrap_or(Level::Row);
            if place > levels[store.value] {
                return Err("a row value is stored at an inner index".into());
            }
            if levels[store.value] == Level::Deep {
                return Err("a deep value is stored before it is summed".into());
            }
        }
        if !self.deep.is_empty() && !levels.contains(&Level::Deep) {
            return Err("nothing happens in the deep space".into());
        }
        match (0..self.writes.len()).find(|w| !self.stores.iter().any(|s| s.memlet.container == *w)) {
            Some(w) => Err(format!("result {w} is never stored")),
            None => Ok(()),
        }
    }

    fn check_index(&self, memlet: &Memlet, rank: usize, before: usize) -> Result<(), String> {
        if memlet.index.len() != rank {
            return Err(format!("{} indices for a container of rank {rank}", memlet.index.len()));
        }
        for symbol in memlet.index.iter().flat_map(|d| d.symbols()) {
            let ok = match symbol {
                Symbol::Variable(i) => i < self.n_vars(),
                Symbol::Statement(k) => k < before && self.body[k].dtype == DType::I64,
                _ => true,
            };
            if !ok {
                return Err(format!("`{symbol}` is no iteration variable and no earlier i64 statement"));
            }
        }
        Ok(())
    }

    fn check_statement(&self, k: usize) -> Result<(), String> {
        let statement = &self.body[k];
        let dtype_of = |i: usize| match i < k {
            true => Ok(self.body[i].dtype),
            false => Err("uses a later statement".to_string()),
        };
        match &statement.body {
            Body::Load { memlet, guard } => {
                let Some(container) = self.reads.get(memlet.container) else {
                    return Err(format!("loads operand {}, of {}", memlet.container, self.reads.len()));
                };
                if container.dtype != statement.dtype {
                    return Err(format!("loads from a container of {}", container.dtype));
                }
                if let Some(g) = guard
                    && dtype_of(*g)? != DType::Bool
                {
                    return Err("the guard is not a bool".into());
                }
                self.check_index(memlet, container.dims.len(), k)
            }
            Body::Const(_) => Ok(()),
            Body::Index(_) if statement.dtype != DType::I64 => Err("an index is an i64".into()),
            Body::Index(d) => self.check_index(&Memlet { container: 0, index: vec![d.clone()] }, 1, k),
            Body::Apply { f, args } => {
                let types = args.iter().map(|&a| dtype_of(a)).collect::<Result<Vec<_>, _>>()?;
                let result = f.result(&types)?;
                if result == statement.dtype { Ok(()) } else { Err(format!("`{}` gives {result}", f.name())) }
            }
            Body::Convert(arg, how) => dtype_of(*arg).and_then(|from| how.check(from, statement.dtype)),
            Body::Reduce { arg, .. } => match dtype_of(*arg)? == statement.dtype {
                true => Ok(()),
                false => Err("a reduction keeps the element type".into()),
            },
        }
    }
}

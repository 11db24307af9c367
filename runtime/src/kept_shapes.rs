//! an entry point and sizes of its symbols  =>  its shape, evaluated once and kept while there is space

use crate::program::Program;
use crate::shape::Shape;
use sardonyx_base::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shapes that a session keeps: the most recently used ones, up to `BYTES_MAX`, but at least `SHAPES_MIN`.
#[derive(Default)]
pub struct KeptShapes {
    /// Each key is the index of the entry point, and the values of the symbols in `Entry.bound`.
    shapes: BTreeMap<(usize, Vec<i64>), Kept>,
    bytes: usize,
    n_uses: u64,
}

struct Kept {
    shape: Arc<Shape>,
    bytes: usize,
    /// Value of `n_uses` at the last use.
    used: u64,
}

/// Maximum number of bytes of the shapes that a session keeps: about 300 shapes of MiniLM, at 3.5 KB each. Servers that
/// pack requests by tokens need hundreds of shapes.
const BYTES_MAX: usize = 1 << 20;

/// Number of shapes that a session keeps however large they are.
const SHAPES_MIN: usize = 8;

impl KeptShapes {
    /// Returns the shape of a call: one that is kept, or else a new one. Errors: those of [`Shape::new`].
    pub fn shape_for(&mut self, program: &Program, entry: usize, values: Vec<Option<i64>>) -> Result<Arc<Shape>> {
        // Every symbol in `bound` has a value: `bind_symbols` and `bind_capacities` have set it.
        let key = (entry, program.entries[entry].bound.iter().map(|&s| values[s].unwrap_or(-1)).collect::<Vec<i64>>());
        self.n_uses += 1;
        if let Some(kept) = self.shapes.get_mut(&key) {
            kept.used = self.n_uses;
            return Ok(kept.shape.clone());
        }
        let shape = Arc::new(Shape::new(program, &program.entries[entry], values)?);
        let bytes = size_of::<Kept>() + size_of_val(&key) + key.1.capacity() * size_of::<i64>() + shape.kept_bytes();
        while self.bytes + bytes > BYTES_MAX && self.shapes.len() >= SHAPES_MIN {
            self.drop_oldest();
        }
        self.bytes += bytes;
        self.shapes.insert(key, Kept { shape: shape.clone(), bytes, used: self.n_uses });
        Ok(shape)
    }

    /// Drops the least recently used shapes: at once, a quarter of the number above `SHAPES_MIN`, but at least one, so
    /// that not every miss has to scan all shapes.
    fn drop_oldest(&mut self) {
        let mut uses: Vec<u64> = self.shapes.values().map(|kept| kept.used).collect();
        let n = (uses.len().saturating_sub(SHAPES_MIN) / 4).max(1);
        let (_, &mut last, _) = uses.select_nth_unstable(n - 1);
        self.shapes.retain(|_, kept| kept.used > last);
        self.bytes = self.shapes.values().map(|kept| kept.bytes).sum();
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

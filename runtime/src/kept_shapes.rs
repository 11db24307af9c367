//! an entry point and sizes of its symbols  =>  its shape, evaluated once and kept while there is room

use crate::program::Program;
use crate::shape::Shape;
use sardonyx_base::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shapes that a session keeps: those used last, as far as their bytes fit.
#[derive(Default)]
pub struct KeptShapes {
    /// By entry point, and by the values of `Entry.bound`.
    shapes: BTreeMap<(usize, Vec<i64>), Kept>,
    bytes: usize,
    n_uses: u64,
}

struct Kept {
    shape: Arc<Shape>,
    bytes: usize,
    /// The number of the last use.
    used: u64,
}

/// Bytes of shapes kept per session: some 300 of MiniLM, whose shapes take 3.5 KB each. Servers that pack requests by
/// tokens see hundreds.
const BYTES_MAX: usize = 1 << 20;

/// Shapes kept per session however large they are.
const SHAPES_MIN: usize = 8;

impl KeptShapes {
    /// Errors: those of [`Shape::new`].
    pub fn shape_for(&mut self, program: &Program, entry: usize, values: Vec<Option<i64>>) -> Result<Arc<Shape>> {
        // A bound symbol has a value: an input has the dimension that binds it.
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

    /// Drops those that were used longest ago: a quarter of them at once, so that not every miss has to look at all.
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

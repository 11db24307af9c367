//! results of launches, statements of kernels  =>  the values of the ONNX graph that they hold

use super::alike::{Apart, Bound, Numbers, find, find_part, nearest};
use super::statements::{size, values};
use super::values::Values;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::interp::KernelCall;
use std::collections::{BTreeSet, HashMap};

/// A launch as executed by the device.
pub struct Launch {
    pub kernel: String,
    pub origins: Vec<String>,
    /// Contents of the buffers that the launch writes.
    pub results: Vec<Vec<u8>>,
    /// Index of the program's step that the launch executes.
    pub step: Option<usize>,
}

/// Where a value was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into the launches.
    pub launch: usize,
    /// Whether the value is only computed by a statement inside the kernel and not stored in memory.
    pub inside: bool,
}

pub struct Held<'v> {
    values: &'v Values,
    wanted: Vec<Option<Numbers>>,
    /// For each wanted value that is constant along some dimension: the value without that dimension.
    once: Vec<Option<Numbers>>,
    bound: Bound,
    /// Values by number of elements.
    by_size: HashMap<usize, Vec<usize>>,
    found: Vec<Option<(Place, Apart)>>,
    /// Tensors in which no value was found.
    loose: Vec<(Place, Numbers)>,
    /// Launches whose results have been examined; `entered` has those whose statements have been examined.
    shown: BTreeSet<usize>,
    entered: BTreeSet<usize>,
    /// Launches whose results differ from the interpretation of their kernels.
    wrong_code: BTreeSet<usize>,
}

impl<'v> Held<'v> {
    pub fn new(values: &'v Values, wanted: &[Option<Tensor>], bound: Bound) -> Held<'v> {
        let wanted: Vec<Option<Numbers>> = (values.all.iter().zip(wanted))
            .map(|(v, t)| t.as_ref().filter(|_| v.varies).and_then(Numbers::read))
            .collect();
        let mut by_size: HashMap<usize, Vec<usize>> = HashMap::new();
        let once: Vec<Option<Numbers>> = wanted.iter().map(|n| n.as_ref().and_then(Numbers::without_repeats)).collect();
        for (at, numbers) in wanted.iter().zip(&once).enumerate() {
            let sizes = [numbers.0, numbers.1].into_iter().flatten().map(|n| n.values.len());
            sizes.for_each(|size| by_size.entry(size).or_default().push(at));
        }
        let found = vec![None; wanted.len()];
        let (loose, shown, entered, wrong_code) = (vec![], BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Held { values, wanted, once, bound, by_size, found, loose, shown, entered, wrong_code }
    }

    pub fn wanted(&self, at: usize) -> Option<&Numbers> {
        self.wanted[at].as_ref()
    }

    pub fn found(&self, at: usize) -> Option<(Place, Apart)> {
        self.found[at]
    }

    pub fn n_found(&self) -> usize {
        self.found.iter().flatten().count()
    }

    pub fn is_wrong_code(&self, launch: usize) -> bool {
        self.wrong_code.contains(&launch)
    }

    /// Steps of the launches for a node whose statements have not been examined yet.
    pub fn unseen(&self, node: &str, launches: &[Launch]) -> Vec<usize> {
        let of = |(at, l): (usize, &Launch)| {
            let new = !self.entered.contains(&at) && l.origins.iter().any(|o| o == node);
            l.step.filter(|_| new)
        };
        launches.iter().enumerate().filter_map(of).collect()
    }

    /// Among the unmatched tensors of the launches for a value's node that satisfy `is`, the one nearest to the value.
    pub fn nearest(&self, at: usize, launches: &[Launch], is: &dyn Fn(&Numbers) -> bool) -> Option<(Place, Apart)> {
        let (wanted, node) = (self.wanted[at].as_ref()?, &self.values.all[at].node);
        let of_node = |(place, n): &&(Place, Numbers)| launches[place.launch].origins.contains(node) && is(n);
        let near = |(place, n): &(Place, Numbers)| Some((*place, nearest(wanted, n, self.bound)?));
        let measured = self.loose.iter().filter(of_node).filter_map(near);
        measured.min_by(|a, b| a.1.abs_max.total_cmp(&b.1.abs_max).then(a.1.n_outside.cmp(&b.1.n_outside)))
    }

    pub fn results(&mut self, at: usize, launch: &Launch, results: &[Tensor]) {
        if self.shown.insert(at) {
            results.iter().for_each(|t| self.look(Place { launch: at, inside: false }, launch, t));
        }
    }

    /// Interprets a kernel on its inputs from the device: checks the device's results, and searches the statements.
    pub fn inside(&mut self, at: usize, launch: &Launch, call: &KernelCall, results: &[Tensor]) -> Result<()> {
        if !self.entered.insert(at) {
            return Ok(());
        }
        for (meant, result) in call.interpret()?.iter().zip(results) {
            let apart = Numbers::read(meant).zip(Numbers::read(result));
            let apart = apart.and_then(|(meant, result)| meant.apart_in_place(&result, self.bound));
            if apart.is_some_and(|apart| apart.n_outside > 0) {
                self.wrong_code.insert(at);
            }
        }
        // If the device's results are wrong, skips the statements that the kernel stores: their values never existed on
        // the device.
        let stored = |k: usize| self.is_wrong_code(at) && call.kernel.stores.iter().any(|s| s.value == k);
        let statements = values(call, &stored)?;
        statements.iter().for_each(|t| self.look(Place { launch: at, inside: true }, launch, t));
        Ok(())
    }

    fn look(&mut self, place: Place, launch: &Launch, tensor: &Tensor) {
        let Some(numbers) = Numbers::read(tensor) else { return };
        let mut holds = false;
        for &at in self.by_size.get(&numbers.values.len()).into_iter().flatten() {
            let forms = [&self.wanted[at], &self.once[at]];
            let found = forms.into_iter().flatten().find_map(|wanted| find(wanted, &numbers, self.bound));
            holds |= found.is_some();
            // The first match counts: a later launch may compute the value again, but from other inputs.
            self.found[at] = self.found[at].or(found.map(|apart| (place, apart)));
        }
        let values = &self.values.all;
        let of_launch =
            (0..values.len()).filter(|&at| self.found[at].is_none() && launch.origins.contains(&values[at].node));
        for at in of_launch.collect::<Vec<_>>() {
            let part = self.wanted[at].as_ref().and_then(|wanted| find_part(wanted, &numbers, self.bound));
            holds |= part.is_some();
            self.found[at] = part.map(|apart| (place, apart));
        }
        if !holds {
            self.loose.push((place, numbers));
        }
    }
}

/// The bytes written by the device, as tensors of the types that the kernel declares.
pub fn containers(call: &KernelCall, launch: &Launch) -> Result<Vec<Tensor>> {
    let one = |(container, bytes): (&sardonyx_dialects::flow::Container, &Vec<u8>)| {
        let dims = container.dims.iter().map(|d| size(d, call.symbols)).collect::<Result<Vec<usize>>>()?;
        let n: usize = dims.iter().product();
        let length = container.dtype.bytes_for(n).filter(|length| *length <= bytes.len());
        let length = length.ok_or_else(|| Error::defect(format!("{} wrote less than its results", launch.kernel)))?;
        Tensor::new(container.dtype, dims, bytes[..length].to_vec().into())
    };
    call.kernel.writes.iter().zip(&launch.results).map(one).collect()
}

/// Number of statements times the size of the iteration space.
pub fn work(call: &KernelCall) -> Result<usize> {
    let mut space = call.kernel.outer.iter().chain(&call.kernel.inner).chain(&call.kernel.deep);
    space.try_fold(call.kernel.body.len(), |n, d| Ok(n.saturating_mul(size(d, call.symbols)?)))
}

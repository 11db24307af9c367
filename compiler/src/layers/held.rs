//! results of launches, values of kernel statements  =>  where each value of the ONNX graph was found

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
    /// Contents of the buffers that the launch has written.
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

/// Searches the tensors of a compiled program for the values of the ONNX graph.
pub struct Held<'v> {
    values: &'v Values,
    /// Expected elements of each value; `None` for a value that is not searched for.
    wanted: Vec<Option<Numbers>>,
    /// For each wanted value that is constant along some dimensions: the value without these dimensions.
    once: Vec<Option<Numbers>>,
    bound: Bound,
    /// Indices of the values in `wanted` and `once`, by number of elements.
    by_size: HashMap<usize, Vec<usize>>,
    /// Where each value was first found, and how much it differs there.
    found: Vec<Option<(Place, Apart)>>,
    /// Tensors in which no value was found, even as a part.
    loose: Vec<(Place, Numbers)>,
    /// Launches whose results have been searched.
    shown: BTreeSet<usize>,
    /// Launches whose statements have been searched.
    entered: BTreeSet<usize>,
    /// Launches whose results differ by more than the tolerance from the interpretation of their kernels.
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

    /// Steps of the launches that belong to `node` and whose statements have not been searched yet.
    pub fn unseen(&self, node: &str, launches: &[Launch]) -> Vec<usize> {
        let step = |(at, l): (usize, &Launch)| {
            let new = !self.entered.contains(&at) && l.origins.iter().any(|o| o == node);
            l.step.filter(|_| new)
        };
        launches.iter().enumerate().filter_map(step).collect()
    }

    /// Of the tensors in which no value was found, the one nearest to a value: among those that satisfy `is` and come
    /// from a launch for the value's node.
    pub fn nearest(&self, at: usize, launches: &[Launch], is: &dyn Fn(&Numbers) -> bool) -> Option<(Place, Apart)> {
        let (wanted, node) = (self.wanted[at].as_ref()?, &self.values.all[at].node);
        let of_node = |(place, n): &&(Place, Numbers)| launches[place.launch].origins.contains(node) && is(n);
        let near = |(place, n): &(Place, Numbers)| Some((*place, nearest(wanted, n, self.bound)?));
        let measured = self.loose.iter().filter(of_node).filter_map(near);
        measured.min_by(|a, b| a.1.abs_max.total_cmp(&b.1.abs_max).then(a.1.n_outside.cmp(&b.1.n_outside)))
    }

    /// Searches the results of a launch, once.
    pub fn results(&mut self, at: usize, launch: &Launch, results: &[Tensor]) {
        if self.shown.insert(at) {
            results.iter().for_each(|t| self.search(Place { launch: at, inside: false }, launch, t));
        }
    }

    /// Interprets a launch's kernel, once, on the device's inputs: checks the device's results against it, and searches
    /// the values of the kernel's statements.
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
        // If the device's results are wrong, the statements that the kernel stores are skipped: the device never had
        // the values that the interpreter computes for them.
        let stored = |k: usize| self.is_wrong_code(at) && call.kernel.stores.iter().any(|s| s.value == k);
        let statements = values(call, &stored)?;
        statements.iter().for_each(|t| self.search(Place { launch: at, inside: true }, launch, t));
        Ok(())
    }

    /// Enters a place for each value that the tensor holds, alone or, if the launch is for the value's node, as a part.
    fn search(&mut self, place: Place, launch: &Launch, tensor: &Tensor) {
        let Some(numbers) = Numbers::read(tensor) else { return };
        let mut holds = false;
        for &at in self.by_size.get(&numbers.values.len()).into_iter().flatten() {
            let forms = [&self.wanted[at], &self.once[at]];
            let found = forms.into_iter().flatten().find_map(|wanted| find(wanted, &numbers, self.bound));
            holds |= found.is_some();
            // The first match counts: a later launch may compute the value again from different inputs.
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

/// Returns the bytes that a launch has written, as tensors of the types that the kernel declares. Errors: E0901 if
/// there are too few.
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

/// Returns the cost of interpreting a kernel: the number of statements times the points of all its iteration spaces.
pub fn work(call: &KernelCall) -> Result<usize> {
    let mut space = call.kernel.outer.iter().chain(&call.kernel.inner).chain(&call.kernel.deep);
    space.try_fold(call.kernel.body.len(), |n, d| Ok(n.saturating_mul(size(d, call.symbols)?)))
}

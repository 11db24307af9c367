//! adjacent values  =>  their linear combinations: Winograd's F(2, 3) and F(2, 5), along each side of a tile
//!
//! F(2, r) computes two adjacent results of a 1D filter with r taps from r + 1 input values, with r + 1
//! multiplications. Each multiplication takes a linear combination of the input values and a linear combination of the
//! filter's taps, and linear combinations of the products give the results.

use crate::draft::Draft;
use sardonyx_base::DType;
use sardonyx_dialects::flow::Body;
use sardonyx_dialects::scalar::ScalarFn;

/// Number of results of a tile along each side.
pub const TILE: i64 = 2;

/// The variant of the algorithm, named after the number of filter taps along a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// F(2, 3): interpolation points 0, 1, -1 and infinity.
    Three,
    /// F(2, 5): the interpolation points also include 2 and -2.
    Five,
}

impl Scheme {
    pub fn for_filter(filter: i64) -> Option<Scheme> {
        [Scheme::Three, Scheme::Five].into_iter().find(|scheme| scheme.filter() == filter)
    }

    pub fn filter(self) -> i64 {
        match self {
            Scheme::Three => 3,
            Scheme::Five => 5,
        }
    }

    /// Returns the number of values along a side that a tile is computed from, which is also its number of
    /// multiplications.
    pub fn piece(self) -> i64 {
        self.filter() + TILE - 1
    }

    /// Transforms a line of image values.
    pub fn image(self, body: &mut Draft, d: &[usize]) -> Vec<usize> {
        let mut sums = Sums(body);
        match self {
            Scheme::Three => {
                vec![sums.sub(d[0], d[2]), sums.add(d[1], d[2]), sums.sub(d[2], d[1]), sums.sub(d[1], d[3])]
            }
            Scheme::Five => {
                let outer = |sums: &mut Sums, at: usize| {
                    let (first, middle) = (sums.times(4.0, d[at]), sums.times(5.0, d[at + 2]));
                    let less = sums.sub(first, middle);
                    sums.add(less, d[at + 4])
                };
                let first = outer(&mut sums, 0);
                let (two, one) = (sums.times(4.0, d[2]), sums.times(4.0, d[1]));
                let (even, odd) = (sums.sub(d[4], two), sums.sub(d[3], one));
                let (far, near) = (sums.sub(d[4], d[2]), sums.sub(d[3], d[1]));
                let near = sums.times(2.0, near);
                let inner = [sums.add(even, odd), sums.sub(even, odd), sums.add(far, near), sums.sub(far, near)];
                let last = outer(&mut sums, 1);
                [&[first], &inner[..], &[last]].concat()
            }
        }
    }

    /// Transforms a line of filter taps.
    pub fn filters(self, body: &mut Draft, w: &[usize]) -> Vec<usize> {
        let mut sums = Sums(body);
        match self {
            Scheme::Three => {
                let ends = sums.add(w[0], w[2]);
                let (ends, middle) = (sums.times(0.5, ends), sums.times(0.5, w[1]));
                vec![w[0], sums.add(ends, middle), sums.sub(ends, middle), w[2]]
            }
            Scheme::Five => {
                let both = |sums: &mut Sums, [zero, one, two, three, four]: [f64; 5]| {
                    let weighted = |sums: &mut Sums, terms: &[(f64, usize)]| {
                        let terms: Vec<usize> = terms.iter().map(|(by, at)| sums.times(*by, w[*at])).collect();
                        terms.into_iter().reduce(|a, b| sums.add(a, b)).unwrap_or(w[0])
                    };
                    let even = weighted(sums, &[(zero, 0), (two, 2), (four, 4)]);
                    let odd = weighted(sums, &[(one, 1), (three, 3)]);
                    [sums.add(even, odd), sums.sub(even, odd)]
                };
                let first = sums.times(0.25, w[0]);
                let ones = both(&mut sums, [-1.0 / 6.0; 5]);
                let twos = both(&mut sums, [1.0, 2.0, 4.0, 8.0, 16.0].map(|power| power / 24.0));
                [&[first], &ones[..], &twos, &[w[4]]].concat()
            }
        }
    }

    /// Transforms the products into the two results.
    pub fn results(self, body: &mut Draft, m: &[usize]) -> Vec<usize> {
        let mut sums = Sums(body);
        let (plus, minus) = (sums.add(m[1], m[2]), sums.sub(m[1], m[2]));
        match self {
            Scheme::Three => vec![sums.add(m[0], plus), sums.sub(minus, m[3])],
            Scheme::Five => {
                let (far, near) = (sums.add(m[3], m[4]), sums.sub(m[3], m[4]));
                let (near, first) = (sums.times(2.0, near), sums.add(m[0], plus));
                let second = sums.add(minus, near);
                vec![sums.add(first, far), sums.add(second, m[5])]
            }
        }
    }
}

/// Appends f32 sums, differences and multiples to a body.
struct Sums<'b>(&'b mut Draft);

impl Sums<'_> {
    fn add(&mut self, a: usize, b: usize) -> usize {
        self.0.apply(ScalarFn::Add, &[a, b], DType::F32)
    }

    fn sub(&mut self, a: usize, b: usize) -> usize {
        self.0.apply(ScalarFn::Sub, &[a, b], DType::F32)
    }

    fn times(&mut self, by: f64, a: usize) -> usize {
        let by = self.0.push(Body::Const(f64::from(by as f32)), DType::F32);
        self.0.apply(ScalarFn::Mul, &[by, a], DType::F32)
    }
}

/// Returns all positions in a square (cube, …) with `n` points along each side, the last coordinate varying fastest.
pub fn places(sides: usize, n: i64) -> Vec<Vec<i64>> {
    (0..sides).fold(vec![vec![]], |places, _| {
        let with = |place: Vec<i64>| (0..n).map(move |digit| [place.clone(), vec![digit]].concat());
        places.into_iter().flat_map(with).collect()
    })
}

/// Returns the index of a position in the order of [`places`], for `n` points along each side.
pub fn number(place: &[i64], n: i64) -> i64 {
    place.iter().fold(0, |number, digit| number * n + digit)
}

/// Applies a 1D transform along each side in turn to the values of a square with `n` points along each side. Each value
/// is loaded just before the first transform that reads it.
pub fn every_way(
    body: &mut Draft,
    (sides, n): (usize, i64),
    load: impl Fn(&mut Draft, &[i64]) -> usize,
    combined: impl Fn(&mut Draft, &[usize]) -> Vec<usize>,
) -> Vec<usize> {
    let across = |mut lines: Vec<std::vec::IntoIter<usize>>| {
        let count = lines[0].len();
        (0..count).flat_map(|_| lines.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let first = places(sides - 1, n).into_iter().map(|rest| {
        let line: Vec<usize> = (0..n).map(|at| load(body, &[&[at], &rest[..]].concat())).collect();
        combined(body, &line).into_iter()
    });
    let mut values = across(first.collect());
    for side in 1..sides {
        // Sides before this side already have as many points as the transform has results; sides after it still have
        // `n` points.
        let inner = (n as usize).pow((sides - side - 1) as u32);
        let squares: Vec<Vec<usize>> = values.chunks(n as usize * inner).map(<[usize]>::to_vec).collect();
        let of_square = |square: Vec<usize>| {
            let line = |at: usize| square.iter().skip(at).step_by(inner).copied().collect::<Vec<usize>>();
            across((0..inner).map(|at| combined(body, &line(at)).into_iter()).collect())
        };
        values = squares.into_iter().flat_map(of_square).collect();
    }
    values
}

//! candidates, a bound on their total loss  =>  the cheapest choice of one candidate for each row

/// One alternative for storing the weights of a layer: its cost in bytes, and its squared relative error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub cost: u64,
    pub lost: f64,
}

/// Returns the index of a candidate for each row. Their total cost is the least among all choices whose total loss is
/// at most `most`; ties go to the smaller loss. `None` if every choice loses more.
pub fn cheapest(rows: &[Vec<Candidate>], most: f64) -> Option<Vec<usize>> {
    // The Pareto front of each prefix of rows, by rising cost: each entry loses less than the one before.
    let mut fronts: Vec<Vec<Partial>> = vec![vec![Partial { cost: 0, lost: 0.0, before: 0, choice: 0 }]];
    for row in rows {
        let last = fronts.last()?;
        let mut all: Vec<Partial> = vec![];
        for (before, p) in last.iter().enumerate() {
            for (choice, c) in row.iter().enumerate() {
                let next = Partial { cost: p.cost + c.cost, lost: p.lost + c.lost, before, choice };
                if next.lost <= most {
                    all.push(next);
                }
            }
        }
        all.sort_by(|a, b| a.cost.cmp(&b.cost).then(a.lost.total_cmp(&b.lost)));
        let mut front: Vec<Partial> = vec![];
        for p in all {
            if front.last().is_none_or(|last| p.lost < last.lost) {
                front.push(p);
            }
        }
        fronts.push(front);
    }
    let mut at = 0;
    let mut chosen = vec![];
    for front in fronts[1..].iter().rev() {
        let p = front.get(at)?;
        chosen.push(p.choice);
        at = p.before;
    }
    chosen.reverse();
    Some(chosen)
}

/// A choice for a prefix of the rows: the last row's candidate, and the entry of the previous front that it extends.
struct Partial {
    cost: u64,
    lost: f64,
    before: usize,
    choice: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(rows: &[Vec<Candidate>], chosen: &[usize]) -> (u64, f64) {
        rows.iter().zip(chosen).fold((0, 0.0), |(cost, lost), (row, &c)| (cost + row[c].cost, lost + row[c].lost))
    }

    fn by_trying_all(rows: &[Vec<Candidate>], most: f64) -> Option<(u64, f64)> {
        let mut all = vec![vec![]];
        for row in rows {
            all = all.iter().flat_map(|c: &Vec<usize>| (0..row.len()).map(|i| [&c[..], &[i]].concat())).collect();
        }
        let fits = all.iter().map(|c| total(rows, c)).filter(|t| t.1 <= most);
        fits.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
    }

    #[test]
    fn the_choice_is_that_of_trying_all() {
        let mut state = 1u32;
        let mut next = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % n
        };
        for _ in 0..500 {
            let n = 1 + next(6);
            let row = |next: &mut dyn FnMut(u32) -> u32| -> Vec<Candidate> {
                (0..1 + next(3))
                    .map(|_| Candidate { cost: next(20).into(), lost: f64::from(next(64)) / 64.0 })
                    .collect()
            };
            let rows: Vec<Vec<Candidate>> = (0..n).map(|_| row(&mut next)).collect();
            let most = f64::from(next(128)) / 64.0;
            let found = cheapest(&rows, most).map(|chosen| total(&rows, &chosen));
            assert_eq!(found, by_trying_all(&rows, most), "{rows:?} {most}");
        }
    }
}

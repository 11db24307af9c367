//! a graph in topological order  =>  a row and a column for each node, so that every edge points down

/// The position where a node is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub row: usize,
    pub column: usize,
}

/// Number of passes that reorder the columns by the columns of the neighbours.
const ROUNDS: usize = 4;

/// Computes a layered layout. The row of a node is one more than the largest row of its predecessors. Within a row,
/// nodes are ordered by the mean column of their neighbours, so that fewer edges cross. Edges have to go from an
/// earlier node to a later one.
pub fn layered(n: usize, edges: &[(usize, usize)]) -> Vec<Place> {
    let mut row = vec![0; n];
    let mut sorted: Vec<(usize, usize)> = edges.iter().copied().filter(|(from, to)| from < to && *to < n).collect();
    sorted.sort_unstable_by_key(|(from, to)| (*to, *from));
    for (from, to) in &sorted {
        row[*to] = row[*to].max(row[*from] + 1);
    }
    let mut rows: Vec<Vec<usize>> = vec![vec![]; row.iter().max().map_or(0, |last| last + 1)];
    (0..n).for_each(|i| rows[row[i]].push(i));
    let mut near: Vec<Vec<usize>> = vec![vec![]; n];
    for (from, to) in &sorted {
        near[*from].push(*to);
        near[*to].push(*from);
    }
    let mut column = vec![0; n];
    let number = |rows: &[Vec<usize>], column: &mut Vec<usize>| {
        for things in rows {
            things.iter().enumerate().for_each(|(at, i)| column[*i] = at);
        }
    };
    number(&rows, &mut column);
    for _ in 0..ROUNDS {
        for things in &mut rows {
            // Twice the mean column of the neighbours, in integers, so that the layout is the same on every machine.
            let mean = |i: &usize| match near[*i].len() {
                0 => 2 * column[*i],
                n => 2 * near[*i].iter().map(|other| column[*other]).sum::<usize>() / n,
            };
            let mut keyed: Vec<(usize, usize)> = things.iter().map(|i| (mean(i), *i)).collect();
            keyed.sort_unstable();
            *things = keyed.into_iter().map(|(_, i)| i).collect();
            things.iter().enumerate().for_each(|(at, i)| column[*i] = at);
        }
    }
    (0..n).map(|i| Place { row: row[i], column: column[i] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_go_down_and_no_two_things_share_a_place() {
        for seed in 0..200u64 {
            let n = 1 + (seed % 17) as usize;
            let draw =
                |i: u64, below: usize| (seed.wrapping_mul(2654435761).wrapping_add(i * 40503) >> 7) as usize % below;
            let edges: Vec<(usize, usize)> =
                (0..2 * n as u64).map(|i| (draw(i, n), draw(i + 97, n))).filter(|(from, to)| from < to).collect();
            let places = layered(n, &edges);
            assert!(edges.iter().all(|(from, to)| places[*from].row < places[*to].row), "{edges:?} {places:?}");
            let mut all: Vec<(usize, usize)> = places.iter().map(|p| (p.row, p.column)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), n);
        }
    }

    #[test]
    fn a_chain_is_a_line_and_two_chains_do_not_cross() {
        let places = layered(5, &[(0, 1), (0, 2), (1, 3), (2, 4)]);
        assert_eq!(places.iter().map(|p| p.row).collect::<Vec<_>>(), [0, 1, 1, 2, 2]);
        assert_eq!(places[1].column < places[2].column, places[3].column < places[4].column);
    }
}

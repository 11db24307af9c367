//! a torus of r rows and c columns  =>  two Hamiltonian cycles without a common edge
//!
//! The construction is that of Bae, AlBdaiwi and Bose (2004), as described in HammingMesh (Hoefler et al., 2022). It
//! applies if r is a multiple of c, c is at least 3, and r and c - 1 have no common divisor but 1. Rings in both
//! directions over both cycles use all four links of every device.

/// Returns the devices of each cycle in order, numbered row by row; `None` if the construction does not apply.
pub fn edge_disjoint_cycles(rows: usize, columns: usize) -> Option<[Vec<usize>; 2]> {
    let (r, c) = (rows, columns);
    if c < 3 || !r.is_multiple_of(c) || gcd(r, c - 1) != 1 {
        return None;
    }
    let first = |t: usize| (t / c, (t % c + c * r - t / c) % c);
    let second = |t: usize| ((t / c * (c - 1) + t % c) % r, t / c % c);
    let cycle =
        |place: &dyn Fn(usize) -> (usize, usize)| (0..r * c).map(place).map(|(row, column)| row * c + column).collect();
    Some([cycle(&first), cycle(&second)])
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cycles_visit_all_devices_over_links_of_their_own() {
        let good =
            [(4, 4), (8, 4), (8, 8), (16, 4), (9, 3), (6, 6), (5, 5), (12, 6), (16, 16), (16, 8), (15, 5), (3, 3)];
        for (r, c) in good {
            let mut edges = BTreeSet::new();
            for cycle in edge_disjoint_cycles(r, c).unwrap() {
                assert_eq!(cycle.iter().collect::<BTreeSet<_>>().len(), r * c, "{r}x{c}");
                for (i, &a) in cycle.iter().enumerate() {
                    let b = cycle[(i + 1) % cycle.len()];
                    let apart = |x: usize, y: usize, n: usize| ((x + n - y) % n).min((y + n - x) % n);
                    assert_eq!(apart(a / c, b / c, r) + apart(a % c, b % c, c), 1, "{r}x{c}: {a} {b}");
                    assert!(edges.insert((a.min(b), a.max(b))), "{r}x{c}: {a} {b} twice");
                }
            }
            assert_eq!(edges.len(), 2 * r * c);
        }
        for (r, c) in [(6, 3), (12, 4), (10, 5), (20, 5), (4, 2), (5, 4), (0, 4)] {
            assert!(r == 0 || edge_disjoint_cycles(r, c).is_none(), "{r}x{c}");
        }
    }
}

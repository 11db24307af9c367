//! ldmatrix and stmatrix: positions of all elements, and stmatrix as the inverse of ldmatrix

use super::*;
use crate::units::testing::Random;

#[test]
fn every_lane_gets_the_elements_that_the_isa_names() {
    // Element (row, column) of tile j is the number j * 64 + row * 8 + column.
    let element = |j: usize, row: usize, column: usize| (j * 64 + row * 8 + column) as u32;
    let rows: [Row; 32] = std::array::from_fn(|i| {
        std::array::from_fn(|w| element(i / 8, i % 8, 2 * w) | element(i / 8, i % 8, 2 * w + 1) << 16)
    });
    for count in [1, 2, 4] {
        for (trans, at) in
            [(false, (|g, t, i| (g, 2 * t + i)) as fn(usize, usize, usize) -> _), (true, |g, t, i| (2 * t + i, g))]
        {
            let registers = ldmatrix(&rows, count, trans);
            for (j, register) in registers.iter().enumerate() {
                for (lane, &value) in register.iter().enumerate() {
                    let place = |i| {
                        let (row, column) = at(lane / 4, lane % 4, i);
                        element(j, row, column)
                    };
                    let expected = if j < count { place(0) | place(1) << 16 } else { 0 };
                    assert_eq!(value, expected, "x{count} trans {trans} register {j} lane {lane}");
                }
            }
        }
    }
}

#[test]
fn stmatrix_undoes_ldmatrix() {
    let mut r = Random(31);
    for (count, trans) in [(1, false), (1, true), (2, false), (2, true), (4, false), (4, true)] {
        let rows: [Row; 32] = std::array::from_fn(|i| std::array::from_fn(|_| if i < 8 * count { r.u32() } else { 0 }));
        let registers = ldmatrix(&rows, count, trans);
        assert_eq!(stmatrix(&registers[..count], trans), rows, "x{count} trans {trans}");
    }
}

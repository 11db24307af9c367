//! what each step runs  =>  the repeated layer among the steps: 72 = 5 + 6 layers × 11 + 1

/// A repetition: from step `first` on, the same sequence of `length` steps occurs `times` times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Index of the first step.
    pub first: usize,
    /// Number of steps in one repetition.
    pub length: usize,
    /// Number of repetitions, at least 2.
    pub times: usize,
}

/// The repetition that covers most steps; ties go to the shortest layer, then to the first position. `order` has a
/// number for each step, which is equal for steps that run the same.
pub fn layers(order: &[usize]) -> Option<Layers> {
    let mut best: Option<Layers> = None;
    for length in 1..=order.len() / 2 {
        let found = repeated(order, length).filter(|l| l.times > 1);
        if let Some(l) = found
            && best.is_none_or(|b| l.length * l.times > b.length * b.times)
        {
            best = Some(l);
        }
    }
    best
}

/// The longest repetition with period `length`, if it has at least two full periods.
fn repeated(order: &[usize], length: usize) -> Option<Layers> {
    let (mut longest, mut start) = (0..0, 0);
    for i in 0..order.len() - length {
        match order[i] == order[i + length] {
            true if i + 1 - start > longest.len() => longest = start..i + 1,
            true => {}
            false => start = i + 1,
        }
    }
    let times = longest.len() / length + 1;
    (longest.len() >= length).then_some(Layers { first: longest.start, length, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(order: &[usize]) -> Option<(usize, usize, usize)> {
        layers(order).map(|l| (l.first, l.length, l.times))
    }

    #[test]
    fn layers_are_what_repeats() {
        assert_eq!(found(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8]), Some((1, 3, 3)));
        // Three repetitions of length 3 cover more than the pairs of 5; a layer may itself contain a repetition.
        assert_eq!(found(&[5, 5, 6, 5, 5, 6, 5, 5, 6]), Some((0, 3, 3)));
        assert_eq!(found(&[7, 7, 7, 7]), Some((0, 1, 4)));
    }

    #[test]
    fn without_repetition_there_is_no_layer() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[1]), None);
        assert_eq!(found(&[1, 2, 3, 1]), None);
    }

    /// Compares with a brute-force search over every length and position.
    #[test]
    fn the_search_finds_what_trying_everything_finds() {
        for seed in 0..2000u64 {
            let n = seed % 11;
            let order: Vec<usize> = (0..n).map(|i| (((seed * 2654435761) >> (i * 3)) & 1) as usize).collect();
            let mut most = 0;
            for length in 1..=order.len() / 2 {
                for first in 0..order.len() {
                    let same = |t: &usize| order[first..].chunks(length).nth(*t) == Some(&order[first..first + length]);
                    let times = (0..).take_while(|t| first + length <= order.len() && same(t)).count();
                    most = most.max(if times > 1 { length * times } else { 0 });
                }
            }
            assert_eq!(layers(&order).map_or(0, |l| l.length * l.times), most, "{order:?}");
        }
    }
}

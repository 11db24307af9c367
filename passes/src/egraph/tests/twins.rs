//! Extraction against exhaustive search, on many small problems

use crate::egraph::extract::{Alternative, Budget, Choice, Problem, exact, extract, greedy, refine, total};
use crate::random::Random;

/// A few classes with up to three alternatives each; cycles are common.
fn problem(r: &mut Random) -> Problem {
    let n = 2 + r.below(8);
    let class = |r: &mut Random, c: usize| -> Vec<Alternative> {
        let count = 1 + r.below(3);
        let one = |r: &mut Random| {
            // Mostly refers to earlier classes, so that a choice without cycles is likely.
            let any = r.chance(25);
            let to = if any { n } else { c };
            let needs = (0..r.below(4)).filter(|_| to > 0).map(|_| r.below(to)).collect();
            Alternative { cost: r.below(12) as u64, needs }
        };
        (0..count).map(|_| one(r)).collect()
    };
    let classes = (0..n).map(|c| class(r, c)).collect();
    let roots = (0..1 + r.below(2)).map(|i| n - 1 - i.min(n - 1)).collect();
    Problem { classes, roots }
}

fn every_choice(p: &Problem) -> Vec<Choice> {
    p.classes.iter().fold(vec![vec![]], |all: Vec<Choice>, class| {
        let with = |c: &Choice| (0..class.len()).map(|a| [&c[..], &[a]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(with).collect()
    })
}

const EXACT: Budget = Budget { choices_max: 30, exact_steps_max: 1 << 20, refine_steps_max: 0 };

#[test]
fn the_search_finds_what_trying_everything_finds() {
    let (mut tried, mut improved, mut refined, mut greedily) = (0, 0, 0, 0);
    for seed in 0..2000 {
        let p = problem(&mut Random::new(seed));
        let all = every_choice(&p);
        let Some(least) = all.iter().filter_map(|c| total(&p, c)).min() else { continue };
        // Starts from the worst choice, which can be improved most.
        let start = all.iter().filter(|c| total(&p, c).is_some()).max_by_key(|c| total(&p, c)).unwrap();
        let found = exact(&p, start, 1 << 20).expect("few classes");
        assert_eq!(total(&p, &found), Some(least), "seed {seed}: {p:?}");
        let extracted = extract(&p, start.clone(), &EXACT).unwrap();
        assert_eq!((extracted.cost, extracted.proved), (least, true), "seed {seed}");
        let better = refine(&p, start.clone(), 1 << 20).expect("a start without cycles");
        let cost = total(&p, &better).unwrap_or_else(|| panic!("seed {seed}: a cycle in {better:?} of {p:?}"));
        assert!(cost <= total(&p, start).unwrap(), "seed {seed}: worse than before");
        tried += 1;
        improved += (total(&p, start) > Some(least)) as usize;
        refined += (cost == least) as usize;
        greedily += (total(&p, &greedy(&p)) == Some(least)) as usize;
    }
    assert!(tried >= 500 && improved >= 300, "{tried} problems, {improved} with something to find");
    // Refinement alone reaches most of the optima, without an exact search.
    assert!(refined * 100 >= tried * 85, "{refined} of {tried} by refinement, {greedily} greedily");
}

#[test]
fn steps_that_run_out_leave_the_best_so_far() {
    for seed in 0..300 {
        let p = problem(&mut Random::new(seed));
        let start = greedy(&p);
        let Some(cost) = total(&p, &start) else { continue };
        for steps in [0, 1, 5, 20] {
            let budget = Budget { choices_max: 30, exact_steps_max: steps, refine_steps_max: steps };
            let extracted = extract(&p, start.clone(), &budget).unwrap();
            assert!(extracted.cost <= cost);
            assert_eq!(total(&p, &extracted.choice), Some(extracted.cost));
        }
    }
}

/// Three maps of one input: each is cheaper than the packed map, but together they are more expensive.
#[test]
fn what_is_shared_is_paid_once() {
    let leaf = |cost, needs: &[usize]| Alternative { cost, needs: needs.to_vec() };
    let map = || vec![leaf(10, &[0]), leaf(1, &[1])];
    let classes = vec![vec![leaf(0, &[])], vec![leaf(20, &[0])], map(), map(), map(), vec![leaf(1, &[2, 3, 4])]];
    let p = Problem { classes, roots: vec![5] };
    let separate = vec![0; 6];
    let refined = refine(&p, separate.clone(), 1 << 10).unwrap();
    assert_eq!((total(&p, &separate), total(&p, &refined)), (Some(31), Some(24)));
}

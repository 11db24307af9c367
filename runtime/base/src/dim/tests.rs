//! Tests of `Dim`: normal form, division, parsing and printing, bounds, and overflow

use super::*;

fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap()
}

#[test]
fn equal_polynomials_are_one_value() {
    assert_eq!(dim("seq + 1 + past"), dim("past + seq + 1"));
    assert_eq!(dim("(a + b) * (a - b)"), dim("a*a - b*b"));
    assert_eq!(dim("(n + 17) floordiv 16"), dim("1 + (n + 1) floordiv 16"));
    assert_eq!(dim("(16*n + 5) floordiv 16"), dim("n"));
}

#[test]
fn exact_division_cancels() {
    assert_eq!(dim("(384*batch*seq) floordiv (batch*seq)"), dim("384"));
    assert_eq!(dim("(a*a - b*b)").exact_div(&dim("a + b")), Some(dim("a - b")));
    assert_eq!(dim("a*b + 1").exact_div(&dim("a")), None);
    // The last symbol, `b`, does not occur in the divisor.
    assert_eq!(dim("(6*a*b + 6*b) floordiv (2*a + 2)"), dim("3*b"));
}

#[test]
fn printing_and_parsing_are_inverse() {
    for text in [
        "0",
        "-3",
        "batch",
        "past + seq",
        "(n + 15) floordiv 16 * 64",
        "max(a, b + 1)",
        "n mod 7",
        "\"odd name\" + 2",
        "%0*384 + $1",
    ] {
        let d = dim(text);
        assert_eq!(dim(&d.to_string()), d, "{text} prints as {d}");
    }
}

#[test]
fn values_agree_with_integer_arithmetic() {
    // The numbers come from a linear congruential generator, so the cases are the same in every run.
    let mut state = 7u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for _ in 0..2000 {
        let (a, b, c, k) = (next(40) as i64, next(40) as i64, next(9) as i64 + 1, next(7) as i64 + 1);
        let d = ((dim("a") * Dim::constant(k) + dim("b")).floordiv(&dim("c"))).modulo(&Dim::constant(k));
        let value = |s: &str| [("a", a), ("b", b), ("c", c)].iter().find(|(n, _)| *n == s).map(|(_, v)| *v);
        assert_eq!(d.eval_named(&value).unwrap(), ((a * k + b).div_euclid(c)).rem_euclid(k));
    }
}

#[test]
fn overflow_is_a_value_not_a_panic() {
    let big = Dim::constant(1 << 62);
    assert!((big.clone() * Dim::constant(4)).is_overflow());
    assert!((big.clone() + big.clone()).is_overflow());
    assert!(dim("99999999999999999999").is_overflow());
    assert!((Dim::symbol("a") * big).eval(&|_| Some(4)).is_err());
    // Negating i64::MIN overflows, and so does dividing it by -1; neither may panic.
    for text in ["(-9223372036854775807 - 1)*b floordiv (a - b)", "(a - 9223372036854775807 - 1) floordiv 7"] {
        dim(text);
    }
}

#[test]
fn bounds_are_proved_not_guessed() {
    let zero = |_: &Symbol| 0;
    assert!(dim("4*a + b").provably_ge(&dim("a"), &zero));
    assert!(!dim("a").provably_ge(&dim("b"), &zero));
    assert!(dim("2*a").provably_ge(&dim("a + 1"), &|_| 1));
    assert!(!dim("2*a").provably_ge(&dim("a + 1"), &zero));
    // The lower bounds of symbols are also used inside `max` and `floordiv`.
    let one = |_: &Symbol| 1;
    assert!(!dim("max(n - 2, m - 2)").provably_ge(&dim("0"), &one));
    assert!(!dim("(n - 2) floordiv m").provably_ge(&dim("0"), &one));
    assert!(dim("(n - 1) floordiv m").provably_ge(&dim("0"), &one));
    // A minimum is at most each of its operands, so a lower bound may subtract either operand instead of the minimum.
    assert!(dim("n + 2*m").provably_ge(&dim("min(n, 7) + 2*min(m, n)"), &zero));
    assert!(!dim("n").provably_ge(&dim("2*min(n, m)"), &zero));
    assert_eq!(dim("0").maximum(&dim("n - min(1, n)")), dim("n - min(1, n)"));
}

#[test]
fn a_linear_part_can_be_taken_out() {
    let (coefficient, rest) = dim("384*%0 + 64*%1 + k").linear_in(&Symbol::Variable(0)).unwrap();
    assert_eq!((coefficient, rest), (dim("384"), dim("64*%1 + k")));
    assert!(dim("%0 floordiv 2").linear_in(&Symbol::Variable(0)).is_none());
}

#[test]
fn odd_names_and_the_least_number_survive_the_round_trip() {
    for name in ["a b", "q\"uo\\te", "zero\u{200b}width", "é", "max", "0x", "%0", "$1", "$k", "p1", "grid"] {
        let d = Dim::symbol(name) + Dim::constant(1);
        assert_eq!(Dim::parse(&d.to_string()).unwrap(), d, "{name}");
    }
    let least = Dim::constant(i64::MIN);
    for d in [least.clone(), dim("n") * least.clone() + dim("m"), dim("n") + least.clone()] {
        assert_eq!(Dim::parse(&d.to_string()).unwrap(), d);
    }
    assert!(Dim::parse("-9223372036854775809").unwrap().is_overflow());
    assert_eq!(least.maximum(&least).as_const(), Some(i64::MIN));
    assert_eq!(least.minimum(&Dim::constant(i64::MAX)).as_const(), Some(i64::MIN));
    assert_eq!(least.maximum(&Dim::constant(i64::MAX)).as_const(), Some(i64::MAX));
}

#[test]
fn text_alone_tells_symbols_apart_and_only_where_it_is_read() {
    let own = dim("%3 + $4 + p2");
    assert_eq!(own, Dim::variable(3) + Dim::statement(4) + Dim::symbol("p2"));
    assert_eq!((own.variables(), own.statements()), (vec![3], vec![4]));
    assert_eq!(dim("\"%3\""), Dim::symbol("%3"));
    assert_eq!(Dim::symbol("%3").to_string(), "\"%3\"");
    assert_eq!(Dim::parse_names("%3 + $k").unwrap(), Dim::symbol("%3") + Dim::symbol("$k"));
    let launch = Dim::parse_launch("b0 - 4*p0*p1 + grid").unwrap();
    assert_eq!((launch.to_string(), launch.names().len()), ("b0 + grid - 4*p0*p1".into(), 0));
    assert_eq!(launch.by_params(&[dim("n"), dim("2")]).names(), ["n".into()].into());
    assert_eq!(Dim::parse_launch("p1 - p0").unwrap().eval_params(&[3, 5]).unwrap(), 2);
    // Numbered symbols are sorted by number, not by text: %9 precedes %10.
    assert_eq!(dim("%10 + %9 + $2 + n").to_string(), "$2 + %9 + %10 + n");
}

#[test]
fn nonsense_is_refused_with_a_position() {
    for text in ["", "a +", "(a", "a b", "a floordiv 0", "max(a)", &"(".repeat(1000)] {
        assert!(Dim::parse(text).is_err(), "{text}");
    }
}

#[test]
fn long_expressions_end_soon() {
    let sum = |letter: &str, n: usize| (0..n).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join(" + ");
    let large = format!("({}) * ({})", sum("a", 64), sum("b", 64));
    let texts = [
        format!("({large}) * a0 floordiv a0 {}", "* a0 floordiv a0 ".repeat(200)),
        format!("({large} + 1) floordiv a0 {}", "* a0 floordiv a0 ".repeat(200)),
        format!("{large}{}", " * 1".repeat(4000)),
        format!("{large}{}", " + 1".repeat(4000)),
        format!("({large}) floordiv ({}) {}", sum("a", 64), "mod (a1 + 3) ".repeat(200)),
        format!("a0 {}", "mod 7 mod 5 mod 3 ".repeat(500)),
    ];
    for text in texts {
        let dim = Dim::parse(&text).unwrap();
        // Computing a bound and replacing every symbol, as the compiler does, must not take long either.
        let _ = dim.lower_bound(&|_| 1);
        let _ = dim.substitute(&|s| Some(Dim::from(s.clone()) + Dim::constant(1)));
    }
}

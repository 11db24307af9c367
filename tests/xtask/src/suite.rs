//! `cargo xtask test`  =>  setup, models with their weights, then `cargo test --workspace`, or one of [`SUITES`]

use crate::context::{Context, Failure, Result, run};
use crate::{fetch, models, setup};

/// Tests that take too long for every day. They are marked `#[ignore]` with the suite's name.
struct Suite {
    name: &'static str,
    about: &'static str,
    /// Prepared models that the default suite goes without.
    models: &'static [&'static str],
    /// Arguments of `cargo test`.
    args: &'static [&'static str],
}

/// Sorted by name.
static SUITES: &[Suite] = &[Suite {
    name: "shapes",
    about: "one MiniLM artifact at 30 shapes, and the whole model at 4, against the interpreter",
    models: &[],
    args: &["--package", "sardonyx-tests", "--test", "shapes", "--", "--ignored"],
}];

/// The whole default suite, or the named one; further arguments go to `cargo test`.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let (chosen, rest) = choose(args)?;
    setup::ensure()?;
    fetch::command(context, &[])?;
    models::ensure_default(context)?;
    chosen.map_or(&[][..], |s| s.models).iter().try_for_each(|name| models::ensure(context, name).map(drop))?;
    let fixed = chosen.map_or(&["--workspace"][..], |s| s.args);
    println!("test: cargo test {} {}", fixed.join(" "), rest.join(" "));
    run(context.cargo(["test"]).args(fixed).args(rest))
}

/// What `--suite NAME` names, and the arguments after it.
fn choose(args: &[String]) -> Result<(Option<&'static Suite>, &[String])> {
    let [flag, rest @ ..] = args else { return Ok((None, args)) };
    if flag != "--suite" {
        return Ok((None, args));
    }
    let known = || {
        let rows: Vec<String> = SUITES.iter().map(|s| format!("{}: {}", s.name, s.about)).collect();
        format!("the suites are\n  {}", rows.join("\n  "))
    };
    let [name, rest @ ..] = rest else { return Err(Failure::user("`--suite` needs a name").help(known())) };
    match SUITES.iter().find(|s| s.name == name) {
        Some(suite) => Ok((Some(suite), rest)),
        None => Err(Failure::user(format!("no suite `{name}`")).help(known())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn suites_are_sorted_and_chosen_by_name() {
        assert!(SUITES.windows(2).all(|w| w[0].name < w[1].name));
        let args = words("--suite shapes --nocapture");
        let (suite, rest) = choose(&args).unwrap();
        assert_eq!((suite.unwrap().name, rest), ("shapes", &args[2..]));
        let args = words("--release");
        assert_eq!(choose(&args).unwrap().1, &args);
        assert!(choose(&args).unwrap().0.is_none());
    }

    #[test]
    fn an_unknown_suite_lists_the_known_ones() {
        for (args, message) in [("--suite huge", "no suite `huge`"), ("--suite", "`--suite` needs a name")] {
            let failure = choose(&words(args)).err().unwrap();
            let text = failure.to_string();
            assert!(
                failure.code == 2 && text.starts_with(&format!("error: {message}\n  help: the suites are")),
                "{text}"
            );
            assert!(SUITES.iter().all(|s| text.contains(&format!("{}: {}", s.name, s.about))), "{text}");
        }
    }
}

//! Every policy has a literate spec in `fixtures/policies/<name>.md`, and every block of it is executed.
#![allow(clippy::disallowed_methods)]

use tracekit_replay::cost::{Costs, ForkCost, COST_KEYS};
use tracekit_replay::policies::POLICIES;
use tracekit_replay::workload;

fn spec(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{}/../fixtures/policies/{name}.md", env!("CARGO_MANIFEST_DIR"))).ok()
}

/// What is wrong with the examples of `name`.md, which must hold at least `least`.
fn failures(name: &str, text: &str, least: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let blocks = workload::blocks(text);
    if blocks.len() < least {
        wrong.push(format!("{name}: {} examples, expected at least {least}", blocks.len()));
    }
    for (line, block) in blocks {
        let at = format!("{name}.md:{line}");
        match workload::parse(&block, None) {
            Err(e) => wrong.push(format!("{at}: {e}")),
            Ok(s) if !s.expects() => wrong.push(format!("{at}: the example expects nothing")),
            Ok(s) => match s.run() {
                Err(e) => wrong.push(format!("{at}: {e}")),
                Ok(run) => wrong.extend(s.check(&run).into_iter().map(|w| format!("{at}: {w}"))),
            },
        }
    }
    wrong
}

#[test]
fn every_policy_has_a_spec_whose_examples_come_out() {
    let mut wrong = Vec::new();
    for info in POLICIES {
        match spec(info.name) {
            Some(text) => wrong.extend(failures(info.name, &text, 3)),
            None => wrong.push(format!("{}: no fixtures/policies/{}.md", info.name, info.name)),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Costs have a spec of their own, in which every one of them is at work.
#[test]
fn every_cost_is_shown_by_an_example_that_comes_out() {
    let text = spec("../costs").expect("fixtures/costs.md");
    let mut wrong = failures("costs", &text, COST_KEYS.len());
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("costs:")).collect();
    for (key, _) in COST_KEYS {
        if !lines.iter().any(|l| l.contains(&format!(" {key}="))) {
            wrong.push(format!("no example sets {key}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn costs_that_mean_nothing_are_refused_with_what_is_valid() {
    let mut costs = Costs::default();
    for (key, value, says) in [
        ("swich", "1us", "no cost swich; did you mean switch? Valid are switch, record"),
        ("switch", "5", "cost switch=5: expected a time such as 3us"),
        ("tick", "-1us", "expected a time"),
        ("fork", "list:2us", "expected list:BASE/EACH, bitmap:BASE or table:BASE/EACH"),
        ("fork", "bitmap:2us/1us", "expected list:BASE/EACH"),
        ("fork", "tree:2us", "expected list:BASE/EACH"),
        ("fork", "table:1us/1us/1us", "expected list:BASE/EACH"),
    ] {
        let error = costs.set(key, value).expect_err(value);
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(costs, Costs::default());
    costs.set("fork", "list:2us/50ns").unwrap();
    assert_eq!(costs.fork, ForkCost::List { base: 2000, each: 50 });
    costs.set("fork", "3us").unwrap();
    assert_eq!(costs.fork, ForkCost::Bitmap { base: 3000 });
}

/// Every parameter must be shown at work by at least one example that sets it.
#[test]
fn every_parameter_is_used_by_an_example() {
    let mut missing = Vec::new();
    for info in POLICIES {
        let text = spec(info.name).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("policy")).collect();
        for p in info.params {
            if !lines.iter().any(|l| l.contains(&format!("{}=", p.name))) {
                missing.push(format!("{}: no example sets {}", info.name, p.name));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// An example shows the effect of a parameter when it does not come out without it. Parameters
/// given as their default are shown by what comes out with another value, where an example has one.
#[test]
fn every_parameter_has_an_effect_in_an_example() {
    let mut missing = Vec::new();
    for info in POLICIES {
        let text = spec(info.name).unwrap_or_default();
        let blocks = workload::blocks(&text);
        for p in info.params {
            let set = format!("{}=", p.name);
            let without = |block: &str| -> Option<String> {
                let line = block.lines().find(|l| l.starts_with("policy") && l.contains(&set))?;
                let (head, params) = line.rsplit_once(&format!("{}:", info.name))?;
                let rest: Vec<&str> = params.split(',').filter(|part| !part.starts_with(&set)).collect();
                let colon = if rest.is_empty() { "" } else { ":" };
                Some(block.replace(line, &format!("{head}{}{colon}{}", info.name, rest.join(","))))
            };
            let shown = blocks.iter().filter_map(|(_, block)| without(block)).any(|changed| {
                let Ok(scenario) = workload::parse(&changed, None) else { return true };
                scenario.run().map_or(true, |run| !scenario.check(&run).is_empty())
            });
            if !shown {
                missing.push(format!("{}: no example comes out otherwise without {}", info.name, p.name));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn every_row_is_documented() {
    for info in POLICIES {
        for (what, text) in [
            ("title", info.title),
            ("idea", info.idea),
            ("formula", info.formula),
            ("tie_break", info.tie_break),
            ("not_modelled", info.not_modelled),
            ("sources", info.sources),
        ] {
            assert!(text.len() > 8, "{}: {what} says nothing", info.name);
        }
        for p in info.params {
            assert!(p.doc.len() > 8, "{}: parameter {} says nothing", info.name, p.name);
        }
        tracekit_replay::policies::PolicySpec::parse(info.name).expect("the defaults make a policy");
    }
    let mut names: Vec<&str> = POLICIES.iter().map(|p| p.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), POLICIES.len(), "names are unique");
}

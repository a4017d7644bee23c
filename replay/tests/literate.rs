//! Every policy has a literate spec in `fixtures/policies/<name>.md`, and every block of it is executed.
#![allow(clippy::disallowed_methods)]

use tracekit_replay::policies::POLICIES;
use tracekit_replay::workload;

fn spec(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{}/../fixtures/policies/{name}.md", env!("CARGO_MANIFEST_DIR"))).ok()
}

#[test]
fn every_policy_has_a_spec_whose_examples_come_out() {
    let mut wrong = Vec::new();
    for info in POLICIES {
        let Some(text) = spec(info.name) else {
            wrong.push(format!("{}: no fixtures/policies/{}.md", info.name, info.name));
            continue;
        };
        let blocks = workload::blocks(&text);
        if blocks.len() < 3 {
            wrong.push(format!("{}: {} examples, expected at least 3", info.name, blocks.len()));
        }
        for (line, block) in blocks {
            let at = format!("{}.md:{line}", info.name);
            match workload::parse(&block, None) {
                Err(e) => wrong.push(format!("{at}: {e}")),
                Ok(s) if !s.expects() => wrong.push(format!("{at}: the example expects nothing")),
                Ok(s) => match s.run() {
                    Err(e) => wrong.push(format!("{at}: {e}")),
                    Ok(run) => wrong.extend(s.check(&run).into_iter().map(|w| format!("{at}: {w}"))),
                },
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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

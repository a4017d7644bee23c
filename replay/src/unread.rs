//! What is asked of tasks and nobody looks at: refused, since an answer would say that it changes
//! nothing where it was never tried.

use crate::classes::{Reads, Stack};
use crate::program::{Program, Workload};
use crate::reconstruct::list;
use crate::replay::{Override, ReplayError};
use crate::task::{Attrs, SchedPolicy};
use tracekit_schema::{Code, Diagnostic};

/// Refuses what `sets`, which have been applied to `work`, ask for and `stack` does not look at.
pub(crate) fn refuse(sets: &[Override], stack: &Stack, work: &Workload) -> Result<(), ReplayError> {
    for set in sets {
        let tasks = work.tasks.iter().filter(|t| set.which.holds(t.tid, &t.comm));
        let ends: Vec<&Attrs> = tasks.map(|t| t.attrs.last().unwrap_or(&t.first)).collect();
        for (key, value) in &set.set {
            let asked = format!("{key}={value}");
            if matches!((key.as_str(), value.as_str()), ("policy", "deadline") | ("deadline", _)) {
                reservation(&asked, stack, &ends)?;
            }
            if key == "prio" && ends.iter().any(|a| posix_scale(stack, a) && !(1..=99).contains(&a.prio.unwrap_or(1))) {
                return Err(ReplayError::Set(format!("{asked}: expected 1 to 99 under fifo and rr (sched(7))")));
            }
            if !ends.is_empty() && !ends.iter().any(|a| is_read(stack, key, a)) {
                return Err(ReplayError::Set(unread(&asked, key, stack, ends[0])));
            }
        }
    }
    Ok(())
}

/// Refuses a reservation that nothing serves, and SCHED_DEADLINE without one.
fn reservation(asked: &str, stack: &Stack, ends: &[&Attrs]) -> Result<(), ReplayError> {
    if let Some(main) = stack.reads.filter(|r| !stack.serves(SchedPolicy::Deadline) && !r.of_main.contains(&"deadline"))
    {
        return Err(ReplayError::NotModelled(format!(
            "{asked}: SCHED_DEADLINE is not modelled under {}: a prediction would be a guess. \
             Policies with it are deadline, eevdf, cfs (form 6.1), and those that stand in for the \
             fair class of Linux",
            main.policy
        )));
    }
    if ends.iter().any(|a| a.policy == SchedPolicy::Deadline && a.deadline.is_none()) {
        let what = "SCHED_DEADLINE takes a reservation (the kernel answers EINVAL, sched_setattr(2))";
        return Err(ReplayError::Set(format!("{asked}: {what}: add deadline=runtime/deadline/period")));
    }
    Ok(())
}

/// Whether the priority of such a task is one of POSIX, 1 to 99.
fn posix_scale(stack: &Stack, attrs: &Attrs) -> bool {
    let by_main = |r: Reads| r.of_main.contains(&"rt_prio") && !r.of_main.contains(&"prio");
    attrs.policy.is_rt() && (stack.serves(attrs.policy) || stack.reads.is_some_and(by_main))
}

/// Says which tasks were recorded under SCHED_DEADLINE whose reservations nothing shows, and which show
/// them by when they were throttled.
pub(crate) fn reservations(stated: &[Override], work: &Workload) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let reserved = |p: &Program, known: bool| {
        let mut all = p.attrs.iter().chain([&p.first]);
        all.any(|a| a.policy == SchedPolicy::Deadline && a.deadline.is_some() == known)
    };
    let names = |known| -> Vec<&str> { work.tasks.iter().filter(|p| reserved(p, known)).map(|p| &*p.comm).collect() };
    let unknown = names(false);
    if !unknown.is_empty() {
        let what = format!(
            "no record shows what SCHED_DEADLINE reserves for {}, which the kernel was not seen to \
             throttle: they go before all others and never use up a budget",
            list(unknown)
        );
        found.push(Diagnostic::new(Code::MissingEvents, what).advise("record until they are throttled, or for longer"));
    }
    for set in stated {
        for (_, times) in set.set.iter().filter(|(key, _)| key == "deadline") {
            let tasks = work.tasks.iter().filter(|t| set.which.holds(t.tid, &t.comm));
            let what = format!(
                "reservation of {}: {times} from when the kernel throttled it; its relative deadline is assumed",
                list(tasks.map(|t| &*t.comm).collect())
            );
            found.push(Diagnostic::new(Code::Inferred, what));
        }
    }
    found
}

fn is_read(stack: &Stack, key: &str, attrs: &Attrs) -> bool {
    let above = stack.serves(attrs.policy);
    match key {
        // Groups are refused where their settings are read.
        "cpus" | "group" => true,
        // It leaves another class, or enters one.
        "policy" if above || attrs.policy == SchedPolicy::Other => true,
        "deadline" if above => attrs.policy == SchedPolicy::Deadline,
        "prio" if above => attrs.policy.is_rt(),
        _ if above => false,
        _ => stack.reads.is_none_or(|main| {
            let reads = |field| main.of_main.contains(&field);
            reads(key) || (key == "prio" && reads("rt_prio") && attrs.policy.is_rt())
        }),
    }
}

fn unread(asked: &str, key: &str, stack: &Stack, attrs: &Attrs) -> String {
    let of = attrs.policy.as_str();
    if stack.serves(attrs.policy) {
        let instead = if attrs.policy.is_rt() { "prio" } else { "deadline" };
        return format!(
            "{asked}: nothing looks at the {key} of a task under {of}, so that nothing would \
             change; set {instead}, or another policy"
        );
    }
    let main = stack.reads.unwrap_or(Reads { policy: "this policy", of_main: &[] });
    let mut known: Vec<&str> = main.of_main.iter().copied().filter(|f| *f != "rt_prio").collect();
    let by_priority = stack.serves(SchedPolicy::Fifo) || main.of_main.contains(&"rt_prio");
    if by_priority && !known.contains(&"policy") {
        known.insert(0, "policy");
    }
    if by_priority && !known.contains(&"prio") {
        known.push("prio (under fifo and rr)");
    }
    known.extend(["deadline"].iter().filter(|_| stack.serves(SchedPolicy::Deadline)));
    known.push("cpus");
    format!(
        "{asked}: {} does not look at the {key} of a task under {of}, so that nothing would change; it looks at {}",
        main.policy,
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides;
    use crate::policies::{PolicySpec, POLICIES};
    use crate::program::Step;
    use crate::replay::Which;

    fn asked(policy: &str, settings: &[(&str, &str)]) -> Result<(), String> {
        let stack = PolicySpec::parse(policy).and_then(|p| p.stack()).expect("a policy");
        let mut work = Workload { tasks: vec![Program::new("a", 1, vec![Step::Run { ns: 1 }])], ..Workload::default() };
        let set = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let sets = [Override { which: Which::All, set }];
        overrides::apply(&[], &sets, &[0], &mut work).map_err(|e| e.to_string())?;
        refuse(&sets, &stack, &work).map_err(|e| match e {
            ReplayError::NotModelled(what) => format!("not modelled: {what}"),
            other => other.to_string(),
        })
    }

    #[test]
    fn what_the_policy_does_not_look_at_is_refused_by_name() {
        for (policy, settings, what) in [
            ("eevdf", &[("tickets", "5")][..], "tickets=5: eevdf does not look at the tickets of a task under other"),
            (
                "eevdf",
                &[("policy", "batch"), ("prio", "10")],
                "prio=10: eevdf does not look at the prio of a task under",
            ),
            (
                "eevdf",
                &[("policy", "fifo"), ("prio", "9"), ("nice", "3")],
                "nice=3: nothing looks at the nice of a task",
            ),
            ("cfs", &[("slice", "5ms")], "it looks at policy, nice, group, prio (under fifo and rr), deadline, cpus"),
            ("rr", &[("nice", "5")], "it looks at policy, prio (under fifo and rr), deadline, cpus"),
            ("rr", &[("policy", "batch")], "policy=batch: rr does not look at the policy"),
            ("eevdf", &[("policy", "fifo"), ("prio", "200")], "prio=200: expected 1 to 99"),
            ("goodness", &[("prio", "0"), ("policy", "rr")], "prio=0: expected 1 to 99"),
            ("eevdf", &[("policy", "deadline")], "policy=deadline: SCHED_DEADLINE takes a reservation"),
            ("o1", &[("deadline", "1ms/5ms/5ms")], "not modelled: deadline=1ms/5ms/5ms: SCHED_DEADLINE"),
            ("cfs:form=2.6.32", &[("deadline", "1ms/5ms/5ms")], "not modelled: "),
        ] {
            let said = asked(policy, settings).expect_err(what);
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn what_a_policy_looks_at_is_taken() {
        for (policy, settings) in [
            ("lottery", &[("tickets", "5")][..]),
            ("solaris-ts", &[("upri", "5")]),
            ("solaris-ts", &[("class", "FX"), ("prio", "30")]),
            ("aix", &[("policy", "rr"), ("prio", "120")]),
            ("nt4", &[("foreground", "on")]),
            ("eevdf", &[("policy", "fifo"), ("prio", "99")]),
            ("eevdf", &[("policy", "other"), ("nice", "3"), ("slice", "1ms"), ("cpus", "0")]),
            ("eevdf", &[("policy", "deadline"), ("deadline", "1ms/5ms/5ms")]),
            ("deadline", &[("deadline", "1ms/5ms/5ms")]),
            ("cfs", &[("deadline", "1ms/5ms/5ms")]),
        ] {
            assert_eq!(asked(policy, settings), Ok(()), "{policy}: {settings:?}");
        }
    }

    /// The rows say what their sources do: a field that a policy reads is in its row and no other is.
    #[test]
    fn each_row_names_the_attributes_that_its_source_reads() {
        let fields = ["policy", "nice", "rt_prio", "prio", "upri", "class", "slice", "deadline", "tickets"];
        let fields: Vec<&str> = fields.into_iter().chain(["foreground", "process", "kernel", "group"]).collect();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policies");
        for row in POLICIES {
            let name = if row.name == "4bsd" { "bsd4".to_owned() } else { row.name.replace('-', "_") };
            let mut source = String::new();
            if let Ok(text) = std::fs::read_to_string(root.join(format!("{name}.rs"))) {
                source = text;
            } else {
                for file in std::fs::read_dir(root.join(&name)).expect("a folder").flatten() {
                    source += &std::fs::read_to_string(file.path()).expect("a source");
                }
            }
            let mut read: Vec<&str> = fields.iter().copied().filter(|f| reads_field(&source, f)).collect();
            // What it takes from its neighbours.
            let mut also = |sign: &str, more: &[&'static str]| {
                if source.contains(sign) {
                    read.extend(more);
                }
            };
            also("weights::of(", &["policy", "nice"]);
            also("stride::tickets", &["policy", "nice", "tickets"]);
            also("linux::", &["group"]);
            let sorted = |list: &[&'static str]| {
                let mut list = list.to_vec();
                list.sort_unstable();
                list.dedup();
                list
            };
            let known: Vec<&'static str> = fields.iter().copied().filter(|f| read.contains(f)).collect();
            assert_eq!(sorted(row.reads), sorted(&known), "{}", row.name);
        }
    }

    fn reads_field(source: &str, field: &str) -> bool {
        let pattern = format!("attrs.{field}");
        let ends = |at: usize| !source[at + pattern.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        source.match_indices(&pattern).any(|(at, _)| ends(at))
    }
}

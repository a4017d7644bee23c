//! What schedules in a kernel of Linux, by its version: `linux-6.12.111` stands for a policy.

use crate::params::ParamError;
use std::borrow::Cow;

/// What a policy begins with that is named by a kernel.
const PREFIX: &str = "linux-";

/// First kernel of each scheduler of Linux's fair class, newest first: version, name, spelling of the policy.
const FIRST: &[([u32; 3], &str, &str)] = &[
    ([7, 1, 0], "EEVDF", "eevdf:version=7.3"),
    // 6.13 placed anew what changes its weight; "Revert 6d71a9c61604" came with 7.0 only.
    ([7, 0, 0], "EEVDF", "eevdf:version=6.18,reweight=kept"),
    ([6, 17, 0], "EEVDF", "eevdf:version=6.18"),
    ([6, 13, 0], "EEVDF", "eevdf:version=6.12,reweight=placed"),
    // Debian's changelog of linux 6.12: "sched/fair: Forfeit vruntime on yield" came with 6.12.62.
    ([6, 12, 62], "EEVDF", "eevdf:version=6.12,yield=forfeit"),
    ([6, 12, 0], "EEVDF", "eevdf:version=6.12"),
    ([6, 6, 0], "EEVDF", "eevdf:version=6.6"),
    ([2, 6, 33], "CFS", "cfs:form=6.1"),
    ([2, 6, 30], "CFS", "cfs:form=2.6.32"),
    ([2, 6, 28], "CFS", "cfs:form=2.6.29"),
    ([2, 6, 23], "CFS", "cfs:form=2.6.27"),
    ([2, 5, 0], "the O(1) scheduler", "o1"),
    ([2, 3, 0], "a list searched for the best goodness", "goodness:version=2.4"),
    ([2, 1, 0], "a list searched for the best goodness", "goodness:version=2.2"),
    ([1, 0, 0], "a list searched for the best goodness", "goodness:version=2.0"),
];

/// The newest kernel whose scheduler was read. What newer ones do may differ: they cannot be asked for.
const NEWEST: [u32; 2] = [7, 3];

/// The version that a release such as `5.10.0-8-amd64` begins with; the third number may be missing.
fn version(release: &str) -> Option<[u32; 3]> {
    let mut rest = release;
    let mut version = [0; 3];
    for (at, part) in version.iter_mut().enumerate() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match rest[..digits].parse() {
            Ok(number) => *part = number,
            Err(_) if at == 2 => break,
            Err(_) => return None,
        }
        match rest[digits..].strip_prefix('.') {
            Some(next) => rest = next,
            None if at == 0 => return None,
            None => break,
        }
    }
    Some(version)
}

/// What the kernel `release`, such as `6.12` or `5.10.0-8-amd64`, schedules with, and the policy that is
/// that; `None` where it does not begin with two numbers, or is older than all. A newer one than is known
/// counts as the newest.
pub fn scheduler(release: &str) -> Option<(&'static str, &'static str)> {
    let version = version(release)?;
    FIRST.iter().find(|(first, ..)| version >= *first).map(|(_, name, policy)| (*name, *policy))
}

/// The policy `text`, with that of the kernel in place of `linux-RELEASE` or `linux-RELEASE:PARAM=VALUE,...`,
/// whose parameters come after the kernel's.
pub fn expand(text: &str) -> Result<Cow<'_, str>, ParamError> {
    let (name, given) = text.split_once(':').unwrap_or((text, ""));
    let Some(release) = name.trim().strip_prefix(PREFIX) else { return Ok(Cow::Borrowed(text)) };
    let Some((_, policy)) = scheduler(release) else {
        let message =
            format!("no kernel {release}: expected its version from 1.0 on, such as linux-6.12 or linux-6.1.50");
        return Err(ParamError(message));
    };
    if version(release).is_some_and(|v| v[..2] > NEWEST[..]) {
        let message =
            format!("no kernel {release} is known: the newest whose scheduler was read is {}.{}", NEWEST[0], NEWEST[1]);
        return Err(ParamError(message));
    }
    let join = match (given.trim().is_empty(), policy.contains(':')) {
        (true, _) => "",
        (false, true) => ",",
        (false, false) => ":",
    };
    Ok(Cow::Owned(format!("{policy}{join}{given}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::PolicySpec;

    #[test]
    fn a_kernel_stands_for_its_scheduler() {
        let policy = |release: &str| scheduler(release).map(|s| s.1);
        assert_eq!(policy("6.12"), Some("eevdf:version=6.12"));
        assert_eq!(policy("6.12.61-rt"), Some("eevdf:version=6.12"));
        assert_eq!(policy("6.12.111+deb12-amd64"), Some("eevdf:version=6.12,yield=forfeit"));
        assert_eq!(policy("5.10.0-8-amd64"), Some("cfs:form=6.1"));
        assert_eq!(policy("6.5-rc1"), Some("cfs:form=6.1"));
        assert_eq!(policy("99.1"), Some("eevdf:version=7.3"));
        assert_eq!(policy("2.4.37"), Some("goodness:version=2.4"));
        for none in ["", "6", "v6.12", "0.99", "six.one", "6.", "."] {
            assert_eq!(policy(none), None, "{none}");
        }
    }

    #[test]
    fn every_policy_of_a_kernel_can_be_replayed() {
        for (_, name, policy) in FIRST {
            assert!(PolicySpec::parse(policy).is_ok(), "{name}: {policy}");
        }
    }

    #[test]
    fn parameters_come_after_the_kernels() {
        let shown = |text: &str| PolicySpec::parse(text).map(|p| p.show()).map_err(|e| e.0);
        assert_eq!(shown("linux-6.12"), shown("eevdf:version=6.12"));
        assert_eq!(shown("linux-6.12: base_slice=10ms"), shown("eevdf:version=6.12,base_slice=10ms"));
        assert_eq!(shown("linux-2.6.10"), shown("o1"));
        assert!(shown("linux-2.6.10:hz=100").is_err_and(|e| e.contains("policy o1")));
        assert!(shown("linux-7.3.9").is_ok());
        assert!(shown("linux-7.4").is_err_and(|e| e.contains("the newest whose scheduler was read is 7.3")));
        assert!(shown("linux-next").is_err_and(|e| e.contains("expected its version")));
        assert_eq!(expand("rr:quantum=1ms").unwrap(), "rr:quantum=1ms");
    }
}

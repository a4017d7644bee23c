//! Tasks by name, thread, or all together.

use crate::{StrId, Strings};

/// How tasks are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// By name without the number at its end.
    Group,
    /// By name.
    Comm,
    /// By thread.
    Tid,
    /// All in one.
    All,
}

impl Grouping {
    /// From its name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "group" => Grouping::Group,
            "comm" => Grouping::Comm,
            "tid" => Grouping::Tid,
            "all" => Grouping::All,
            _ => return None,
        })
    }

    /// The group of a task with this name; none for tasks without one.
    pub fn name(self, comm: Option<StrId>, tid: i64, strings: &Strings) -> Option<String> {
        let text = comm.map(|id| strings.text(id));
        match self {
            Grouping::All => Some("all".to_owned()),
            Grouping::Tid => Some(format!("{}:{tid}", text.as_deref().unwrap_or("?"))),
            Grouping::Comm => text.map(|t| t.into_owned()),
            Grouping::Group => text.map(|t| without_number(&t).to_owned()),
        }
    }
}

/// A name without the number at its end and the separators before that; all of it where nothing
/// would be left.
fn without_number(name: &str) -> &str {
    let mut left = name;
    while left.ends_with(|c: char| c.is_ascii_digit()) {
        left = left.trim_end_matches(|c: char| c.is_ascii_digit());
        left = left.trim_end_matches(['-', '_', '/', ':', '.', '#']);
    }
    if left.is_empty() {
        name
    } else {
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_end_go() {
        for (name, group) in [
            ("spin07", "spin"),
            ("kworker/0:1", "kworker"),
            ("kworker/u2:2", "kworker/u"),
            ("0:1", "0:1"),
            ("a--1", "a"),
            ("a-", "a-"),
            ("a1b2", "a1b"),
            ("", ""),
        ] {
            assert_eq!(without_number(name), group, "{name}");
        }
    }
}

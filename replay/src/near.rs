//! Which name a wrong one may have meant, for errors.

/// What an error says behind a wrong name: the one that was meant, if any, and all that there are.
pub fn valid(meant: Option<&str>, names: &[&str]) -> String {
    let meant = meant.map_or("valid".into(), |name| format!("did you mean {name}? Valid"));
    format!("{meant} are {}", names.join(", "))
}

/// The name that differs least from `word`, where it differs in no more than a third of its letters:
/// those to put in, leave out, change or swap with the next.
pub fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names.iter().map(|name| (strsim::osa_distance(word, name), *name)).min_by_key(|(far, _)| *far);
    near.filter(|(far, name)| 3 * far <= name.chars().count().max(word.chars().count())).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_and_none_that_is_far() {
        let names = ["cfs", "eevdf", "rr", "rt", "wakeup_granularity"];
        for (word, meant) in [
            ("cfss", Some("cfs")),
            ("efvdf", Some("eevdf")),
            ("evedf", Some("eevdf")),
            ("wakeup_granularty", Some("wakeup_granularity")),
            ("fifo", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &names), meant, "{word}");
        }
        assert_eq!(valid(Some("cfs"), &["cfs", "rr"]), "did you mean cfs? Valid are cfs, rr");
        assert_eq!(valid(None, &["cfs", "rr"]), "valid are cfs, rr");
    }
}

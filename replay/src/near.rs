//! Which name a wrong one may have meant, for errors.

/// What an error says behind a wrong name: the one that was meant, if any, and all that there are.
pub fn valid(meant: Option<&str>, names: &[&str]) -> String {
    let meant = meant.map_or("valid".into(), |name| format!("did you mean {name}? Valid"));
    format!("{meant} are {}", names.join(", "))
}

/// The name that differs least from `word`, where it differs in no more than a third of its letters.
pub fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names.iter().map(|name| (distance(word, name), *name)).min_by_key(|(far, _)| *far);
    near.filter(|(far, name)| 3 * far <= name.chars().count().max(word.chars().count())).map(|(_, name)| name)
}

/// Letters to put in, leave out, change or swap with the next to make one word of the other (optimal
/// string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let last = &rows[i - 1];
            let mut least = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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

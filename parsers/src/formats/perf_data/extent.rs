//! What `perf record` was asked to record: all CPUs, some of them, or some tasks.
//!
//! The header holds the command line. Where it names neither CPUs nor tasks, a recording of a
//! command is one of that command's tasks, and one without a command is of the whole machine, as is
//! that of the tools that ask for it by themselves. What the events say goes before: as many numbers
//! an event as CPUs were opened, and whether they began when the command was executed.

use super::attr::{Attr, TRACEPOINT};
use crate::binary::bytes::{until_nul, Reader, Short};

/// Whose records were kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All.
    Whole,
    /// Those of some CPUs, where they are named.
    Cpus(Vec<i32>),
    /// Those of some tasks: the option that names them, or what stands for it.
    Tasks(String),
}

/// Letters of `perf record` that take a value.
const VALUES: &str = "eptrDCcoFmGujk";
/// Its long options that take a value which may be the next word.
const LONG: &[&str] = &[
    "event",
    "filter",
    "pid",
    "tid",
    "realtime",
    "cpu",
    "count",
    "output",
    "freq",
    "mmap-pages",
    "cgroup",
    "delay",
    "uid",
    "branch-filter",
    "clockid",
    "call-graph",
    "proc-map-timeout",
    "vmlinux",
    "affinity",
    "control",
    "synth",
    "num-thread-synthesize",
    "switch-max-files",
    "max-size",
];
/// Tools that record all CPUs by themselves.
const WHOLE: &[&str] = &["sched", "kmem", "timechart"];
/// What a recording of a command is of.
pub const COMMAND: &str = "those of the recorded command";

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub extent: Option<Extent>,
    /// Options that leave records of an event out, as they were written.
    pub filters: Vec<String>,
}

/// What the words of a command line ask for; `None` where they are not those of a known recorder.
pub fn asked(words: &[String]) -> Option<Asked> {
    let at = words.iter().position(|w| w == "record")?;
    let tool = words.get(1..at)?.iter().find(|w| !w.starts_with('-'));
    let mut whole = tool.is_some_and(|t| WHOLE.contains(&t.as_str()));
    if tool.is_some() && !whole {
        return None;
    }
    let (mut cpus, mut tasks, mut command) = (None, None, false);
    let mut filters = Vec::new();
    let mut rest = words[at + 1..].iter();
    while let Some(word) = rest.next() {
        if word == "--" || !word.starts_with('-') {
            command = word != "--" || rest.next().is_some();
            break;
        }
        let mut take = |letter: char, value: Option<String>| {
            let value = value.or_else(|| rest.next().cloned()).unwrap_or_default();
            match letter {
                'C' => cpus = Some(value),
                'p' | 't' | 'u' | 'G' => tasks = Some(format!("-{letter} {value}")),
                'f' => filters.push(format!("--filter '{value}'")),
                _ => {}
            }
        };
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v.to_owned())));
            whole |= name == "all-cpus";
            let letter = match name {
                "pid" => 'p',
                "tid" => 't',
                "uid" => 'u',
                "cgroup" => 'G',
                "cpu" => 'C',
                "filter" => 'f',
                _ => ' ',
            };
            if name == "exclude-perf" {
                filters.push("--exclude-perf".to_owned());
            } else if value.is_some() || LONG.contains(&name) {
                take(letter, value);
            }
        } else {
            for (i, letter) in word.char_indices().skip(1) {
                whole |= letter == 'a';
                if VALUES.contains(letter) {
                    let joined = &word[i + letter.len_utf8()..];
                    take(letter, (!joined.is_empty()).then(|| joined.to_owned()));
                    break;
                }
            }
        }
    }
    let extent = match (tasks, cpus) {
        (Some(tasks), _) => Some(Extent::Tasks(tasks)),
        (None, Some(cpus)) => list(&cpus).map(Extent::Cpus),
        (None, None) if whole || !command => Some(Extent::Whole),
        (None, None) => Some(Extent::Tasks(COMMAND.to_owned())),
    };
    Some(Asked { extent, filters })
}

/// A list of CPUs as perf takes it.
fn list(text: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cpus.extend((from.parse::<i32>().ok()?..=to.parse::<i32>().ok()?).take(1 << 16));
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

/// The same with what the events say, each with how many numbers it has; `online` CPUs were there.
pub fn recorded<'a>(asked: Option<Extent>, attrs: impl Iterator<Item = (&'a Attr, usize)>, online: usize) -> Extent {
    let (mut most, mut on_exec) = (0, false);
    for (attr, numbers) in attrs.filter(|(attr, _)| attr.kind == TRACEPOINT || attr.context_switch()) {
        most = most.max(numbers);
        on_exec |= attr.enable_on_exec();
    }
    match asked {
        Some(Extent::Tasks(tasks)) => Extent::Tasks(tasks),
        _ if on_exec => Extent::Tasks(COMMAND.to_owned()),
        // Some of those that were named may not have been there.
        Some(Extent::Cpus(cpus)) if online == 0 || cpus.len().min(most.max(1)) < online => Extent::Cpus(cpus),
        None if most > 0 && most < online => Extent::Cpus(Vec::new()),
        _ => Extent::Whole,
    }
}

/// The words of feature CMDLINE.
pub fn words(data: &[u8], be: bool) -> Result<Vec<String>, Short> {
    let mut r = Reader::new(data, 0, be);
    let n = r.u32()?;
    let mut words = Vec::new();
    for _ in 0..n {
        let size = r.u32()?;
        words.push(String::from_utf8_lossy(until_nul(r.take(u64::from(size))?)).into_owned());
    }
    Ok(words)
}

/// CPUs as Linux prints lists of them: `0-2,5`; they are in order.
pub fn printed(cpus: &[i32]) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == cpu => run.1 = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let one = |(a, b): &(i32, i32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Extent> {
        asked(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())?.extent
    }

    #[test]
    fn filters_are_read_as_they_were_written() {
        let words = ["perf", "record", "-a", "-e", "sched:sched_switch", "--filter", "prev_pid != 0", "sleep", "1"];
        let of = |words: &[&str]| asked(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()).unwrap();
        assert_eq!(of(&words).filters, ["--filter 'prev_pid != 0'"]);
        assert_eq!(of(&words).extent, Some(Extent::Whole));
        assert_eq!(of(&["perf", "record", "--filter=common_pid > 1"]).filters, ["--filter 'common_pid > 1'"]);
        assert_eq!(of(&["perf", "record", "--exclude-perf", "-a"]).filters, ["--exclude-perf"]);
        assert!(of(&["perf", "record", "-a", "grep", "--filter", "x"]).filters.is_empty());
    }

    #[test]
    fn command_lines_say_what_was_recorded() {
        let tasks = |text: &str| Some(Extent::Tasks(text.to_owned()));
        for (line, found) in [
            ("/usr/bin/perf sched record -- sleep 1", Some(Extent::Whole)),
            ("perf sched record -C 1 -o c.data -- sleep 1", Some(Extent::Cpus(vec![1]))),
            ("perf record -qaC1,3-4 -e sched:* sleep 1", Some(Extent::Cpus(vec![1, 3, 4]))),
            ("perf record --cpu=0-1 -e sched:* sleep 1", Some(Extent::Cpus(vec![0, 1]))),
            ("perf record -q -c 1 -p 27361 -e sched:sched_switch -- sleep 1", tasks("-p 27361")),
            ("perf record -a --tid 12 -e sched:sched_switch", tasks("-t 12")),
            ("perf record -a -G web -e sched:sched_switch", tasks("-G web")),
            ("perf record -q -c 1 -e sched:sched_switch -o a.data -- ./load.sh 1", tasks(COMMAND)),
            ("perf record -e sched:sched_switch ./load -C 1", tasks(COMMAND)),
            ("perf record -e sched:sched_switch", Some(Extent::Whole)),
            ("perf record -g -m 64 -e sched:* -a sleep 1", Some(Extent::Whole)),
            ("perf trace record -a", None),
            ("simpleperf", None),
        ] {
            assert_eq!(of(line), found, "{line}");
        }
    }

    #[test]
    fn what_the_events_say_goes_before() {
        let mut data = [0; 128];
        data[0] = TRACEPOINT as u8;
        let attr = Attr::read(&data, false).unwrap();
        let found = |asked, numbers, online| recorded(asked, std::iter::once((&attr, numbers)), online);
        assert_eq!(found(None, 1, 2), Extent::Cpus(vec![]));
        assert_eq!(found(None, 2, 2), Extent::Whole);
        assert_eq!(found(Some(Extent::Cpus(vec![0, 1])), 2, 2), Extent::Whole);
        assert_eq!(found(Some(Extent::Cpus(vec![1])), 1, 2), Extent::Cpus(vec![1]));
        assert_eq!(found(Some(Extent::Cpus(vec![0, 1, 7])), 2, 4), Extent::Cpus(vec![0, 1, 7]));
    }

    #[test]
    fn lists_are_printed_as_linux_does() {
        assert_eq!(printed(&[0, 1, 2, 5]), "0-2,5");
    }
}

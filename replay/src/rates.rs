//! What is recorded or stated of the capacities and frequencies of CPUs, and the speeds that follow.
//!
//! The speed of a CPU is its capacity (of 1024 for the fastest) times its frequency as a share of the
//! highest that is known of it, at each time (Linux: `arch_scale_cpu_capacity` and
//! `arch_scale_freq_capacity`, whose product the kernel takes for the speed of a CPU).
//!
//! * The **highest frequency** is the largest of what the machine beside the trace states, of the
//!   recorded limits and of the recorded frequencies.
//! * **Before the first record** of a CPU its frequency is taken for that of the record. A CPU of
//!   which none is recorded is taken to run at its highest frequency.
//! * A **capacity** is taken from the machine beside the trace, else from the trace, where that has
//!   one for every CPU and they differ: a kernel that knows nothing says 1024 of all. Else it goes with
//!   the highest frequency, as work a cycle times that (Linux: drivers/base/arch_topology.c,
//!   `topology_normalize_cpu_scale`), and work a cycle is alike but for what the same work took on each
//!   CPU ([`speed`](crate::calibrate)).
//! * Where the trace has **present capacities** of every CPU, which are that product already, they are
//!   the speeds.
//!
//! What chooses frequencies, the governor, is not modelled. A replay keeps every frequency at
//! the time at which it was recorded, where that holds: where tasks are where they were
//! recorded (`placement=trace`), or where the machine beside the trace states a governor that
//! does not look at the load. Elsewhere a CPU that idled at a low frequency would keep it under
//! the tasks that the policy puts there, which the governor would not let it: frequencies are
//! not used then, and the replay says so. Work is taken to go with the frequency; what waits
//! for memory does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::reconstruct::Inferred;
use crate::speeds::Speeds;
use crate::task::Ns;

/// Capacity of the fastest CPU.
pub const FULL: f64 = 1024.0;

/// What the trace holds of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its frequency from each time on, kHz.
    pub khz: Vec<(Ns, i64)>,
    /// The highest limit of its frequency, kHz.
    pub limit: Option<i64>,
    /// Its capacity at its highest frequency.
    pub capacity: Option<i64>,
    /// Its capacity at the present frequency, from each time on.
    pub present: Vec<(Ns, i64)>,
}

/// What the machine beside the trace states of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedCpu {
    /// Its number.
    pub cpu: i32,
    /// Its capacity.
    pub capacity: Option<i64>,
    /// Its highest frequency, kHz.
    pub max_khz: Option<i64>,
    /// Its frequency does not follow its load: the governor is `performance` or `userspace`.
    pub fixed: bool,
    /// It has no scheduling domain: nothing balances tasks onto it.
    pub isolated: bool,
}

/// Where capacities are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nothing says it; what the same work took on each CPU may.
    #[default]
    Work,
    /// The trace.
    Trace,
    /// The machine beside it.
    Machine,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Capacity at its highest frequency.
    pub capacity: f64,
    /// Its highest frequency, kHz, where one is known.
    pub highest: Option<i64>,
    /// The machine beside the trace says so.
    pub stated: bool,
    /// How many frequencies, or present capacities, are recorded of it, and the time of the first.
    pub records: usize,
    /// When the first of them was.
    pub first: Ns,
    /// Share of the highest frequency from each time on; the first also holds before.
    pub shares: Vec<(Ns, f64)>,
}

/// All CPUs, by position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Each.
    pub cpus: Vec<Rate>,
    /// Where capacities are from.
    pub source: Source,
    /// The speed that counts as middling, of [`FULL`].
    pub middling: f64,
    /// What the same work takes on each CPU at its highest frequency, where capacities are from there.
    pub measured: Speeds,
    /// Somebody asked for another capacity or frequency.
    asked: bool,
    /// The recorded frequencies are those of the replay.
    follow: bool,
}

impl Rates {
    /// What is known of the CPUs with these numbers; `span` is the length of the trace.
    pub fn of(numbers: &[i32], recorded: &[Recorded], stated: &[StatedCpu], span: Ns) -> Self {
        let none = Recorded::default();
        let all = |of: &dyn Fn(usize) -> Option<i64>| -> Option<Vec<f64>> {
            let all: Vec<i64> = (0..numbers.len()).map_while(of).filter(|c| *c > 0).collect();
            let differ = all.iter().any(|c| *c != all[0]);
            (all.len() == numbers.len() && differ).then(|| all.iter().map(|c| *c as f64).collect())
        };
        let beside = |i: usize| stated.iter().find(|s| s.cpu == numbers[i]).copied().unwrap_or_default();
        let by_machine = all(&|i| beside(i).capacity);
        let most = |i: usize| recorded.get(i)?.present.iter().map(|p| p.1).max();
        let present = !numbers.is_empty() && (0..numbers.len()).all(|i| most(i).is_some_and(|most| most > 0));
        let by_trace = || all(&|i| recorded.get(i)?.capacity);
        let by_present = || present.then(|| (0..numbers.len()).filter_map(most).map(|c| c as f64).collect());
        let (source, capacities) = if let Some(stated) = by_machine {
            (Source::Machine, stated)
        } else if let Some(recorded) = by_trace().or_else(by_present) {
            (Source::Trace, recorded)
        } else {
            (Source::Work, vec![FULL; numbers.len()])
        };
        let rate = |(i, capacity): (usize, f64)| {
            let own = recorded.get(i).unwrap_or(&none);
            let most = own.khz.iter().map(|k| k.1).chain(own.limit).max();
            let highest = most.max(beside(i).max_khz).filter(|khz| *khz > 0);
            let (values, of) = match (present, highest) {
                (true, _) => (&own.present[..], capacity),
                (false, Some(highest)) => (&own.khz[..], highest as f64),
                (false, None) => (&[][..], 1.0),
            };
            let mut shares: Vec<(Ns, f64)> = values.iter().map(|(at, v)| (*at, *v as f64 / of)).collect();
            if shares.is_empty() {
                shares.push((0, 1.0));
            }
            let first = values.first().map_or(0, |v| v.0);
            let stated = highest.is_some() && beside(i).max_khz == highest;
            Rate { capacity, highest, stated, records: values.len(), first, shares }
        };
        let mut cpus: Vec<Rate> = capacities.into_iter().enumerate().map(rate).collect();
        // Capacity is work a cycle times the highest frequency; nothing states work a cycle by itself.
        let fastest = cpus.iter().map(|rate| rate.highest).max().flatten();
        let recorded = cpus.iter().any(|rate| rate.records > 0) && cpus.iter().all(|rate| rate.highest.is_some());
        if let (Source::Work, true, Some(fastest)) = (source, recorded, fastest) {
            for rate in &mut cpus {
                rate.capacity = FULL * rate.highest.unwrap_or(fastest) as f64 / fastest as f64;
            }
        }
        let mut rates = Rates { cpus, source, middling: FULL, measured: Speeds::default(), asked: false, follow: true };
        rates.settle(span);
        rates
    }

    /// What a workload text says: `capacities` from the first CPU on, the last of them for all further
    /// ones, and the frequencies of some. Its work is that of a CPU of full capacity at its highest
    /// frequency.
    pub fn stated(cpus: usize, capacities: &[i64], khz: &BTreeMap<usize, Vec<(Ns, i64)>>) -> Self {
        let recorded = |cpu| Recorded { khz: khz.get(&cpu).cloned().unwrap_or_default(), ..Recorded::default() };
        let recorded: Vec<Recorded> = (0..cpus).map(recorded).collect();
        let mut rates = Rates::of(&(0..cpus as i32).collect::<Vec<_>>(), &recorded, &[], 0);
        rates.source = Source::Machine;
        for (cpu, rate) in rates.cpus.iter_mut().enumerate() {
            let stated = capacities.get(cpu).or(capacities.last());
            rate.capacity = stated.map_or(FULL, |capacity| *capacity as f64);
        }
        rates.middling = FULL;
        rates
    }

    /// The same where frequencies are none of the replay: CPUs are as fast at all times.
    pub fn unfollowed(&self, span: Ns) -> Self {
        let mut rates = Rates { follow: false, ..self.clone() };
        for rate in &mut rates.cpus {
            rate.shares = vec![(0, 1.0)];
            if self.source == Source::Work {
                rate.capacity = FULL;
            }
        }
        rates.settle(span);
        rates
    }

    /// Takes the mean speed of all CPUs over the trace for a middling one.
    fn settle(&mut self, span: Ns) {
        let sum: f64 = self.cpus.iter().map(|rate| rate.mean(span) * rate.capacity).sum();
        self.middling = if self.cpus.is_empty() { FULL } else { sum / self.cpus.len() as f64 };
    }

    /// Nothing of this is known.
    pub fn are_unknown(&self) -> bool {
        let recorded = self.follow && self.cpus.iter().any(|rate| rate.records > 0);
        let known = self.source != Source::Work || self.asked || recorded;
        // With one frequency for all and always, nothing is known either.
        let fast = |(_, share): &(Ns, f64)| (share - 1.0).abs() < f64::EPSILON;
        let alike = |rate: &Rate| rate.highest == self.cpus[0].highest && rate.shares.iter().all(fast);
        !known || self.source == Source::Work && !self.asked && self.cpus.iter().all(alike)
    }

    /// The CPUs of which frequencies are recorded, by their numbers.
    pub fn recorded(&self, numbers: &[i32]) -> BTreeSet<i32> {
        self.cpus.iter().zip(numbers).filter(|(rate, _)| rate.records > 0).map(|(_, cpu)| *cpu).collect()
    }

    /// What the frequencies alone say, for whoever measures what else makes CPUs differ.
    pub fn by_frequency(&self) -> Speeds {
        let alike = |rate: &Rate| rate.speeds(rate.capacity, FULL);
        Speeds::changing(&self.cpus.iter().map(alike).collect::<Vec<_>>())
    }

    /// With the capacities that `measured`, the work of each CPU at its highest frequency, shows.
    pub fn with_measured(mut self, measured: Speeds, span: Ns) -> Self {
        if self.source == Source::Work {
            for (cpu, rate) in self.cpus.iter_mut().enumerate() {
                rate.capacity /= measured.time_of_one(cpu);
            }
            let fastest = self.cpus.iter().map(|rate| rate.capacity).fold(1.0, f64::max);
            self.cpus.iter_mut().for_each(|rate| rate.capacity *= FULL / fastest);
            self.settle(span);
            self.measured = measured;
        }
        self
    }

    /// Sets the `capacity` (of 1024 for the fastest CPU) of the CPU at a position, or its frequency
    /// (`khz`) at all times. What counts as middling stays.
    pub fn set(&mut self, place: usize, key: &str, value: &str) -> Result<(), String> {
        let number: f64 = value.parse::<i64>().map_or(0.0, |n| n as f64);
        let rate = &mut self.cpus[place];
        match key {
            "capacity" if (1.0..=FULL).contains(&number) => rate.capacity = number,
            "capacity" => return Err(format!("capacity={value}: expected a whole number from 1 to 1024")),
            "khz" if number <= 0.0 => return Err(format!("khz={value}: expected a frequency in kHz")),
            "khz" if !self.follow && rate.records > 0 => {
                let why = "the recorded frequencies are not used where the policy places tasks";
                return Err(format!("khz={value}: {why}; keep tasks where they were (placement=trace)"));
            }
            "khz" => match rate.highest {
                Some(highest) => rate.shares = vec![(0, number / highest as f64)],
                None => {
                    let why = "neither the trace nor a machine.toml says what its highest frequency is";
                    return Err(format!("khz={value}: not known how fast that makes it: {why}"));
                }
            },
            _ => return Err(format!("{key}={value}: expected capacity or khz")),
        }
        self.asked = true;
        Ok(())
    }

    /// How fast the CPUs are.
    pub fn speeds(&self) -> Speeds {
        if self.are_unknown() {
            return self.measured.clone();
        }
        let middling = |rate: &Rate| rate.speeds(rate.capacity, self.middling);
        Speeds::changing(&self.cpus.iter().map(middling).collect::<Vec<_>>())
    }
}

impl Rates {
    /// What a reader of a replay must know of them; nothing where CPUs are as fast as each other.
    pub fn report(&self, numbers: &[i32]) -> Vec<(&'static str, String)> {
        let mut said = Vec::new();
        let mut by_capacity: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (rate, cpu) in self.cpus.iter().zip(numbers) {
            by_capacity.entry(rate.capacity.round() as i64).or_default().push(cpu.to_string());
        }
        if by_capacity.len() > 1 && !self.are_unknown() {
            let each = by_capacity.iter().map(|(capacity, cpus)| format!("{capacity} (CPU {})", cpus.join(", ")));
            let each: Vec<String> = each.collect();
            let sentence = format!("CPUs have capacities, {}: {}", self.source.how(), each.join(", "));
            said.push(("capacities of CPUs", sentence));
        }
        let records: usize = self.cpus.iter().map(|rate| rate.records).sum();
        if records > 0 && !self.follow {
            let sentence = format!(
                "{records} frequencies of CPUs are recorded and not used: the policy places tasks, and \
                 the governor, whose choices follow where they are, is not modelled. `--placement trace` keeps both as recorded"
            );
            said.push(("frequency governor", sentence));
        } else if records > 0 {
            let none: Vec<String> =
                self.cpus.iter().zip(numbers).filter(|(r, _)| r.records == 0).map(|(_, c)| c.to_string()).collect();
            let without = if none.is_empty() {
                String::new()
            } else {
                format!("; of CPU {} none is, which is taken for the highest", none.join(", "))
            };
            let sentence = format!(
                "{records} frequencies of CPUs are recorded{without}: work takes the longer the lower \
                 they are. A replay keeps each at its recorded time: the governor, which would choose others, is not modelled"
            );
            said.push(("frequency governor", sentence));
        }
        said
    }

    /// The same CPU by CPU.
    pub fn rows(&self, numbers: &[i32], span: Ns) -> Vec<Inferred> {
        let said = self.report(numbers).into_iter();
        let mut rows: Vec<Inferred> =
            said.map(|(name, how)| Inferred { name, value: None, unit: "1", n: None, how }).collect();
        let differ = !self.are_unknown() && self.cpus.iter().any(|rate| rate.capacity != self.cpus[0].capacity);
        for (rate, cpu) in self.cpus.iter().zip(numbers).filter(|_| differ) {
            let how = format!("of CPU {cpu}, 1024 for the fastest; {}", self.source.how());
            rows.push(Inferred { name: "capacity of a CPU", value: Some(rate.capacity), unit: "1", n: None, how });
        }
        let recorded = self.follow && self.cpus.iter().any(|rate| rate.records > 0);
        for (rate, cpu) in self.cpus.iter().zip(numbers).filter(|_| recorded) {
            let highest = match (rate.highest, rate.stated) {
                (Some(khz), true) => format!("its highest is {khz}, as the machine beside the trace says"),
                (Some(khz), false) => format!("its highest is {khz}, the largest in the trace"),
                (None, _) => "no highest is known".into(),
            };
            let mean = rate.highest.map(|khz| rate.mean(span) * khz as f64);
            let how = match rate.records {
                0 => format!("kHz of CPU {cpu}; none is recorded: taken for its highest; {highest}"),
                _ if mean.is_none() => format!("of CPU {cpu}, in its recorded capacities"),
                _ => format!(
                    "mean kHz of CPU {cpu}; {highest}; the first is taken for the {:.3} ms before it as well",
                    rate.first as f64 / 1e6
                ),
            };
            let n = Some(rate.records as u64);
            rows.push(Inferred { name: "frequency of a CPU", value: mean, unit: "1", n, how });
        }
        rows
    }
}

impl Source {
    fn how(self) -> &'static str {
        match self {
            Source::Work => "by their highest frequencies, and by what the same work took on each",
            Source::Trace => "as the trace says",
            Source::Machine => "as the machine beside the trace says",
        }
    }
}

impl Rate {
    fn speeds(&self, scale: f64, middling: f64) -> Vec<(Ns, f64)> {
        self.shares.iter().map(|(at, share)| (*at, share * scale / middling)).collect()
    }

    /// Mean share over the trace.
    pub fn mean(&self, span: Ns) -> f64 {
        let ends = self.shares.iter().skip(1).map(|s| s.0).chain([span]);
        let (mut sum, mut since) = (0.0, 0);
        for ((_, share), end) in self.shares.iter().zip(ends) {
            let end = end.clamp(since, span.max(since));
            sum += share * (end - since) as f64;
            since = end;
        }
        if since > 0 {
            sum / since as f64
        } else {
            self.shares.first().map_or(1.0, |s| s.1)
        }
    }
}

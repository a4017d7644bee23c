//! What is known of a trace as a whole, as string pairs that travel in the Arrow schema and the
//! Parquet footer.

use std::collections::BTreeMap;

/// Key/value pairs, sorted by key so that equal traces give equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub BTreeMap<String, String>);

/// Every key that tracekit writes, and what it holds. The docs page is generated from this list.
pub const KEYS: &[(&str, &str)] = &[
    ("tracekit.schema", "version of this schema, `1`"),
    ("tracekit.version", "version of tracekit that wrote the file"),
    ("tracekit.table", "name of the table that the file holds"),
    ("source.format", "name of the format, as in `tracekit formats`"),
    ("source.variant", "what varies within the format: flag columns, plugin form, file version, compression"),
    ("source.files", "JSON list of name, size and BLAKE3 digest of the source files"),
    ("host", "host name"),
    ("os", "operating system: linux, solaris, freebsd, darwin, aix, windows"),
    ("kernel", "kernel release"),
    ("arch", "processor architecture"),
    ("nr_cpus", "number of CPUs the source speaks of"),
    ("clock.name", "trace clock: local, global, mono, boot, tsc, ..."),
    ("clock.unit", "unit of `ts_ns` when it is not ns: `ticks`"),
    ("clock.hz", "ticks per second, where the unit is ticks and the rate is known"),
    ("clock.resolution_ns", "smallest step of time stamps (1000 for microsecond text)"),
    ("clock.epoch_offset_ns", "wall clock = ts_ns + this, in ns since 1970-01-01"),
    ("clock.synchronised", "are the CPUs' clocks comparable: true, false, unknown"),
    ("prio.scale", "scale of `prio`: linux, solaris, freebsd, aix, windows, darwin"),
    ("ftrace.legend", "flags of a line that the kernel's own header of a text explains, in order"),
    ("hz", "clock ticks per second of the traced kernel, where the source says so"),
    ("state.table", "JSON of bit -> letter, read from the file's own format"),
    ("events.recorded", "JSON list of the event names that the source recorded; decides what absence means"),
    ("cpus.recorded", "CPUs whose records were kept, where those of others were not, as Linux prints lists: `0-2,5`"),
    ("tasks.recorded", "whose records alone were kept, where those of other tasks were not: `-p 27361`"),
    ("loss.total", "number of lost records, absent when a loss of unknown size happened or switches are missing"),
    ("loss.known", "false when records were lost and nobody knows how many"),
    ("parse.lines", "lines or records read"),
    ("parse.unparsed", "lines or records that were not understood"),
    ("replay.policy", "policy of a replay, with all parameters"),
    ("replay.loop", "dependency, open or closed"),
    ("replay.placement", "trace where each task is on the CPU on which it was recorded"),
    ("workload", "the workload text whose run this is; replays run its programs"),
    ("workload.seed", "seed of the times that the workload text draws"),
    ("replay.counts", "JSON of what the policy of a replay counted: recalculations, schedules, ..."),
    ("replay.costs", "costs that were given, in place of those measured in the trace"),
    ("replay.stuck", "JSON list of thread and time (null: not known) of the tasks of a replay that wait for ever"),
    ("machine", "text of the machine.toml beside the trace"),
    ("losses", "in files: the losses table as JSON"),
    ("diagnostics", "in files: the diagnostics table as JSON"),
    ("options", "JSON of the options that were in force"),
];

impl Metadata {
    /// Sets `key`, which must be one of [`KEYS`].
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        debug_assert!(KEYS.iter().any(|(k, _)| *k == key), "metadata key {key} is not documented in KEYS");
        self.0.insert(key.to_owned(), value.into());
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

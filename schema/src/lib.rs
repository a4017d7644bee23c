//! The common model of every trace: records, tables, diagnostics, and the state machine that turns
//! records into slices, states and run queues.
//!
//! This crate knows nothing of files, formats, policies or Python. It is the only one that knows Arrow.
//!
//! * [`events`]: the `events` table, a source-near log with one row per source record;
//! * [`tables`]: every derived table;
//! * [`table`]: the macro and column store behind them, so that a column is described once, in code;
//! * [`diag`]: what was skipped, repaired, inferred or lost;
//! * [`parquet`]: tables as Parquet files;
//! * [`out`]: what a parser or a replay fills;
//! * [`derive`](mod@derive): the state machine from records to slices, states and run queues;
//! * [`recorded`]: what records show of what was recorded;
//! * [`metrics`]: the statistics that comparisons hold side by side.

#![forbid(unsafe_code)]

pub mod arrow;
pub mod derive;
pub mod diag;
pub mod events;
pub mod kinds;
pub mod meta;
pub mod metrics;
pub mod out;
pub mod parquet;
pub mod recorded;
pub mod strings;
pub mod table;
pub mod tables;

pub use derive::{DeriveOptions, Derived, Deriver};
pub use diag::{Code, Diagnostic, Diagnostics, Severity};
pub use events::Events;
pub use kinds::{Kind, State};
pub use meta::Metadata;
pub use out::Out;
pub use strings::{News, StrId, Strings, TextId};

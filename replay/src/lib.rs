//! Replay: runs recorded or written-down workloads under another scheduling policy.
//!
//! * [`program`]: what tasks do; [`workload`]: the same as text; [`task`]: what the engine knows of a task;
//! * [`replay`]: a trace under another policy, the entry point; [`reconstruct`]: from events to programs;
//! * `infer`: messages that no wakeup shows, an optional stage of the reconstruction;
//! * [`altered`]: programs with less work in them than was recorded;
//! * [`engine`]: the discrete-event engine; [`cost`]: what scheduling itself costs;
//! * [`policy`]: the trait of a policy, [`reasons`] why its hooks are called, [`machine`] what the
//!   engine offers it, [`classes`] how policies stand above one another; [`queue`]: queues to build
//!   one from;
//! * [`trial`]: whether what was inferred about messages does any harm;
//! * [`cancel`]: how a caller stops long work;
//! * [`policies`]: the policies; [`params`]: their parameters;
//! * [`log`]: what happened; [`emit`]: the same as events of a trace.
//!
//! This crate sees no files, clocks, environment or Python, and no parser.

#![forbid(unsafe_code)]

pub mod altered;
pub mod calibrate;
pub mod cancel;
pub mod classes;
pub mod cost;
mod draws;
pub mod emit;
pub mod engine;
pub mod history;
mod infer;
pub mod log;
pub mod machine;
mod near;
mod overrides;
pub mod params;
mod perturb;
pub mod policies;
pub mod policy;
pub mod program;
pub mod queue;
pub mod rates;
pub mod reasons;
pub mod reconstruct;
pub mod replay;
pub mod speeds;
pub mod switch_costs;
pub mod task;
pub mod trial;
mod unread;
mod visit;
pub mod workload;

pub use visit::Owner;

/// How far a replay may be from its recording, by metric: the text of `tolerances.toml`.
pub const TOLERANCES: &str = include_str!("../tolerances.toml");

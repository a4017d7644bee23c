//! What the formats of text share: lines, heads of lines, numbers, payloads of Linux tracepoints, tables.

pub mod blocks;
pub mod dtrace_messages;
pub mod head;
pub mod lines;
pub mod log;
pub mod pattern;
pub mod payload;
pub mod perf_tables;
pub mod reorder;
pub mod scan;
pub mod stage;
pub mod swar;

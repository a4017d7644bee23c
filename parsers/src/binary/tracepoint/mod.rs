//! Tracepoints: what trace.dat, perf.data and raw ring-buffer pages have in common.
//!
//! * [`format`](mod@format): the text that says where an event's fields lie;
//! * [`print_fmt`]: tables of states and symbols in the print formats;
//! * [`mapping`]: which column each field goes to;
//! * [`decode`]: the compiled form of all this, applied to a record;
//! * [`quick`]: the shapes that nearly all records have;
//! * [`header`]: the block of formats, symbols and names that trace.dat and perf.data carry.

pub mod decode;
pub mod format;
pub mod header;
pub mod mapping;
pub mod print_fmt;
pub mod quick;
pub mod symbols;

pub use decode::{Decoded, Decoder};
pub use format::EventFormat;
pub use header::Header;

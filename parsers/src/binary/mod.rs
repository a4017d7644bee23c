//! What the binary formats share: integers in either byte order, tracepoint records, the kernel's pages.

pub mod bytes;
pub mod ring_buffer;
pub mod tar;
pub mod tasks;
pub mod tracepoint;

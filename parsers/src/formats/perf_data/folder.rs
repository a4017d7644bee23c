//! The folder of `perf record --threads`: `data` has the head and what perf itself recorded, `data.0`,
//! `data.1` and so on the records of one thread of perf each.

use std::collections::VecDeque;

use super::header::{self, Head};
use super::NAME;
use crate::binary::bytes::uint;
use crate::error::ParseError;
use crate::source::Block;
use std::sync::Arc;
use tracekit_schema::{Code, Diagnostic, Out};

/// The file with the head.
const MAIN: &str = "data";

/// A recording in one block.
pub struct Joined {
    pub bytes: Block,
    pub head: Head,
    /// Where the records of another thread begin, which are compressed as a stream of their own.
    pub joints: VecDeque<usize>,
}

/// Puts the records of all files into one block: those of the threads before those of `data`, whose
/// marks of rounds must not end a round before the records of all threads are known.
///
/// # Errors
/// [`ParseError`] where there is no `data`, or its head cannot be read.
pub fn join(files: &[(String, Block)], out: &mut Out) -> Result<Joined, ParseError> {
    let main = files.iter().find(|(name, _)| name == MAIN);
    let (_, main) =
        main.ok_or_else(|| ParseError::new(NAME, "io", "expected a file `data` in the folder, found none"))?;
    let main = (**main).as_ref();
    let mut head = header::read(main)?;
    let mut threads: Vec<(u32, &str, &Block)> =
        files.iter().filter_map(|(name, block)| Some((number(name)?, name.as_str(), block))).collect();
    threads.sort_by_key(|t| t.0);
    let mut all = main[..head.data.start].to_vec();
    let mut joints = VecDeque::new();
    for (_, name, block) in threads {
        let records = (**block).as_ref();
        let whole = whole_records(records, head.be);
        if whole < records.len() {
            let message = format!("the records in {name} are cut short or damaged at byte {whole}");
            let advice = "what stands before is read; `perf record` completes the file when it ends";
            out.diag(Diagnostic::new(Code::Truncated, message).advise(advice));
        }
        joints.push_back(all.len());
        all.extend_from_slice(&records[..whole]);
    }
    joints.push_back(all.len());
    let more = all.len() - head.data.start;
    all.extend_from_slice(&main[head.data.start..]);
    head.data.end += more;
    for (_, place) in &mut head.features {
        *place = place.start + more..place.end + more;
    }
    Ok(Joined { bytes: Arc::new(all), head, joints })
}

/// The number of a thread's file.
fn number(name: &str) -> Option<u32> {
    name.strip_prefix(MAIN)?.strip_prefix('.')?.parse().ok()
}

/// Up to where `bytes` are whole records.
fn whole_records(bytes: &[u8], be: bool) -> usize {
    let mut at = 0;
    while let Some(size) = uint(bytes, at + 6, 2, be) {
        let size = size as usize;
        if size < 8 || at + size > bytes.len() {
            break;
        }
        at += size;
    }
    at
}

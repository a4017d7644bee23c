//! A mapped file that may become shorter while it is read.
//!
//! Touching a page that the file no longer has raises SIGBUS, which would end the process. The
//! handler here puts a page of zeros in its place; the reader sees by the file's size what
//! happened, and stops with a message. A fault anywhere else goes to whoever handled SIGBUS before.

// The only place beside `files.rs`, `table.rs` and `policy/` that needs it: the handler of a
// signal, and the map itself.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use memmap2::Mmap;

/// Maps that can be guarded at a time; a CTF trace has one file for each CPU.
const SLOTS: usize = 1024;

/// What the handler knows of a map: where it begins (0: a free slot) and its bytes.
struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
}

/// `start` of a slot that is taken and holds no map yet: no address lies in it.
const TAKEN: usize = 1;

static SLOT: [Slot; SLOTS] = [const { Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; SLOTS];

/// Bytes of a page, and who handled SIGBUS before us.
static PAGE: AtomicUsize = AtomicUsize::new(4096);
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A file in memory.
pub struct Mapping {
    map: Mmap,
    slot: &'static Slot,
}

impl Mapping {
    /// Maps a file that is not empty; none when too many files are mapped already.
    pub fn new(file: &File) -> io::Result<Option<Self>> {
        install();
        let free = |s: &&Slot| s.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let Some(slot) = SLOT.iter().find(free) else { return Ok(None) };
        // SAFETY: the map is private and only read. Bytes may change while they are read, which
        // parsers bear: they take each byte for what it is when they see it. That the file may
        // shrink is what the handler is for.
        let map = unsafe { Mmap::map(file) }.inspect_err(|_| slot.start.store(0, Ordering::Release))?;
        slot.len.store(map.len(), Ordering::Relaxed);
        slot.start.store(map.as_ptr() as usize, Ordering::Release);
        Ok(Some(Mapping { map, slot }))
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.slot.len.store(0, Ordering::Release);
        self.slot.start.store(0, Ordering::Release);
    }
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: plain calls with valid arguments. The handler only touches atomics and calls mmap
        // and sigaction, which are system calls without state of their own.
        unsafe {
            PAGE.store(usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096), Ordering::Relaxed);
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_bus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            let mut before = MaybeUninit::zeroed();
            if libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) == 0 {
                let _ = BEFORE.set(before.assume_init());
            }
        }
    });
}

extern "C" fn on_bus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid `info`. Pages are only replaced within a map of ours,
    // which is alive: whoever touched it holds a borrow. The new pages are as readable as the old
    // ones, and nobody writes to either.
    unsafe {
        let at = (*info).si_addr() as usize;
        for slot in &SLOT {
            let start = slot.start.load(Ordering::Acquire);
            let len = slot.len.load(Ordering::Relaxed);
            if start == 0 || at < start || at - start >= len {
                continue;
            }
            let from = at - at % PAGE.load(Ordering::Relaxed);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let page = libc::mmap(from as *mut libc::c_void, start + len - from, libc::PROT_READ, flags, -1, 0);
            if page != libc::MAP_FAILED {
                return;
            }
        }
        // Not ours: the instruction runs again and meets the handler that was there before.
        let before = BEFORE.get().map_or(ptr::null(), ptr::from_ref);
        if before.is_null() {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        } else {
            libc::sigaction(libc::SIGBUS, before, ptr::null_mut());
        }
    }
}

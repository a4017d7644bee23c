//! Rust errors as the exceptions of `tracekit.errors`.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tracekit_parsers::ParseError;
use tracekit_replay::cancel::Cancel;

/// `tracekit.errors.ParseError(message, format, code, offset, line)`; the message begins with the
/// name of the source.
pub fn parse_error(py: Python<'_>, error: &ParseError, source: Option<&str>) -> PyErr {
    let position = error.position;
    let message = source.map_or_else(|| error.to_string(), |name| format!("{name}: {error}"));
    raised(py, "ParseError", (message, error.format, error.code, position.offset, position.line))
}

/// `tracekit.errors.ReplayError(message)`.
pub fn replay_error(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "ReplayError", (message,))
}

/// `tracekit.errors.InternalError(message)`: a panic in Rust code, which is a bug of ours whatever the input.
pub fn internal_error(py: Python<'_>, bug: &Bug) -> PyErr {
    raised(py, "InternalError", (format!("bug in tracekit {}; please report it with the input", bug.0),))
}

fn raised<'py>(py: Python<'py>, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import("tracekit.errors").and_then(|m| m.getattr(class)).and_then(|c| c.call1(args));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// A panic that was caught, as words.
pub struct Bug(String);

impl Bug {
    /// Something that must not be.
    pub fn new(place: &str) -> Self {
        Bug(place.to_owned())
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes panics instead of printing them: they become exceptions.
pub fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |l| format!("at {}:{}: ", l.file(), l.line()));
        let said = info.payload_as_str().unwrap_or("no message");
        LAST_PANIC.with_borrow_mut(|last| *last = format!("{place}{said}"));
    }));
}

/// The same, caused by `cause`: an exception of a hook. What is no `Exception` (Ctrl-C,
/// `SystemExit`) stays what it is.
pub fn replay_error_from(py: Python<'_>, message: &str, cause: PyErr) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause;
    }
    let error = replay_error(py, message);
    error.set_cause(py, Some(cause));
    error
}

/// Time between two looks for signals. A user notices a tenth of a second.
const LOOK: Duration = Duration::from_millis(50);

/// From so many rows on memory is given back: some 100 MB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GIVE_BACK: usize = 1 << 20;

/// Stack of the thread that works: as large as a main thread's usually is.
const STACK: usize = 8 << 20;

/// Which share of some work is done, as the thread that does it says.
#[derive(Default)]
pub struct Share(AtomicU64);

impl Share {
    /// So much is done, from 0 to 1.
    pub fn is(&self, done: f64) {
        self.0.store(done.to_bits(), Ordering::Relaxed);
    }

    fn done(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Runs `work` without the GIL on a thread of its own, while this one looks for signals. The first
/// exception that a signal's handler raises sets the flag and is raised once `work` has returned. A
/// panic in it does not tear down the interpreter.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&Cancel) -> T + Send) -> PyResult<T> {
    reporting(py, None, |cancel, _| work(cancel))
}

/// As [`interruptible`]; `progress` is called with the share that is done whenever this thread
/// looks for signals, and at the end. What it raises counts as what a signal's handler raises.
pub fn reporting<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Cancel, &Share) -> T + Send,
) -> PyResult<T> {
    let (cancel, share) = (&Cancel::new(), &Share::default());
    let tell = |done: f64| progress.map_or(Ok(()), |tell| tell.call1(py, (done,)).map(drop));
    std::thread::scope(|scope| {
        let (sender, mut receiver) = channel();
        let body = move || {
            let done = caught(|| work(cancel, share));
            // Nobody listens any more only after a panic here.
            let _ = sender.send(done);
        };
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body)?;
        let mut raised = None;
        loop {
            let waiting = &mut receiver;
            let done = py.detach(move || waiting.recv_timeout(LOOK));
            match done {
                Ok(done) => {
                    if let Some(error) = raised {
                        return Err(error);
                    }
                    let done = done.map_err(|bug| internal_error(py, &bug))?;
                    return tell(1.0).map(|()| done);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(internal_error(py, &Bug("a thread was lost".into())))
                }
                Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                    if let Err(error) = py.check_signals().and_then(|()| tell(share.done())) {
                        cancel.set();
                        raised = Some(error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    })
}

/// Gives memory back to the system that was freed, after work on `rows` of a trace. The allocator
/// keeps what threads that have ended used in small pieces: of a long trace hundreds of megabytes.
pub fn give_back(rows: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if rows > GIVE_BACK {
        // SAFETY: takes no pointer, and may be called by any thread at any time.
        #[allow(unsafe_code)]
        unsafe {
            libc::malloc_trim(0)
        };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = rows;
}

/// Runs `work`, and gives a panic in it as words.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Bug> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Bug(LAST_PANIC.take()))
}

/// Runs `work` without the GIL. A panic in it does not tear down the interpreter.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| caught(work)).map_err(|bug| internal_error(py, &bug))
}

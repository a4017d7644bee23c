//! Rust errors as the exceptions of `tracekit.errors`.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tracekit_parsers::ParseError;

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

/// `tracekit.whatif.not_modelled.NotModelledError(message, (message,))`.
pub fn not_modelled(py: Python<'_>, message: &str) -> PyErr {
    raised_of(py, "tracekit.whatif.not_modelled", "NotModelledError", (message, (message,)))
}

fn raised<'py>(py: Python<'py>, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    raised_of(py, "tracekit.errors", class, args)
}

fn raised_of<'py>(py: Python<'py>, module: &str, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import(module).and_then(|m| m.getattr(class)).and_then(|c| c.call1(args));
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

/// From so many rows on memory is given back: some 100 MB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GIVE_BACK: usize = 1 << 20;

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

//! Rust errors as the exceptions of `tracekit.errors`.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use tracekit_parsers::ParseError;

/// `tracekit.errors.ParseError(message, format, code, offset, line)`; the message begins with the name of the source.
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

/// Runs `work` without the GIL. A panic in it does not tear down the interpreter.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)).map_err(|_| Bug(LAST_PANIC.take())));
    done.map_err(|bug| internal_error(py, &bug))
}

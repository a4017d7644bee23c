//! Rust errors as the exceptions of `tracekit.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tracekit_parsers::ParseError;

/// `tracekit.errors.ParseError(message, format, code, offset, line)`.
pub fn parse_error(py: Python<'_>, error: &ParseError) -> PyErr {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = match TYPE.import(py, "tracekit.errors", "ParseError") {
        Ok(class) => class,
        Err(missing) => return missing,
    };
    let position = error.position;
    match class.call1((error.to_string(), error.format, error.code, position.offset, position.line)) {
        Ok(value) => PyErr::from_value(value),
        Err(failed) => failed,
    }
}

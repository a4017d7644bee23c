//! Tables on their way between Rust and Python: the Arrow C stream interface, both directions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use pyo3::IntoPyObjectExt;

use tracekit_schema::arrow::LoadError;
use tracekit_schema::table;
use tracekit_schema::{Metadata, Strings};

/// Record batches of one schema. Polars, pyarrow, pandas and duckdb take it through
/// `__arrow_c_stream__`, without a copy of the numbers.
#[pyclass(module = "tracekit._core", frozen)]
pub struct Table {
    name: &'static str,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// A table of the given batches, which have its schema.
    pub fn new(name: &'static str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Table { name, schema, batches }
    }
}

#[pymethods]
impl Table {
    /// Name of the table, as in `tracekit._core.tables()`.
    #[getter]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The metadata that travels with the schema.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let mut pairs: Vec<_> = self.schema.metadata().iter().collect();
        pairs.sort();
        for (key, value) in pairs {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The Arrow schema as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows as an Arrow stream capsule. Another schema than its own cannot be asked for.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore the request, and consumers then convert.
        let _ = requested_schema;
        let batches: Vec<_> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// Some of its columns.
    fn select(&self, names: Vec<String>) -> PyResult<Table> {
        let places: Result<Vec<usize>, _> = names.iter().map(|name| self.schema.index_of(name)).collect();
        let places = places.map_err(arrow_error)?;
        let schema = Arc::new(self.schema.project(&places).map_err(arrow_error)?);
        let batches = self.batches.iter().map(|batch| batch.project(&places)).collect::<Result<_, _>>();
        Ok(Table { name: self.name, schema, batches: batches.map_err(arrow_error)? })
    }

    /// Its first `rows` rows, or all where there are fewer; nothing is copied.
    fn head(&self, rows: usize) -> Table {
        let mut left = rows;
        let mut batches = Vec::new();
        for batch in &self.batches {
            let taken = left.min(batch.num_rows());
            if taken > 0 {
                batches.push(batch.slice(0, taken));
            }
            left -= taken;
        }
        Table { name: self.name, schema: Arc::clone(&self.schema), batches }
    }

    /// The schema, without metadata, as a message of Arrow's streams.
    fn schema_message<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &tracekit_schema::arrow::message(&self.schema))
    }

    /// A dict for each row: for small tables.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rows = self.batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        let dict = |(batch, row): (&RecordBatch, usize)| {
            let dict = PyDict::new(py);
            for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
                dict.set_item(field.name(), cell(py, column.as_ref(), row)?)?;
            }
            Ok(dict)
        };
        rows.map(dict).collect()
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<tracekit table `{}`: {} rows, {} columns>", self.name, self.num_rows(), self.schema.fields().len())
    }
}

/// One value of a column.
fn cell(py: Python<'_>, column: &dyn Array, row: usize) -> PyResult<Py<PyAny>> {
    if column.is_null(row) {
        return Ok(py.None());
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into_py_any(py),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into_py_any(py),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into_py_any(py),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into_py_any(py),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into_py_any(py),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into_py_any(py),
        DataType::Boolean => column.as_boolean().value(row).into_py_any(py),
        DataType::Utf8 => column.as_string::<i32>().value(row).into_py_any(py),
        DataType::Dictionary(..) => {
            let dictionary = column.as_dictionary::<UInt32Type>();
            cell(py, dictionary.values().as_ref(), dictionary.keys().value(row) as usize)
        }
        other => Err(PyTypeError::new_err(format!("no column is {other}"))),
    }
}

/// The rows of `tables`, all of the table `name`, one after the other, with other metadata. Nothing
/// is copied.
#[pyfunction]
pub fn concat(name: &str, tables: Vec<Bound<'_, Table>>, metadata: HashMap<String, String>) -> PyResult<Table> {
    let def = crate::registry::by_name(name)?;
    let schema = match tables.first() {
        Some(first) => first.get().schema.as_ref().clone(),
        None => tracekit_schema::arrow::schema_of(def.columns, &Metadata::default()),
    };
    let schema = Arc::new(schema.with_metadata(metadata));
    let batches = tables.iter().flat_map(|t| &t.get().batches).map(|batch| {
        if batch.schema_ref().fields() != schema.fields() {
            return Err(PyValueError::new_err(format!("not all of the tables are `{name}`")));
        }
        RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).map_err(arrow_error)
    });
    Ok(Table::new(def.name, Arc::clone(&schema), batches.collect::<PyResult<_>>()?))
}

/// Opens the Arrow stream of a Python object (a polars or pandas frame, a pyarrow table, a [`Table`]).
fn import(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let method = object.getattr("__arrow_c_stream__").map_err(|_| {
        let found = object.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!(
            "expected a table with `__arrow_c_stream__` (polars, pyarrow, pandas), found {found}"
        ))
    })?;
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the Arrow PyCapsule protocol a capsule of this name points to a valid
    // `ArrowArrayStream` for as long as the capsule lives, which is until the end of this function.
    // `from_raw` moves the stream out and leaves a released one behind, so that the capsule's
    // destructor does nothing.
    #[allow(unsafe_code)]
    let reader = unsafe { ArrowArrayStreamReader::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr()) };
    reader.map_err(arrow_error)
}

/// The batches of a Python object.
pub fn pieces(object: &Bound<'_, PyAny>) -> PyResult<impl Iterator<Item = PyResult<RecordBatch>>> {
    Ok(import(object)?.map(|batch| batch.map_err(arrow_error)))
}

/// Adds the rows of a batch to a table.
pub fn append<T: table::Table>(rows: &mut T, batch: &RecordBatch, strings: &mut Strings) -> PyResult<()> {
    tracekit_schema::arrow::append(rows, batch, strings).map_err(|e| load_error(&e))
}

fn load_error(error: &LoadError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn arrow_error(error: arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(format!("Arrow: {error}"))
}

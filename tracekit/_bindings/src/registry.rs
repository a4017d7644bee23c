//! What there is: formats, tables, vocabularies, diagnostic codes, metadata keys. All of it is given
//! by the crates that own it, so that a new format or column shows up in Python without a line
//! here.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::replay_error;
use tracekit_parsers::{Format, FORMATS};
use tracekit_replay::cost::COST_KEYS;
use tracekit_replay::params::{Param, Unit};
use tracekit_replay::policies::kernels;
use tracekit_replay::policies::{PolicyInfo, PolicySpec, ALIASES, POLICIES};
use tracekit_schema::events::{irq, quality};
use tracekit_schema::table::{ColumnDef, Table, TableDef, Type};
use tracekit_schema::tables::flag;
use tracekit_schema::tables::{
    Cpus, DiagnosticTable, Histograms, Losses, ProgramTable, Runqueue, Slices, States, Summaries, Tasks,
};
use tracekit_schema::{Code, Events, Kind, State};

/// Every format: its name, title, info.
#[pyfunction]
pub fn formats(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let format = |f: &&Format| {
        let info = f.info;
        let row = row(
            py,
            &[
                ("name", f.name),
                ("title", f.title),
                ("produced_by", info.produced_by),
                ("kinds", info.kinds),
                ("provides", info.provides),
                ("resolution", info.resolution),
                ("clock", info.clock),
                ("confidence", info.confidence),
                ("notes", info.notes),
            ],
        )?;
        row.set_item("streams", f.streams)?;
        Ok(row)
    };
    FORMATS.iter().map(format).collect()
}

/// Every policy: its name, idea, formula, parameters, sources.
#[pyfunction]
pub fn policies(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let param = |p: &Param| {
        let unit = match p.unit {
            Unit::Time => "time".to_owned(),
            Unit::Count => "count".to_owned(),
            Unit::Number => "number".to_owned(),
            Unit::Switch => "on or off".to_owned(),
            Unit::Choice(words) => words.join(" or "),
            Unit::Text => "text".to_owned(),
        };
        let range = p.range.map_or_else(String::new, |(lo, hi)| format!("{lo} to {hi}"));
        row(py, &[("name", p.name), ("unit", &unit), ("default", p.default), ("range", &range), ("doc", p.doc)])
    };
    let policy = |p: &PolicyInfo| {
        let pairs = [
            ("name", p.name),
            ("title", p.title),
            ("idea", p.idea),
            ("formula", p.formula),
            ("tie_break", p.tie_break),
            ("not_modelled", p.not_modelled),
            ("sources", p.sources),
        ];
        let dict = row(py, &pairs)?;
        dict.set_item("rt_above", p.rt_above)?;
        dict.set_item("deadline_above", p.deadline_above)?;
        dict.set_item("reads", p.reads.to_vec())?;
        let aliases = ALIASES.iter().filter(|a| a.1 == p.name).map(|a| a.0);
        dict.set_item("aliases", aliases.collect::<Vec<_>>())?;
        dict.set_item("params", p.params.iter().map(param).collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    };
    POLICIES.iter().map(policy).collect()
}

/// Every cost that a replay can be given: its name, and what it is.
#[pyfunction]
pub fn costs(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    COST_KEYS.iter().map(|(name, doc)| row(py, &[("name", name), ("doc", doc)])).collect()
}

/// A policy string with all parameters written out, checked.
#[pyfunction]
pub fn parse_policy(py: Python<'_>, text: &str) -> PyResult<String> {
    PolicySpec::parse(text).map(|spec| spec.show()).map_err(|e| replay_error(py, &e.0))
}

/// A policy string with the policy in place of a kernel's version; any other as it is.
#[pyfunction]
pub fn expand_policy(py: Python<'_>, text: &str) -> PyResult<String> {
    kernels::expand(text).map(Cow::into_owned).map_err(|e| replay_error(py, &e.0))
}

/// What a kernel of Linux schedules with, and the policy that is that; `None` where its version is unknown.
#[pyfunction]
pub fn kernel_scheduler(release: &str) -> Option<(&'static str, &'static str)> {
    kernels::scheduler(release)
}

/// Every table of the schema, in the order of the documentation.
pub static TABLES: [TableDef; 11] = [
    Events::DEF,
    Slices::DEF,
    States::DEF,
    Runqueue::DEF,
    Tasks::DEF,
    Cpus::DEF,
    Losses::DEF,
    DiagnosticTable::DEF,
    Histograms::DEF,
    Summaries::DEF,
    ProgramTable::DEF,
];

/// The definition of the table called `name`.
pub fn by_name(name: &str) -> PyResult<&'static TableDef> {
    TABLES.iter().find(|t| t.name == name).ok_or_else(|| {
        let names: Vec<_> = TABLES.iter().map(|t| t.name).collect();
        PyValueError::new_err(format!("no table is called `{name}`; there are {}", names.join(", ")))
    })
}

/// Every table: its name, what a row is, and its columns with type, meaning, and when they are null
/// (`""`: never).
#[pyfunction]
pub fn tables(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let column =
        |c: &ColumnDef| row(py, &[("name", c.name), ("type", type_name(c.ty)), ("null", c.null), ("doc", c.doc)]);
    let table = |def: &TableDef| {
        let dict = row(py, &[("name", def.name), ("doc", def.doc)])?;
        dict.set_item("columns", def.columns.iter().map(column).collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    };
    TABLES.iter().map(table).collect()
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::I64 => "int64",
        Type::I32 => "int32",
        Type::U64 => "uint64",
        Type::U32 => "uint32",
        Type::U16 => "uint16",
        Type::F64 => "float64",
        Type::Bool => "bool",
        Type::Str => "string",
        Type::Text => "text",
        Type::Kind => "kind",
        Type::State => "state",
    }
}

/// The closed vocabularies: `kinds` and `states` as words with their meaning, `irq_flags`,
/// `quality` and `flags` as bits.
#[pyfunction]
pub fn vocabularies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for (name, words, docs) in [("kinds", Kind::NAMES, Kind::DOCS), ("states", State::NAMES, State::DOCS)] {
        let rows = words.iter().zip(docs).map(|(word, doc)| row(py, &[("name", word), ("doc", doc)]));
        all.set_item(name, rows.collect::<PyResult<Vec<_>>>()?)?;
    }
    for (name, bits) in [("irq_flags", irq::BITS), ("quality", quality::BITS), ("flags", flag::BITS)] {
        let rows = bits.iter().map(|(bit, word, doc)| {
            let row = row(py, &[("name", &word.to_ascii_lowercase()), ("doc", doc)])?;
            row.set_item("bit", bit)?;
            Ok(row)
        });
        all.set_item(name, rows.collect::<PyResult<Vec<_>>>()?)?;
    }
    Ok(all)
}

/// Every diagnostic code with its severity and meaning.
#[pyfunction]
pub fn diagnostic_codes(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let code = |c: &Code| row(py, &[("code", c.as_str()), ("severity", c.severity().as_str()), ("doc", c.doc())]);
    Code::ALL.iter().map(code).collect()
}

/// Every metadata key and what it holds.
#[pyfunction]
pub fn metadata_keys(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    tracekit_schema::meta::KEYS.iter().map(|(key, doc)| row(py, &[("name", key), ("doc", doc)])).collect()
}

/// A dictionary of strings.
fn row<'py>(py: Python<'py>, pairs: &[(&str, &str)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in pairs {
        dict.set_item(key, value.trim())?;
    }
    Ok(dict)
}

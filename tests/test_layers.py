"""Who may know what: the rules of ARCHITECTURE.md, held to the code."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tracekit"

CRATES = {
    "schema": set(),
    "parsers": {"schema"},
    "replay": {"schema"},
    "statistics": {"schema"},
    "tracekit/_bindings": {"schema", "parsers", "replay", "statistics"},
}

#: What results must not depend on, and who may still use it.
FORBIDDEN_IN_RUST = {
    r"std::fs\b|std::io::stdin|File::open": {"tracekit/_bindings"},
    r"std::env\b": set(),
    r"std::net\b|std::process\b": set(),
    # When progress is reported is no result.
    r"std::time::(Instant|SystemTime)|Instant::now|SystemTime::now": {"tracekit/_bindings/src/signals.rs"},
    r"\bpyo3\b": {"tracekit/_bindings"},
    r"\barrow_(?:array|buffer|cast|schema)::": {"schema", "tracekit/_bindings"},
    r"\bunsafe\s*(\{|fn\b|impl\b)": {"tracekit/_bindings"},
    r"HashMap<(?![^>]*BuildHasher)[^>]*>::new|thread_rng|rand::": {"tracekit/_bindings"},
}

#: Packages of tracekit, and the modules of tracekit that they may import.
PYTHON_LAYERS = {
    # The core computes the statistics of comparisons: a pure function over tables, too.
    "analysis": {"tracekit.analysis", "tracekit._core", "tracekit._lazy"},
    "plot": {"tracekit.plot", "tracekit.analysis", "tracekit.units", "tracekit.words"},
}
#: What pure functions over tables may import from elsewhere.
PURE = {"polars", "numpy", "scipy", "matplotlib"}
IMPURE_STANDARD = {
    "os",
    "pathlib",
    "subprocess",
    "socket",
    "urllib",
    "random",
    "time",
    "datetime",
    "shutil",
    "tempfile",
}


def rust_sources(crate: str) -> Iterator[tuple[Path, str]]:
    """Sources of a crate without comments and without its tests."""
    for path in sorted((ROOT / crate / "src").rglob("*.rs")):
        if path.stem in ("tests", "props"):
            continue
        text = re.sub(r"//[^\n]*", "", path.read_text())
        yield path, re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0]


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a Python file imports, also within functions."""
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from tracekit import x` may name a module.
            if node.module == "tracekit":
                yield from (f"tracekit.{alias.name}" for alias in node.names)
            else:
                yield node.module or package


def modules(folder: str) -> list[Path]:
    found = sorted((PACKAGE / folder).rglob("*.py"))
    assert found, folder
    return found


@pytest.mark.parametrize("crate", CRATES)
def test_crates_depend_downwards_only(crate: str) -> None:
    manifest = tomllib.loads((ROOT / crate / "Cargo.toml").read_text())
    ours = {
        name.removeprefix("tracekit-") for name in manifest["dependencies"] if name.startswith("tracekit-")
    }
    assert ours <= CRATES[crate]
    assert ("pyo3" in manifest["dependencies"]) == (crate == "tracekit/_bindings")
    if crate in ("parsers", "replay", "statistics"):
        assert not [name for name in manifest["dependencies"] if name.startswith("arrow")]


@pytest.mark.parametrize("pattern", FORBIDDEN_IN_RUST)
def test_results_depend_on_the_input_alone(pattern: str) -> None:
    allowed = FORBIDDEN_IN_RUST[pattern]
    for crate in CRATES:
        if crate in allowed:
            continue
        for path, text in rust_sources(crate):
            if path.relative_to(ROOT).as_posix() in allowed:
                continue
            found = re.search(pattern, text, flags=re.MULTILINE)
            assert found is None, f"{path.relative_to(ROOT)} has {found and found[0]!r}"


def test_every_unsafe_block_says_why_it_is_safe() -> None:
    for path in sorted((PACKAGE / "_bindings" / "src").rglob("*.rs")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe\s*\{", line.split("//")[0]):
                assert any("SAFETY:" in above for above in lines[max(number - 8, 0) : number]), (
                    f"{path}:{number + 1}"
                )


def test_parsers_do_not_know_one_another() -> None:
    formats = ROOT / "parsers" / "src" / "formats"
    names = {p.stem for p in formats.iterdir()} - {"mod"}
    for path in sorted(formats.rglob("*.rs")):
        own = path.relative_to(formats).parts[0].removesuffix(".rs")
        if own == "mod":
            continue
        for other in set(re.findall(r"formats::(\w+)", path.read_text())) & names:
            assert other == own or own.split("_")[0] == other.split("_")[0], (
                f"{path.relative_to(ROOT)} uses {other}"
            )


@pytest.mark.parametrize("layer", PYTHON_LAYERS)
def test_analysis_and_plot_are_pure(layer: str) -> None:
    for path in modules(layer):
        for name in imports(path):
            top = name.split(".")[0]
            if top == "tracekit":
                assert any(name == a or name.startswith(f"{a}.") for a in PYTHON_LAYERS[layer]), (
                    f"{path}: {name}"
                )
            elif top in sys.stdlib_module_names:
                assert top not in IMPURE_STANDARD, f"{path}: {name}"
            else:
                assert top in PURE, f"{path}: {name}"
        called = {
            n.func.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        assert not called & {"open", "print", "input", "exec", "eval"}, path


@pytest.mark.parametrize("layer", ["cli", "report"])
def test_cli_and_report_use_the_public_api(layer: str) -> None:
    for path in modules(layer):
        for name in imports(path):
            if name.startswith("tracekit.") and not name.startswith(f"tracekit.{layer}"):
                private = [part for part in name.split(".") if re.match("_[^_]", part)]
                assert not private, f"{path.relative_to(ROOT)} imports {name}"


def test_nothing_below_imports_cli_or_report() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).parts[0]
        if place in ("cli", "__main__.py"):
            continue
        for name in imports(path):
            assert not name.startswith("tracekit.cli"), f"{path.relative_to(ROOT)} imports {name}"


def test_files_stay_short_enough_to_read() -> None:
    tracked = [
        p
        for folder in ("schema", "parsers", "replay", "statistics", "tracekit")
        for p in (ROOT / folder).rglob("*")
    ]
    for path in tracked:
        if path.suffix in (".rs", ".py") and "target" not in path.parts:
            lines = len(path.read_text().splitlines())
            assert lines <= 700, f"{path.relative_to(ROOT)} has {lines} lines"


def test_no_file_names_a_place_of_one_machine() -> None:
    # Written in two parts, or this file would be found.
    places = re.compile("|".join(("/wor" + "k/", "/roo" + "t/", "/hom" + r"e/\w+/")))
    for folder in (
        "schema",
        "parsers",
        "replay",
        "statistics",
        "tracekit",
        "tests",
        "docs",
        "bench",
        "tools",
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".rs", ".py", ".pyi", ".md", ".toml", ".cfg") and "target" not in path.parts:
                found = places.search(path.read_text())
                assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"


#: Methods for convenience: a trace calls what is above it, and a workload text may take times from
#: a trace. Everything else is imported by who is above.
CONVENIENCE = {
    ("tracekit.trace", "tracekit.explain.delays"),
    ("tracekit.trace", "tracekit.whatif.run"),
    ("tracekit.io.workload", "tracekit.io.reading"),
}


def all_modules() -> dict[str, Path]:
    """Every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(node: ast.AST, known: dict[str, Path], within: bool) -> Iterator[str]:
    """Modules of the package that run time imports; those within functions, too, if `within`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not within:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in known)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                if full in known or child.module in known:
                    yield full if full in known else str(child.module)
        yield from imported(child, known, within)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of one cycle, in order; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := walk(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in graph if (found := walk(name, []))), [])


@pytest.mark.parametrize("within", [False, True])
def test_no_imports_go_round(within: bool) -> None:
    known = all_modules()
    graph = {
        name: set(imported(ast.parse(path.read_text()), known, within)) - {name}
        for name, path in known.items()
    }
    if within:
        # Each of these is there, and closes a cycle.
        for above, below in CONVENIENCE:
            assert below in graph[above], (above, below)
            assert cycle(graph)
            graph[above].remove(below)
    assert cycle(graph) == []


def test_a_cycle_of_imports_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []

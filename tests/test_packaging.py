"""The sdist and the wheel: what is in them, and that they work where nothing else of this repository is.

Nothing needs the network: the wheel is built without isolation from the unpacked sdist, on top
of the crates that are compiled already (`CARGO_TARGET_DIR`), and the bare environment sees the
packages of this one through a `.pth` file. `make smoke` does the same with packages from the
index.
"""

from __future__ import annotations

import email
import email.message
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


@dataclass(frozen=True)
class Built:
    """What was built, and where the sdist was unpacked."""

    sdist: Path
    wheel: Path
    source: Path

    def files(self) -> set[str]:
        """Names in the wheel, without those of its metadata."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {n for n in archive.namelist() if ".dist-info/" not in n}

    def read(self, name: str) -> email.message.Message:
        """A file of the wheel's metadata."""
        with zipfile.ZipFile(self.wheel) as archive:
            (path,) = (n for n in archive.namelist() if n.endswith(f".dist-info/{name}"))
            return email.message_from_string(archive.read(path).decode())


def _build(hook: str, source: Path, out: Path, **env: str) -> Path:
    """Run a hook of the build system; gives the file that it made."""
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(out)],
        cwd=source,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    if importlib.util.find_spec("setuptools_rust") is None or int(version("setuptools").split(".")[0]) < 70:
        pytest.skip("no setuptools-rust or no setuptools 70 (make dev installs them)")
    work = tmp_path_factory.mktemp("packaging")
    # An egg-info of the source tree would add what it lists, and so hide what MANIFEST.in forgets.
    config = work / "extra.cfg"
    config.write_text(f"[egg_info]\negg_base = {work}\n")
    sdist = _build("build_sdist", ROOT, work / "dist", DIST_EXTRA_CONFIG=str(config))
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "source", filter="data")
    (source,) = (work / "source").iterdir()
    # The profile of `make dev`, in which all but the crates of this repository are compiled already.
    profile = os.environ.get("SETUPTOOLS_RUST_CARGO_PROFILE", "quick")
    wheel = _build(
        "build_wheel",
        source,
        work / "dist",
        CARGO_TARGET_DIR=str(ROOT / "target"),
        SETUPTOOLS_RUST_CARGO_PROFILE=profile,
    )
    return Built(sdist, wheel, source)


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel in it, and nothing else that is called tracekit."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # Lines of a .pth file are searched last, and .pth files in there are not obeyed: an editable
    # install does not count.
    (site / "packages.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    pip = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--force-reinstall",
    ]
    subprocess.run([*pip, built.wheel], check=True, cwd=folder)
    return folder / "bin"


def run(program: Path, *args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the bare environment outside of the repository."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRACEKIT"))}
    return subprocess.run(
        [program, *args], cwd=cwd, env={**env, "COLUMNS": "100"}, capture_output=True, text=True, timeout=600
    )


def test_the_sdist_holds_the_repository(built: Built) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    wanted = {n for n in tracked.stdout.split("\0") if n and (ROOT / n).is_file()} - {".gitignore"}
    with tarfile.open(built.sdist) as archive:
        held = {m.name.partition("/")[2] for m in archive if m.isfile()}
    assert wanted - held == set()
    assert {"Cargo.lock", "schema/Cargo.toml", "parsers/src/lib.rs", "replay/tolerances.toml"} <= held
    # What is built, kept or cached in a working tree stays there.
    made = {n for n in held - wanted if not n.startswith("tracekit.egg-info/")}
    ignored = subprocess.run(["git", "check-ignore", *sorted(made)], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout == ""
    assert "PKG-INFO" in made


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    package = built.source / "tracekit"
    wanted = {
        p.relative_to(built.source).as_posix()
        for p in package.rglob("*")
        if p.is_file() and "_bindings" not in p.parts
    }
    assert built.files() == wanted | {"tracekit/_core.abi3.so"}
    assert {"tracekit/py.typed", "tracekit/_core.pyi", "tracekit/report/templates/style.css"} <= wanted
    assert {f"tracekit/recipes/files/{n}" for n in ("perf.txt", "tkd-illumos.d", "tracefs.sh")} <= wanted


def test_one_wheel_serves_python_3_11_and_later(built: Built) -> None:
    assert re.fullmatch(r"tracekit-[\d.]+-cp311-abi3-linux_\w+\.whl", built.wheel.name)
    assert re.fullmatch(r"cp311-abi3-linux_\w+", built.read("WHEEL")["Tag"])
    about = built.read("METADATA")
    assert about["Requires-Python"] == ">=3.11"
    assert {"perfetto-offline", "dask", "notebooks", "numba"} <= set(about.get_all("Provides-Extra", []))
    assert {f"Programming Language :: Python :: 3.{n}" for n in (11, 12, 13, 14)} <= set(
        about.get_all("Classifier", [])
    )


def test_the_extension_keeps_to_the_stable_interface(built: Built) -> None:
    pytest.importorskip("abi3audit", reason="abi3audit knows the stable interface of each Python")
    command = [sys.executable, "-m", "abi3audit", "--strict", "--report", str(built.wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (checked,) = json.loads(done.stdout)["specs"].values()
    (extension,) = checked["wheel"]
    assert extension["name"] == "_core.abi3.so"
    assert extension["result"]["is_abi3"]
    assert extension["result"]["non_abi3_symbols"] == []


def test_the_wheel_is_what_a_bare_environment_imports(built: Built, bare: Path, tmp_path: Path) -> None:
    code = "import tracekit as t; from tracekit import _core; print(t.__file__, _core.__file__, t.__version__, sep='\\n')"
    done = run(bare / "python", "-c", code, cwd=tmp_path)
    assert done.stderr == ""
    package, core, number = done.stdout.split()
    assert Path(package).is_relative_to(bare.parent)
    assert Path(core) == Path(package).with_name("_core.abi3.so")
    assert number == built.read("METADATA")["Version"]


def test_the_installed_program_compares_policies(bare: Path, demo: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture.dat"
    capture.write_bytes(demo.read_bytes())
    policy = "cfs:wakeup_preemption=off"
    done = run(
        bare / "tracekit",
        "compare",
        capture,
        "--policy",
        policy,
        "-o",
        "r.html",
        "--json",
        "r.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"spin +slice per invol\. switch .*\+\d+ %", done.stdout)
    assert policy in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["summary"]


def test_the_installed_program_knows_itself(bare: Path, tmp_path: Path) -> None:
    done = run(bare / "tracekit", "doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {c["what"] for c in json.loads(done.stdout)} >= {"tracekit", "Python", "polars", "trace processor"}
    assert "sched_switch" in run(bare / "tracekit", "recipes", "trace-cmd", cwd=tmp_path).stdout
    assert run(bare / "tracekit", "--version", cwd=tmp_path).stdout.startswith("tracekit ")

"""Replays of a sample of captures, kept on disk: a run that is stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import _core
from tracekit.errors import TracekitError
from tracekit.export.files import replacing
from validation import coverage, lab, predict

__all__ = ["Task", "collect", "digest", "load"]

#: A capture, and the captures that are predicted from it.
Task = tuple[lab.Capture, tuple[tuple[lab.Pair, lab.Capture], ...]]
ROOT = Path(__file__).parents[1]
#: Seconds between two looks at the processes.
_PAUSE = 0.2


def digest() -> str:
    """Hash everything that decides a result: the core and the Python code.

    Results of other code are made anew.
    """
    found = hashlib.sha256(Path(_core.__file__).read_bytes())
    for folder in ("validation", "tracekit/analysis", "tracekit/whatif"):
        for path in sorted((ROOT / folder).glob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _place(store: Path, key: str) -> Path:
    return store / (key.replace("/", "__") + ".json")


def _known(store: Path, task: Task, code: str) -> dict[str, Any] | None:
    path = _place(store, task[0].key)
    if not path.is_file():
        return None
    held: dict[str, Any] = json.loads(path.read_text())
    wanted = {p.b for p, _ in task[1]}
    return held if held["digest"] == code and wanted <= set(held["job"]["targets"]) else None


def _work(given: tuple[Task, Path, str]) -> None:
    """Predict from one capture; the result is written whole or not at all."""
    (capture, targets), store, code = given
    start = time.process_time()
    frames: list[pl.DataFrame] = []
    try:
        frames, notes, job = coverage.pair_rows(capture, targets)
    except TracekitError as error:
        none = asdict(predict.Outcome(None, why=str(error)[-200:]))
        job = {"key": capture.key, "asked": {}, "calibration": [], "kernel_share": 0.0}
        job |= {"real": none, "identity": none, "targets": {p.b: none for p, _ in targets}}
        notes = [f"{capture.key}: {error}"]
    place = _place(store, capture.key)
    if frames:
        with replacing(place.with_suffix(".parquet")) as file:
            pl.concat(frames).write_parquet(file)
    held = {"digest": code, "job": job, "notes": notes, "rows": bool(frames)}
    held["cpu_s"] = time.process_time() - start
    with replacing(place) as file:
        file.write(json.dumps(held).encode())


def collect(tasks: Sequence[Task], store: Path, jobs: int, budget_s: float, code: str) -> int:
    """Work through the tasks until the CPU time is spent.

    Parameters
    ----------
    tasks
        In order of importance.
    store
        Folder for results; those of the same code are taken from there and cost nothing.
    jobs
        Processes.
    budget_s
        CPU seconds after which no task is begun.
    code
        The `digest` at the start of the run: what is edited meanwhile is not what these results are of.

    Returns
    -------
    int
        Tasks that were left out.
    """
    store.mkdir(parents=True, exist_ok=True)
    rest = [t for t in tasks if _known(store, t, code) is None]
    used, begun = 0.0, 0
    running: dict[int, Any] = {}
    # Fresh interpreters: polars' threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=8) as pool:
        while running or (begun < len(rest) and used < budget_s):
            while len(running) < jobs and begun < len(rest) and used < budget_s:
                running[begun] = pool.apply_async(_work, ((rest[begun], store, code),))
                begun += 1
            ended = [i for i, result in running.items() if result.ready()]
            for i in ended:
                running.pop(i).get()
                held = _known(store, rest[i], code)
                used += held["cpu_s"] if held else 0.0
                print(f"{i + 1} of {len(rest)}, {used:.0f} s of CPU: {rest[i][0].key}", file=sys.stderr)
            if not ended:
                time.sleep(_PAUSE)
    return len(rest) - begun


def load(
    tasks: Sequence[Task], store: Path, code: str
) -> tuple[Mapping[str, dict[str, Any]], pl.DataFrame | None, list[str]]:
    """Read what was stored of the tasks.

    Returns
    -------
    tuple
        Capture to result of `validation.predict.job`; the rows of all pairs, None without any; why
        pairs have none.
    """
    jobs: dict[str, dict[str, Any]] = {}
    frames: list[pl.DataFrame] = []
    notes: list[str] = []
    for task in tasks:
        held = _known(store, task, code)
        if held is None:
            continue
        jobs[task[0].key] = held["job"]
        notes += held["notes"]
        if held["rows"]:
            frames.append(pl.read_parquet(_place(store, task[0].key).with_suffix(".parquet")))
    return jobs, pl.concat(frames) if frames else None, notes

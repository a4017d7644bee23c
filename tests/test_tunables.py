"""What `infer` says is held against what was set: the set, the factor, and what it is silent about."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.whatif.learn import infer_parameters
from validation import lab, tunables


def capture(folder: Path, setup: str, text: str) -> lab.Capture:
    place = folder / "lab" / "6.12"
    place.mkdir(parents=True)
    trace = tk.simulate(text)
    trace.write(folder / "x.parquet")
    (place / "x.dat").symlink_to(folder / "x.parquet")
    (place / "x.env").write_text(f"kernel=6.12.95\nworkload=slice dur=600 spinners=6\nsetup={setup}\n")
    return next(iter(lab.captures(folder / "lab").values()))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated trace names no kernel."""
    known = functools.partial(infer_parameters, family="eevdf:version=6.12")
    monkeypatch.setattr(tunables, "infer_parameters", known)


HOGS = "policy: {policy}\nhz: 1000\nA*6: R∞\nS*2: (R0.1 S3)*\nuntil: 600\n"


def test_a_tunable_that_made_the_trace_is_inside(tmp_path: Path) -> None:
    made = capture(
        tmp_path, "tun base_slice_ns 2800000", HOGS.format(policy="eevdf:version=6.12,base_slice=2800000ns")
    )
    (row,) = tunables.judge(made)
    assert (row.parameter, row.inside) == ("base_slice", True)
    assert row.off is not None
    assert row.off <= tunables.FACTOR


def test_a_wrong_truth_is_outside(tmp_path: Path) -> None:
    made = capture(
        tmp_path, "tun base_slice_ns 700000", HOGS.format(policy="eevdf:version=6.12,base_slice=5600000ns")
    )
    (row,) = tunables.judge(made)
    assert not row.inside
    assert row.off is not None
    assert row.off > tunables.FACTOR


def test_too_few_choices_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = capture(tmp_path, "feat NO_PLACE_LAG", "policy: eevdf:version=6.12\nA: R5\nB: R3\n")
    (row,) = tunables.judge(made)
    assert "slices ended by preemption" in row.why
    assert tunables.main([str(tmp_path / "lab"), "-j", "1"]) == 0
    assert "| lab/6.12/x | place_lag | off |" in capsys.readouterr().out

"""Fresh recordings: which of them are set beside each other, and what is counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from validation.fresh.__main__ import under_another, ways

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"


def test_a_recording_is_set_beside_one_of_another_round_under_the_other_kernel(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, names in (
        (one, ["zip-idle-1", "zip-idle-2", "web-idle-1"]),
        (other, ["zip-idle-1", "web-idle-1"]),
    ):
        folder.mkdir()
        for name in names:
            shutil.copy(DEMO, folder / f"{name}.data")
    lines = [
        f"zip-default-1.data\t{n}.data\tzip\tgzip: policy=idle"
        for n in ("zip-idle-1", "zip-idle-2", "gone-1")
    ]
    lines.append("web-default-2.data\tweb-idle-1.data\tweb\tsha: policy=idle")
    (one / "pairs.tsv").write_text("a\tb\tworkload\tset\n" + "\n".join(lines) + "\n")
    # The others have none of another round, or no recording.
    (pair,) = under_another(one, other)
    assert (pair["a"], pair["b"]) == ("zip-idle-2.data", str(other / "zip-idle-1.data"))
    assert (pair["set"], pair["policy"], pair["workload"]) == ("", "linux-6.1.0-50-cloud-amd64", "zip")


def test_resolved_changes_are_counted_by_the_side_that_they_went_to() -> None:
    rows = [
        # trust, resolved, recorded, real, change
        ("trusted", True, 10.0, 20.0, 50.0),
        ("trusted", True, 10.0, 10.2, -30.0),
        ("trusted", False, 10.0, 5.0, 30.0),
        ("trusted", None, 10.0, 5.0, 30.0),
        ("with care", True, 10.0, 5.0, 30.0),
        ("with care", True, 0.0, 5.0, 30.0),
    ]
    held = pl.DataFrame(rows, ["trust", "resolved", "recorded", "real", "change_pct"], orient="row")
    assert ways(held) == [["trusted", "2", "50 %", "1", "100 %"], ["with care", "1", "0 %", "1", "0 %"]]

"""The benchmark: what a predictor is asked, how its answers are read, and how they are scored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from validation import lab
from validation.score import asked, command, main, sample, score, scored


def pair(a: str, b: str, values: tuple[float, float], kind: str = "policy") -> lab.Pair:
    return lab.Pair(a, b, kind, "mean_slice_us", *values)


@pytest.fixture
def captures(demo: Path) -> dict[str, lab.Capture]:
    def of(name: str, **env: str) -> lab.Capture:
        words = {"kernel": "6.1.0", "workload": "slice dur=3000", **env}
        return lab.Capture(f"6.1/{name}", demo, words, "slice", {"dur": "3000"})

    return {c.key: c for c in (of("x"), of("y", setup="feat NO_WAKEUP_PREEMPTION", kernel="6.12.9"))}


def program(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.py").write_text(text)
    return f"{sys.executable} {tmp_path / 'mine.py'}"


def test_a_program_is_asked_in_json_and_answers_with_a_number(
    tmp_path: Path, captures: dict[str, lab.Capture]
) -> None:
    ask = asked(pair("6.1/x", "6.1/y", (900.0, 4000.0)), captures["6.1/x"], captures["6.1/y"])
    mine = program(
        tmp_path,
        "import json, sys\nq = json.load(sys.stdin)\n"
        "assert q['metric'] == 'mean_slice_us' and 'spinners' in q['meaning'] and q['recorded'] == 900\n"
        "assert open(q['capture'], 'rb').read(4) and q['b']['setup'] == 'feat NO_WAKEUP_PREEMPTION'\n"
        "print(4100.5)\n",
    )
    assert command(mine)(ask) == 4100.5


@pytest.mark.parametrize(
    ("text", "message"),
    [("print('much')", "expected one number or nothing, found `much`"), ("raise SystemExit('no')", "exit status 1: no")],
)  # fmt: skip
def test_another_answer_is_an_error(
    tmp_path: Path, captures: dict[str, lab.Capture], text: str, message: str
) -> None:
    ask = asked(pair("6.1/x", "6.1/y", (1.0, 2.0)), captures["6.1/x"], captures["6.1/y"])
    with pytest.raises(ValueError, match=message):
        command(program(tmp_path, text))(ask)
    assert command(program(tmp_path, ""))(ask) is None


def test_scores_are_counted_by_hand() -> None:
    rows = [
        (pair("a", "b", (100.0, 200.0)), 190.0),  # 5 % off, right direction
        (pair("a", "c", (100.0, 50.0)), 120.0),  # 140 % off, wrong direction
        (pair("a", "d", (100.0, 104.0)), 100.0),  # within 10 %, no change to speak of
        (pair("a", "e", (100.0, 300.0)), None),  # no answer: a miss
    ]
    got = scored("mine", "all", rows)
    assert (got.pairs, got.answered) == (4, 3)
    assert got.median_error == pytest.approx(0.05)
    assert got.close == 0.5
    assert got.direction == pytest.approx(1 / 3)


def test_a_sample_leaves_no_kind_out_and_is_the_same_again() -> None:
    many = [pair("a", f"p{i}", (1, 2)) for i in range(50)] + [pair("a", f"k{i}", (1, 2), "kernel") for i in range(3)]  # fmt: skip
    chosen = sample(many, 8)
    assert sum(p.kind == "kernel" for p in chosen) == 3
    assert len(set(chosen)) == 8
    assert chosen == sample(many, 8)
    assert chosen != sample(many, 8, seed=2)


def test_a_stranger_is_scored_beside_the_baselines(
    root: Path, testdata: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["slice-default", "slice-nowakeuppreempt"]
    table = tmp_path / "pairs.tsv"
    lines = ["dir capture_a capture_b kind b_setup b_policy_args metric a_value b_value".replace(" ", "\t")]
    lines.append("\t".join(["6.1", *names, "policy", "", "", "mean_slice_us", "887.0", "3939.0"]))
    table.write_text("\n".join(lines) + "\n")
    stranger = f"{sys.executable} {root / 'validation' / 'examples' / 'share.py'}"
    answers = tmp_path / "answers.jsonl"
    words = [str(testdata / "lab"), "--pairs", str(table), "--json", str(answers)]
    assert main([*words, "--predictor", stranger]) == 0
    by = {(r := json.loads(line))["predictor"]: r["predicted"] for line in answers.read_text().splitlines()}
    assert set(by) == {"no-change", "open", "closed", "formula", "share.py"}
    assert by["no-change"] == 887.0
    assert by["share.py"] == 4000.0
    assert by["closed"] == pytest.approx(3939, rel=0.25)
    printed = capsys.readouterr().out
    assert "share.py" in printed
    assert "within 10 %" in printed


def test_no_pair_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("dir\tcapture_a\tcapture_b\tkind\tmetric\ta_value\tb_value\n")
    assert main([str(tmp_path), "--pairs", str(table)]) == 2
    assert "no pair of" in capsys.readouterr().err


def test_all_pairs_share_one_way_to_be_asked(captures: dict[str, lab.Capture]) -> None:
    pairs = [pair("6.1/x", "6.1/y", (100.0, 400.0)), pair("6.1/x", "6.1/y", (100.0, 100.0), "repeat")]
    scores, answers = score({"twice": lambda q: 2.0 * q[0]["recorded"]}, pairs, captures)
    assert [(s.kind, s.pairs, s.close) for s in scores] == [
        ("all", 2, 0.0),
        ("changes", 1, 0.0),
        ("policy", 1, 0.0),
        ("repeat", 1, 0.0),
    ]
    assert answers["predicted"].to_list() == [200.0, 200.0]

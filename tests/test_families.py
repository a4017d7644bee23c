"""Which scheduler made a trace that does not name its kernel: what records and slices show."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from tracekit.whatif.families import FAMILIES, allowed_by_records, family_of
from tracekit.whatif.identity import stated
from tracekit.whatif.kernels import names_kernel
from tracekit.whatif.learn import infer_parameters, lines
from validation import families, lab

#: Six hogs and two that wake: slices end by preemption, and sleepers come first at once, or do not.
LOAD = "policy: {policy}\nhz: 250\nA*6: R∞\nS*2: (R0.4 S7)*\nuntil: {ms}\n"
SWITCH = "  a-{old:<4} [000] d..2. {s}.{us:06d}: sched_switch: prev_comm=a prev_pid={old} prev_prio=120 prev_state=R ==> next_comm=a next_pid={new} next_prio=120\n"
RAN = (
    "  a-{old:<4} [000] d..2. {s}.{us:06d}: sched_stat_runtime: comm=a pid={old} runtime=4000000 [ns]{more}\n"
)


def printed(folder: Path, policy: str, ms: int = 2000) -> tk.Trace:
    """A text of a run under a policy: it names neither kernel nor policy."""
    text = folder / "printed.txt"
    tk.generate(LOAD.format(policy=policy, ms=ms), text, "perf-script")
    return tk.read(text)


#: What explains the flags of a line in the kernel's header, and the line with the counts above it.
FLAGS = (
    "_-----=> irqs-off",
    "/ _----=> need-resched",
    "| / _---=> hardirq/softirq",
    "|| / _--=> preempt-depth",
)
COUNTS = "# entries-in-buffer/entries-written: {0}/{0}   #P:1\n#\n"
WAKEUP = "  a-7 [000] d.h2. 1.{us:06d}: sched_wakeup: comm=b pid=9 prio=120 {more}target_cpu=000\n"
WORKER = "  kworker/0:1-6 [000] d..2. 1.{us:06d}: sched_switch: prev_comm=kworker/0:1 prev_pid=6 prev_prio=120 prev_state={state} ==> next_comm=a next_pid=7 next_prio=120\n"


def in_turns(folder: Path, more: str | None, header: str = "# tracer: nop\n", between: str = "") -> tk.Trace:
    """Two tasks in turns of 4 ms, with what they ran; `between` stands behind each turn."""
    text = folder / "turns.txt"
    rows = []
    for i in range(20):
        at = {"s": 1, "us": 4000 * (i + 1), "old": 7 + i % 2, "new": 8 - i % 2}
        rows += [] if more is None else [RAN.format(**at, more=more)]
        rows += [SWITCH.format(**at), between.format(us=at["us"] + 100)]
    text.write_text(header + "".join(rows))
    return tk.read(text)


def explained(*flags: str, entries: int = 40) -> str:
    """The header of a text that explains such flags."""
    return "# tracer: nop\n#\n" + COUNTS.format(entries) + "".join(f"#   {flag}\n" for flag in flags)


@pytest.mark.parametrize("name", ["cfs 6.1", "eevdf 6.12"])
def test_slices_and_waits_show_the_scheduler(tmp_path: Path, name: str) -> None:
    trace = printed(tmp_path, FAMILIES[name])
    assert not names_kernel(trace)
    found = family_of(trace)
    assert found is not None
    assert (found.policy.partition(":")[0], found.sure) == (name.partition(" ")[0], True)
    policy, why = stated(trace)
    assert policy == found.policy
    assert why.startswith(
        "the trace does not say which kernel it is from; its slices and waits are most like"
    )
    assert "guess" not in why
    # The replay, and what learns further parameters, take the same.
    assert tk.replay(trace).policy.startswith(policy.split(":")[0])
    assert lines(infer_parameters(trace))[0].startswith(f"family: {name.split()[0]}")
    # A page does not state it as a fact.
    page = tk.compare(trace, "fifo", runs=2).to_html()
    assert f"Recorded under <code>{policy}</code>: the trace does not say which kernel" in page


def test_what_is_of_no_fair_scheduler_stays_a_guess(tmp_path: Path) -> None:
    trace = printed(tmp_path, "fifo", 200)
    assert family_of(trace) is None
    policy, why = stated(trace)
    assert (policy, why.endswith("so this is a guess")) == ("cfs", True)


def test_what_no_family_explains_is_said_to_be_of_none(tmp_path: Path) -> None:
    trace = printed(tmp_path, "rr:quantum=30ms", 6000)
    assert family_of(trace) is None
    found = infer_parameters(trace)
    assert not found.stock
    assert "family" not in [f.name for f in found.findings]
    assert lines(found)[-1].startswith("no stock policy explains this")


@pytest.mark.parametrize(
    ("more", "policy", "sure", "said"),
    [
        ("", "eevdf:version=6.12", True, "as from Linux 6.8 on"),
        (" vruntime=123456789 [ns]", "cfs:form=6.1", False, "as up to Linux 6.7"),
    ],
)
def test_a_record_that_was_printed_otherwise_shows_it(
    tmp_path: Path, more: str, policy: str, sure: bool, said: str
) -> None:
    # 20 slices are too few to compare.
    trace = in_turns(tmp_path, more)
    found = family_of(trace)
    assert found is not None
    assert (found.policy, found.sure, found.why.endswith(said)) == (policy, sure, True)
    assert ("guess" in stated(trace)[1]) == (not sure)


def test_records_rule_families_out(tmp_path: Path) -> None:
    assert allowed_by_records(printed(tmp_path, "cfs", 100)) == (FAMILIES, "")
    without, _ = allowed_by_records(in_turns(tmp_path, ""))
    assert set(FAMILIES) - set(without) == {"cfs 6.1"}


@pytest.mark.parametrize(
    ("header", "between", "said"),
    [
        (explained(*FLAGS), "", "migrate-disable, as up to Linux 5.14"),
        ("", WAKEUP.replace("{more}", "success=1 "), "the field success"),
        ("", WORKER.replace("{state}", "S"), "sleep in state S, as up to Linux 4.13"),
    ],
)
def test_what_only_old_kernels_record_shows_cfs(tmp_path: Path, header: str, between: str, said: str) -> None:
    trace = in_turns(tmp_path, None, header, between)
    found = family_of(trace)
    assert found is not None
    assert (found.policy, found.sure) == ("cfs:form=6.1", True)
    policy, why = stated(trace)
    assert policy == "cfs:form=6.1"
    assert said in why
    assert "guess" not in why
    # It may be like another in what it shows: the sign counts.
    assert set(allowed_by_records(in_turns(tmp_path, " vruntime=9 [ns]", header, between))[0]) == {"cfs 6.1"}


@pytest.mark.parametrize(
    ("header", "between"),
    [
        (explained(*FLAGS, "||| / _-=> migrate-disable"), ""),
        # Perfetto writes this header above its conversion of any trace.
        (explained(*FLAGS, entries=30624), ""),
        # That of another tracer is worded by itself.
        (explained(*FLAGS).replace("nop", "osnoise"), ""),
        ("", WAKEUP.replace("{more}", "")),
        ("", WORKER.replace("{state}", "I")),
        ("", WORKER.replace("{state}", "S") + WORKER.replace("{state}", "I").replace("1.{us", "2.{us")),
    ],
)
def test_what_newer_kernels_record_too_shows_nothing(tmp_path: Path, header: str, between: str) -> None:
    assert allowed_by_records(in_turns(tmp_path, None, header, between)) == (FAMILIES, "")


def test_few_workers_show_nothing(tmp_path: Path) -> None:
    text = tmp_path / "few.txt"
    text.write_text("".join(WORKER.format(us=100 * i, state="S") for i in range(1, 6)))
    assert allowed_by_records(tk.read(text)) == (FAMILIES, "")


def test_signs_that_contradict_each_other_rule_nothing_out(tmp_path: Path) -> None:
    assert allowed_by_records(in_turns(tmp_path, "", explained(*FLAGS))) == (FAMILIES, "")


def test_a_kernel_that_is_named_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr("tracekit.whatif.identity.family_of", never)
    named = tk.read(Path(__file__).parent.parent / "fixtures/demo/slice-default.dat")
    assert stated(named)[0] == "cfs:form=6.1"
    with pytest.raises(AssertionError, match="asked"):
        stated(printed(tmp_path, "cfs", 100))


def test_a_policy_that_is_given_is_that_of_the_recording(tmp_path: Path) -> None:
    trace = printed(tmp_path, "cfs", 200)
    assert tk.Programs(trace, identity="rr:quantum=10ms").identity == "rr:quantum=10ms"
    assert tk.Programs(trace).identity == stated(trace)[0]
    found = tk.compare(trace, "fifo", identity="rr:quantum=10ms", runs=1)
    assert found.identity.metadata["replay.policy"].startswith("rr:quantum=10")
    with pytest.raises(tk.ReplayError, match="no policy bogus"):
        tk.compare(trace, "fifo", identity="bogus", runs=1)


def test_the_page_counts_what_was_right(tmp_path: Path) -> None:
    place = tmp_path / "lab" / "6.12"
    place.mkdir(parents=True)
    tk.simulate(LOAD.format(policy="eevdf:version=6.12", ms=2000)).write(place / "x.parquet")
    (place / "x.parquet").rename(place / "x.dat")
    about = "kernel={}\nworkload=slice dur=600\n"
    (place / "x.env").write_text(about.format("6.12.95"))
    (capture,) = lab.captures(tmp_path / "lab").values()
    judged = families.judge(capture)
    assert judged is not None
    assert (judged.true, judged.taken.split()[0]) == ("eevdf", "eevdf")
    (place / "x.env").write_text(about.format("6.1.0"))
    (capture,) = lab.captures(tmp_path / "lab").values()
    wrong = families.judge(capture)
    assert wrong is not None
    page = families.section([judged, judged, wrong])
    assert "| all | 3 | 3 | 2 (67 %) | 0 | 1 |" in page
    assert "| made by CFS | 1 | 1 | 0 (0 %) | 0 | 1 |" in page
    assert "the replays of 3 of the 3 captures are of a scheduler\nthat the trace shows, in 2 of them" in page

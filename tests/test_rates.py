"""Recorded frequencies, stated capacities, isolated CPUs: what replays and commands make of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.errors import OutputError, ReplayError
from tracekit.machine import parse_machine
from tracekit.whatif.basis import unheld_machine, unrecorded
from tracekit.whatif.generating import generate
from tracekit.whatif.scenario import cpu_settings, parse_set

MS = 1_000_000


def line(ms: float, cpu: int, by: tuple[str, int], flags: str, event: str) -> str:
    name = f"{by[0]}-{by[1]}"
    return f"{name:>16} [{cpu:03}] {flags}  100.{round(ms * 1000):06}: {event}\n"


def switch(ms: float, cpu: int, prev: tuple[str, int], state: str, following: tuple[str, int]) -> str:
    return line(
        ms,
        cpu,
        prev,
        "d..2.",
        f"sched_switch: prev_comm={prev[0]} prev_pid={prev[1]} prev_prio=120 prev_state={state} ==> "
        f"next_comm={following[0]} next_pid={following[1]} next_prio=120",
    )


def burst(begin: float, end: float, cpu: int, task: tuple[str, int]) -> list[tuple[float, str]]:
    """A timer wakes `task`, it runs, and it sleeps again."""
    idle = (f"swapper/{cpu}", 0)
    wake = f"sched_waking: comm={task[0]} pid={task[1]} prio=120 target_cpu={cpu:03}"
    return [
        (begin, line(begin, cpu, ("<idle>", 0), "d.h2.", wake)),
        (begin + 0.001, switch(begin + 0.001, cpu, idle, "R", task)),
        (end, switch(end, cpu, task, "S", idle)),
    ]


def frequency(ms: float, cpu: int, khz: int) -> tuple[float, str]:
    return ms, line(ms, cpu, ("<idle>", 0), "d..1.", f"cpu_frequency: state={khz} cpu_id={cpu}")


MACHINE = """
schema = 1
[kernel]
os = "linux"
hz = 250
arguments = "{arguments}"
[machine]
cpus = [
  {{cpu = 0, capacity = {capacity}, max_khz = 2000000, governor = "{governor}"}},
  {{cpu = 1, capacity = 512, max_khz = 1000000}},
]
"""


def capture(
    folder: Path,
    *,
    frequencies: bool = True,
    capacity: int = 1024,
    arguments: str = "",
    governor: str = "schedutil",
) -> tk.Trace:
    """Two bursts of the same work: 10 ms at 2 GHz, 20 ms at 1 GHz; another task on the second CPU."""
    records = burst(1, 11.001, 0, ("A", 70)) + burst(31, 51.001, 0, ("A", 70))
    records += (
        burst(5, 6.001, 1, ("B", 71)) + burst(25, 26.001, 1, ("B", 71)) + burst(155, 156.001, 1, ("B", 71))
    )
    if frequencies:
        records += [frequency(0.5, 0, 2_000_000), frequency(30, 0, 1_000_000)]
    path = folder / "capture.txt"
    path.write_text("# tracer: nop\n" + "".join(text for _, text in sorted(records)))
    machine = MACHINE.format(capacity=capacity, arguments=arguments, governor=governor)
    (folder / "capture.machine.toml").write_text(machine)
    return tk.read(path)


def slices(replay: tk.Trace, comm: str) -> list[float]:
    rows = replay.slices.filter(pl.col("comm").cast(pl.String) == comm)
    return [ns / MS for ns in rows["dur_ns"].to_list()]


def test_bursts_of_the_same_work_are_alike_at_any_frequency(tmp_path: Path) -> None:
    trace = capture(tmp_path)
    assert trace.events.filter(pl.col("kind").cast(pl.String) == "cpu_freq").height == 2
    programs = tk.Programs(trace, placement="trace")
    table = programs.table
    kinds = table.filter(pl.col("comm").cast(pl.String) == "A")
    run = kinds.filter(pl.col("op").cast(pl.String) == "run")["dur_ns"].to_list()
    assert run[1] == pytest.approx(run[0], rel=1e-3)
    # Where they were, they take what they took.
    identity = programs.run("fifo", overheads=False)
    assert slices(identity, "A") == pytest.approx([10, 20], abs=0.01)
    # On the slow CPU, whose frequency is not recorded, both take twice 10 ms.
    moved = programs.run("fifo", overheads=False, scenario={"A": {"cpus": "1"}})
    assert slices(moved, "A") == pytest.approx([20, 20], abs=0.01)
    # At another capacity, and at another frequency.
    asked = [parse_set("A: cpus=1"), parse_set("cpu:1: capacity=256")]
    assert slices(programs.run("fifo", overheads=False, scenario=asked), "A") == pytest.approx(
        [40, 40], abs=0.01
    )
    asked = [parse_set("cpu:0: khz=500000")]
    assert slices(programs.run("fifo", overheads=False, scenario=asked), "A") == pytest.approx(
        [40, 40], abs=0.01
    )
    with pytest.raises(ReplayError, match="cpu:7: the trace has no such CPU"):
        programs.run("fifo", scenario=[parse_set("cpu:7: capacity=512")])
    with pytest.raises(ReplayError, match="all are of middling speed"):
        tk.Programs(trace, placement="model").run("fifo", cpus=3, scenario=[parse_set("cpu:1: capacity=512")])


@pytest.mark.parametrize(("governor", "took"), [("userspace", [20, 20]), ("schedutil", [20, 40])])
def test_frequencies_that_the_load_chose_are_not_used_where_it_is_another(
    tmp_path: Path, governor: str, took: list[float]
) -> None:
    programs = tk.Programs(capture(tmp_path, governor=governor), placement="model")
    moved = programs.run("fifo", overheads=False, scenario={"A": {"cpus": "1"}})
    assert slices(moved, "A") == pytest.approx(took, abs=0.01)


def test_without_records_a_burst_is_as_long_as_it_was(tmp_path: Path) -> None:
    programs = tk.Programs(capture(tmp_path, frequencies=False, capacity=512), placement="model")
    moved = programs.run("fifo", overheads=False, scenario={"A": {"cpus": "1"}})
    assert slices(moved, "A") == pytest.approx([10, 20], abs=0.01)
    assert not any("frequen" in said or "capacit" in said for said in unrecorded(moved))


def test_what_is_not_modelled_is_said_everywhere(tmp_path: Path) -> None:
    trace = capture(
        tmp_path, arguments="isolcpus=1 nohz_full=1 sched_verbose sched_own_rule=15 sched_proxy_exec=1"
    )
    replay = tk.replay(trace, "cfs")
    said = unrecorded(replay)
    for start in (
        "capacities of CPUs: CPUs have capacities, as the machine beside the trace says: 512 (CPU 1), 1024",
        "frequency governor: 2 frequencies of CPUs are recorded and not used",
        "isolated CPUs: CPU 1, as the machine beside the trace says",
        "nohz_full: not modelled: CPU 1",
        "sched_own_rule=15 sched_proxy_exec=1: not modelled: the kernel may choose tasks or CPUs otherwise",
    ):
        assert any(text.startswith(start) for text in said), (start, said)
    looked = CliRunner().invoke(main, ["doctor", str(tmp_path / "capture.txt")], prog_name="tracekit")
    assert "model: none of the kernel's argument sched_own_rule=15 sched_proxy_exec=1" in looked.stdout
    placed = tk.replay(trace, "cfs", placement="trace")
    rows = dict(placed.inferred.select("name", "value").iter_rows())
    assert rows["isolated CPUs"] == 1
    assert "frequency of a CPU" in rows
    start = "frequency governor: 2 frequencies of CPUs are recorded; of CPU 1 none is"
    assert any(text.startswith(start) for text in unrecorded(placed))
    for command, *options in (("calibrate",), ("compare", "--policy", "rr")):
        told = CliRunner().invoke(
            main, [command, str(tmp_path / "capture.txt"), *options], prog_name="tracekit"
        )
        plain = " ".join(told.stdout.split())
        assert "whose choices follow where they are, is not modelled" in plain, (command, told.output)
        assert "nohz_full: not modelled" in plain
    page = " ".join(tk.compare(trace, ["rr"]).to_html().split())
    assert "whose choices follow where they are, is not modelled" in page


@pytest.mark.parametrize(
    ("arguments", "domains", "isolated"),
    [
        ("", ("MC", "MC", "MC", "MC"), ()),
        ("isolcpus=2-3", ("MC", "MC", None, None), (2, 3)),
        ("isolcpus=2,3 mitigations=off", (None,) * 4, (2, 3)),
        ("isolcpus=domain,managed_irq,1", (None,) * 4, (1,)),
        # Flags without `domain` leave the domains as they are.
        ("isolcpus=nohz,1", (None,) * 4, ()),
        ("isolcpus=managed_irq,1", ("MC",) * 4, ()),
        # A cpuset partition.
        ("", ("MC", "MC", "MC", None), (3,)),
        ("", ("MC", "MC", "MC", ""), (3,)),
        ("isolcpus=9", ("MC",) * 4, ()),
        ("nohz_full=1", ("MC",) * 4, ()),
    ],
)
def test_isolated_cpus_are_those_without_a_domain(
    arguments: str, domains: tuple[str | None, ...], isolated: tuple[int, ...]
) -> None:
    rows = [
        f"{{cpu = {cpu}" + ("" if domain is None else f', domains = "{domain}"') + "},\n"
        for cpu, domain in enumerate(domains)
    ]
    text = f'schema = 1\n[kernel]\narguments = "{arguments}"\n[machine]\ncpus = [\n{"".join(rows)}]\n'
    machine = parse_machine(text)
    assert machine.isolated() == isolated
    assert machine.tickless() == ((1,) if "nohz_full" in arguments else ())


def test_speeds_of_a_workload_hold_under_every_policy_and_are_not_lost(tmp_path: Path) -> None:
    text = "policy: fifo\ncpus: 2\ncapacity: 1024, 512\nkhz 0: 0 2000, 5 1000\nA cpus=0: R10\nB cpus=1: R10"
    programs = tk.Programs(text)
    for policy in ("fifo", "rr:quantum=2ms", "cfs"):
        run = programs.run(policy)
        used = dict(run.slices.group_by("comm").agg(pl.col("dur_ns").sum()).iter_rows())
        assert used == {"A": 15 * MS, "B": 20 * MS}, policy
    slow = programs.run("fifo", scenario=[parse_set("cpu:0: khz=500"), parse_set("cpu:1: capacity=1024")])
    used = dict(slow.slices.group_by("comm").agg(pl.col("dur_ns").sum()).iter_rows())
    assert used == {"A": 40 * MS, "B": 10 * MS}
    with pytest.raises(OutputError, match="`capacity:`: speeds of CPUs are not written"):
        generate(text, tmp_path / "two.json", "rt-app")


def test_settings_of_a_cpu_are_read() -> None:
    override = parse_set("cpu:3: capacity=512, khz=600000")
    assert cpu_settings([override]) == [(3, [("capacity", "512"), ("khz", "600000")])]
    assert str(override) == "cpu:3: capacity=512,khz=600000"
    with pytest.raises(ReplayError, match="expected a number"):
        parse_set("cpu:x: capacity=512")


@pytest.mark.parametrize(
    ("cpus", "named"),
    [
        ("{cpu = 0, capacity = 512, node = 0}, {cpu = 1, capacity = 512, node = 0}", []),
        ("{cpu = 0, capacity = 512}, {cpu = 1, capacity = 1024}", ["CPUs of different capacity"]),
        ('{cpu = 0, llc = "0"}, {cpu = 1, llc = "1"}', ["several last-level caches"]),
        ('{cpu = 0, llc = "0-1"}, {cpu = 1, llc = "0-1"}', []),
        ("{cpu = 0, node = 0}, {cpu = 1, node = 1}", ["several last-level caches"]),
    ],
)
def test_a_machine_unlike_those_of_the_captures_is_named(tmp_path: Path, cpus: str, named: list[str]) -> None:
    """Phones have big and little CPUs, servers several caches: no prediction of either was held."""
    capture(tmp_path, frequencies=False)
    machine = f'schema = 1\n[kernel]\nos = "linux"\nhz = 250\n[machine]\ncpus = [{cpus}]\n'
    (tmp_path / "capture.machine.toml").write_text(machine)
    found = tk.compare(tk.read(tmp_path / "capture.txt"), "cfs", identity="cfs", runs=2)
    assert found.repeated is not None
    assert found.repeated.unheld["cfs"] == named
    assert [s for s in found.not_recorded if "never held" in s and all(n in s for n in named)] or not named
    assert not named or not found.table["validated"].max()


@pytest.mark.parametrize(
    ("cpus", "llc", "named"),
    [(4, None, []), (8, "0-7", []), (8, None, ["more than 4 CPUs whose caches no machine.toml lists"])],
)
def test_of_many_cpus_the_caches_must_be_known(
    tmp_path: Path, cpus: int, llc: str | None, named: list[str]
) -> None:
    records = [burst(1 + cpu, 11.001 + cpu, cpu, (f"T{cpu}", 70 + cpu)) for cpu in range(cpus)]
    path = tmp_path / "capture.txt"
    path.write_text("# tracer: nop\n" + "".join(text for _, text in sorted(itertools.chain(*records))))
    if llc is not None:
        listed = ", ".join(f'{{cpu = {cpu}, llc = "{llc}"}}' for cpu in range(cpus))
        machine = f'schema = 1\n[kernel]\nos = "linux"\nhz = 250\n[machine]\ncpus = [{listed}]\n'
        (tmp_path / "capture.machine.toml").write_text(machine)
    trace = tk.read(path)
    assert trace.cpus.height == cpus
    assert unheld_machine(trace, tk.replay(trace, "cfs")) == named

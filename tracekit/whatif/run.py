"""Runs under a policy: of recorded traces, and of workloads written as text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import polars as pl

from tracekit import _core
from tracekit._frames import to_frame
from tracekit.errors import ReplayError
from tracekit.export.layouts.programs import Listing, Task
from tracekit.io.workload import resolve as resolve_values
from tracekit.io.workload import run as run_text
from tracekit.trace import Trace
from tracekit.whatif.as_recorded import as_recorded
from tracekit.whatif.contexts import Contexts
from tracekit.whatif.identity import stated
from tracekit.whatif.intervals import RUNS, Perturbation
from tracekit.whatif.left_out import warn
from tracekit.whatif.members import models_groups
from tracekit.whatif.policy import CompiledPolicy, LoadedPolicy, Policy, check_policy
from tracekit.whatif.prepared import Prepared, core_options
from tracekit.whatif.reconstructed import perturbations_of, reconstructed
from tracekit.whatif.recorded import refuse_part
from tracekit.whatif.scenario import Override
from tracekit.whatif.scenario import Scenario as ScenarioFile
from tracekit.whatif.sharing import learned
from tracekit.whatif.source import AnyTrace, as_trace, stated_text
from tracekit.whatif.threads import Beside

__all__ = ["Programs", "Replay", "replay", "simulate"]

#: Most redrawn programs of a workload text that are kept for the next policy.
MAX_REDRAWN = 64

#: Attributes for tasks: by selector, ``{"spin*": {"nice": 5}}``, or as `tracekit.whatif.scenario`
#: reads them.
Scenario = ScenarioFile | Mapping[str, Mapping[str, object]] | str | Sequence[Override | str]

#: Where tasks wake and what moves them: the policy's own choice, or as recorded at the same point
#: of their programs.
PLACEMENTS = ("auto", "model", "trace")

#: Metadata of a trace that holds for its replays as well.
_INHERITED = ("host", "kernel", "arch", "source.files")

#: A policy that is not in the registry.
AnyPolicy = Policy | CompiledPolicy | LoadedPolicy


class Replay(Trace):
    r"""A trace that was not recorded but computed; all that works on a trace works on it.

    Examples
    --------
    >>> import tracekit as tk
    >>> run = tk.simulate("policy: goodness:version=2.0\nhz: 100\nA: R500\nB: R500")
    >>> run.policy.partition(",")[0], run.counts["recalcs"] > 0
    ('goodness:version=2.0', True)
    """

    def __init__(
        self,
        tables: Mapping[str, _core.Table | _core.Records | pl.DataFrame],
        metadata: Mapping[str, str],
        name: str,
        programs: Programs | None = None,
    ) -> None:
        super().__init__(tables, metadata, name)
        self._programs = programs

    @property
    def policy(self) -> str:
        """The policy with all its parameters."""
        return self.metadata["replay.policy"]

    @property
    def counts(self) -> dict[str, int]:
        """What the policy counted, by name.

        Recalculations, tasks looked at, boosts, changes of level, and so on.
        """
        found: dict[str, int] = json.loads(self.metadata.get("replay.counts", "{}"))
        return found

    @property
    def wakeups(self) -> list[dict[str, Any]]:
        """What the wakeups of the recorded trace rest on.

        Returns
        -------
        list of dict
            ``class`` (``dependency``: made by a task at a point of its program; ``timer``,
            ``tick``, ``io``; ``external``: not explained by the trace), ``n`` and ``share``. Empty
            for workloads written as text.
        """
        return [] if self._programs is None else [dict(w) for w in self._programs.wakeups]

    @property
    def places_asked(self) -> bool:
        """Whether tasks are where they were recorded because the caller asked for it, not the trace."""
        return self._programs is not None and self._programs.placement == "trace"

    @property
    def inferred(self) -> pl.DataFrame:
        """What was inferred about the recorded run; see `Programs.inferred`.

        Empty for workloads written as text. With a row for groups that the trace shows, where the policy
        schedules by groups and no machine is described (`tracekit.whatif.sharing`).
        """
        if self._programs is None:
            return _inferred([])
        found = learned(self._programs.trace) if models_groups(self.policy) else None
        if found is None:
            return self._programs.inferred
        row = ("groups that share CPU time", float(len(found.tasks)), "1", len(found.group), found.sentence())
        return pl.concat([self._programs.inferred, _inferred([row])])

    def _compute_program(self) -> pl.DataFrame:
        return super()._compute_program() if self._programs is None else self._programs.table

    def with_metadata(self, metadata: Mapping[str, str]) -> Replay:
        """The same replay with other metadata; see `Trace.with_metadata`."""
        return Replay(self._tables, metadata, self._name, self._programs)


def _inferred(rows: Sequence[tuple[str, float | None, str, int | None, str]]) -> pl.DataFrame:
    types = {"name": pl.String, "value": pl.Float64, "unit": pl.String, "n": pl.UInt64, "how": pl.String}
    return pl.DataFrame(rows, schema=types, orient="row")


class Programs:
    """What the tasks of a trace did, apart from when the scheduler let them.

    Reconstructed once, to be run under any number of policies. Of a workload text they are what it
    states: nothing is reconstructed, and repetitions draw its random times anew.

    Parameters
    ----------
    trace
        A recorded trace with switches and wakeups, its path, or a workload text; see
        `tracekit.whatif.source.as_trace`.
    loop
        What moves when the schedule changes: ``dependency`` moves wakeups by tasks with their
        wakers; ``open`` keeps the recorded time of every wakeup; ``closed`` keeps the recorded
        length of every sleep.
    hz
        Clock ticks a second; by default as the machine beside the trace (`Trace.machine`) or the
        trace itself says, as a replay does, else as found in the trace.
    endless
        Names of tasks that would have gone on for ever, such as ``spin*``: their recorded end is
        that of the recording. Without it a recorded exit is an exit, unless the trace shows that
        the task's parent killed it.
    placement
        What decides on which CPU a task is: ``model``, the policy, or ``trace``, the recording. A
        task is then where it was at the same point of its program; where it was moved between two
        slices it goes at the end of the slice that is nearest. Which task of a pool handles a request
        is left to the policy: that is no point of a program. ``auto`` is ``model``, but ``trace``
        where a replay as recorded shows that the machine places woken tasks otherwise
        (`replay/src/trial/places.rs`); the replay's diagnostics say so then.
    identity
        The policy that was recorded, under which `auto` and inferred messages are tried; by default as
        `tracekit.whatif.identity.stated` says.
    beside
        Threads that take part in it, see `tracekit.whatif.threads`; by default as many as there are CPUs.

    Raises
    ------
    ReplayError
        No task has a name of `endless`. `placement` is none of these. A workload text is given together with another `loop`,
        `placement` or `endless`: it says itself why sleeps end and which tasks do.

    Examples
    --------
    >>> import tracekit as tk
    >>> programs = tk.Programs("fixtures/demo/slice-default.dat")
    >>> runs = [programs.run(policy) for policy in ("cfs", "rr:quantum=10ms")]
    >>> programs.tasks["end"].value_counts().filter(end="endless")["count"].item()
    16
    """

    def __init__(
        self,
        trace: AnyTrace,
        loop: str = "dependency",
        hz: int | None = None,
        endless: Sequence[str] = (),
        placement: str = "auto",
        identity: str | None = None,
        *,
        beside: Beside | None = None,
    ) -> None:
        if placement not in PLACEMENTS:
            raise ReplayError(f"placement {placement!r}: expected {', '.join(PLACEMENTS)}")
        self.trace = trace = as_trace(trace)
        identity = None if identity is None else _core.expand_policy(identity)
        self._asked = loop, hz, tuple(endless), placement, identity
        self.placement = placement
        self._less: tuple[list[tuple[int, int]], list[tuple[int, int, int]]] | None = None
        self._text = stated_text(trace)
        if self._text is not None:
            self._state(*self._text)
        else:
            with contextlib.ExitStack() as own:
                threads = beside or own.enter_context(Beside())
                # Groups are learned while the records are read: neither needs the other.
                held = threads.begin(partial(as_recorded, trace, self.identity, threads=threads))
                self.contexts, self._core = reconstructed(
                    trace, loop, hz, endless, placement, self.identity, held
                )
        total = sum(n for _, n in self._core.wakeups)
        self.wakeups = [
            {"class": c, "n": n, "share": n / total if total else None} for c, n in self._core.wakeups if n
        ]

    def _state(self, text: str, seed: int | None) -> None:
        """Take the programs from a workload text."""
        loop, hz, endless, placement, _ = self._asked
        if loop != "dependency" or endless or placement == "trace":
            what = "endless tasks" if endless else f"loop {loop!r}"
            if placement == "trace":
                what = f"placement {placement!r}"
            raise ReplayError(f"{what}: for recorded traces; a workload text says itself why sleeps end")
        self.contexts = Contexts(True, 0, pl.DataFrame(schema={"tid": pl.Int64, "n": pl.UInt32}))
        self._core = _core.Programs.from_text(text, seed, hz)
        _, own, self._drawn, _ = _core.workload_facts(text, "fifo")
        self._seed = own if seed is None else seed
        self._redrawn: dict[int, _core.Programs] = {}

    def core_of(self, perturbation: Perturbation | None) -> _core.Programs:
        """The programs of one repetition: of a workload text with random times, other draws."""
        if perturbation is None or perturbation.seed == 0 or self._text is None or not self._drawn:
            return self._core
        seed = self._seed + perturbation.seed
        if seed not in self._redrawn:
            if len(self._redrawn) >= MAX_REDRAWN:
                self._redrawn = {}
            self._redrawn[seed] = _core.Programs.from_text(self._text[0], seed, self._asked[1])
        return self._redrawn.get(seed) or _core.Programs.from_text(self._text[0], seed, self._asked[1])

    @property
    def identity(self) -> str:
        """The policy that was recorded: as it was given, or as anything says it."""
        return self._asked[4] or stated(self.trace)[0]

    def listing_under(self, policy: str | None = None) -> Listing:
        """The programs as plain lists, with the machine.

        Workload texts and other tools' files are written from these.

        Parameters
        ----------
        policy
            The policy that the listing names; by default the one that the trace was captured under.

        Returns
        -------
        Listing
            What `tracekit.export.layouts.write_program` takes.
        """
        tasks, requests, units, hz, cpus, end, costs, phases, buffers = self._core.listing()
        named = [Task(*task) for task in tasks]
        return Listing(named, requests, units, hz, cpus, end, policy or self.identity, costs, phases, buffers)

    @property
    def stated(self) -> bool:
        """They are those of a workload text."""
        return self._text is not None

    def __repr__(self) -> str:
        """The trace, the number of tasks and what moves their wakeups."""
        n = self.tasks.height
        return f"<Programs of {self.trace.name}: {n:,} task{'s' * (n != 1)}, wakeup model {self._asked[0]}>"

    def __reduce__(self) -> tuple[Callable[..., Programs], tuple[Any, ...]]:
        """For pickle: the trace and what was asked for, from which the programs are reconstructed alike."""
        if self._less is not None:
            return _shortened_again, ((self.trace, *self._asked), self._less)
        return Programs, (self.trace, *self._asked)

    def shortened(
        self, faster: Sequence[tuple[int, int]] = (), shorter: Sequence[tuple[int, int, int]] = ()
    ) -> Programs:
        """The same programs with less work in them.

        Parameters
        ----------
        faster
            Threads, and how many 1/1000 of its work each keeps: ``[(17, 500)]`` makes thread 17
            twice as fast. Work without an end stays.
        shorter
            Thread, trace time, ns: what the thread was doing then takes so much less, as far as
            there is that much in one stretch of work.

        Returns
        -------
        Programs
            To be run as these are.

        Raises
        ------
        ReplayError
            The programs are those of a workload text, which states its work, or were shortened before.
        """
        if self.stated or self._less is not None:
            what = (
                "a workload text states its work" if self.stated else "these programs are shortened already"
            )
            raise ReplayError(f"{what}: expected programs that were reconstructed from records")
        # Not `copy`, which would reconstruct.
        less = object.__new__(Programs)
        less.__dict__.update(self.__dict__)
        less._less = (list(faster), list(shorter))
        less._core, _ = self._core.shortened(*less._less)
        for name in ("table", "demands", "inferred", "tasks"):
            less.__dict__.pop(name, None)
        return less

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self._core)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The table ``program``: one row per step of each task, in order."""
        return to_frame(self._core.table())

    @cached_property
    def demands(self) -> pl.DataFrame:
        """What each task demands.

        Returns
        -------
        polars.DataFrame
            ``utid`` (UInt32, the task's number, as in `table`), ``tid`` (Int64), ``comm`` (String;
            null when the source does not say), ``kernel_ns`` (Int64: work that is next to a fork, an exec, an exit or a yield, up to 2
            ms of each stretch between two steps that are no work), ``work_ns`` (Int64: all work, in
            time of a CPU of middling speed, less that before its first sleep), ``endless`` (Boolean:
            some of its work has no end), ``sleeps`` (UInt32), ``unexplained`` (UInt32: sleeps that
            something outside ends, which the trace does not say).
        """
        types = {
            "utid": pl.UInt32,
            "tid": pl.Int64,
            "comm": pl.String,
            "kernel_ns": pl.Int64,
            "work_ns": pl.Int64,
            "endless": pl.Boolean,
            "sleeps": pl.UInt32,
            "unexplained": pl.UInt32,
        }
        found = pl.DataFrame(self._core.demands(), schema=types, orient="row")
        return found.with_columns(pl.col("comm").replace("", None))

    @cached_property
    def inferred(self) -> pl.DataFrame:
        """What no record states and was inferred about the run as a whole.

        Returns
        -------
        polars.DataFrame
            ``name`` (what switches, ticks and interrupts cost, the tick's rate and phase, timer
            slack, which tasks have no end, when the recorded run was stopped, messages that woke
            nobody), ``value`` (Float64; null when nothing says), ``unit`` (``ns``, ``1/s`` or
            ``1``), ``n`` (UInt64, samples; null where it is no estimate), ``how`` (what it rests
            on).
        """
        rows = list(self._core.inferred())
        if self.contexts.timers.height:
            signs = ", ".join(sorted(self.contexts.timers["sign"].unique()))
            how = f"the trace does not say which wakeups interrupts made; by the sign: {signs}"
            rows.append(
                (
                    "tasks woken by timers",
                    float(self.contexts.timers.height),
                    "1",
                    self.contexts.recognised,
                    how,
                )
            )
        return _inferred(rows)

    @cached_property
    def tasks(self) -> pl.DataFrame:
        """What was judged about each task.

        Returns
        -------
        polars.DataFrame
            ``task`` (UInt32, as in `table`), ``tid`` (Int64), ``comm`` (String; null when the source
            does not say), ``end`` (``ends``:
            the replay waits for it; ``endless``: it never sleeps and was stopped; ``loops``: it
            slept on timers until stopped; ``stopped``: any other without an end of its own),
            ``slack_ns`` and ``sleep_ns`` (Int64: slack of its timers, and their length where it is
            always the same; null for tasks without).
        """
        types = {
            "task": pl.UInt32,
            "tid": pl.Int64,
            "comm": pl.String,
            "end": pl.String,
            "slack_ns": pl.Int64,
            "sleep_ns": pl.Int64,
        }
        found = pl.DataFrame(self._core.judged(), schema=types, orient="row")
        return found.with_columns(pl.col("comm").replace("", None))

    def perturbations(self, runs: int = RUNS) -> list[Perturbation]:
        """Timing jitter and tick phases with which a replay is repeated, to see its sensitivity to them.

        Parameters
        ----------
        runs
            How many; the first changes nothing.

        Returns
        -------
        list of Perturbation
            See `tracekit.whatif.intervals.perturbations`.
        """
        return perturbations_of(self._core, runs)

    def run(
        self,
        policy: str | AnyPolicy,
        *,
        rt: str | None = None,
        cpus: int | None = None,
        phase_ns: int = 0,
        overheads: bool = True,
        switch_costs: bool = True,
        costs: Mapping[str, str] | None = None,
        scenario: Scenario | None = None,
        perturbation: Perturbation | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Replay:
        """Run the programs under a policy; see `replay` for the parameters.

        Parameters
        ----------
        policy, rt, cpus, phase_ns, overheads, switch_costs, costs, scenario, progress
            As in `replay`.
        perturbation
            Timing jitter and tick phase, one of `Programs.perturbations`.

        Returns
        -------
        Replay
            Under that policy.
        """
        refuse_part(self.trace)
        prepared = self.prepared(
            policy,
            rt=rt,
            cpus=cpus,
            phase_ns=phase_ns,
            overheads=overheads,
            switch_costs=switch_costs,
            costs=costs,
            scenario=scenario,
        )
        return prepared.run(perturbation, progress)

    def prepared(self, policy: str | AnyPolicy, **options: Any) -> Prepared:
        """Get ready to run the programs under a policy, once or several times.

        Parameters
        ----------
        policy, options
            As in `run`, but for `perturbation` and `progress`, in which runs differ.
        """
        check_policy(policy)
        if isinstance(policy, str):
            policy = _core.expand_policy(policy)
        warn(self.trace.metadata)
        return Prepared(self, policy, core_options(self, policy, **options))

    def replay_of(
        self, metadata: dict[str, str], tables: Mapping[str, _core.Table | _core.Records]
    ) -> Replay:
        """Name a run that ended, and say what it is a replay of."""
        known = self.trace.metadata
        metadata |= {key: known[key] for key in _INHERITED if key in known}
        if known.get("os") == "linux":
            metadata["os"] = "linux"
        return Replay(tables, metadata, self.trace.name, self)


def _shortened_again(asked: tuple[Any, ...], less: tuple[Any, Any]) -> Programs:
    """Unpickle programs that were shortened."""
    return Programs(*asked).shortened(*less)


def replay(
    trace: AnyTrace,
    policy: str | AnyPolicy | None = None,
    *,
    loop: str = "dependency",
    rt: str | None = None,
    cpus: int | None = None,
    hz: int | None = None,
    endless: Sequence[str] = (),
    placement: str = "auto",
    phase_ns: int = 0,
    overheads: bool = True,
    switch_costs: bool = True,
    costs: Mapping[str, str] | None = None,
    scenario: Scenario | None = None,
    progress: Callable[[float], object] | None = None,
) -> Replay:
    """Run what the tasks of a trace did under another scheduling policy.

    Parameters
    ----------
    trace
        A recorded trace with switches and wakeups, its path, or a workload text; see `as_trace`.
    policy
        ``name`` or ``name:param=value,param=value``, times with their unit, see
        `tracekit.policies`; ``linux-6.12`` for the scheduler of that kernel; or a policy of one's
        own, see `tracekit.Policy` and `tracekit.CompiledPolicy`. By default the one of the
        recording, as kernel and machine say.
    loop
        What moves when the schedule changes: ``dependency`` moves wakeups by tasks with their
        wakers; ``open`` keeps the recorded time of every wakeup; ``closed`` keeps the recorded
        length of every sleep.
    rt
        The real-time class above the policy, with parameters: ``rt:slice=20ms``.
    cpus
        Number of CPUs; by default as recorded. With another number, affinities that the machine
        beside the trace states are left out: they name CPUs of the recorded machine. A comparison
        says whose.
    hz
        Clock ticks a second; by default as the machine beside the trace (`Trace.machine`) or the
        trace itself says, as a replay does, else as found in the trace.
    endless
        Names of tasks that would have gone on for ever, such as ``spin*``; see `Programs`.
    placement
        ``model``: the policy decides where tasks run; ``trace``: they are where they were recorded,
        on as many CPUs; see `Programs`.
    phase_ns
        Added to the phase of the clock tick, to see how much depends on it.
    overheads
        Let switches, ticks and interrupts cost what they were measured to cost in the trace.
    switch_costs
        Let switches take more or less than recorded where another kernel, or a task in another
        scheduling class, chooses the next task: by what they were found to take elsewhere
        (`tracekit.whatif.switch_costs`). Not without `overheads`.
    costs
        Costs in place of those measured, or of 0 where there is no measure: ``{"switch": "3us",
        "fork": "list:2us/50ns"}``; see `tracekit.costs` for all.
    scenario
        Attributes for tasks: ``{"spin*": {"nice": 5}}`` (selectors as in
        `tracekit.whatif.scenario.parse_set`), a text or several, ``"spin*: nice=5"``, or what
        `tracekit.whatif.scenario.load` read from a file.
    progress
        Called with the share that is done.

    Returns
    -------
    Replay
        A trace of the run, on the clock of `trace`.

    Raises
    ------
    ReplayError
        When the policy is not understood, or the trace has nothing to replay.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.replay(trace, "rr:quantum=10ms").policy.split(",")[0]
    'rr:quantum=10ms'
    """
    trace = as_trace(trace)
    return Programs(trace, loop, hz, endless, placement).run(
        stated(trace)[0] if policy is None else policy,
        rt=rt,
        cpus=cpus,
        phase_ns=phase_ns,
        overheads=overheads,
        switch_costs=switch_costs,
        costs=costs,
        scenario=scenario,
        progress=progress,
    )


def simulate(workload: str, policy: str | AnyPolicy | None = None, *, seed: int | None = None) -> Replay:
    r"""Run a workload that is written down instead of recorded.

    Parameters
    ----------
    workload
        Text: a policy, a machine, and a line for each task with its steps. Times are in ms: ``A: R5
        S10`` runs for 5 ms and sleeps for 10; ``(R1 S3)*`` does so for ever. The guide "Workloads
        as text" has the whole language.
    policy
        Policy instead of the one in the text, such as ``rr:quantum=10ms``, or a policy of one's own
        (`tracekit.whatif.policy`).
    seed
        Of the times that the text draws, in place of its own.

    Returns
    -------
    Replay
        With all tables; its time starts at 0. Given to `tracekit.compare` or `tracekit.replay`, the
        workload's own programs run, and nothing is reconstructed.

    Raises
    ------
    ReplayError
        When the text or the policy is not understood, or a run under the text's own policy is not
        what it expects.

    Examples
    --------
    >>> import tracekit as tk
    >>> run = tk.simulate("A: R5\nB: R3", policy="rr:quantum=2ms")
    >>> run.slices["dur_ns"].to_list()
    [2000000, 2000000, 2000000, 1000000, 1000000]
    """
    if policy is not None:
        check_policy(policy)
    metadata, tables = run_text(resolve_values(workload), policy, seed=seed)
    return Replay(tables, metadata, "workload")

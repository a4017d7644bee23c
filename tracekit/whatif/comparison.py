"""A trace, its identity replay and its replays under other policies, side by side."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import analysis
from tracekit.analysis.compare import IDENTITY, METRICS, RECORDED
from tracekit.export.files import replacing
from tracekit.trace import Trace
from tracekit.whatif.basis import (
    inferred,
    unknown_machine,
    unrecorded,
    wakeup_classes,
)
from tracekit.whatif.calibration import calibrate, judge, tolerances
from tracekit.whatif.fidelity import Fidelity
from tracekit.whatif.held import Held, unlike, with_real
from tracekit.whatif.left_out import left_out
from tracekit.whatif.loops import loops
from tracekit.whatif.pace import Idler, Longer, Sooner, idler, longer, of_all, sooner
from tracekit.whatif.predictions import DEFAULT_TICK_NS, Repeated, with_intervals
from tracekit.whatif.recorded import without_wakeups
from tracekit.whatif.run import Replay
from tracekit.whatif.scenario import Override
from tracekit.whatif.settings import left_to_default
from tracekit.whatif.shown import Focus, focus_of, main_groups, main_rows
from tracekit.whatif.stuck import Stuck, stuck
from tracekit.whatif.trust import CARE, DO_NOT_USE, TRUSTED, calibrated, poorly

__all__ = ["Comparison"]

#: How far a row can be trusted, best first.
MARKS = (TRUSTED, CARE, DO_NOT_USE)


class Comparison:
    r"""A recorded trace beside its identity replay and other replays.

    Made by `tracekit.compare`; can also be made from traces directly, for example to set a real
    capture under another policy beside a prediction.

    Parameters
    ----------
    trace
        The recorded trace.
    identity
        Its replay under the policy it was captured under.
    replays
        Label to replay (or any other trace) to compare; the labels are shown as they are.
    why
        Why the identity replay has the policy it has.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    repeated
        The replays repeated with small changes of the machine, and what rows are judged by; without it
        there are no intervals, and no row is judged.
    real
        A recording under what was asked, which predictions are held against.
    overrides
        What is set of tasks in the replays: those are shown first.
    chosen
        Keys (`utid`) of the tasks that are looked at; None for all.
    beside
        What is changed beside the policies, in words, where their labels do not say it:
        ``batch: nice=19; 4 CPUs``.

    Examples
    --------
    >>> import tracekit as tk
    >>> text = "policy: rr:quantum=2ms\nuntil: 100\nA: (R3 S2)*\nH: R∞"
    >>> found = tk.Comparison(tk.read(text), tk.replay(text, "rr:quantum=2ms"), {"mine": tk.replay(text, "fifo")})
    >>> list(found.traces)
    ['recorded', 'identity replay', 'mine']
    """

    def __init__(
        self,
        trace: Trace,
        identity: Trace,
        replays: Mapping[str, Trace],
        why: str = "",
        by: str = "group",
        repeated: Repeated | None = None,
        real: Trace | None = None,
        overrides: Sequence[Override] = (),
        chosen: Collection[int] | None = None,
        beside: str = "",
    ) -> None:
        taken = {RECORDED, IDENTITY} & set(replays)
        if taken:
            raise ValueError(f"the label {taken.pop()!r} is taken by the comparison itself")
        self.trace = trace
        self.identity = identity
        self.replays = dict(replays)
        self.why = why
        self.by = by
        self.repeated = repeated
        self.real = real
        self.overrides = tuple(overrides)
        self.chosen = chosen
        self.beside = beside

    @property
    def traces(self) -> dict[str, Trace]:
        """Every trace by label, the recorded one first, the identity replay second."""
        return {RECORDED: self.trace, IDENTITY: self.identity, **self.replays}

    @property
    def identity_policy(self) -> str:
        """The policy of the identity replay."""
        return self.identity.metadata.get("replay.policy", "")

    @property
    def left_to_default(self) -> list[str]:
        """Settings of the recording that a policy of its name was not asked for, and so does not have.

        A sentence for each label that is a policy as it was asked for.
        """
        replays = ((label, getattr(run, "policy", "")) for label, run in self.replays.items())
        said = [left_to_default(label, policy, self.identity_policy) for label, policy in replays]
        return [text for text in said if text is not None]

    @property
    def not_recorded(self) -> list[str]:
        """What the replays do not know or do not model, and what was never held against real captures.

        Sentences: those of `tracekit.whatif.basis.unrecorded`, and one of what `tracekit.whatif.row_error.unheld`
        and `tracekit.whatif.basis.unheld_machine` name for any of the replays.
        """
        said = unrecorded(self.identity, *self.replays.values())
        found = {} if self.repeated is None else self.repeated.unheld
        if never := list(dict.fromkeys(name for names in found.values() for name in names)):
            said.append(
                f"never held against real captures: {', '.join(never)}. What a replay misses there was not measured; "
                "intervals take the errors of what comes nearest"
            )
        return said

    @property
    def repetitions(self) -> int:
        """How often each replay ran; 1: there are no intervals."""
        return len(self.repeated.figures[IDENTITY]) if self.repeated else 1

    @property
    def resolution_ns(self) -> int:
        """Smallest step of the trace's clock, ns; 1 when the trace does not say."""
        text = self.trace.metadata.get("clock.resolution_ns", "1")
        return int(text) if text.isdigit() else 1

    @cached_property
    def figures(self) -> dict[str, pl.DataFrame]:
        """Label to result of `tracekit.analysis.compare.metrics`: of replays the medians."""
        found = {}
        for label, trace in self.traces.items():
            figures = None if self.repeated is None else self.repeated.figures_of(label)
            found[label] = metrics_of(trace, self.by) if figures is None else figures
        return found

    @cached_property
    def table(self) -> pl.DataFrame:
        """Every figure of every policy.

        Returns
        -------
        pl.DataFrame
            The result of `tracekit.analysis.compare.compare` (of the groups of chosen tasks, and the
            system, where tasks were chosen) with the columns of
            `tracekit.whatif.predictions.with_intervals`: the 90 % interval, why there is none, what
            it is made of, and how far the row can be trusted. Where there is a recording of what was
            asked, also those of `tracekit.whatif.held.with_real`.
        """
        repeated = self.repeated
        if repeated is not None:
            repeated = replace(
                repeated,
                # It makes intervals, and takes longer than a replay.
                sampling=repeated.sampling or ({} if repeated.once else self.sampling),
                poor=self.poor,
                sooner={label: [one.group for one in found] for label, found in self.sooner.items()},
                longer={label: found.why for label, found in self.longer.items()},
                idler={label: found.why for label, found in self.idler.items()},
                stuck=self.stuck,
                loops=loops(self.trace, self.by, self._runs),
            )
        plain = analysis.compare.compare(self.figures, RECORDED, IDENTITY, self.resolution_ns)
        # The row of all tasks decides about the system's.
        judged = self.focus.rows(plain, "all")
        found = self.focus.rows(with_intervals(judged, repeated, RECORDED, IDENTITY, self.resolution_ns))
        if self.real is None:
            return found
        return with_real(found, metrics_of(self.real, self.by), self._unlike[0])

    @cached_property
    def _unlike(self) -> tuple[bool, list[str]]:
        """See `tracekit.whatif.held.unlike`."""
        assert self.real is not None, "no recording to hold predictions against"
        cpus = next(iter(self.replays.values()), self.identity).cpus.height
        return unlike(self.trace, self.real, cpus)

    @cached_property
    def held(self) -> Held | None:
        """How the predictions do beside a recording of what was asked; None without one."""
        return None if self.real is None else Held.of(self.table, self.real.name, self._unlike[1])

    @cached_property
    def sooner(self) -> dict[str, list[Sooner]]:
        """Label of each replay to the groups that do their work sooner, see `tracekit.whatif.pace.sooner`."""
        return {label: sooner(self.trace, run, self.by, self.identity) for label, run in self._runs.items()}

    @cached_property
    def longer(self) -> dict[str, Longer]:
        """Label to how long a replay lasts that lasts longer, see `tracekit.whatif.pace.longer`."""
        return of_all(longer, self.trace, self._runs)

    @cached_property
    def idler(self) -> dict[str, Idler]:
        """Label to how much more its CPUs idle than when recorded, see `tracekit.whatif.pace.idler`."""
        return of_all(idler, self.trace, self._runs)

    @cached_property
    def stuck(self) -> dict[str, Stuck]:
        """Label to the tasks of a replay that wait for ever, see `tracekit.whatif.stuck`."""
        return stuck(self.trace, self.by, self._runs, self.identity)

    @property
    def _runs(self) -> dict[str, Replay]:
        """The replays that are some: a recording can stand in their place."""
        return {label: t for label, t in self.replays.items() if isinstance(t, Replay)}

    @cached_property
    def sampling(self) -> dict[str, pl.DataFrame]:
        """Label to result of `tracekit.analysis.sampling.sampling`; not of the identity replay."""
        return {label: sampling_of(t, self.by) for label, t in self.traces.items() if label != IDENTITY}

    @cached_property
    def bounds(self) -> pl.DataFrame:
        """Bounds of the recorded metrics under any completion of what was lost.

        See `tracekit.analysis.bounds.table`.
        """
        return self.trace.bounds(self.by)

    @property
    def predictable(self) -> dict[str, float]:
        """How much of the trace can be predicted.

        Share of the main rows that are trusted, taken with care, not to be used.

        Returns
        -------
        dict
            ``trusted``, ``with care``, ``do not use``: shares of the rows of `summary`; empty where no
            row is judged.
        """
        marks = self.summary["trust"].drop_nulls()
        return {mark: marks.to_list().count(mark) / marks.len() for mark in MARKS} if marks.len() else {}

    @cached_property
    def fidelity(self) -> pl.DataFrame:
        """How well the identity replay repeats the recording.

        The result of `tracekit.whatif.calibration.calibrate`.
        """
        return fidelity_of(self.trace, self.identity)

    @property
    def poor(self) -> str | None:
        """Why no row can be trusted.

        What was filtered out, that nobody says who woke whom, or see `tracekit.whatif.trust.poorly`.
        """
        placed = getattr(self.identity, "places_asked", False)
        return (
            left_out(self.trace)
            or without_wakeups(self.trace)
            or poorly(self.fidelity["result"].to_list(), placed)
        )

    @cached_property
    def calibration(self) -> pl.DataFrame:
        """What the identity replay gets wrong.

        Returns
        -------
        pl.DataFrame
            One row per scope, group, metric and statistic: those columns and `unit`, `recorded`,
            `identity` (Float64), `n_recorded` (UInt32), `error_pct` (Float64, identity - recorded
            in % of recorded; null when either is null or recorded is 0), `calibration` (String:
            `pass`, `fail`, `not measured`: that error against the tolerance of its metric).
        """
        base, ident = self.figures[RECORDED], self.figures[IDENTITY]
        keys = ["scope", "group", "metric", "statistic", "unit"]
        joined = base.rename({"value": "recorded", "n": "n_recorded"}).join(
            ident.select(*keys, pl.col("value").alias("identity")), on=keys, how="left", nulls_equal=True
        )
        error = 100 * (pl.col("identity") - pl.col("recorded")) / pl.col("recorded")
        found = self.focus.rows(joined).select(
            *keys,
            "recorded",
            "identity",
            "n_recorded",
            pl.when(pl.col("recorded") != 0).then(error).alias("error_pct"),
        )
        tick = self.repeated.tick_ns if self.repeated else DEFAULT_TICK_NS
        step = self.repeated.resolution_ns if self.repeated else float(self.resolution_ns)
        rules = tolerances()
        judged = [calibrated(row, rules, tick, step)[0] for row in found.iter_rows(named=True)]
        return found.with_columns(pl.Series("calibration", judged, dtype=pl.String))

    @cached_property
    def distances(self) -> pl.DataFrame:
        """Distance of each replay's distributions from the recorded ones.

        Returns
        -------
        pl.DataFrame
            One row per metric, label and group: `metric` (String: `slice`, `run_delay`,
            `response`), and the columns of `tracekit.analysis.compare.distances`. Only complete
            samples count.
        """
        frames = []
        for metric, value in (
            ("slice", "dur_ns"),
            ("run_delay", "run_delay_ns"),
            ("response", "response_ns"),
        ):
            samples = {label: _complete(t, metric) for label, t in self.traces.items()}
            recorded = samples.pop(RECORDED)
            got = analysis.compare.distances(recorded, samples, value, self.by)
            frames.append(got.select(pl.lit(metric).alias("metric"), pl.all()))
        found = pl.concat(frames)
        if self.focus.chosen is None:
            return found
        return found.filter(pl.col("group").is_in(list(self.focus.chosen), nulls_equal=True))

    @cached_property
    def intervals(self) -> pl.DataFrame:
        """Confidence intervals (90 %) of the recorded figures of the main groups.

        Returns
        -------
        pl.DataFrame
            One row per metric, group and statistic: `metric`, `group` (String), and the columns of
            `tracekit.analysis.uncertainty.interval`.
        """
        groups = pl.col("group").is_in(self.main_groups, nulls_equal=True)
        rows = self.sampling[RECORDED].filter(groups, scope="group")
        return rows.select(
            "metric", "group", "statistic", "n", "value", pl.col("low").alias("lo"), pl.col("high").alias("hi"),
            "n_effective", "resampled", "units", "reason",
        )  # fmt: skip

    @cached_property
    def focus(self) -> Focus:
        """The groups of tasks that the comparison is about, see `tracekit.whatif.shown.focus_of`."""
        return focus_of(self.trace, self.by, self.overrides, self.chosen)

    @cached_property
    def main_groups(self) -> list[str | None]:
        """The groups that matter most, see `tracekit.whatif.shown.main_groups`.

        Those that the change is made to, then those with most time on CPUs among those with enough slices.
        """
        return main_groups(analysis.slices.summary(self.trace.slices, self.by), self.focus)

    @property
    def summary(self) -> pl.DataFrame:
        """The main metrics of the main groups.

        Returns
        -------
        pl.DataFrame
            Rows of `table`: the run queue of the system, and the headline metrics of `main_groups`
            with at least 20 recorded or predicted samples (any number for tasks that the change is
            made to). Figures that are 0 or unknown everywhere, and counts below 20, are left out.
        """
        return main_rows(self.table, self.main_groups, self.focus)

    def describe(self) -> dict[str, Any]:
        """What the trace is.

        Returns
        -------
        dict
            Name, format, system, kernel, clock, duration, counts; None where the source does not say.
        """
        trace, meta = self.trace, self.trace.metadata
        start, end = trace.start_ns, trace.end_ns
        kinds = trace.columns("events", "kind")["kind"]
        tasks = trace.tasks.filter(~pl.col("is_idle")) if trace.tasks.height else trace.tasks
        return {
            "name": trace.name,
            "format": meta.get("source.format"),
            "variant": meta.get("source.variant"),
            "os": meta.get("os"),
            "kernel": meta.get("kernel"),
            "arch": meta.get("arch"),
            "host": meta.get("host"),
            "clock": meta.get("clock.name"),
            "clock_resolution_ns": self.resolution_ns if "clock.resolution_ns" in meta else None,
            "duration_ns": end - start if start is not None and end is not None else None,
            "cpus": trace.cpus.height or None,
            "tasks": tasks.height,
            "events": kinds.len(),
            "switches": int((kinds == "switch").sum()),
            "wakeups": int(kinds.is_in(["wakeup", "wakeup_new"]).sum()),
            "sources": _sources(meta),
            "replay_of": meta.get("replay.policy"),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data.

        Returns
        -------
        dict
            `trace` (see `describe`), `diagnostics`, `losses`, `bounds` (of the recorded metrics,
            whatever was lost), `identity` (policy, reason, loop), `policies` (label, policy, loop),
            `wakeups` (share of each class of wakeup, when the replay says), `inferred` (likewise),
            `repetitions` (how often each replay was repeated), `held` (None, or `name`, `unlike` and
            `by_trust`, see `tracekit.whatif.held.Held`), `sooner`, `longer`, `idler`, `stuck`, `summary`,
            `comparison` (`table`), `left_to_default`, `beside` (what is changed beside the policies, in words; empty
            where nothing is, or a label says it), `changed` (groups that the change is made to), `chosen`
            (groups that are looked at; None for all), `calibration`, `fidelity`, `distances`, `intervals`, `runqueue`
            (time-weighted distribution by label), `not_recorded` and `not_known` (what the trace, and
            the machine beside it, do not say) and `predictable` (shares of trust), `definitions`.
            Numbers that are not known are None, never NaN.
        """
        queue = {
            label: analysis.runqueue.distribution(t.runqueue, t.end_ns).to_dicts()
            for label, t in self.traces.items()
        }
        return {
            "tracekit.report": 1,
            "trace": self.describe(),
            "diagnostics": self.trace.diagnostics.to_dicts(),
            "losses": self.trace.losses.to_dicts(),
            "bounds": self.bounds.to_dicts(),
            "identity": {**_replayed(self.identity), "reason": self.why or None},
            "policies": [{"label": label, **_replayed(t)} for label, t in self.replays.items()],
            "wakeups": wakeup_classes(self.identity),
            "summary": self.summary.to_dicts(),
            "comparison": self.table.to_dicts(),
            "left_to_default": self.left_to_default,
            "beside": self.beside,
            "changed": list(self.focus.changed),
            "chosen": None if self.focus.chosen is None else list(self.focus.chosen),
            "calibration": self.calibration.to_dicts(),
            "fidelity": self.fidelity.to_dicts(),
            "repetitions": self.repetitions,
            "held": None if self.held is None else self.held.to_dict(),
            "sooner": {label: [asdict(one) for one in found] for label, found in self.sooner.items()},
            "longer": {label: asdict(one) for label, one in self.longer.items()},
            "idler": {label: asdict(one) for label, one in self.idler.items()},
            "stuck": {label: asdict(one) for label, one in self.stuck.items()},
            "inferred": inferred(self.identity),
            "not_recorded": self.not_recorded,
            "not_known": unknown_machine(self.trace),
            "distances": self.distances.to_dicts(),
            "intervals": self.intervals.to_dicts(),
            "predictable": self.predictable,
            "runqueue": queue,
            "definitions": METRICS,
        }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write `to_dict` as JSON.

        Parameters
        ----------
        path
            File to write; an existing file is replaced only when all is written. Without it nothing
            is written.

        Returns
        -------
        str
            The text.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        if path is not None:
            with replacing(Path(path)) as file:
                file.write(text.encode())
        return text

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the report: one page that needs no network and no scripts.

        Parameters
        ----------
        path
            File to write; an existing file is replaced only when all is written. Without it nothing
            is written.

        Returns
        -------
        str
            The text.
        """
        from tracekit.report.page import render

        text = render(self)
        if path is not None:
            with replacing(Path(path)) as file:
                file.write(text.encode())
        return text

    def _repr_html_(self) -> str:
        """What a notebook shows: the finding, a picture, the main table with units."""
        from tracekit.report.notebook import render_short

        return render_short(self)

    def __repr__(self) -> str:
        """Name the trace and the policies."""
        labels = ", ".join(self.replays) or "no policies"
        return (
            f"<Comparison of {self.trace.name}: {labels}; identity {self.identity_policy.partition(',')[0]}>"
        )


def metrics_of(trace: Trace, by: str) -> pl.DataFrame:
    """Return the result of `tracekit.analysis.compare.metrics`, computed once for each trace."""
    return trace.once(
        ("metrics", by),
        lambda: analysis.compare.metrics(trace.slices, trace.runqueue, trace.states, trace.end_ns, by),
    )


def sampling_of(trace: Trace, by: str) -> pl.DataFrame:
    """Return the result of `tracekit.analysis.sampling.sampling`, computed once for each trace."""
    return trace.once(
        ("sampling", by),
        lambda: analysis.sampling.sampling(trace.slices, trace.runqueue, trace.states, trace.end_ns, by),
    )


def fidelity_of(trace: Trace, identity: Trace) -> pl.DataFrame:
    """Return the result of `tracekit.whatif.calibration.calibrate`, computed once for both."""
    return identity.once(("fidelity", trace), lambda: calibrate(trace, identity))


def keep_fidelity(trace: Trace, identity: Trace, found: Sequence[Fidelity]) -> pl.DataFrame:
    """Have `fidelity_of` return what the repetitions of the identity replay are judged."""
    return identity.once(("fidelity", trace), lambda: judge(found))


def _complete(trace: Trace, metric: str) -> pl.DataFrame:
    """Return the samples of a metric of which start and end are known, in time order."""
    if metric == "slice":
        return analysis.slices.closed(trace.slices)
    if metric == "run_delay":
        return trace.slices
    responses = analysis.response.samples(trace.slices, trace.states, trace.end_ns)
    return responses.filter(pl.col("status") == "complete").sort("end_ts_ns")


def _sources(meta: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        files = json.loads(meta.get("source.files", "[]"))
    except ValueError:
        return []
    return [f for f in files if isinstance(f, dict)] if isinstance(files, list) else []


def _replayed(trace: Trace) -> dict[str, Any]:
    return {"policy": trace.metadata.get("replay.policy"), "loop": trace.metadata.get("replay.loop")}

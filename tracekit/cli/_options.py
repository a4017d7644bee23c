"""What commands have in common: how a trace is named, read and narrowed down, how results are asked for."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracekit import registry
from tracekit.cli._choice import Choice
from tracekit.errors import FilterWarning, OutputError
from tracekit.units import parse_duration

if TYPE_CHECKING:
    import polars as pl

    from tracekit.io.one_pass import Survey
    from tracekit.trace import Trace

__all__ = [
    "Input",
    "analysis_options",
    "engine_options",
    "input_options",
    "output_options",
    "output_place",
    "side_place",
    "source_place",
]

#: Endings of pictures that can be written.
PLOTS = (".png", ".svg", ".pdf")

#: What the conditions of `Trace.filter` are called here.
CALLED = {
    **{key: f"--{key}" for key in ("comm", "exclude", "pid", "tid", "cpu")},
    "start": "--from",
    "end": "--to",
}

F = TypeVar("F", bound=Callable[..., Any])

#: `tracekit.analysis.grouping.BY`, which is not imported here to keep help quick.
BY = ("group", "comm", "tid", "all", "process", "cgroup", "prio", "policy")
BY_HELP = """How to group tasks: by name without the number at its end (spin07 -> spin), by name,
by thread, or all together."""


def _parse_numbers(context: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[int, ...]:
    """Numbers and ranges (`3`, `0-3`, `0,2,4-7`), each once, in order."""
    numbers: list[int] = []
    for part in ",".join(given).split(",") if given else ():
        first, dash, last = part.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise click.BadParameter(
                f"expected numbers such as 3, 0-3 or 0,2,4-7, found {part!r}", context, param
            ) from None
        if high < low or len(numbers) + high - low > 1 << 20:
            raise click.BadParameter(f"invalid range {part.strip()!r}", context, param)
        numbers += range(low, high + 1)
    return tuple(dict.fromkeys(numbers))


#: Size of a file, bytes, from which statistics are taken in one pass: the tables of a text of that size
#: take about 300 MB.
LARGE = 64 << 20
#: So many times smaller a Parquet file of the same events is: 4.9 MB of 201 MB of text, rounded down.
DENSER = 32


@dataclass(frozen=True)
class Input:
    """The trace that a command was given, and the part of it that is wanted."""

    path: str
    format: str | None
    options: dict[str, str]
    comm: tuple[str, ...]
    pid: tuple[int, ...]
    tid: tuple[int, ...]
    cpu: tuple[int, ...]
    start: str | None
    end: str | None
    quiet: bool
    exclude: tuple[str, ...] = ()

    def read(self, *, window: bool = True) -> Trace:
        """Read the trace, narrow it down, and say on standard error what was lost.

        It is narrowed down in time only with `window`.
        """
        trace = self._whole()
        return (self if window else replace(self, start=None, end=None)).narrow(trace)

    def read_among(self) -> tuple[Trace, pl.DataFrame]:
        """As `read`, and the `tasks` of the whole trace: who forked whom, also beside what is wanted."""
        trace = self._whole()
        return self.narrow(trace), trace.tasks

    def _whole(self) -> Trace:
        from tracekit.io import read

        trace = read(self.path, self.format, progress=not self.quiet, cache=None, **self.options)
        self.warn(trace)
        return trace

    @property
    def whole(self) -> Input:
        """All tasks and CPUs of the wanted time: what a replay is made of."""
        return replace(self, comm=(), pid=(), tid=(), cpu=(), exclude=())

    def of_replays(self, trace: Trace, *runs: Trace) -> list[Trace]:
        """The wanted tasks and CPUs of a trace that was read as `whole`, and of its replays."""
        part = replace(self, start=None, end=None).narrow(trace)
        if part is trace:
            return [trace, *runs]
        chosen = self._part(trace)
        # A task has the same number in a replay, whatever it is called at the time.
        tids = None if chosen is trace else chosen.tasks["tid"].to_list()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FilterWarning)
            return [part, *(run.filter(tid=tids, cpu=self.cpu or None) for run in runs)]

    def survey(self, enough: bool = True, head: int = 0) -> Survey | None:
        """Read a large trace for its statistics alone, or give None.

        None where these are not `enough`, or where something narrows the trace down.

        The first `head` events are kept.
        """
        from tracekit.io import survey
        from tracekit.io.external import external_format
        from tracekit.io.parquet import filtered_by, holds_events, stored_metadata
        from tracekit.io.reading import own_file

        narrowed = self.comm or self.pid or self.tid or self.cpu or self.start or self.end or self.exclude
        if not enough or narrowed or not Path(self.path).is_file():
            return None
        own = own_file(self.path) if self.format is None else None
        large = LARGE // DENSER if own else LARGE
        if Path(self.path).stat().st_size < large or external_format(self.path, self.format) is not None:
            return None
        if own is not None and (
            not holds_events(self.path, own) or filtered_by(stored_metadata(self.path, own))
        ):
            return None
        found = survey(self.path, self.format, progress=not self.quiet, head=head, **self.options)  # type: ignore[arg-type]
        self.warn(found)
        return found

    def narrow(self, trace: Trace) -> Trace:
        """The wanted part of `trace`; what nothing meets is said under the names of the options."""
        from tracekit.filters import Selection

        part = self._part(trace, start=self.start, end=self.end, cpu=self.cpu or None)
        context = click.get_current_context(silent=True)
        meta = {} if context is None else context.meta
        for_people = "-" not in (meta.get("tracekit.json"), meta.get("tracekit.csv"))
        if for_people and not self.quiet and part is not trace:
            from tracekit.cli._table import paragraph

            made = Selection.make(
                trace, **self._tasks(), cpu=self.cpu or None, start=self.start, end=self.end
            )
            for unmet in made.unmet(trace, CALLED):
                paragraph(f"warning: {unmet}", file=sys.stderr)
        return part

    def _tasks(self) -> dict[str, Any]:
        """The conditions on tasks."""
        return {key: getattr(self, key) or None for key in ("comm", "pid", "tid", "exclude")}

    def _part(self, trace: Trace, **conditions: Any) -> Trace:
        """What of `trace` meets the conditions on tasks and these; nothing is said."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FilterWarning)
            return trace.filter(**self._tasks(), **conditions)

    def warn(self, trace: Trace) -> None:
        """Say on standard error what was lost or damaged, and what the file says was not recorded."""
        from tracekit.cli._table import paragraph
        from tracekit.whatif.recorded import part

        stated = {"cpus.recorded", "tasks.recorded"} & trace.metadata.keys()
        if stated and not self.quiet and (found := part(trace)) is not None:
            paragraph(f"warning: {found.sentence}", file=sys.stderr)
        self.say(trace.diagnostics)

    def say(self, diagnostics: pl.DataFrame) -> None:
        """Say on standard error what these rows say of loss and damage."""
        from tracekit.cli._table import paragraph
        from tracekit.trace import damages

        if self.quiet:
            return
        for line in damages(diagnostics):
            paragraph(f"warning: {line}", file=sys.stderr)


def _time(context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Refuse what is no time, before anything is read."""
    if given is not None:
        try:
            parse_duration(given.removeprefix("@"))
        except ValueError as error:
            raise click.BadParameter(str(error), context, param) from None
    return given


def _pairs(context: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"expected NAME=VALUE, found {text!r}", context, param)
        if name in ("source", "format", "progress", "cache"):
            raise click.BadParameter(f"{name} is not an option of a format", context, param)
        pairs[name] = value
    return pairs


def _apply(function: F, decorators: Sequence[Callable[[F], F]]) -> F:
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _numbers(*names: str, help: str) -> Callable[[F], F]:
    return click.option(*names, metavar="N", multiple=True, callback=_parse_numbers, help=help)


def input_options(filters: bool = True, needed: bool = True) -> Callable[[F], F]:
    """The argument TRACE and the options that say how to read it; passes an `Input` named `source`.

    Parameters
    ----------
    filters
        Whether the trace can be narrowed down.
    needed
        Whether there is nothing to do without a trace; `source` is None where none is given.
    """
    names = [f["name"] for f in registry.formats()]
    decorators: list[Callable[[Any], Any]] = [
        click.argument(
            "trace", metavar="TRACE" if needed else "[TRACE]", required=needed, callback=source_place
        ),
        click.option(
            "--format",
            type=Choice(names),
            metavar="NAME",
            help="Format of TRACE; by default its first bytes decide. See `tracekit formats`.",
        ),
        click.option(
            "-O",
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_pairs,
            help="What the trace does not say itself: clock=NAME, clock_hz=N, pattern=REGEX, ...",
        ),
        click.option(
            "--machine",
            metavar="FILE",
            callback=side_place,
            help="What `tracekit recipes machine` wrote; none for none. By default TRACE.machine.toml, where it is.",
        ),
        click.option(
            "-q", "--quiet", is_flag=True, help="No progress, and no warnings about lost or damaged records."
        ),
    ]
    if filters:
        decorators += [
            click.option(
                "--comm",
                multiple=True,
                metavar="GLOB",
                help="Only tasks with this name: a glob, or /regex/. Can be given several times.",
            ),
            click.option(
                "--exclude",
                multiple=True,
                metavar="GLOB",
                help="Leave out tasks with this name, as in --comm.",
            ),
            _numbers("--pid", help="Only these processes: 17 or 17,20-25."),
            _numbers("--tid", help="Only these threads."),
            _numbers("--cpu", help="Only these CPUs: 0-3."),
            click.option(
                "--from",
                "start",
                metavar="TIME",
                callback=_time,
                help="Only from here on: 1.5s since the start, or @5021.25s on the trace clock.",
            ),
            click.option("--to", "end", metavar="TIME", callback=_time, help="Only up to here."),
        ]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(
            *args: Any,
            trace: str | None,
            format: str | None,
            options: dict[str, str],
            machine: str | None,
            quiet: bool,
            comm: tuple[str, ...] = (),
            pid: tuple[int, ...] = (),
            tid: tuple[int, ...] = (),
            cpu: tuple[int, ...] = (),
            start: str | None = None,
            end: str | None = None,
            exclude: tuple[str, ...] = (),
            **rest: Any,
        ) -> Any:
            if machine is not None:
                options = {**options, "machine": machine}
            given = (format, options, comm, pid, tid, cpu, start, end, quiet, exclude)
            return function(*args, source=None if trace is None else Input(trace, *given), **rest)

        return _apply(wrapper, decorators)  # type: ignore[return-value]

    return decorate


def _form(name: str) -> Callable[[click.Context, click.Parameter, str | None], bool]:
    """What `--json` and `--csv` do: keep their place for `tracekit.cli._output`, say whether it was given."""

    def keep(context: click.Context, param: click.Parameter, place: str | None) -> bool:
        if place is None:
            return False
        context.meta[f"tracekit.{name}"] = output_place(context, param, place)
        others = [f for f in ("json", "csv") if context.meta.get(f"tracekit.{f}") == "-"]
        if len(others) > 1:
            raise click.UsageError(
                "--csv and --json exclude each other on standard output; name a file for one of them", context
            )
        return True

    return keep


def form_option(name: str, what: str = "") -> Callable[[F], F]:
    """`--json [FILE]` or `--csv [FILE]`: to standard output in place of the text, or to a file beside it."""
    return click.option(
        f"--{name}",
        f"as_{name}",
        is_flag=False,
        flag_value="-",
        metavar="[FILE]",
        callback=_form(name),
        help=f"Write {what or 'the table as'} {name.upper()}, times in ns, to FILE or else in place of the text.",
    )


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, param: click.Parameter, given: Any) -> None:
        if given:
            context.meta[f"tracekit.{name}"] = given

    return keep


def _names(context: click.Context, param: click.Parameter, given: str | None) -> None:
    names = [n.strip() for n in (given or "").split(",") if n.strip()]
    _keep("columns")(context, param, names)


def wide_option(function: F) -> F:
    """The option `--wide`."""
    return click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=_keep("wide"),
        help="Show all columns, in blocks where the terminal is narrow.",
    )(function)


def columns_option(function: F) -> F:
    """The option `--columns`."""
    return click.option(
        "--columns",
        metavar="NAME,...",
        expose_value=False,
        callback=_names,
        help="Show these columns: group,n,p99_ns. Names as in --csv.",
    )(function)


def _plot_name(context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Refuse a kind of picture that cannot be written, before anything is read."""
    if given is not None and not given.lower().endswith(PLOTS):
        raise click.BadParameter(f"{given}: expected a name that ends in {', '.join(PLOTS)}", context, param)
    return output_place(context, param, given)


def output_place(context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Refuse a file that cannot be made, or that is the trace itself, before anything is read.

    `-` is standard output; a device or a pipe is written in place.
    """
    if given and given != "-":
        folder = Path(given).parent
        if not folder.is_dir():
            raise OutputError(
                f"{given}: No such file or directory: there is no folder {folder}; make it first"
            )
        place = Path(given).resolve()
        new = not place.exists() or place.is_file()
        if new and not given.startswith("/dev/") and not os.access(place.parent, os.W_OK):
            raise OutputError(f"{given}: Permission denied: {folder} cannot be written")
        _apart(context, "written", given)
    return given


def source_place(
    context: click.Context, param: click.Parameter, given: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Note what is read, for `output_place`."""
    for place in (given,) if isinstance(given, str) else given or ():
        _apart(context, "trace", place)
    return given


def side_place(context: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Note a file that is read beside the trace, for `output_place`."""
    if given:
        _apart(context, "file", given)
    return given


def _apart(context: click.Context, role: str, place: str) -> None:
    """Refuse to write over what is read, in whatever order they are given: no run makes a capture again."""
    places = context.meta.setdefault("tracekit.places", {"trace": [], "file": [], "written": []})
    places[role].append(place)
    for target in (place for place in places["written"] if Path(place).is_file()):
        for what in ("trace", "file"):
            if any(_same(target, source) for source in places[what]):
                raise OutputError(f"{target}: this is the {what} that is read; write to another file")


def _same(one: str, other: str) -> bool:
    try:
        return "-" not in (one, other) and Path(one).samefile(other)
    except OSError:
        return False


def output_options(csv: bool = True, plot: bool = False) -> Callable[[F], F]:
    """The options that say in what form results are wanted."""
    decorators: list[Callable[[Any], Any]] = [form_option("json")]
    if csv:
        decorators.append(form_option("csv"))
    decorators.append(wide_option)
    if plot:
        help = f"Write a plot, too: {', '.join(PLOTS)}."
        decorators.append(click.option("--plot", metavar="FILE", callback=_plot_name, help=help))
    return lambda function: _apply(function, decorators)


def analysis_options(shows: dict[str, str]) -> Callable[[F], F]:
    """The options of an analysis: `--by`, `--show`, and the forms of output.

    Parameters
    ----------
    shows
        Tables that can be shown, and what each is; the first is the default.
    """
    listed = "; ".join(f"{name}: {what}" for name, what in shows.items())
    decorators: list[Callable[[Any], Any]] = [
        click.option(
            "--show",
            type=Choice(list(shows)),
            default=next(iter(shows)),
            show_default=True,
            help=f"Which table. {listed}.",
        ),
        click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows."),
        columns_option,
        output_options(plot=True),
    ]
    return lambda function: _apply(function, decorators)


def engine_options(function: F) -> F:
    """The options that choose Perfetto's trace processor."""
    decorators: list[Callable[[Any], Any]] = [
        click.option(
            "--perfetto-addr", metavar="HOST:PORT", help="A running trace processor. [env: TRACEKIT_TP_ADDR]"
        ),
        click.option(
            "--perfetto-bin", metavar="FILE", help="Path of trace_processor_shell. [env: TRACEKIT_TP_BIN]"
        ),
        click.option(
            "--offline",
            is_flag=True,
            help="Download no trace processor; without one, use WebAssembly. [env: TRACEKIT_OFFLINE]",
        ),
    ]
    return _apply(function, decorators)


def group_option(*more: str) -> Callable[[F], F]:
    """The option `--by` of commands that know more groupings than names and threads."""
    return click.option(
        "--by",
        type=Choice([*BY, *more]),
        default="group",
        show_default=True,
        help=f"{BY_HELP} Or by process, control group, priority or policy{', or CPU' if 'cpu' in more else ''}.",
    )


def by_option(function: F) -> F:
    """The option `--by`."""
    choice = Choice(["group", "comm", "tid", "all"])
    return click.option("--by", type=choice, default="group", show_default=True, help=BY_HELP)(function)

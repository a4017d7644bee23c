"""The command line: `tracekit` and `python -m tracekit`.

One module a command, loaded when it is asked for. Modules here import nothing heavy at their top,
so that `tracekit --help` is quick. What a command computes comes from the public API.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

import click

from tracekit import registry
from tracekit.cli import _complete
from tracekit.cli._places import explicit
from tracekit.cli._room import check_room, room
from tracekit.errors import FilterWarning, TracekitError

__all__ = ["main", "run"]

EXAMPLES = """\
\b
Examples:
  tracekit info boot.dat                          what is in it, what was lost
  tracekit slices boot.dat --by comm              how long tasks stay on a CPU
  tracekit latency boot.dat --comm 'spin*' --plot delay.png
  tracekit convert boot.dat -o boot.parquet       for polars, pandas, duckdb
  tracekit compare boot.dat --policy rr:quantum=10ms -o report.html
  trace-cmd report boot.dat | tracekit slices -   text from a pipe
  tracekit help topics                       filters, policies, scenarios, ...
"""


#: The modules here that hold a command each, which has the name of its module.
COMMANDS = (
    "info",
    "convert",
    "export",
    "generate",
    "slices",
    "runqueue",
    "latency",
    "response",
    "replay",
    "compare",
    "diff",
    "calibrate",
    "timeline",
    "check",
    "infer",
    "sql",
    "where",
    "why",
    "study",
    "sweep",
    "solve",
    "policies",
    "formats",
    "recipes",
    "cache",
    "doctor",
    "completion",
    "help",
)


#: Time after which a signal comes again that a library kept, seconds: longer than files and threads
#: take to end.
AGAIN_S = 2.0


class _Commands(Mapping[str, click.Command]):
    """Commands by name, each loaded when it is first asked for: a run needs one of them."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._loaded:
            found: click.Command = importlib.import_module(f"tracekit.cli.{name}").command
            _complete.attach(found)
            _allow_debug(found)
            self._loaded[name] = found
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


#: `Program.main` looks for it itself, before there are commands; each takes it behind its name, too.
DEBUG = click.option(
    "--debug",
    is_flag=True,
    hidden=True,
    expose_value=False,
    help="Show a traceback when something fails.",
)


def _allow_debug(command: click.Command) -> None:
    """Let `--debug` stand behind the name of a command, too."""
    DEBUG(command)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _allow_debug(below)


class Program(click.Group):
    """The group of all commands, and what becomes of their errors: one line and an exit status."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run; in standalone mode, end the process with the exit status."""
        begin: Callable[..., Any] = super().main

        def run() -> Any:
            return begin(args, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        # Python has none where the shell closed them (`>&-`): what would go there goes nowhere.
        sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
        sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A locale of ASCII or Latin-1 cannot write every name.
            sys.stdout.reconfigure(errors="backslashreplace")
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        status = None
        with _terminable() as came:
            try:
                status = run()
                sys.stdout.flush()
            except SystemExit:
                raise
            except BaseException as error:
                if debug:
                    raise
                if came:
                    # polars, while it makes rows, turns KeyboardInterrupt into a TypeError.
                    sys.exit(128 + came[0])
                if not isinstance(error, Exception):
                    raise
                _fail(error, status if isinstance(status, int) else 0)
        sys.exit(status if isinstance(status, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; `--json` and `--csv` get the file that follows them, if one does."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and "--help" not in rest:
            check_room(command.name or "")
        return name, command, rest if command is None else explicit(command, ctx, rest)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is a case of its own, of which click would make exit status 1."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("once", FilterWarning)
                warnings.showwarning = _show(warnings.showwarning)
                return super().invoke(ctx)
        except OSError as error:
            if _is_closed_pipe(error):
                from tracekit.cli._gate import DECIDED, KEPT, say

                # A gate behind `| head` is a gate.
                raise _ClosedPipe(say(ctx.meta.get(KEPT, ())) or ctx.meta.get(DECIDED, 0)) from error
            raise


def _show(otherwise: Callable[..., None]) -> Callable[..., None]:
    """What shows a warning of this package as a command's line, and any other as before."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, FilterWarning):
            from tracekit.cli._table import paragraph

            paragraph(f"warning: {message}", file=sys.stderr)
        else:
            otherwise(message, category, *rest, **more)

    return show


class _ClosedPipe(Exception):
    """Whoever read our output has gone; holds the exit status, which a gate may have set."""


def _is_closed_pipe(error: BaseException) -> bool:
    """Whether `error` comes from writing to it; Rust libraries have the number in their text only."""
    if not isinstance(error, OSError):
        return isinstance(error, _ClosedPipe)
    return error.errno == errno.EPIPE or (error.errno is None and f"(os error {errno.EPIPE})" in str(error))


def _is_unmapped(error: BaseException) -> bool:
    """Whether a library could not be loaded for want of memory: most loaders say so in their text only.

    Where memory is limited and even the exception could not be made, Python says that none was set.
    """
    text = str(error)
    if isinstance(error, SystemError):
        return "exception" in text and room() is not None
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, ImportError) and (
        "failed to map segment" in text or "cannot allocate" in text.lower()
    )


def _fail(error: Exception, known: int = 0) -> NoReturn:
    """End with the status and the line that `error` deserves; `known` is that of a command that was done."""
    if isinstance(error, click.Abort):
        sys.exit(130)
    if _is_closed_pipe(error):
        # Whoever read our output has seen enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(error.args[0] if isinstance(error, _ClosedPipe) else known)
    where, text, status = "tracekit", "", 2
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else where
        text = error.format_message()
        if isinstance(error, click.UsageError):
            text = f"{text.rstrip('.')}; see {where} --help"
    elif isinstance(error, TracekitError):
        text = str(error)
        status = error.status
    elif isinstance(error, MemoryError) or _is_unmapped(error):
        why = f": {error}" if isinstance(error, MemoryError) and str(error) else ""
        text = f"out of memory{why}; `tracekit convert` needs little of it"
    elif isinstance(error, OSError) and error.strerror:
        # What has no name was written to standard output: files have theirs.
        text = f"{error.filename or 'standard output'}: {error.strerror}"
    else:
        text = f"internal error, {type(error).__name__}: {error}; --debug shows where"
        status = 70
    print(f"{where}: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(status)


def run() -> NoReturn:
    """Be the program: `main`, after which the process ends at once.

    Python would take apart every module and object first, which takes a tenth of a second where
    polars, numpy and scipy were loaded.
    """
    try:
        main(prog_name="tracekit")
    except SystemExit as end:
        # Where there is something left to say, Python says it.
        if end.code is not None and not isinstance(end.code, int):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
        atexit._run_exitfuncs()
        os._exit(end.code or 0)
    raise AssertionError("a program ends in SystemExit")


@contextlib.contextmanager
def _terminable() -> Iterator[list[int]]:
    """Let SIGTERM and Ctrl-C unwind, so that unfinished files are removed; the list says which came.

    Ctrl-C stays ignored where it was, as in what a shell runs in the background.
    """
    came: list[int] = []
    timers: list[threading.Timer] = []
    report = sys.unraisablehook

    def unraisable(what: sys.UnraisableHookArgs) -> None:
        # Where a library lets no exception pass, Python would print the interrupt, and go on.
        if not (came and isinstance(what.exc_value, KeyboardInterrupt | SystemExit)):
            report(what)

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        # It comes again where a library kept it: sent to the thread itself, which wakes it from a wait.
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (threading.get_ident(), number))
        again.daemon = True
        again.start()
        timers.append(again)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {}
    try:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, stop)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread
        yield came
        return
    sys.unraisablehook = unraisable
    try:
        yield came
    finally:
        # Behind the command nothing expects it.
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


@click.group(
    cls=Program,
    commands=cast("dict[str, click.Command]", _Commands()),
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(registry.version, prog_name="tracekit", message="%(prog)s %(version)s")
@DEBUG
@click.pass_context
def main(context: click.Context) -> None:
    """See what a CPU scheduler did, and what another policy would have done.

    TRACE is a file of any format that `tracekit formats` lists, compressed or not, or - for
    standard input. Results go to standard output, as text, --json or --csv; warnings and progress
    go to standard error.
    """
    # No calculation here is large enough for threads of OpenBLAS, which would spin beside the work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Loading libraries makes many objects that stay: looking for garbage among them finds none.
    gc.set_threshold(10_000)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())

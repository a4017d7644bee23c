"""Captures of many formats and machines through `info`, `slices`, `doctor` and `compare`: each
ends, and its first line makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.cli import main

ROOT = Path(__file__).parent.parent

#: Captures, what `info` calls them, and whether they hold events that can be replayed.
CAPTURES = {
    "fixtures/demo/slice-default.perf.data.xz": ("perf-data, linux 6.1", True),
    "fixtures/ktr/schedgraph-d/input.ktr": ("ktr, freebsd", True),
    "fixtures/dtrace-tkd/illumos/input.tkd": ("dtrace-tkd, solaris", True),
    "fixtures/perf-timehist/plain/input.txt": ("perf-timehist", False),
    "fixtures/curt/report/input.txt": ("curt, aix", False),
    "testdata/corpus/aix/trcrpt_reading_trace_report.txt": ("trcrpt, aix", True),
    "testdata/corpus/derived-from-real/many-threads.babeltrace2.txt": ("lttng-text, linux", True),
    "testdata/corpus/trace.dat/elainecole.dat": ("trace-dat, linux 4.14", True),
    "testdata/corpus/systrace/trappy_trace_surfaceflinger.html": ("systrace-html, linux", True),
    "testdata/corpus/ftrace-text/ohos_bytrace_thread.txt": ("ftrace-text, linux", True),
    "testdata/corpus/schedviz/schedviz_test.tar.gz": ("schedviz, linux", True),
    "testdata/corpus/perf-sched-text/timehist_2024.txt": ("perf-timehist", False),
}
CAPTURES |= {
    "fixtures/bpf-hist/runqlat/input.txt": ("bpf-hist", False),
    "fixtures/ctf/lttng/input.tar": ("ctf, linux", True),
    "fixtures/perf-sched-stats/report/input.txt": ("perf-sched-stats", False),
}


def first_line(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    lines = [
        line
        for line in (done.stdout or done.stderr).splitlines()
        if line.strip() and not line.startswith("warning: ")
    ]
    assert lines, args
    return done.exit_code, lines[0]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_command_ends_with_a_sensible_first_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / name
    if not path.exists():
        pytest.skip("no testdata/corpus (make testdata unpacks it)")
    monkeypatch.setenv("TRACEKIT_OFFLINE", "1")
    kind, events = CAPTURES[name]
    status, line = first_line("info", path)
    assert (status, line.startswith(f"Trace {path.name}: {kind}")) == (0, True), line
    status, line = first_line("slices", path)
    assert status == 0
    assert line.split()[:2] == ["group", "n"] or line.startswith("nothing to show"), line
    status, line = first_line("doctor", path)
    assert line.startswith(f"{path.name} "), line
    assert "replayed" in line
    assert status == 1 or events, line
    status, line = first_line("compare", path, "--policy", "rr:quantum=10ms", "--quick")
    if "cannot be replayed:" in first_line("doctor", path)[1]:
        assert status == 2, line
        assert line.startswith("tracekit: "), line
    else:
        assert status == 0, line
        assert not line.startswith("tracekit: "), line

"""Counts what was left out, and fails a run that must leave nothing out: where CI=true, a skip
needs a reason of `ALLOWED`.

Hooks of pytest; ``tests/conftest.py`` takes them up.
"""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

#: Skips that are no hole in what CI checks: pattern of the reason, and why.
ALLOWED = {
    r"^no (zsh|fish)$": "completion is tried in every shell that is here, and bash is everywhere",
    r"^this perf does not read the capture": "an older perf than the kernel that was recorded",
    r"^no git checkout$": "the sdist has no history to compare with",
}
#: Numbers and names in a reason that are not part of its kind.
_DETAILS = re.compile(r"'[^']*'|`[^`]*`|\b[\w./-]*\.(?:dat|data|txt|perf-script\.txt)\b|\d+")


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped."""
    said = report.longrepr
    text = said[2] if isinstance(said, tuple) else str(said)
    return text.removeprefix("Skipped: ")


def allowed(reason: str) -> bool:
    """Whether CI may leave out a test for this reason."""
    return any(re.search(pattern, reason) for pattern in ALLOWED)


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    # A test that is expected to fail is no skip.
    return [reason_of(report) for report in reporter.stats.get("skipped", [])]


def in_ci() -> bool:
    """Whether this run must leave nothing out."""
    return os.environ.get("CI", "").lower() in ("true", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where CI leaves out what it may not."""
    if not in_ci() or hasattr(session.config, "workerinput"):
        return
    if session.exitstatus == pytest.ExitCode.OK and not all(map(allowed, _skipped(session.config))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, by reason."""
    reasons = _skipped(config)
    if not reasons:
        return
    counted = Counter(_DETAILS.sub("...", reason) for reason in reasons)
    terminalreporter.section(f"left out: {len(reasons)}")
    for reason, number in sorted(counted.items(), key=lambda kv: (-kv[1], kv[0])):
        terminalreporter.line(f"{number:6} x {reason}")
    refused = sorted({reason for reason in reasons if not allowed(reason)})
    if in_ci() and refused:
        terminalreporter.line(
            "CI may not leave these out (tests/skips.py has the list of what it may):", red=True
        )
        for reason in refused:
            terminalreporter.line(f"    {reason}", red=True)

"""Draws the pictures of README and home page: `python docs/pictures.py`; the report's takes chromium."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
DEMO = "fixtures/demo/slice-default.dat"
WIDTH = 96
POLICIES = ("--policy", "cfs:wakeup_preemption=off", "--policy", "eevdf")


def printed(words: list[str]) -> str:
    """What a command prints on a terminal of the picture's width."""
    command = [sys.executable, "-m", "tracekit", *words]
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (50, WIDTH))
    with subprocess.Popen(command, cwd=ROOT, stdin=its, stdout=its, stderr=subprocess.DEVNULL) as process:
        os.close(its)
        found = b""
        with contextlib.suppress(OSError):  # what Linux says at the end
            while piece := os.read(ours, 1 << 16):
                found += piece
    os.close(ours)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return found.decode().replace("\r\n", "\n").rstrip()


def terminal() -> None:
    """Draw what a terminal shows of a comparison."""
    words = ["compare", DEMO, *POLICIES[:2]]
    shown = printed(words)
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ tracekit {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="tracekit", theme=MONOKAI, unique_id="tracekit")
    # The fonts of the picture are those of the reader; nothing is loaded.
    start, end = svg.index("@font-face"), svg.index(".tracekit-matrix")
    (IMAGES / "terminal.svg").write_text(svg[:start] + svg[end:])


def report() -> int:
    """Draw the head of the report; the exit status."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("no chromium: docs/images/report.png stays as it is", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-m", "tracekit", "compare", DEMO, *POLICIES, "-o", str(page)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        shot = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,820"]
        target = IMAGES / "report.png"
        subprocess.run([browser, *shot, f"--screenshot={target}", page.as_uri()], check=True)
    return 0


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    terminal()
    sys.exit(report())

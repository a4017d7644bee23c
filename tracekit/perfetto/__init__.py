"""Perfetto both ways: traces in through its trace processor, traces out as its protobuf."""

from tracekit.perfetto.export import Exported, Tables, write_perfetto, write_perfetto_to

__all__ = ["Exported", "Tables", "write_perfetto", "write_perfetto_to"]

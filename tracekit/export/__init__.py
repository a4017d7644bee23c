"""Writes traces in other tools' formats: Chrome JSON and LISA's Parquet.

For Perfetto see `tracekit.perfetto`.
"""

from tracekit.export.chrome import write_chrome_json
from tracekit.export.lisa import LisaExport, write_lisa

__all__ = ["LisaExport", "write_chrome_json", "write_lisa"]

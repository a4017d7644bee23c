"""Bits of the column `irq_flags` that say where a record was made; `tracekit.schema()` lists all."""

__all__ = ["HARDIRQ", "SOFTIRQ"]

#: In a hardware interrupt, in a softirq.
HARDIRQ, SOFTIRQ = 1 << 4, 1 << 5

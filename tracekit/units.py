"""Times as people write and read them; inside, they are int64 nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tracekit._lazy import later

if TYPE_CHECKING:
    import decimal
else:
    decimal = later("decimal")

__all__ = [
    "exact_duration",
    "format_bound",
    "format_count",
    "format_cpus",
    "format_moment",
    "format_names",
    "format_ns",
    "format_size",
    "parse_duration",
]

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([a-zµ]+)\s*")
#: Most CPUs of a replay, and most clock ticks a second: those of the engine.
MOST_CPUS, MOST_HZ = 4096, 100_000
#: Times are held in so many ns at most: 292 years.
MAX_NS = 2**63 - 1


def parse_duration(text: str) -> int:
    """Nanoseconds of a number with a unit.

    Parameters
    ----------
    text
        Such as ``10ms``, ``1.5s``, ``250us``; the units are ns, us, ms, s, m and h.

    Returns
    -------
    int
        Nanoseconds, exact for as many digits as are given, cut below one.

    Raises
    ------
    ValueError
        When it is no number with one of these units, or is over 292 years.

    Examples
    --------
    >>> parse_duration("1.5ms")
    1500000
    """
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"expected a time with a unit, such as 10ms, 1.5s or 250us, found {text!r}")
    ns = decimal.Decimal(match[1]) * _UNITS[match[2]]
    if abs(ns) > MAX_NS:
        raise ValueError(f"expected a time of at most 292 years, found {text!r}")
    return int(ns)


def exact_duration(ns: int) -> str:
    """A time as `parse_duration` takes it, exact, in the largest unit that it reaches.

    Examples
    --------
    >>> exact_duration(2_500_000), exact_duration(785_723), exact_duration(0)
    ('2.5ms', '785.723us', '0ns')
    """
    unit, scale = next(((u, s) for u, s in (("s", 9), ("ms", 6), ("us", 3)) if abs(ns) >= 10**s), ("ns", 0))
    value = decimal.Decimal(ns).scaleb(-scale)
    return f"{value.normalize():f}{unit}"


def format_ns(ns: float | None, digits: int = 3) -> str:
    """A time in the unit that suits it, or ``-`` for None.

    Examples
    --------
    >>> format_ns(1_234_567)
    '1.23 ms'
    """
    if ns is None:
        return "-"
    size = abs(ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        # The next unit begins where rounding would show 1000 of this one.
        if size >= scale * (1 - 0.5 * 10**-digits):
            return f"{_significant(ns / scale, digits)} {unit}"
    return f"{_significant(ns, digits)} ns"


def format_moment(ns: int) -> str:
    """A point in time on the trace's clock, exact, as `--from` takes it.

    Examples
    --------
    >>> format_moment(4_016_462_967)
    '@4.016462967s'
    >>> format_moment(1_571_261_795_543_356_680)
    '@1571261795.543356680s'
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"@{sign}{ns // 10**9}.{ns % 10**9:09d}s"


def _significant(value: float, digits: int) -> str:
    whole = len(str(int(abs(value))))
    text = f"{value:.{max(digits - whole, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_count(n: int) -> str:
    """A number with its thousands apart.

    Examples
    --------
    >>> format_count(1234567)
    '1,234,567'
    """
    return f"{n:,}"


def format_bound(value: float, unit: str) -> str:
    """A bound of an interval with no more digits than it is worth.

    `unit` is ``ns``, or anything else for a number.

    Examples
    --------
    >>> format_bound(3_498_765.0, "ns"), format_bound(17.357, "1"), format_bound(999.7, "1")
    ('3.5 ms', '17.4', '1,000')
    """
    if unit == "ns":
        return format_ns(value)
    return f"{value:.3g}" if abs(value) < 999.5 else format_count(round(value))


def format_size(size: float) -> str:
    """Bytes in the unit that suits them.

    Examples
    --------
    >>> format_size(2_500_000)
    '2.5 MB'
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} B"


def format_cpus(cpus: Iterable[int]) -> str:
    """CPU numbers as Linux lists them.

    Examples
    --------
    >>> format_cpus([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def format_names(names: Sequence[str], most: int = 3) -> str:
    """The first few of some names, and how many more there are.

    Examples
    --------
    >>> format_names(["main", "switches", "yields"], most=2)
    'main, switches and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

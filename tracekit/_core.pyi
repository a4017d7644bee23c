"""What Python sees of the Rust crates. Use `tracekit`, which makes it comfortable."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Protocol, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MIN_N",
    "MIN_TAIL",
    "POLICY_VERSION",
    "TOLERANCES",
    "Encoder",
    "Machine",
    "Programs",
    "Reader",
    "Reading",
    "Records",
    "Side",
    "StandardError",
    "Survey",
    "Table",
    "__version__",
    "blake3",
    "block_length",
    "calls",
    "chi_square_tail",
    "concat",
    "constants",
    "costs",
    "derive",
    "diagnostic_codes",
    "expand_policy",
    "formats",
    "hooks",
    "interval",
    "kaplan_meier",
    "kernel_scheduler",
    "ks_distance",
    "metadata_keys",
    "metrics",
    "parse_policy",
    "partition",
    "policies",
    "sampling",
    "share_intervals",
    "simulate",
    "simulate_with",
    "some_tasks",
    "standard_error",
    "t_quantile",
    "t_tails",
    "tables",
    "vocabularies",
    "workload_facts",
]

__version__: Final[str]
TOLERANCES: Final[str]
POLICY_VERSION: Final[int]
MIN_N: Final[int]
MIN_TAIL: Final[float]

#: Scope, group, metric, statistic, unit, value, samples, censored ones, whether the value is a lower bound.
_MetricRow: TypeAlias = tuple[str, str | None, str, str, str, float | None, int | None, int, bool]

#: Samples, censored ones, sum, mean, whether that is a lower bound, least, quantiles, largest,
#: whether values were rounded.
_Spread: TypeAlias = tuple[
    int, int, int, float | None, bool, int | None, Sequence[int | None], int | None, bool
]
_Floats: TypeAlias = NDArray[np.float64]
_Ints: TypeAlias = NDArray[np.int64]
#: Flags, one byte each.
_Flags: TypeAlias = NDArray[np.uint8]
#: Value, bounds, effective samples, what was resampled, units, why there are no bounds.
_FoundRow: TypeAlias = tuple[
    float | None, float | None, float | None, float | None, str | None, int | None, str | None
]
#: Scope, CPU, span, mean, quantiles, largest, shares of empty and guessed time, whether the mean is
#: a lower bound.
_QueueRow: TypeAlias = tuple[str, int | None, int, float, Sequence[int], int, tuple[float, float], bool]

@type_check_only
class FormatInfo(TypedDict):
    name: str
    title: str
    streams: bool
    produced_by: str
    kinds: str
    provides: str
    resolution: str
    clock: str
    confidence: str
    notes: str

@type_check_only
class ParamInfo(TypedDict):
    name: str
    unit: str
    default: str
    range: str
    doc: str

@type_check_only
class PolicyInfo(TypedDict):
    name: str
    title: str
    idea: str
    formula: str
    tie_break: str
    not_modelled: str
    sources: str
    rt_above: bool
    deadline_above: bool
    reads: list[str]
    aliases: list[str]
    params: list[ParamInfo]

@type_check_only
class ColumnInfo(TypedDict):
    name: str
    type: str
    null: str
    doc: str

@type_check_only
class TableInfo(TypedDict):
    name: str
    doc: str
    columns: list[ColumnInfo]

@type_check_only
class WordInfo(TypedDict):
    name: str
    doc: str

@type_check_only
class BitInfo(TypedDict):
    bit: int
    name: str
    doc: str

@type_check_only
class Vocabularies(TypedDict):
    kinds: list[WordInfo]
    states: list[WordInfo]
    irq_flags: list[BitInfo]
    quality: list[BitInfo]
    flags: list[BitInfo]

@type_check_only
class CodeInfo(TypedDict):
    code: str
    severity: str
    doc: str

def formats() -> list[FormatInfo]: ...
def policies() -> list[PolicyInfo]: ...
def costs() -> list[WordInfo]: ...
def parse_policy(text: str) -> str: ...
def expand_policy(text: str) -> str: ...
def kernel_scheduler(release: str) -> tuple[str, str] | None: ...
def tables() -> list[TableInfo]: ...
def vocabularies() -> Vocabularies: ...
def diagnostic_codes() -> list[CodeInfo]: ...
def metadata_keys() -> list[WordInfo]: ...

@type_check_only
class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def chi_square_tail(df: float, x: float) -> float: ...

@final
class Side:
    def __new__(
        cls,
        slices: ArrowStream,
        runqueue: ArrowStream,
        edge_ns: int | None = None,
        end_ns: int | None = None,
    ) -> Side: ...
    @property
    def slices(self) -> int: ...
    @property
    def queue_rows(self) -> int: ...
    @property
    def left(self) -> tuple[int, int, int]: ...
    @property
    def ran_ns(self) -> int: ...
    @property
    def delays(self) -> int: ...
    @property
    def lengths(self) -> int: ...
    def delay(self, rank: int) -> int | None: ...
    def length(self, rank: int) -> int | None: ...
    @property
    def queue(self) -> list[tuple[int, int]]: ...
    def apart(
        self, other: Side, start: int, stop: int, resolution: float
    ) -> tuple[
        float,
        float | None,
        float | None,
        float | None,
        tuple[int, int, tuple[int, int], int],
        tuple[int, int],
        tuple[tuple[int, int], tuple[int, int]] | None,
    ]: ...

@final
class StandardError:
    @property
    def value(self) -> float | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def df(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def units(self) -> int: ...
    @property
    def n_effective(self) -> float: ...
    def half_width(self, confidence: float) -> float | None: ...
    def around(
        self, value: float, confidence: float, *, positive: bool = False
    ) -> tuple[float, float] | None: ...

def standard_error(influence: _Floats, tasks: _Ints | None = None) -> StandardError: ...
def block_length(values: _Floats) -> float: ...
def kaplan_meier(values: _Floats, censored: _Flags | None = None) -> Table: ...
def interval(
    values: _Floats,
    quantile: float | None,
    confidence: float,
    *,
    censored: _Flags | None = None,
    tasks: _Ints | None = None,
) -> _FoundRow: ...
def ks_distance(a: NDArray[np.float64], b: NDArray[np.float64], resolution: float) -> float | None: ...
def partition(
    bursts: Sequence[_Ints],
    units: int,
    windows: int,
    tree: Sequence[tuple[int | None, int | None]],
    most: int,
) -> tuple[list[int | None], float, float]: ...
def sampling(
    slices: ArrowStream,
    runqueue: ArrowStream,
    states: ArrowStream | None,
    end_ns: int | None,
    by: str,
    confidence: float,
) -> list[tuple[str, str | None, str, str, int, _FoundRow]]: ...
def share_intervals(
    begin: _Ints, dur: _Ints, length: _Ints, lengths: Sequence[int], confidence: float
) -> list[tuple[float, float] | None]: ...
def t_quantile(df: float, p: float) -> float: ...
def t_tails(df: float, t: float) -> float: ...
def blake3(source: str | PathLike[str] | bytes) -> str: ...
def derive(events: ArrowStream, metadata: Mapping[str, str]) -> dict[str, Table]: ...
def some_tasks(events: ArrowStream) -> str | None: ...
def constants() -> list[tuple[str, str]]: ...
def simulate_with(
    text: str, policy: object, seed: int | None = None
) -> tuple[dict[str, str], dict[str, Table]]: ...
def simulate(
    text: str, policy: str | None = None, seed: int | None = None
) -> tuple[dict[str, str], dict[str, Table]]: ...
def workload_facts(text: str, policy: str | None = None) -> tuple[str, int, bool, bool]: ...
def metrics(
    slices: ArrowStream,
    runqueue: ArrowStream,
    states: ArrowStream | None = None,
    end_ns: int | None = None,
    by: str = "group",
) -> list[_MetricRow]: ...
def concat(name: str, tables: list[Table], metadata: Mapping[str, str]) -> Table: ...

@final
class Survey:
    def __new__(
        cls,
        source: str | PathLike[str],
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        head: int = 0,
        hold: int | None = None,
    ) -> Survey: ...
    @property
    def size(self) -> int | None: ...
    @property
    def position(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def span(self) -> tuple[int, int] | None: ...
    @property
    def rows(self) -> tuple[int, int, int, int]: ...
    @property
    def kinds(self) -> list[tuple[str, int]]: ...
    @property
    def rounded(self) -> bool: ...
    @property
    def head(self) -> list[Table]: ...
    @staticmethod
    def fed(metadata: Mapping[str, str], *, head: int = 0, hold: int | None = None) -> Survey: ...
    def push(self, events: ArrowStream) -> None: ...
    def read(self) -> bool: ...
    def table(self, name: str) -> Table: ...
    def slices(
        self, by: str, labels: Sequence[str | None] | None = None
    ) -> list[tuple[str | None, tuple[int, int, int, int, int, int], _Spread]]: ...
    def waits(
        self, by: str, cause: str, labels: Sequence[str | None] | None = None
    ) -> list[tuple[str | None, tuple[int | None, int], _Spread]]: ...
    def responses(
        self, by: str, labels: Sequence[str | None] | None = None
    ) -> list[tuple[str | None, int, _Spread]]: ...
    def queues(self, waiting: bool) -> list[_QueueRow] | None: ...

@final
class Table:
    @property
    def name(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    def head(self, rows: int) -> Table: ...
    def select(self, names: Sequence[str]) -> Table: ...
    def schema_message(self) -> bytes: ...
    def to_dicts(self) -> list[dict[str, Any]]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

@final
class Records:
    def table(self) -> Table: ...
    @property
    def span(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...

@final
class Reader:
    def __new__(
        cls,
        source: str | PathLike[str] | bytes,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        derive: Sequence[str] | None = None,
        keys: bool = False,
        hashed: bool = False,
    ) -> Reader: ...
    @property
    def format(self) -> str: ...
    @property
    def size(self) -> int | None: ...
    @property
    def position(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    def read(self, rows: int = 65_536) -> Table | None: ...
    def table(self, name: str) -> Table: ...
    def encode(self, encoder: Encoder, rows: int = 65_536) -> bool: ...
    def strings(self) -> Table: ...
    def blake3(self) -> str | None: ...

@final
class Encoder:
    def __new__(cls, table: str, group_rows: int) -> Encoder: ...
    @property
    def rows(self) -> int: ...
    def ready(self) -> bytes: ...
    def close(self, metadata: Mapping[str, str]) -> bytes: ...

@final
class Machine:
    """The machine as hooks of a Python policy see it; usable only while a hook runs."""

    @property
    def now_ns(self) -> int: ...
    @property
    def tick_ns(self) -> int: ...
    @property
    def nr_cpus(self) -> int: ...
    def clock_ns(self, cpu: int) -> int: ...
    def curr(self, cpu: int) -> int | None: ...
    def nr_runnable(self, cpu: int) -> int: ...
    def is_idle(self, cpu: int) -> bool: ...
    def allowed(self, task: int, cpu: int) -> bool: ...
    def idle_or_last(self, task: int) -> int: ...
    def nice(self, task: int) -> int: ...
    def prio(self, task: int) -> int | None: ...
    def cpu_of(self, task: int) -> int: ...
    def migrate(self, task: int, cpu: int) -> None: ...
    def parent(self, task: int) -> int | None: ...
    def ran_ns(self, task: int) -> int: ...
    def resched(self, cpu: int) -> None: ...
    def set_slice(self, cpu: int, ns: int) -> None: ...
    def timer_at(self, at_ns: int, token: int) -> None: ...

@final
class Reading:
    def __new__(
        cls,
        events: ArrowStream,
        loop: str = "dependency",
        hz: int | None = None,
        exact_timers: bool = False,
        system: str | None = None,
        endless: Sequence[int] | None = None,
        vary: str | None = None,
        cpus: Sequence[tuple[int, int | None, int | None, bool, bool]] | None = None,
    ) -> Reading: ...

@final
class Programs:
    def __new__(
        cls,
        reading: Reading,
        identity: str | None = None,
        rt: str | None = None,
        stated: Sequence[tuple[Sequence[int], Sequence[tuple[str, str]]]] | None = None,
        groups: Sequence[tuple[str, Sequence[tuple[str, str]]]] | None = None,
        placement: str = "model",
    ) -> Programs: ...
    @staticmethod
    def from_text(text: str, seed: int | None = None, hz: int | None = None) -> Programs: ...
    def shortened(
        self, faster: Sequence[tuple[int, int]], shorter: Sequence[tuple[int, int, int]]
    ) -> tuple[Programs, int]: ...
    def listing(
        self,
    ) -> tuple[
        list[tuple[str, int, int | None, list[list[tuple[str, str]]], list[tuple[str, list[int]]]],],
        list[list[tuple[str, list[int]]]],
        list[int],
        int,
        int,
        int | None,
        list[tuple[str, str]],
        list[int],
        list[tuple[int, int, int, int, int]],
    ]: ...
    @property
    def wakeups(self) -> list[tuple[str, int]]: ...
    def table(self) -> Table: ...
    def inferred(self) -> list[tuple[str, float | None, str, int | None, str]]: ...
    def demands(self) -> list[tuple[int, int, str, int, int, bool, int, int]]: ...
    def judged(self) -> list[tuple[int, int, str, str, int | None, int | None]]: ...
    def __len__(self) -> int: ...
    def run(
        self,
        policy: object,
        *,
        rt: str | None = None,
        cpus: int | None = None,
        phase_ns: int = 0,
        overheads: bool = True,
        stated: Sequence[tuple[Sequence[int], Sequence[tuple[str, str]]]] | None = None,
        sets: Sequence[tuple[Sequence[int], Sequence[tuple[str, str]]]] | None = None,
        groups: Sequence[tuple[str, Sequence[tuple[str, str]]]] | None = None,
        cpu_sets: Sequence[tuple[int, Sequence[tuple[str, str]]]] | None = None,
        costs: Sequence[tuple[str, str]] | None = None,
        switch_costs: tuple[Sequence[int | None], Sequence[int | None]] | None = None,
        jitter_ns: int = 0,
        seed: int = 0,
        progress: Callable[[float], object] | None = None,
        tables: Sequence[str] | None = None,
        by: str | None = None,
    ) -> tuple[dict[str, str], dict[str, Table], list[_MetricRow]]: ...

def hooks() -> list[tuple[str, str, str, str]]: ...
def calls() -> list[tuple[str, str, str]]: ...

"""What Python sees of the Rust crates. Use `tracekit`, which makes it comfortable."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Final, Protocol, TypedDict, final, type_check_only

__all__ = [
    "POLICY_VERSION",
    "TOLERANCES",
    "Machine",
    "Programs",
    "Reader",
    "Table",
    "__version__",
    "calls",
    "concat",
    "constants",
    "costs",
    "derive",
    "diagnostic_codes",
    "formats",
    "hooks",
    "metadata_keys",
    "parse_policy",
    "policies",
    "simulate",
    "simulate_with",
    "tables",
    "vocabularies",
]

__version__: Final[str]
TOLERANCES: Final[str]
POLICY_VERSION: Final[int]

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
def tables() -> list[TableInfo]: ...
def vocabularies() -> Vocabularies: ...
def diagnostic_codes() -> list[CodeInfo]: ...
def metadata_keys() -> list[WordInfo]: ...

@type_check_only
class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def derive(events: ArrowStream, metadata: Mapping[str, str]) -> dict[str, Table]: ...
def constants() -> list[tuple[str, str]]: ...
def simulate_with(text: str, policy: object) -> tuple[dict[str, str], dict[str, Table]]: ...
def simulate(text: str, policy: str | None = None) -> tuple[dict[str, str], dict[str, Table]]: ...
def concat(name: str, tables: list[Table], metadata: Mapping[str, str]) -> Table: ...

@final
class Table:
    @property
    def name(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
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
    def strings(self) -> Table: ...

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
class Programs:
    def __new__(
        cls,
        events: ArrowStream,
        loop: str = "dependency",
        hz: int | None = None,
        exact_timers: bool = False,
        system: str | None = None,
        endless: Sequence[int] | None = None,
        vary: str | None = None,
    ) -> Programs: ...
    @property
    def wakeups(self) -> list[tuple[str, int]]: ...
    def table(self) -> Table: ...
    def inferred(self) -> list[tuple[str, float | None, str, int | None, str]]: ...
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
        sets: Sequence[tuple[Sequence[int], Sequence[tuple[str, str]]]] | None = None,
        groups: Sequence[tuple[str, Sequence[tuple[str, str]]]] | None = None,
        costs: Sequence[tuple[str, str]] | None = None,
        switch_costs: tuple[Sequence[int | None], Sequence[int | None]] | None = None,
        jitter_ns: int = 0,
        seed: int = 0,
        progress: Callable[[float], object] | None = None,
    ) -> tuple[dict[str, str], dict[str, Table]]: ...

def hooks() -> list[tuple[str, str, str, str]]: ...
def calls() -> list[tuple[str, str, str]]: ...

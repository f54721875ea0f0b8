from types import ModuleType
from typing import Any

from onlad.reference import Array

LINE: int
ROW_GROUP: int
BLOCK_ROWS: int
LARGEST32: float
LARGEST64: float
LEVEL: str
VERSION: str

class Kernel32:
    def __init__(
        self, state: Any, *, alpha: Array, b: Array, beta: Array, S: Array, activation: int,
        score: int, loss: int, trace_limit: float, constants: ModuleType,
    ) -> None: ...  # fmt: skip
    def values(self) -> dict[str, Any]: ...
    def score(self, x: Any, a: float, /) -> float | None: ...
    def update(self, x: Any, a: float, /) -> float | None: ...
    def take_back(self, x: Any, /) -> bool: ...
    def update_directional(self, x: Any, phi: float, /) -> float | None: ...
    def fp_elm_score(self, x: Any, ridge: float, /) -> float | None: ...
    def fp_elm_learn(self, a: float, /) -> None: ...
    def score_many(self, *, X: Array, a: float, loss: Array, leverage: Array) -> None: ...
    def update_many(self, *, X: Array, a: Array, loss: Array, leverage: Array) -> None: ...
    def update_blocks(
        self, *, X: Array, XA: Array, a: Array, beta: Array, block_rows: int, loss: Array,
        leverage: Array,
    ) -> None: ...  # fmt: skip
    alpha: Array
    b: Array
    beta_t: Array
    S: Array
    error: Array
    leverage: float
    trace: float
    trace_limit: float
    shrink: float
    seen: int
    skipped: int
    paused: int

class Kernel64(Kernel32): ...

class Layer:
    def __init__(
        self, *, features: int, width: int, alpha: Array, b: Array, groups: int,
        projection: Array, constants: dict[str, float],
    ) -> None: ...  # fmt: skip

class Watching:
    def __init__(
        self, *, layer: Layer, rate: float, state: Any, names: tuple[Any, ...], verdict: type,
    ) -> None: ...  # fmt: skip
    def values(self) -> dict[str, Any]: ...
    def allow(self, rate: float, /) -> None: ...
    def observe(self, x: Any, paused: bool, largest: float, /) -> Any: ...
    def observe_row(self, x: Array, paused: bool, /) -> Any: ...
    def watch(self, X: Array, *, paused: bool, verdicts: Any, first: int) -> None: ...
    ordered: bool
    rate: float
    threshold: float
    learned_rows: int

class Packed:
    def __init__(self, monitor: Watching, /) -> None: ...
    def watching(self, names: tuple[Any, ...], verdict: type, /) -> Watching: ...
    nbytes: int

class Portable:
    def __init__(
        self, *, features: int, window: int, groups: int, units: int, modes: int,
        alpha: Array, bias: Array,
    ) -> None: ...  # fmt: skip
    def rows(self, X: Array, *, verdicts: Array, shares: Array) -> None: ...
    def accept(self, ago: int, /) -> int: ...
    def pause(self, paused: bool, /) -> None: ...
    def false_alarms(self, rate: float, /) -> int: ...
    def warmup(self, rows: int, /) -> int: ...
    def counter(self, feature: int, /) -> int: ...
    def dump(self, sequence: int, /) -> bytes: ...
    def restore(self, data: bytes, /) -> int: ...

class PortableFixed(Portable): ...

def watch_all(
    monitors: list[Watching | None], *, first_row: Array, X: Array, paused: Array, verdicts: Any,
    threads: int,
) -> None: ...  # fmt: skip
def watch_fleet(
    monitors: list[Any], *, first_row: Array, first_value: Array, X: Array,
    paused: Array, verdicts: Any, detailed: int, widest: int, threads: int,
) -> tuple[Array, Array]: ...  # fmt: skip
def severities(
    *, ratio: Array, p_value: Array, unusual: Array, rate: Array, constants: ModuleType,
    out: Array,
) -> None: ...  # fmt: skip

class DictReader:
    def __init__(self, names: tuple[Any, ...], places: Array, /) -> None: ...
    def __call__(self, x: dict[Any, Any], /) -> Array | None: ...

def read_dict(x: dict[Any, Any], names: tuple[Any, ...], out: Array, largest: float, /) -> bool: ...
def bank_update32(
    *, alpha: Array, b: Array, beta: Array, S: Array, numbers: Array, counts: Array,
    X: Array, mask: Array, losses: Array, leverages: Array, hidden: int, activation: int, loss: int,
    learn: bool, blocks: bool, largest: float, threads: int, constants: ModuleType,
) -> bool: ...  # fmt: skip

bank_update64 = bank_update32

def read_csv(
    *, data: bytes, start: int, delimiter: str, decimal: str, largest: float,
    slots: Array, values: Array, texts: Array, lines: Array, kinds: Array,
) -> tuple[int, int]: ...  # fmt: skip

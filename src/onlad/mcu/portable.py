"""`PortableMonitor`: the monitor of a microcontroller, in Python.

It runs the C source that `onlad export` writes, so it says to the last bit what a chip says.
It is a class of its own and no setting of `Monitor`, because it is another method where memory
is short: no history is kept, a start is measured row by row, each row costs the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np

from onlad import fields as rules
from onlad import samples
from onlad._kernel import Portable, PortableFixed
from onlad.errors import ModelFileError
from onlad.fields import LARGEST_COUNT, Numbers
from onlad.mcu import layout
from onlad.mcu.layout import DELAY, HEADER, LEAST_WARMUP, PARTS, WARMUP, WEIGHT, Sizes
from onlad.modelfile import need
from onlad.reference import Array, draw
from onlad.rows import Names, read_many, read_one
from onlad.verdict import Verdict, Verdicts
from onlad.watching import default_window

GROUPS = 4  # of tanh units, as in `onlad.instance`
LARGEST_DUMP = 2**28  # bytes
MOST_FEATURES = 1024  # in fixed point: sums of as many products fit a word

Arithmetic: TypeAlias = Literal["float", "fixed"]
Drawn: TypeAlias = Literal["stored", "seeded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableSettings:
    """The arguments of a `PortableMonitor`."""

    hidden: int
    window: int | None
    modes: int
    warmup: int
    false_alarms: float
    seed: int
    arithmetic: Arithmetic
    layer: Drawn
    counters: Names | None = None

    def check(self) -> None:
        """Refuse, with `ValueError`, what no monitor has."""
        PortableMonitor.resumed(self)


@dataclass(frozen=True, slots=True, eq=False)
class PortableState:
    """What a `PortableMonitor` has beyond its settings: the words of its dump."""

    names: Names
    dump: Annotated[Array, Numbers((range(LARGEST_COUNT),), "int64", 0, 2**32 - 1)]

    def check(self, settings: PortableSettings) -> None:
        """Refuse, with `ValueError`, what no monitor with these settings could have."""
        once = 0 < len(self.names) == len(set(self.names))
        need(once, "names must be there, each once")
        rules.check(self)
        sizes = PortableMonitor.resumed(settings, names=self.names).sizes()
        need(sizes.dump == 4 * len(self.dump), "dump does not fit the settings")


class PortableMonitor:
    """Watches a stream as a microcontroller would; see `Monitor` for what it says.

    Parameters
    ----------
    hidden
        Tanh units in all; they are shared out among up to 4 groups.
    window
        Samples watched together; by default up to 4, the fewer the more features there are.
    modes
        Places for modes of the machine; one of them is kept for a candidate, unless it is the only
        one.
    warmup
        Samples before the first verdict that is ready, a multiple of 12 from 96 to 98,304.
    false_alarms
        Share of normal samples at which a false alarm may begin.
    seed
        Of the random layer.
    arithmetic
        ``"float"``, or ``"fixed"``: the matrices in fixed point, for chips without an FPU.
    layer
        ``"stored"`` in flash, or ``"seeded"``: drawn anew for each sample, which takes no flash
        and more instructions.
    counters
        Names of features that only rise, such as energy or pieces: they are watched by their rate.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> monitor = PortableMonitor(hidden=16)
    >>> for t in range(1000):
    ...     level = np.sin(t / 20)
    ...     x = {"flow": 50 + 9 * level + rng.normal(), "power": 800 + 90 * level + rng.normal()}
    ...     verdict = monitor.observe(x)
    >>> verdict.is_anomaly
    False
    >>> verdict = monitor.observe({"flow": 50.0, "power": 990.0})
    >>> verdict.is_anomaly, next(iter(verdict.causes))
    (True, 'power')
    """

    def __init__(
        self,
        *,
        hidden: int = 32,
        window: int | None = None,
        modes: int = 3,
        warmup: int = WARMUP,
        false_alarms: float = 1e-4,
        seed: int = 0,
        arithmetic: Arithmetic = "float",
        layer: Drawn = "stored",
        counters: Iterable[Hashable] | None = None,
    ) -> None:
        samples.choice("arithmetic", arithmetic, get_args(Arithmetic))
        samples.choice("layer", layer, get_args(Drawn))
        self.arithmetic, self.drawn = arithmetic, layer
        self.hidden = samples.whole("hidden", hidden, GROUPS)
        self.window = None if window is None else samples.whole("window", window, 1)
        self.modes = samples.whole("modes", modes, 1)
        self.warmup = samples.whole("warmup", warmup, LEAST_WARMUP)
        self.seed = samples.whole("seed", seed, 0)
        if self.warmup != (nearest := _whole_parts(self.warmup)):
            raise ValueError(
                f"warmup must be a multiple of {PARTS} from {LEAST_WARMUP} to "
                f"{layout.MOST_WARMUP:,}, got {warmup}. {nearest} is one"
            )
        if self.modes > layout.MOST_MODES:
            raise ValueError(f"modes must be at most {layout.MOST_MODES}, got {modes}")
        self.counters: Names = tuple(counters or ())
        self.names: Names = ()
        self.n_seen = 0
        self._paused = False
        self._chip: Any = None
        self.false_alarms = false_alarms

    @property
    def false_alarms(self) -> float:
        """Share of normal samples at which a false alarm may begin."""
        return self._rate

    @false_alarms.setter
    def false_alarms(self, rate: float) -> None:
        if not (samples.is_real(rate) and 0 < np.float32(rate) < 1):
            raise ValueError(f"false_alarms must be in (0, 1), got {rate!r}")
        self._rate = float(rate)
        if self._chip is not None:
            self._chip.false_alarms(self._rate)

    @property
    def paused(self) -> bool:
        """While it is, samples are judged and none is learned."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = bool(paused)
        if self._chip is not None:
            self._chip.pause(self._paused)

    def fit(self, X: Any) -> PortableMonitor:
        """Forget everything and start from the rows of `X`, which are known to be normal.

        The start is as long as the rows allow, so that its levels come from many of them. That of a
        new mode is as long as without a history.
        """
        rows, names = read_many(X, self.names)
        useful = rows[~np.isnan(rows).all(axis=1)] if len(rows) else rows
        if len(useful) < LEAST_WARMUP:
            raise ValueError(
                f"fit needs at least {LEAST_WARMUP} samples with a value, got {len(useful)}. "
                "The monitor is unchanged"
            )
        self.names = names
        self._make()
        self._chip.warmup(_whole_parts(len(useful)))
        self._watch(useful)
        state = self.state()
        state["warmup"] = self.warmup  # of candidates: they have no history
        self.restore(to_bytes(state, self))
        self.n_seen = len(rows)
        return self

    def observe(self, x: Any) -> Verdict:
        """Return the verdict on one sample, and learn it later if it is normal."""
        row, self.names = read_one(x, self.names)
        return self._watch(row[None, :])[0]

    def observe_many(self, X: Any) -> Verdicts:
        """Return the verdicts on many samples in order; the same as a loop of `observe`."""
        X, names = read_many(X, self.names)
        if len(X) == 0:
            return Verdicts(names, 0)
        self.names = names
        return self._watch(X)

    def accept(self, ago: int = 0) -> None:
        """Learn a sample whatever its score was; 0 is the last one, at most 63 are possible."""
        if self._chip is None or self._chip.accept(samples.whole("ago", ago, 0)):
            raise ValueError(f"accept needs one of the last {DELAY} samples judged, got {ago}")

    def sizes(self) -> Sizes:
        """Return features, window, groups, units of a group, and places for modes."""
        if not self.names:
            raise ValueError("the number of features is not known before the first sample")
        n = len(self.names)
        groups = min(GROUPS, n)
        window = self.window or default_window(n)
        return Sizes(n, window, groups, self.hidden // groups, self.modes)

    @property
    def is_fixed(self) -> bool:
        """Whether the matrices are in fixed point."""
        return self.arithmetic == "fixed"

    def layer(self) -> tuple[Array, Array]:
        """Return the random layer as the chip has it, one row of weights for each unit."""
        n, _, groups, units, _ = self.sizes()
        if self.drawn == "seeded":
            return self._seeded()
        alpha, bias = draw(n, groups * units, "normal", self.seed)
        for k in range(groups):
            alpha[k::groups, k * units : (k + 1) * units] = 0.0  # it predicts these
        alpha = np.ascontiguousarray(alpha.T)
        if self.is_fixed:
            words = [np.clip(np.rint(WEIGHT * part), -32768, 32767) for part in (alpha, bias)]
            return words[0].astype("int16"), words[1].astype("int16")
        return alpha.astype("float32"), bias.astype("float32")

    def digest(self) -> int:
        """Return the checksum of the random layer, unit by unit, its bias first."""
        alpha, bias = self.layer()
        return zlib.crc32(np.column_stack((bias, alpha)).tobytes())

    def spreads(self) -> tuple[float, float]:
        """Return the largest weight and bias of a seeded layer: the deviation of a stored one."""
        spread = np.sqrt(3 / self.sizes().features)
        return (round(WEIGHT * spread), int(WEIGHT)) if self.is_fixed else (spread, 1.0)

    def first_state(self) -> int:
        """Return the state from which a seeded layer is drawn."""
        return zlib.crc32(str(self.seed).encode())

    def _seeded(self) -> tuple[Array, Array]:
        """Draw as `drawn` of the C source does: for each unit its bias, then its weights."""
        n, _, groups, units, _ = self.sizes()
        state, (spread, bias_spread) = self.first_state(), self.spreads()
        found = np.zeros((groups * units, 1 + n), "int16" if self.is_fixed else "float32")
        for k, j in np.ndindex(found.shape):
            if j and (j - 1) % groups == k // units:
                continue  # it predicts this one
            state = layout.following(state)
            high, most = state >> 16, spread if j else bias_spread
            one = np.float32(high) / np.float32(32768) - np.float32(1)
            found[k, j] = high * most // 32768 - most if self.is_fixed else one * np.float32(most)
        return found[:, 1:].copy(), found[:, 0].copy()

    def dump(self, sequence: int = 0) -> bytes:
        """Return what `onlad_dump` writes on the chip."""
        self._need()
        return bytes(self._chip.dump(sequence))

    def state(self) -> Array:
        """Return what `dump` returns, as numbers by name: `onlad.mcu.layout`."""
        return self.sizes().state(self.dump())

    def restore(self, data: bytes) -> PortableMonitor:
        """Take over the dump of a chip with the same sizes and the same random layer."""
        if not self.names and len(data) >= HEADER.size:
            self.names = tuple(range(HEADER.unpack_from(data)[2]))
        self._need()
        if self._chip.restore(bytes(data)):
            raise ModelFileError("the dump is damaged, or of a monitor with other sizes or seed")
        state = self.state()
        self.n_seen, self._paused = int(state["seen"]), bool(state["paused"])
        self._rate = float(np.format_float_positional(np.float32(state["rate"])))
        counted = ~np.isnan(state["counted"])
        self.counters = tuple(self.names[j] for j in np.flatnonzero(counted))
        return self

    @classmethod
    def from_dump(cls, data: bytes, seed: int = 0) -> PortableMonitor:
        """Return the monitor of a chip's dump, which says all but the seed of its layer."""
        if len(data) < HEADER.size or data[: len(layout.MAGIC)] != layout.MAGIC:
            raise ModelFileError("the bytes are no dump of a chip")
        _, version, n, window, groups, units, modes, digest, _ = HEADER.unpack_from(data)
        known = version in (layout.VERSION, layout.FIXED_VERSION) and groups == min(GROUPS, n)
        if not (known and Sizes(n, window, groups, units, modes).dump == len(data)):
            raise ModelFileError("the dump is damaged, or of another version")
        for layer in get_args(Drawn):
            self = cls(
                hidden=groups * units, window=window, modes=modes, seed=seed, layer=layer,
                arithmetic="fixed" if version == layout.FIXED_VERSION else "float",
            )  # fmt: skip
            self.names = tuple(range(n))
            if self.digest() == digest:
                self.restore(data)
                self.warmup = int(self.state()["warmup"])
                return self
        raise ModelFileError(
            f"the dump is of a monitor whose seed is not {seed}: "
            "PortableMonitor.from_dump(data, seed=...) takes it"
        )

    def describe(self) -> dict[str, Any]:
        """Return what the monitor decided by itself, and whether it is ready."""
        if self._chip is None:
            return {"ready": False, "features": len(self.names), "why": "no sample yet"}
        state, sizes = self.state(), self.sizes()
        said = {"ready": bool(state["ready"]), "features": sizes.features, "window": sizes.window}
        if not state["ready"]:
            missing = int(state["warmup"]) - int(state["places"][0, 3])
            return said | {"why": f"{missing} more samples with a value are needed"}
        drifting = int(state["drifting"]) - 1
        return said | {
            "modes": [int(rows) for role, rows, *_ in state["places"] if role == layout.MODE],
            "threshold": float(state["now"] / state["doubt"]),
            "false_alarms": self.false_alarms,
            "drifting": self.names[drifting] if drifting >= 0 else None,
            "counters": list(self.counters),
        }

    # -- the way of a sample ------------------------------------------------------------------

    def _need(self) -> None:
        if self._chip is None:
            self._make()

    def _make(self) -> None:
        sizes = self.sizes()
        if sizes.dump > LARGEST_DUMP:
            raise ValueError(
                f"{sizes.features} features in windows of {sizes.window} with {self.hidden} units "
                f"and {self.modes} modes take more memory than any chip has. Make one smaller"
            )
        if self.is_fixed and sizes.features > MOST_FEATURES:
            raise ValueError(
                f"fixed point takes at most {MOST_FEATURES:,} features, got {sizes[0]}"
            )
        strange = [name for name in self.counters if name not in self.names]
        if strange:
            raise ValueError(f"counters must be names of features, got {strange[0]!r}")
        alpha, bias = self.layer()
        chip = PortableFixed if self.is_fixed else Portable
        self._chip = chip(**sizes._asdict(), alpha=alpha.ravel(), bias=bias)
        self._chip.warmup(self.warmup)
        self._chip.false_alarms(self._rate)
        self._chip.pause(self._paused)
        for name in self.counters:
            self._chip.counter(self.names.index(name))
        self.n_seen = 0

    def _watch(self, X: Array) -> Verdicts:
        self._need()
        rows = len(X)
        verdicts = Verdicts(self.names, rows)
        said, shares = np.empty(rows, layout.VERDICT), np.empty(X.shape, "float32")
        with np.errstate(over="ignore"):  # a value that float32 does not have is missing
            X = np.ascontiguousarray(X, "float32")
        self._chip.rows(X, verdicts=said.view("u1").reshape(rows, -1), shares=shares)
        self.n_seen += rows
        for name, *_ in layout.VERDICT[:-1]:
            getattr(verdicts, name)[:] = said[name]
        verdicts.shares[:] = shares
        return verdicts

    # -- values in and out --------------------------------------------------------------------

    def settings(self) -> PortableSettings:
        """Return the arguments that make an equal monitor."""
        return PortableSettings(
            hidden=self.hidden, window=self.window, modes=self.modes, warmup=self.warmup,
            false_alarms=self.false_alarms, seed=self.seed, arithmetic=self.arithmetic,
            layer=self.drawn, counters=self.counters or None,
        )  # fmt: skip

    def learned(self) -> PortableState | None:
        """Return all that the monitor has beyond its settings; None before the first sample."""
        if self._chip is None:
            return None
        return PortableState(self.names, np.frombuffer(self.dump(), "<u4").astype("int64"))

    @classmethod
    def resumed(
        cls, settings: PortableSettings, state: PortableState | None = None, names: Names = ()
    ) -> PortableMonitor:
        """Return the monitor that gave settings and state; it goes on to the last bit.

        Without a state, `names` are those of its features.
        """
        self = cls(**{field.name: getattr(settings, field.name) for field in fields(settings)})
        self.names = names if state is None else state.names
        if state is not None:
            try:
                self.restore(state.dump.astype("<u4").tobytes())
            except ModelFileError as error:
                raise ValueError(str(error)) from None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).resumed, (self.settings(), self.learned(), self.names)

    def __repr__(self) -> str:
        return repr(self.settings()).replace("PortableSettings", "PortableMonitor", 1)


def _whole_parts(rows: int) -> int:
    """Return the longest start that has at most these rows."""
    return min(rows // PARTS * PARTS, layout.MOST_WARMUP)


def to_bytes(state: Array, chip: PortableMonitor) -> bytes:
    """Return the dump with this state, of a monitor with the layer and arithmetic of `chip`."""
    version = layout.FIXED_VERSION if chip.is_fixed else layout.VERSION
    data = HEADER.pack(layout.MAGIC, version, *chip.sizes(), chip.digest(), 0) + state.tobytes()
    return data + zlib.crc32(data).to_bytes(4, "little")

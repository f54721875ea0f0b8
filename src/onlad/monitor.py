"""`Monitor`: raw samples in, verdicts out. Scaling, window, threshold and gate around a detector.

The way of a sample: names -> scaler -> window -> detector and evidence -> gate -> verdict. The
yardsticks (scaler, levels, threshold, gate) change only at ticks, every TICK samples from the
start, so that a block of any size gives what single samples give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onlad import evidence, samples
from onlad.detector import Detector
from onlad.evidence import Yardstick
from onlad.reference import Array
from onlad.rows import Names, read_many, read_one
from onlad.scaler import Scaler, Standard, scale
from onlad.threshold import Deviation, Threshold
from onlad.verdict import Verdict, Verdicts, causes

TICK = 32
FIRST = 32  # samples that are kept until the scaler can start

_SETTINGS = ("detector", "window", "scaler", "threshold", "gate", "warmup", "seed")
# What changes while watching, besides the detector and the yardstick.
_STATE = (
    "scale",
    "past",
    "rows",
    "evidence",
    "learned",
    "limit",
    "gate_limit",
    "shut",
    "opening",
    "count",
)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """When a sample is learned, and when drift is let in.

    A sample is learned when its score is at most ``deviations`` robust deviations above the
    median of recent ones. Each sample that is held out uses up patience, each that is learned
    gives a quarter of it back. Patience lasts for a share ``patience`` of the samples learned so
    far, but for at least ``shortest`` and at most ``longest`` of them. When it is used up the
    stream has drifted, and the gate opens to learn the new normal: at first for twice the
    length of the warm-up, then twice as long each time, up to ``longest``. So no mode is held
    out for ever that takes a fifth of the time or more.
    """

    deviations: float = 3.5
    patience: float = 0.5
    shortest: int = 512
    longest: int = 4096

    def __post_init__(self) -> None:
        if not 0 < self.deviations < np.inf:
            raise ValueError(f"deviations must be finite and above 0, got {self.deviations!r}")
        if not 0 <= self.patience < np.inf:
            raise ValueError(f"patience must be finite and not negative, got {self.patience!r}")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"need 1 <= shortest <= longest, got {self.shortest!r} and {self.longest!r}"
            )


def default_detector(seed: int) -> Detector:
    """Return the detector of a monitor that was given none."""
    return Detector(
        n_hidden=64, activation="tanh", weights="normal", forgetting=0.9999, ridge=0.1, seed=seed
    )


def default_window(n_features: int) -> int:
    """Return how many samples are watched together: four, of few sensors more, of many fewer.

    Examples
    --------
    >>> [default_window(n) for n in (1, 4, 8, 64, 100, 1000)]
    [16, 8, 4, 4, 2, 1]
    """
    return max(1, min(16, max(4, 32 // n_features), 256 // n_features))


class Monitor:
    """Watches a stream of samples in raw units and says what is unusual, and why.

    It needs no arguments and no training data: it learns from the first sample on, and is ready
    after ``warmup`` samples.

    Parameters
    ----------
    detector
        A fresh `Detector`; by default one with 64 hidden units and slow forgetting.
    window
        Samples watched together; by default more of them the fewer features there are.
    scaler
        `onlad.scaler.Standard` or ``MinMax``.
    threshold
        `onlad.threshold.Deviation`, ``Tail``, ``Quantile`` or ``Fixed``.
    gate
        When samples are learned; None learns all.
    warmup
        Samples before the first verdict that is ready.
    seed
        Of the default detector.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor()
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
        detector: Detector | None = None,
        window: int | None = None,
        scaler: Scaler | None = None,
        threshold: Threshold | None = None,
        gate: Gate | None = Gate(),  # noqa: B008  (a frozen value)
        warmup: int = 256,
        seed: int = 0,
    ) -> None:
        scaler = Standard() if scaler is None else scaler
        threshold = Deviation() if threshold is None else threshold
        _need_policy("scaler", scaler, "unit")
        _need_policy("threshold", threshold, "limit")
        if gate is not None:
            _need_policy("gate", gate, "deviations")
        if detector is None:
            detector = default_detector(seed)
        _need_policy("detector", detector, "compiled")
        if detector.n_features is not None or detector.ridge == 0:
            raise ValueError("a monitor needs a detector that has seen nothing, with ridge > 0")
        self.detector = detector
        self.window = None if window is None else samples.whole("window", window, 1)
        self.scaler: Scaler = scaler
        self.threshold: Threshold = threshold
        self.gate = gate
        self.warmup = samples.whole("warmup", warmup, 2 * FIRST)
        self.seed = samples.whole("seed", seed, 0)
        self.names: Names = ()
        self.n_seen = 0
        self.paused = False  # while it is, samples are judged and none is learned
        self._constants = evidence.constants(0.0 if detector.score == "reconstruction" else 1.0)

    def observe(self, x: Any) -> Verdict:
        """Return the verdict on one sample, and learn it if it is normal.

        A sample is a sequence or array of numbers, or a mapping name -> number. The names are
        those of the first sample. NaN, None, or an absent name is a missing value.
        """
        row, self.names = read_one(x, self.names)
        if self.n_seen < FIRST:
            return self._watch(row[None, :])[0]
        return self._watch_one(row)

    def observe_many(self, X: Any) -> Verdicts:
        """Return the verdicts on many samples in order; the same as a loop of `observe`.

        `X` is a matrix with one sample a row, a data frame, or an iterable of samples.
        """
        X, names = read_many(X, self.names)
        if len(X) == 0:
            return Verdicts(names, 0)
        self.names = names
        return self._watch(X)

    def accept(self, X: Any) -> None:
        """Learn the last row of `X` whatever its score is, with the rows before it as its window.

        For an alarm that was none. The rows are of the past: they do not count as seen again.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> monitor = Monitor(window=2)
        >>> verdicts = monitor.observe_many(rng.normal(size=(1000, 3)))
        >>> odd = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
        >>> before = monitor.observe_many(odd)[1]
        >>> monitor.accept(odd)
        >>> before.learned, monitor.observe_many(odd)[1].score < before.score
        (False, True)
        """
        X, _ = read_many(X, self.names)
        if self.n_seen < FIRST or len(X) == 0:
            raise ValueError("accept needs a row, and a monitor that has started")
        width = len(self._past) + 1
        window = np.concatenate([np.repeat(X[:1], max(0, width - len(X)), axis=0), X[-width:]])
        newest_first = scale(window, self._unit, self.scaler.clip)[::-1].reshape(1, -1)
        self.detector.learn_many(np.nan_to_num(newest_first.astype(self.detector.dtype)))

    # -- the way of a sample ------------------------------------------------------------------

    def _watch(self, X: Array) -> Verdicts:
        verdicts = Verdicts(self.names, len(X))
        first = 0
        while first < len(X):
            # Up to the next tick nothing changes but the model.
            stop = min(len(X), first + TICK - self.n_seen % TICK)
            part = slice(first, stop)
            if self.n_seen < FIRST:
                self._keep(X[part])
            else:
                score = verdicts.score[part]
                verdicts.learned[part] = self._weigh(X[part], score, verdicts.shares[part])
                if self._ready:
                    verdicts.ready[part] = True
                    verdicts.threshold[part] = self._limit
                    verdicts.p_value[part] = self._yardstick.p_values(score)
                    verdicts.is_anomaly[part] = score > self._limit
            self.n_seen += stop - first
            if self.n_seen % TICK == 0:
                verdicts.drift[stop - 1] = self._begin() if self.n_seen == FIRST else self._tick()
            first = stop
        return verdicts

    def _watch_one(self, row: Array) -> Verdict:
        """Do what `_watch` does, without columns: half of a sample's time would go into them."""
        score, shares = np.empty(1), np.empty((1, len(row)))
        learned = self._weigh(row[None, :], score, shares)
        ready, limit, p_value = self._ready, math.inf, 1.0
        if ready:
            limit, p_value = self._limit, float(self._yardstick.p_values(score)[0])
        self.n_seen += 1
        return Verdict(
            ready=ready,
            score=float(score[0]),
            threshold=limit,
            p_value=p_value,
            is_anomaly=bool(score[0] > limit),
            causes=causes(self.names, shares[0]),
            learned=bool(learned[0]),
            drift=self.n_seen % TICK == 0 and self._tick(),
        )

    def _keep(self, X: Array) -> None:
        if self.n_seen == 0:
            self._kept = np.empty((FIRST, X.shape[1]))
        self._kept[self.n_seen : self.n_seen + len(X)] = X

    def _begin(self) -> bool:
        """Start with the samples that were kept."""
        n = self._kept.shape[1]
        width = self.window or default_window(n)
        self._scale = self.scaler.start(self._kept)
        self._unit = self.scaler.unit(self._scale)
        Z = scale(self._kept, self._unit, self.scaler.clip)
        self._past = np.repeat(Z[:1], width - 1, axis=0)  # the newest row is the last
        rows = np.nan_to_num(self._slide(Z))
        windows = np.lib.stride_tricks.sliding_window_view(rows, (width, n))[:, 0, ::-1]
        self.detector.start(n * width).learn_many(windows.reshape(FIRST, -1))
        self._yardstick = Yardstick(n * width)
        self._rows = np.zeros((TICK, n))  # of the tick, with their evidence
        self._evidence = np.zeros((TICK, evidence.N_EVIDENCES))
        self._learned = np.zeros(TICK, bool)
        self._limit = self._gate_limit = math.inf
        self._shut = 0.0  # patience used up
        self._opening = self.warmup - FIRST  # samples for which the gate stays open
        self._count = FIRST  # samples learned
        return False

    def _slide(self, Z: Array) -> Array:
        """Return the window's earlier rows with new ones behind them, and remember the last."""
        rows = np.concatenate((self._past, Z))
        self._past = rows[len(Z) :]
        return rows

    def _weigh(self, X: Array, score: Array, share: Array) -> Array:
        """Fill in scores and shares of rows of one tick; return which were learned."""
        y, at = self._yardstick, self.n_seen % TICK
        rows = self._slide(scale(X, self._unit, self.scaler.clip))
        self._rows[at : at + len(X)] = X
        learned: Array = self._learned[at : at + len(X)]
        self.detector.compiled().watch(
            rows.astype(self.detector.dtype, copy=False),
            self.detector.factor,
            -math.inf if self.paused else self._gate_limit,
            self._constants,
            y.scales,
            y.levels,
            y.means,
            y.trend,
            y.sums,
            score,
            self._evidence[at : at + len(X)],
            share,
            learned,
        )
        return learned

    def _tick(self) -> bool:
        """Move the yardsticks on; return whether the gate gave in."""
        y, learned = self._yardstick, self._learned
        rows, seen = self._rows, self._evidence
        if not self._all_learned():
            rows, seen = rows[learned], seen[learned]
        if len(rows):
            self._scale = self.scaler.update(self._scale, rows)
            self._unit = self.scaler.unit(self._scale)
            self.detector.follow(np.exp(seen[:, 0]))
        y.take(seen)
        self._count += len(rows)
        gate = None if self.paused else self.gate  # what is held out by order uses no patience up
        if gate is not None and self._ready and self._gives_in(gate):
            y.clear(float(TICK))
            self._scale = self.scaler.hurry(self._scale, TICK)
            self._unit = self.scaler.unit(self._scale)
            self.detector.loosen()
            self._limit = self._gate_limit = math.inf
            self._shut = 0.0
            self._opening = max(self._opening, min(2 * self._opening, gate.longest))
            return True
        if y.stale():
            y.refresh()
            if self._ready:
                self._limit = y.limit(self.threshold)
                if self.gate is not None:
                    # A score is in deviations already: below so many nothing is unusual.
                    k = self.gate.deviations
                    self._gate_limit = max(k, y.limit(Deviation(k)))
        return False

    def _gives_in(self, gate: Gate) -> bool:
        if self._all_learned():  # the same as the loop
            self._shut = max(0.0, self._shut - 0.25 * TICK)
        else:
            for learned in self._learned:
                self._shut = max(0.0, self._shut - 0.25) if learned else self._shut + 1.0
        patience = max(gate.patience * self._count, gate.shortest)
        return self._shut >= min(patience, gate.longest)

    def _all_learned(self) -> bool:
        return int(np.count_nonzero(self._learned)) == TICK  # several times as fast as all()

    @property
    def _ready(self) -> bool:
        return self._yardstick.n_ring >= self._opening

    # -- values in and out: files, copies, pickles ------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal monitor."""
        mine = {name: getattr(self, name) for name in _SETTINGS}
        return mine | {"detector": Detector(**self.detector.settings())}

    def learned(self) -> dict[str, Any]:
        """Return all that the monitor has beyond its settings, as numbers and arrays."""
        if self.n_seen == 0:
            return {}
        common = {"names": list(self.names), "n_seen": self.n_seen}
        if self.n_seen < FIRST:
            return common | {"kept": self._kept[: self.n_seen].copy()}
        copies = {name: _copy(getattr(self, f"_{name}")) for name in _STATE}
        yardstick = {name: _copy(value) for name, value in vars(self._yardstick).items()}
        parts = {"yardstick": yardstick, "detector": self.detector.learned()}
        return common | copies | parts

    def resume(self, learned: dict[str, Any]) -> Monitor:
        """Take over what `learned` returned, and go on from there to the last bit."""
        if not learned:
            return self
        self.names, self.n_seen = tuple(learned["names"]), learned["n_seen"]
        if "kept" in learned:
            self._kept = np.zeros((FIRST, len(self.names)))
            self._kept[: self.n_seen] = learned["kept"]
            return self
        for name in _STATE:
            setattr(self, f"_{name}", _copy(learned[name]))
        self._unit = self.scaler.unit(self._scale)
        self._yardstick = Yardstick(1)
        for name, value in learned["yardstick"].items():
            setattr(self._yardstick, name, _copy(value))
        self.detector.resume(learned["detector"])
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings(), "learned": self.learned()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["settings"])  # type: ignore[misc]
        self.resume(state["learned"])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"Monitor({shown})"


def _need_policy(name: str, value: object, member: str) -> None:
    if not hasattr(value, member):
        raise TypeError(f"{name} must be one of onlad's, got {value!r:.60}")


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value

"""`Monitor`: raw samples in, verdicts out.

The way of a sample: names -> row (`onlad.rows`) -> judge -> verdict. Every 64 samples the model
moves on (`onlad.watching`), so that a block of any size gives what single samples give.

A stream begins with a burn-in of BURN_IN samples, all of which are kept. If a lasting change is
confirmed in it, the first samples were too few to show what is normal: the change does not become a
second mode; all samples so far become the start.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from onlad import compiled, fields, kernel, samples
from onlad.fields import LARGEST_COUNT, Numbers, Within
from onlad.mode import check_unit
from onlad.modelfile import need, short
from onlad.reference import Array
from onlad.rows import LARGEST, Names, read_many, read_one
from onlad.verdict import Verdict, Verdicts
from onlad.watching import LARGEST_WINDOW, LONGEST, TICK, Watching, WatchingState, check_size

FEWEST = 64  # samples of a start
BURN_IN = LONGEST  # samples; no candidate has to explain more
MOST_KEPT = 2**18  # numbers in them, so that wide streams have a shorter one


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """The arguments of a `Monitor`."""

    window: Annotated[int | None, Within(1, LARGEST_WINDOW)]
    warmup: Annotated[int, Within(FEWEST)]
    false_alarms: float
    seed: int

    def check(self) -> None:
        """Refuse, with `ValueError`, what no monitor in a file has."""
        fields.check(self)
        need(0 < self.false_alarms < 1, f"false_alarms must be in (0, 1), got {self.false_alarms}")
        need(self.seed >= 0, f"seed must not be negative, got {self.seed}")


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """What a monitor has beyond its settings: it warms up, watches, or in its burn-in does both."""

    names: Names
    n_seen: Annotated[int, Within(1)]
    warming: Annotated[
        Array | None, Numbers((range(LARGEST_COUNT), "n"), high=LARGEST, missing=True)
    ] = None
    watching: WatchingState | None = None

    def check(self, settings: MonitorSettings) -> None:
        """Refuse, with `ValueError`, what no monitor with these settings could have."""
        names, window, n = self.names, settings.window, len(self.names)
        known = all(type(name) in (str, int) for name in names)
        rule = f"names must be strings or whole numbers, each once, got {short(list(names))}"
        need(known and 1 <= n == len(set(names)), rule)
        some = self.warming is not None or self.watching is not None
        need(some, "missing in learned or not known: ['watching']")
        width = (window or 1) if self.watching is None else self.watching.width
        check_size(n, width)
        need(width == (window or width), f"width must be {window}, got {width}")
        fields.check(self, {"n": n})
        if self.watching is not None:
            self.watching.check(n, self.n_seen)
        if self.warming is not None:
            # A burn-in ends at a tick.
            most = settings.warmup - 1 if self.watching is None else burn_in(n) + TICK - 1
            rows, most = len(self.warming), min(self.n_seen, most)
            need(rows <= most, f"warming must hold at most {most} rows, got {rows}")
            useful = not np.isnan(self.warming).all(axis=1).any()
            need(useful, "warming holds a row without a value")


def burn_in(n_features: int) -> int:
    """Return how many samples the burn-in of a stream has."""
    return min(BURN_IN, MOST_KEPT // n_features)


class Monitor:
    """Watches a stream of samples in raw units and says what is unusual, and why.

    It needs no arguments and no training data: it learns from the first sample on, and is ready
    after ``warmup`` samples. Samples that are known to be normal make a better start: `fit`.

    Parameters
    ----------
    window
        Samples watched together; by default up to 4, the fewer the more features there are, and
        1 where samples have no order.
    warmup
        Samples before the first verdict that is ready, without `fit`.
    false_alarms
        Share of normal samples at which a false alarm may begin: 1e-4 is one in 10,000. It can be
        changed at any time.
    seed
        Of the random layers.
    names
        Of the features, in their order; by default those of the first sample.

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
        window: int | None = None,
        warmup: int = 256,
        false_alarms: float = 1e-4,
        seed: int = 0,
        names: Iterable[Hashable] = (),
    ) -> None:
        self.window = None if window is None else samples.whole("window", window, 1)
        self.warmup = samples.whole("warmup", warmup, FEWEST)
        self.seed = samples.whole("seed", seed, 0)
        self._names: Names = tuple(names)
        if len(set(self._names)) < len(self._names):
            raise ValueError(f"names must differ from each other, got {list(self._names)!r:.200}")
        self.n_seen = 0
        self.paused = False  # while it is, samples are judged and none is learned
        self._kept: Array | None = np.empty((0, 0))  # samples of the burn-in
        self._watching: kernel.Watching | None = None
        self._new: list[Array] = []  # more of them
        self._at = 0  # samples since the last tick, in the burn-in
        self.false_alarms = false_alarms

    @property
    def names(self) -> Names:
        """Names of the features in their order; none before the first sample."""
        return self._names

    @property
    def young(self) -> bool:
        """Whether the stream is in its burn-in: a lasting change becomes part of its start."""
        return self._kept is not None

    @property
    def false_alarms(self) -> float:
        """Share of normal samples at which a false alarm may begin."""
        return self._rate

    @false_alarms.setter
    def false_alarms(self, rate: float) -> None:
        if not (samples.is_real(rate) and 0 < rate < 1):
            raise ValueError(f"false_alarms must be in (0, 1), got {rate!r}")
        self._rate = float(rate)
        if self._watching is not None:
            self._watching.allow(self._rate)

    def fit(self, X: Any, scale: tuple[Array, Array] | None = None) -> Monitor:
        """Forget everything and start from the rows of `X`, which are known to be normal.

        `X` is what `observe_many` takes, in order of time if the stream has one. The monitor is
        ready afterwards. `scale`, centre and unit of each feature, is for devices that learn
        together (`onlad.fleet.together`); a monitor finds its own.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> monitor = Monitor().fit(rng.normal(size=(1000, 3)))
        >>> monitor.observe([0.0, 9.0, 0.0]).is_anomaly
        True
        """
        rows, names = read_many(X, self.names)
        useful = rows[~np.isnan(rows).all(axis=1)] if len(rows) else rows
        if len(useful) < FEWEST:
            raise ValueError(
                f"fit needs at least {FEWEST} samples with a value, got {len(useful)}. "
                "The monitor is unchanged"
            )
        if scale is not None:
            check_unit(*scale, rows.shape[1])
        self._names, self.n_seen = names, len(rows)
        self._kept, self._new = None, []
        self._begin(useful, scale)
        return self

    def observe(self, x: Any) -> Verdict:
        """Return the verdict on one sample, and learn it if it is normal.

        A sample is a sequence or array of numbers, or a mapping name -> number. The names are
        those of the first sample. NaN, None, or an absent name is a missing value.
        """
        watching = self._watching
        if watching is None:
            row, self._names = read_one(x, self._names)
            return self._watch(row[None, :], None)[0]
        verdict: Verdict | None = watching.observe(x, bool(self.paused), LARGEST)
        if verdict is None:  # no plain dict of numbers
            verdict = watching.observe_row(read_one(x, self.names)[0], bool(self.paused))
        self.n_seen += 1
        if self.young:
            self._grow(read_one(x, self.names)[0][None], bool(self.paused), verdict.drift)
        return verdict

    def observe_many(self, X: Any, pause: Array | None = None) -> Verdicts:
        """Return the verdicts on many samples in order; the same as a loop of `observe`.

        `X` is a matrix with one sample per row, a data frame, or an iterable of samples. Where
        `pause` is True a sample is judged and not learned, as while the monitor is ``paused``.
        """
        X, names = read_many(X, self.names)
        if pause is not None and pause.shape != (len(X),):
            raise ValueError(f"pause must have {len(X)} entries, got shape {pause.shape}")
        if len(X) == 0:
            return Verdicts(names, 0)
        self._names = names
        return self._watch(np.ascontiguousarray(X), pause)

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
        if self._watching is None or len(X) == 0:
            raise ValueError("accept needs a row, and a monitor that has started")
        watching = Watching.resumed(compiled.learned(self._watching), self._rate, self.seed)
        watching.accept(X)
        self._go_on(watching.learned())

    def reject(self) -> None:
        """Let what is excluded from learning now never become a mode: a person says it is a fault.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(2000, 3)).cumsum(axis=0)
        >>> monitor = Monitor()
        >>> verdicts = monitor.observe_many(np.concatenate((X, 1000 - 50 * X[:500])))
        >>> monitor.reject()
        >>> monitor.describe()["quarantine"], monitor.describe()["candidate"]
        (0, False)
        """
        if self._watching is not None:
            watching = Watching.resumed(compiled.learned(self._watching), self._rate, self.seed)
            watching.reject()
            self._go_on(watching.learned())

    def describe(self) -> dict[str, Any]:
        """Return what the monitor decided by itself, and whether it is ready, and if not, why.

        Examples
        --------
        >>> Monitor().describe()["why"]
        'no sample yet'
        """
        said: dict[str, Any] = {"ready": self._watching is not None, "features": len(self.names)}
        if self._watching is None:
            missing = self.warmup - (0 if self._kept is None else len(self._kept))
            why = f"{missing} more samples with a value are needed" if self.n_seen else ""
            return said | {"why": why or "no sample yet"}
        state = compiled.learned(self._watching)
        scale, drifting = state.modes[0].scale, state.drifting
        still = [name for name, unit in zip(self.names, scale, strict=True) if not unit > 0]
        return said | {
            "ordered": state.ordered,
            "window": state.width,
            "start": state.begun,
            "learned": self._watching.learned_rows,
            "modes": [each.count for each in state.modes],
            "candidate": state.candidate is not None,
            "quarantine": len(state.quarantine),
            "threshold": self._watching.threshold,
            "false_alarms": self.false_alarms,
            "never moved": still,
            "drifting": self.names[drifting] if drifting >= 0 else None,
        }

    # -- the way of a sample ------------------------------------------------------------------

    def _watch(self, X: Array, pause: Array | None) -> Verdicts:
        verdicts = Verdicts(self.names, len(X))
        paused = np.full(len(X), self.paused) if pause is None else pause | self.paused
        edges = [*(np.flatnonzero(np.diff(paused)) + 1).tolist(), len(X)]
        first = 0
        while first < len(X):
            if self._watching is None:
                stop = self._keep(X, first, paused)
            else:
                stop, young = next(edge for edge in edges if edge > first), self.young
                if young:
                    stop = min(stop, first + TICK - self._at)
                part, still = slice(first, stop), bool(paused[first])
                compiled.watch(self._watching, X[part], still, verdicts, part)
                if young:
                    self._grow(X[part], still, bool(verdicts.drift[stop - 1]))
            self.n_seen += stop - first
            first = stop
        return verdicts

    def beside(self, rows: int) -> kernel.Watching | None:
        """Return what may judge so many rows in the kernel, beside others; `judged` is next.

        None if they must be given to `observe_many`: it has not started, or may start anew.
        """
        return None if self.young and rows > TICK - self._at else self._watching

    def judged(self, X: Array, confirmed: bool) -> None:
        """Go on after the kernel has judged rows, at the last of which a mode was confirmed or not.

        They were few enough for `beside`, and not judged by this monitor's own methods.
        """
        self.n_seen += len(X)
        if self.young:
            self._grow(X, bool(self.paused), confirmed)

    def _keep(self, X: Array, first: int, paused: Array) -> int:
        """Keep samples for the start, and start when they are enough; return where it stopped."""
        assert self._kept is not None
        useful = first + np.flatnonzero(~(np.isnan(X[first:]).all(axis=1) | paused[first:]))
        useful = useful[: self.warmup - len(self._kept)]
        self._kept = np.concatenate((self._kept.reshape(-1, X.shape[1]), X[useful]))
        if len(self._kept) < self.warmup:
            return len(X)
        self._begin(self._kept)
        return int(useful[-1]) + 1

    def _grow(self, X: Array, paused: bool, confirmed: bool) -> None:
        """Keep the samples of the burn-in; start anew with all of them if that is due."""
        assert self._kept is not None
        self._at += len(X)
        if not paused:
            self._new.append(X[~np.isnan(X).all(axis=1)])
        if self._at < TICK:
            return
        self._at = 0
        kept = self._young_rows()
        if len(kept) > burn_in(X.shape[1]):
            self._kept = None
        elif confirmed:
            self._begin(kept)

    def _young_rows(self) -> Array:
        """Return the samples of the burn-in."""
        assert self._kept is not None
        if self._new:
            self._kept, self._new = np.concatenate((self._kept, *self._new)), []
        return self._kept

    def _begin(self, X: Array, scale: tuple[Array, Array] | None = None) -> None:
        state = Watching.start(X, self.window, self._rate, self.seed, scale).learned()
        if self.young:
            # The rows are not known to be normal: anchors are measured later. And a limit that has
            # learned from its alarms keeps what it learned.
            state = replace(state, anchors=(None,) * len(state.modes))
            if self._watching is not None:
                factor = compiled.learned(self._watching).limit.factor
                state = replace(state, limit=replace(state.limit, factor=factor))
            self._kept = X if len(X) <= burn_in(X.shape[1]) else None
        self._go_on(state)
        self._at = 0

    def _go_on(self, state: WatchingState) -> None:
        self._watching = compiled.resumed(state, self._rate, self.seed, self.names)

    # -- values in and out: files, copies, pickles ------------------------------------------

    def settings(self) -> MonitorSettings:
        """Return the arguments that make an equal monitor."""
        return MonitorSettings(self.window, self.warmup, self.false_alarms, self.seed)

    def learned(self) -> MonitorState | None:
        """Return all that the monitor has beyond its settings; None before the first sample."""
        if self.n_seen == 0:
            return None
        kept = self._young_rows().copy() if self.young else None
        watching = None if self._watching is None else compiled.learned(self._watching)
        return MonitorState(self.names, self.n_seen, kept, watching)

    @classmethod
    def resumed(
        cls, settings: MonitorSettings, state: MonitorState | None = None, names: Names = ()
    ) -> Monitor:
        """Return the monitor that gave settings and state; it goes on to the last bit.

        Without a state, `names` are those of its features.
        """
        self = cls(
            window=settings.window,
            warmup=settings.warmup,
            false_alarms=settings.false_alarms,
            seed=settings.seed,
            names=names,
        )
        if state is None:
            return self
        self._names, self.n_seen = state.names, state.n_seen
        self._kept = None if state.warming is None else state.warming.copy()
        if state.watching is not None:
            self._go_on(state.watching)
            self._at = state.watching.at
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).resumed, (self.settings(), self.learned()), {"_names": self.names}

    def __repr__(self) -> str:
        return repr(self.settings()).replace("MonitorSettings", "Monitor")

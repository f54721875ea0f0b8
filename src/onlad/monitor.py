"""`Monitor`: raw samples in, verdicts out.

The way of a sample: names -> row (`onlad.rows`) -> judge -> verdict. Every 64 samples the model
is updated (`onlad.watching`), so that blocks of any size give the same verdicts as single samples.

A stream begins with a burn-in, whose samples are kept (`onlad.burnin`).

If samples come with their times, the patterns of a day and of a week are taken out of them before
they are judged (`onlad.rhythm`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from onlad import compiled, fields, samples
from onlad._kernel import Watching as Compiled
from onlad.burnin import BurnIn, burn_in
from onlad.counter import rising
from onlad.fields import LARGEST_COUNT, Numbers, Within
from onlad.mode import check_unit
from onlad.modelfile import need, short
from onlad.recurring import recurring
from onlad.reference import Array
from onlad.rhythm import DAY, LATEST, Rhythm, RhythmState
from onlad.rows import LARGEST, Names, read_many, read_one
from onlad.verdict import Verdict, Verdicts
from onlad.watching import (
    LARGEST_WINDOW,
    SPARED,
    TICK,
    Watching,
    WatchingState,
    check_size,
    default_window,
)

FEWEST = 64  # samples of a start
MOST_LATE = 4  # times that features may come later


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
    rhythm: RhythmState | None = None
    late: MonitorState | None = None
    refused: Annotated[Array | None, Numbers((range(LARGEST_COUNT),), "bool")] = None

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
        if self.rhythm is not None:
            self.rhythm.check(n)
        if self.late is not None:
            longer = self.late.names[:n] == names and len(self.late.names) > n
            need(longer, "late must have all names, and more")
            self.late.check(settings)
        if self.warming is not None:
            # A burn-in ends at a tick.
            most = settings.warmup - 1 if self.watching is None else burn_in(n) + TICK - 1
            rows, most = len(self.warming), min(self.n_seen, most)
            need(rows <= most, f"warming must hold at most {most} rows, got {rows}")
            useful = not np.isnan(self.warming).all(axis=1).any()
            need(useful, "warming holds a row without a value")
            each = self.refused is None or len(self.refused) == rows
            need(each, "refused must have an entry for each row of warming")


class Monitor:
    """Monitors a stream of samples in raw units: what is unusual, and which features cause it.

    It needs no arguments and no training data: it learns from the first sample on, and is ready
    after ``warmup`` samples. If there is a history that is known to be normal, start with `fit`.

    Parameters
    ----------
    window
        Consecutive samples that are compared; by default up to 4, fewer if there are many
        features, and 1 if the samples have no order in time.
    warmup
        Samples of the warm-up, without `fit`.
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
        self._burn_in: BurnIn | None = BurnIn(np.empty((0, 0)))
        self._watching: Compiled | None = None
        self._counting: Array = np.zeros(0, bool)  # which features are counters
        self._rhythm: Rhythm | None = None  # if samples have times
        self._late: Monitor | None = None  # of all features, if some came later
        self.false_alarms = false_alarms

    @property
    def names(self) -> Names:
        """Names of the features in their order; none before the first sample."""
        return self._names if self._late is None else self._late.names

    @property
    def first_names(self) -> Names:
        """Names of the features that did not come later."""
        return self._names

    @property
    def widened(self) -> int:
        """How often features came later, and are watched by a monitor of their own."""
        return 0 if self._late is None else 1 + self._late.widened

    def widen(self, names: Iterable[Hashable]) -> None:
        """Watch more features from the next sample on. What was learned stays as it is.

        A second monitor, of all features, learns beside this one. It reports anomalies that the new
        features cause; this one reports all others, as before.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(2000, 3))
        >>> X[1900] += 0.0, 0.0, 20.0
        >>> monitor = Monitor(names=["flow", "power"])
        >>> _ = monitor.observe_many(X[:1000, :2])
        >>> monitor.widen(["heat"])
        >>> verdicts = monitor.observe_many(X[1000:])
        >>> np.flatnonzero(verdicts.is_anomaly).tolist(), next(iter(verdicts[900].causes))
        ([900], 'heat')
        """
        new = tuple(names)
        wide = (*self.names, *new)
        if not new or len(set(wide)) < len(wide):
            raise ValueError(f"names must be new, got {list(new)!r:.200}")
        if self.n_seen == 0:
            self._names = wide
        elif self._late is not None and self._late._watching is not None:
            if self.widened >= MOST_LATE:
                raise ValueError(f"features came later {MOST_LATE} times: start a new monitor")
            self._late.widen(new)
        else:  # one that has not started has nothing to lose
            self._late = Monitor.resumed(self.settings(), names=wide)

    @property
    def timed(self) -> bool:
        """Whether the samples have times."""
        return self._rhythm is not None

    @property
    def young(self) -> bool:
        """Whether the stream is in its burn-in: a lasting change becomes part of its start."""
        return self._burn_in is not None

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
        if self._late is not None:
            self._late.false_alarms = rate

    def fit(self, X: Any, times: Any = None, scale: tuple[Array, Array] | None = None) -> Monitor:
        """Forget everything and start from the rows of `X`, which are known to be normal.

        `X` and `times` are what `observe_many` takes, in order of time if the stream has one. The
        monitor is ready afterwards. `scale`, centre and unit of each feature, is for devices that
        learn together (`onlad.fleet.together`); a monitor finds its own.

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
        seconds = None if times is None else _seconds(times, len(rows))
        self._names, self.n_seen, self._rhythm, self._late = names, len(rows), None, None
        self._burn_in = None
        if seconds is not None:
            useful = self._without_pattern(rows, seconds)[~np.isnan(rows).all(axis=1)]
        self._begin(useful, scale)
        return self

    def observe(self, x: Any, time: float | None = None) -> Verdict:
        """Return the verdict on one sample, and learn it if it is normal.

        A sample is a sequence or array of numbers, or a mapping name -> number. The names are
        those of the first sample. NaN, None, or an absent name is a missing value. `time`, in
        seconds since 1970, is for `observe_many`.
        """
        watching = self._watching
        if time is not None or self._rhythm is not None or self._late is not None:
            row, names = read_one(x, self.names)
            return self.observe_many(
                row[None] if names == self.names else [x], times=None if time is None else [time]
            )[0]
        if watching is None:
            row, self._names = read_one(x, self._names)
            return self._watch(row[None, :], None)[0]
        verdict: Verdict | None = watching.observe(x, bool(self.paused), LARGEST)
        if verdict is None:  # no plain dict of numbers
            verdict = watching.observe_row(read_one(x, self.names)[0], bool(self.paused))
        self.n_seen += 1
        if self.young:
            row = read_one(x, self.names)[0][None]
            self._grow(row, np.array([not verdict.learned]), bool(self.paused), verdict.drift)
        return verdict

    def observe_many(self, X: Any, pause: Array | None = None, times: Any = None) -> Verdicts:
        """Return the verdicts on many samples in order; the same as a loop of `observe`.

        `X` is a matrix with one sample per row, a data frame, or an iterable of samples. Where
        `pause` is True a sample is judged and not learned, as while the monitor is ``paused``.

        `times`, in seconds since 1970, are those of the samples. With them the monitor learns
        patterns of a day and of a week, in the time of that clock, and no window reaches over a
        gap. All samples of a stream have a time, or none has.

        Examples
        --------
        >>> import numpy as np
        >>> hours = np.arange(0, 24 * 28, 0.25)                  # four weeks
        >>> X = np.random.default_rng(0).normal([20.0, 3.0], 0.5, (len(hours), 2))
        >>> X[:, 0] += 10 * ((hours % 24 > 7) & (hours % 24 < 19))   # more by day
        >>> X[-90:-86, 0] += 10                                  # and once by night
        >>> told = Monitor().observe_many(X, times=3600 * hours)
        >>> np.flatnonzero(told.is_anomaly)[-1] >= len(X) - 90, Monitor().observe_many(
        ...     X
        ... ).is_anomaly[-90:].any()
        (np.True_, np.False_)
        """
        X, names = read_many(X, self.names)
        if pause is not None and pause.shape != (len(X),):
            raise ValueError(f"pause must have {len(X)} entries, got shape {pause.shape}")
        if len(X) == 0:
            return Verdicts(names, 0)
        seconds = None if times is None else _seconds(times, len(X))
        if seconds is None and self._rhythm is not None:
            raise ValueError("the samples of this stream have times: give them")
        if seconds is not None and self._rhythm is None and self.n_seen:
            raise ValueError("the samples of this stream had no times, and have none from now on")
        if self._late is None:
            self._names = names
        n = len(self._names)
        own = np.ascontiguousarray(X[:, :n])
        if seconds is None:
            verdicts = self._watch(own, pause)
        else:
            verdicts = self._watch_timed(own, seconds, pause)
        if self._late is None:
            return verdicts
        self._late.paused = self.paused
        return verdicts.joined(self._late.observe_many(X, pause=pause, times=times))

    def accept(self, X: Any, times: Any = None) -> None:
        """Learn the last row of `X` whatever its score is, with the rows before it as its window.

        For an alarm that was none. The rows are of the past: they do not count as seen again. Their
        times are needed if the stream has times.

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
        if self._late is not None and self._late._watching is not None:
            self._late.accept(X, times)
        X = X[:, : len(self._names)]
        if self._rhythm is not None and times is not None:
            X = X - self._rhythm.at(_seconds(times, len(X)))
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
        if self._late is not None:
            self._late.reject()
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
        if self._late is not None:
            said["late"] = self._late.describe()
        if self._watching is None:
            missing = self.warmup - (0 if self._burn_in is None else len(self._burn_in))
            why = f"{missing} more samples with a value are needed" if self.n_seen else ""
            return said | {"why": why or "no sample yet"}
        state = compiled.learned(self._watching)
        scale, drifting = state.modes[0].scale, state.drifting
        still = [name for name, unit in zip(self._names, scale, strict=True) if not unit > 0]
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
            "counters": [
                n for n, is_one in zip(self._names, self._counting, strict=True) if is_one
            ],
            "never moved": still,
            "drifting": self._names[drifting] if drifting >= 0 else None,
        }

    # -- the way of a sample ------------------------------------------------------------------

    def _watch_timed(self, X: Array, seconds: Array, pause: Array | None) -> Verdicts:
        """Judge rows without the patterns of their times, day by day."""
        if self._rhythm is None:
            self._rhythm = Rhythm(X.shape[1])
        rhythm, verdicts = self._rhythm, Verdicts(self._names, len(X))
        paused = np.full(len(X), self.paused) if pause is None else pause | self.paused
        gaps = rhythm.gaps(seconds)
        for part in rhythm.days(seconds):
            fresh = rhythm.fresh(seconds[part.start])
            if fresh is not None and self._watching is not None and len(fresh) >= FEWEST:
                self._burn_in = None
                self._begin(fresh)
            pattern = rhythm.pattern(seconds[part])
            told = self._watch_parts(X[part] - pattern, gaps[part], paused[part])
            told.values, told.expected[:] = X[part], told.expected + pattern
            verdicts.put(part, told)
            learn = ~paused[part]
            if learn.any():
                rhythm.take(seconds[part][learn], X[part][learn])
        return verdicts

    def _watch_parts(self, X: Array, gaps: Array, paused: Array) -> Verdicts:
        """Judge rows; those that fill a window after a gap raise no alarm and are not learned."""
        assert self._rhythm is not None
        fill = self._rhythm.filling(gaps, self.window or default_window(X.shape[1]))
        if not fill.any():
            return self._watch(X, paused)
        verdicts, first = Verdicts(self._names, len(X)), 0
        for i in [*np.flatnonzero(fill).tolist(), len(X)]:
            if i > first:
                verdicts.put(slice(first, i), self._watch(X[first:i], paused[first:i]))
            if i < len(X) and self._watching is None:
                verdicts.put(slice(i, i + 1), self._watch(X[i : i + 1], paused[i : i + 1]))
            elif i < len(X):
                assert self._watching is not None
                before = compiled.learned(self._watching)
                told = self._watch(X[i : i + 1], np.ones(1, bool))
                after = compiled.learned(self._watching)
                self._go_on(replace(after, means=before.means, leans=before.leans))
                told.is_anomaly[:] = told.learned[:] = False
                verdicts.put(slice(i, i + 1), told)
            first = i + 1
        return verdicts

    def _without_pattern(self, X: Array, seconds: Array) -> Array:
        """Learn the patterns of a history; return it without them."""
        self._rhythm = Rhythm(X.shape[1])
        self._rhythm.gaps(seconds)
        for part in self._rhythm.days(seconds):
            self._rhythm.take(seconds[part], X[part])
        self._rhythm.fresh(seconds[-1])  # it is not needed: this is a start already
        return np.asarray(X - self._rhythm.at(seconds))

    def _watch(self, X: Array, pause: Array | None) -> Verdicts:
        verdicts = Verdicts(self._names, len(X))
        paused = np.full(len(X), self.paused) if pause is None else pause | self.paused
        edges = [*(np.flatnonzero(np.diff(paused)) + 1).tolist(), len(X)]
        first = 0
        while first < len(X):
            if self._watching is None:
                stop = self._keep(X, first, paused)
            else:
                stop = next(edge for edge in edges if edge > first)
                if self._burn_in is not None:
                    stop = min(stop, first + self._burn_in.left())
                part, still = slice(first, stop), bool(paused[first])
                compiled.watch(self._watching, X[part], still, verdicts, part)
                if self.young:
                    refused = ~verdicts.learned[part]
                    self._grow(X[part], refused, still, bool(verdicts.drift[stop - 1]))
            self.n_seen += stop - first
            first = stop
        return verdicts

    def beside(self, rows: int) -> Compiled | None:
        """Return what may judge this number of rows in the kernel, beside others; `judged` is next.

        None if they must be given to `observe_many`: it has not started, may start anew, or has
        times or features that came later.
        """
        young, alone = self._burn_in, self.timed or self.widened
        if young is not None and rows >= young.left():  # the start at its end takes a while
            alone = alone or rows > young.left() or young.ends(len(self._names), rows)
        return None if alone else self._watching

    def judged(self, X: Array, learned: Array, confirmed: bool) -> None:
        """Go on after the kernel has judged rows, at the last of which a mode was confirmed or not.

        They were few enough for `beside`, and not judged by this monitor's own methods.
        """
        self.n_seen += len(X)
        if self.young:
            self._grow(X, ~learned, bool(self.paused), confirmed)

    def _keep(self, X: Array, first: int, paused: Array) -> int:
        """Keep samples for the start, and start when they are enough; return where it stopped."""
        assert self._burn_in is not None
        kept, _ = self._burn_in.samples()
        useful = first + np.flatnonzero(~(np.isnan(X[first:]).all(axis=1) | paused[first:]))
        useful = useful[: self.warmup - len(kept)]
        kept = np.concatenate((kept.reshape(-1, X.shape[1]), X[useful]))
        self._burn_in = BurnIn(kept)
        if len(kept) < self.warmup:
            return len(X)
        self._begin(kept)
        return int(useful[-1]) + 1

    def _grow(self, X: Array, refused: Array, paused: bool, confirmed: bool) -> None:
        """Keep the samples of the burn-in; start anew with them if that is due."""
        young = self._burn_in
        assert young is not None
        young.at += len(X)
        if not paused:
            young.add(X, refused)
        if young.at < TICK:
            return
        young.at = 0
        kept, refused = young.samples()
        over = young.ends(X.shape[1])
        if confirmed or not rising(kept[:, self._counting]).all():
            self._begin(kept)
        elif over and self._watching and self._watching.ordered:
            refused = refused & ~recurring(kept, refused)
            many = refused.mean() >= SPARED
            started = self._started(kept, usual=None if many else ~refused)
            if not many or len(started.modes) > len(compiled.learned(self._watching).modes):
                self._continue_from(started, kept)
        if over:
            self._burn_in = None

    def _started(
        self, X: Array, scale: tuple[Array, Array] | None = None, usual: Array | None = None
    ) -> WatchingState:
        watching = Watching.start(X, self.window, self._rate, self.seed, given=scale, usual=usual)
        return watching.learned()

    def _begin(self, X: Array, scale: tuple[Array, Array] | None = None) -> None:
        self._continue_from(self._started(X, scale), X)

    def _continue_from(self, state: WatchingState, X: Array) -> None:
        """Continue after a start from the samples `X`."""
        if self.young:
            # The rows are not known to be normal: anchors are measured later. And a limit that has
            # learned from its alarms keeps what it learned.
            state = replace(state, anchors=(None,) * len(state.modes))
            if self._watching is not None:
                factor = compiled.learned(self._watching).limit.factor
                state = replace(state, limit=replace(state.limit, factor=factor))
            self._burn_in = BurnIn(X)
            if self._burn_in.ends(X.shape[1]):
                self._burn_in = None
        self._go_on(state)

    def _go_on(self, state: WatchingState) -> None:
        self._watching = compiled.resumed(state, self._rate, self.seed, self._names)
        self._counting = ~np.isnan(state.counted[0])

    # -- values in and out: files, copies, pickles ------------------------------------------

    def settings(self) -> MonitorSettings:
        """Return the arguments that make an equal monitor."""
        return MonitorSettings(self.window, self.warmup, self.false_alarms, self.seed)

    def learned(self) -> MonitorState | None:
        """Return all that the monitor has beyond its settings; None before the first sample."""
        if self.n_seen == 0:
            return None
        kept, refused = (None, None) if self._burn_in is None else self._burn_in.samples()
        watching = None if self._watching is None else compiled.learned(self._watching)
        rhythm = None if self._rhythm is None else self._rhythm.learned()
        late = None if self._late is None else self._late.learned()
        if kept is not None:
            kept = kept.copy()
        return MonitorState(self._names, self.n_seen, kept, watching, rhythm, late, refused)

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
        self._burn_in = None
        if state.warming is not None:
            refused = None if state.refused is None else state.refused.copy()
            at = 0 if state.watching is None else state.watching.at
            self._burn_in = BurnIn(state.warming.copy(), refused, at)
        if state.rhythm is not None:
            self._rhythm = Rhythm.resumed(state.rhythm)
        if state.late is not None:
            self._late = Monitor.resumed(settings, state.late)
        if state.watching is not None:
            self._go_on(state.watching)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).resumed, (self.settings(), self.learned()), {"_names": self._names}

    def __repr__(self) -> str:
        return repr(self.settings()).replace("MonitorSettings", "Monitor")


def _seconds(times: Any, rows: int) -> Array:
    """Return times as an array, or say what is wrong with them."""
    seconds = samples.numbers(times, "times").astype("float64")
    if seconds.shape != (rows,):
        raise ValueError(f"times must have {rows} entries, got shape {seconds.shape}")
    if not (np.abs(seconds) <= LATEST * DAY).all():
        raise ValueError("times must be seconds since 1970")
    return seconds

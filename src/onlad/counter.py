"""Counters: features that only rise are watched by their rate.

A counter (energy, pieces, hours) leaves every range that a model has learned; how fast it rises
does not. A feature is a counter if it rose often and hardly ever fell in the rows of the start. Its
value is replaced by the rise since the last one, per row. A fall to less than half is a reset: how
far the counter rose before and after it is not known, so the rate is missing. Any other fall is a
negative rate, which is unusual.
"""

from __future__ import annotations

import numpy as np

from onlad.reference import Array

RISES = 32  # of a counter in the start, at least: a valve that opens is no counter
FALLS = 0.01  # share of its changes that may be falls; one fall always may
RESET = 0.5  # share of the last value below which a fall is a reset


def rising(X: Array) -> Array:
    """Return which columns are counters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=256)
    >>> rising(np.column_stack((noise, np.cumsum(noise), np.cumsum(abs(noise))))).tolist()
    [False, False, True]
    """
    return np.array([_rises(column) for column in X.T], bool)


def _rises(column: Array) -> bool:
    change = np.diff(column[~np.isnan(column)])
    rises, falls = np.count_nonzero(change > 0), np.count_nonzero(change < 0)
    return bool(rises >= RISES and falls <= max(1, FALLS * rises))


class Counters:
    """The counters among the features of a stream, and what they showed last.

    `counted` (2, n) holds the last value, NaN if a feature is no counter, and the rows since then.
    """

    def __init__(self, counted: Array) -> None:
        self.counted = counted
        self.which = np.flatnonzero(~np.isnan(counted[0]))

    @classmethod
    def found(cls, X: Array) -> tuple[Counters, Array]:
        """Return the counters of a start, and its rows with rates."""
        counted = np.array([np.full(X.shape[1], np.nan), np.zeros(X.shape[1])])
        for j in np.flatnonzero(rising(X)):
            counted[0, j] = X[~np.isnan(X[:, j]), j][0]
        self = cls(counted)
        return self, self.rates(X)[0]

    def rates(self, X: Array) -> tuple[Array, Array, Array]:
        """Return rows with rates, and what makes values of rates again: base and gap.

        A value is its base plus the gap, in rows, times its rate.
        """
        base: Array = np.zeros(X.shape)
        gap: Array = np.ones(X.shape)
        if not len(self.which):
            return X, base, gap
        X = X.copy()
        for x, start, rows in zip(X, base, gap, strict=True):
            for j in self.which:
                last, since = self.counted[:, j]
                value, start[j], rows[j] = x[j], last, since + 1
                self.counted[1, j] = since + 1
                if np.isnan(value):
                    continue
                reset = value < last and abs(value) <= RESET * abs(last)
                x[j] = np.nan if reset else (value - last) / (since + 1)
                self.counted[:, j] = value, 0.0
        return X, base, gap

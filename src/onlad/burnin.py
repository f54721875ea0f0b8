"""`BurnIn`: the first samples of a stream, all of which are kept until they show what is normal.

If a lasting change is confirmed among them, the first samples were too few: the change does not
become a second mode; all samples so far become the start. So they do if what seemed to be a counter
falls. At the end of the burn-in a stream with an order starts once more, with all samples that were
normal: modes and levels of some thousand samples are better than those of the first 256. Events
that recur in the same way count as normal (`onlad.recurring`). If many samples were not normal, all
are split into modes. If that gives more modes than were known, they are the start. Otherwise there
were faults, or the model does not know the stream: then it goes on as it is.
"""

from __future__ import annotations

import numpy as np

from onlad.reference import Array
from onlad.watching import LONGEST, TICK

BURN_IN = LONGEST  # samples; no candidate has to explain more
MOST_KEPT = 2**18  # numbers in them, so that wide streams have a shorter one


def burn_in(n_features: int) -> int:
    """Return how many samples the burn-in of a stream has.

    Examples
    --------
    >>> [burn_in(n_features) for n_features in (3, 64, 1000)]
    [4096, 4096, 262]
    """
    return min(BURN_IN, MOST_KEPT // n_features)


class BurnIn:
    """The samples of a burn-in so far, and which of them were not normal.

    `at` counts the samples since the last tick.
    """

    def __init__(self, rows: Array, refused: Array | None = None, at: int = 0) -> None:
        self._rows = [rows]
        self._refused = [np.zeros(len(rows), bool) if refused is None else refused]
        self.at = at

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def add(self, X: Array, refused: Array) -> None:
        """Keep samples; those without a value are left out."""
        some = ~np.isnan(X).all(axis=1)
        self._rows.append(X[some])
        self._refused.append(refused[some])

    def samples(self) -> tuple[Array, Array]:
        """Return the samples, and which were not normal."""
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
            self._refused = [np.concatenate(self._refused)]
        return self._rows[0], self._refused[0]

    def left(self) -> int:
        """Return how many samples are left until the next tick."""
        return TICK - self.at

    def ends(self, n_features: int, rows: int = 0) -> bool:
        """Return whether the burn-in is over, with this number of further samples."""
        return len(self) + rows > burn_in(n_features)

"""A verdict as names and plain values: what every line, message and table is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onlad.verdict import Verdict, Verdicts

#: What a record has of the columns of verdicts, in this order.
COLUMNS = (
    "score", "threshold", "p_value", "severity", "is_anomaly", "ready", "learned", "drift",
    "drifting",
)  # fmt: skip


def records(
    verdicts: Verdicts, which: Sequence[int], *, anomalies_only: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the verdicts on the samples `which` as values that JSON has.

    ``threshold`` is None while the monitor learns, ``drifting`` None where nothing drifts. Names
    are text. Causes, directions and bands take most of the time: with `anomalies_only` other
    samples have none.

    Examples
    --------
    >>> from onlad import Monitor
    >>> [found] = records(Monitor().observe_many([[1.0], [2.0]]), [1])
    >>> found["threshold"] is None, found["causes"]
    (True, {})
    """
    at = np.array(which, "int64")
    columns = (getattr(verdicts, name)[at].tolist() for name in COLUMNS)
    for i, *values in zip(which, *columns, strict=True):
        found: dict[str, Any] = dict(zip(COLUMNS, values, strict=True))
        limit, drifting = found["threshold"], found["drifting"]
        found["threshold"] = limit if math.isfinite(limit) else None
        found["drifting"] = None if drifting < 0 else str(verdicts.names[drifting])
        found["causes"] = {}
        yield found if anomalies_only and not found["is_anomaly"] else found | _why(verdicts[i])


def _why(verdict: Verdict) -> dict[str, dict[str, Any]]:
    """Return causes, directions and bands of a verdict."""
    bands = {name: getattr(verdict, name) for name in ("expected", "low", "high")}
    return {
        "causes": {str(name): round(share, 4) for name, share in verdict.causes.items()},
        "direction": {str(name): side for name, side in verdict.direction.items()},
        **{
            name: {str(key): figures(value) for key, value in band.items()}
            for name, band in bands.items()
        },
    }


def figures(value: float) -> float:
    """Return a number in raw units with the digits that a person needs.

    Examples
    --------
    >>> figures(21.123456789)
    21.1235
    """
    return float(f"{value:.6g}")

"""A verdict as names and plain values: what every line, message and table is made of."""

from __future__ import annotations

import math
from typing import Any

from onlad.severity import severity
from onlad.verdict import Verdicts


def record(verdicts: Verdicts, i: int, *, explain: bool = True) -> dict[str, Any]:
    """Return the verdict on sample `i` as values that JSON has.

    ``threshold`` is None while the monitor learns, ``drifting`` None where nothing drifts. Names
    are text. Without `explain` there are no causes, directions and bands, which take most of the
    time.

    Examples
    --------
    >>> from onlad import Monitor
    >>> record(Monitor().observe_many([[1.0]]), 0)["threshold"] is None
    True
    """
    limit, drifting = float(verdicts.threshold[i]), int(verdicts.drifting[i])
    verdict = verdicts[i] if explain else None
    ratio, unusual = float(verdicts.score[i]) / limit, int(verdicts.unusual[i])
    found: dict[str, Any] = {
        "score": float(verdicts.score[i]),
        "threshold": limit if math.isfinite(limit) else None,
        "p_value": float(verdicts.p_value[i]),
        "severity": severity(ratio, float(verdicts.p_value[i]), unusual, float(verdicts.rate[i])),
        "is_anomaly": bool(verdicts.is_anomaly[i]),
        "ready": bool(verdicts.ready[i]),
        "learned": bool(verdicts.learned[i]),
        "drift": bool(verdicts.drift[i]),
        "drifting": None if drifting < 0 else str(verdicts.names[drifting]),
        "causes": {},
    }
    if verdict is not None:
        found["causes"] = {str(name): round(share, 4) for name, share in verdict.causes.items()}
        found["direction"] = {str(name): side for name, side in verdict.direction.items()}
        for name in ("expected", "low", "high"):
            found[name] = {
                str(key): figures(value) for key, value in getattr(verdict, name).items()
            }
    return found


def figures(value: float) -> float:
    """Return a number in raw units with the digits that a person needs.

    Examples
    --------
    >>> figures(21.123456789)
    21.1235
    """
    return float(f"{value:.6g}")

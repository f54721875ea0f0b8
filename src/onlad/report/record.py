"""A verdict as names and plain values: what every line, message and table is made of."""

from __future__ import annotations

import math
from typing import Any

from onlad import kernel
from onlad.verdict import Verdicts


def record(verdicts: Verdicts, i: int, *, explain: bool = True) -> dict[str, Any]:
    """Return the verdict on sample `i` as JSON can hold it.

    ``threshold`` is None while the monitor learns, ``drifting`` None where nothing drifts. Names
    are text. Without `explain` there are no causes, which take most of the time.

    Examples
    --------
    >>> from onlad import Monitor
    >>> record(Monitor().observe_many([[1.0]]), 0)["threshold"] is None
    True
    """
    limit, drifting = float(verdicts.threshold[i]), int(verdicts.drifting[i])
    shares = kernel.causes(verdicts.names, verdicts.shares[i]) if explain else {}
    return {
        "score": float(verdicts.score[i]),
        "threshold": limit if math.isfinite(limit) else None,
        "p_value": float(verdicts.p_value[i]),
        "is_anomaly": bool(verdicts.is_anomaly[i]),
        "ready": bool(verdicts.ready[i]),
        "learned": bool(verdicts.learned[i]),
        "drift": bool(verdicts.drift[i]),
        "drifting": None if drifting < 0 else str(verdicts.names[drifting]),
        "causes": {str(name): round(share, 4) for name, share in shares.items()},
    }

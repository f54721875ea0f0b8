"""How severe an alarm is, 0 to 100, the same on every machine.

Ten points for each factor of ten: in how rarely normal data scores so high, and in how many samples
were unusual lately. A score at the threshold comes as rarely as the false-alarm budget says. Above
it a heavy tail is assumed: a score ten times as high comes a hundred times as rarely.
"""

from __future__ import annotations

import math

POINTS = 10.0  # for a factor of ten
TAIL = 2.0  # power with which scores above the threshold become rare


def severity(ratio: float, p_value: float, unusual: int, rate: float) -> float:
    """Return the severity of a sample, to a tenth.

    `ratio` is score over threshold, `unusual` how many of the last samples were unusual, `rate` the
    false-alarm budget. A sample that is no anomaly stays below the severity of the threshold.

    Examples
    --------
    >>> severity(0.1, 0.1, 1, 1e-4), severity(10.0, 1e-3, 1, 1e-4), severity(10.0, 1e-3, 10, 1e-4)
    (10.0, 60.0, 70.0)
    """
    if ratio > 1:
        decades = math.log10(ratio**TAIL * max(unusual, 1) / rate)
    else:
        decades = math.log10(1 / max(p_value, rate))
    return round(min(POINTS * decades, 100.0), 1)

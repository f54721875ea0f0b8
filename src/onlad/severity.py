"""How severe an alarm is, 0 to 100, the same on every machine.

Ten points for each factor of ten in how rarely normal data gets there. A score at the threshold
comes as rarely as the false-alarm budget says. Above it a heavy tail is assumed: a score ten times
as high is ten times as rare. Samples of one event are alike, so k that were unusual lately do not
count as k times the evidence: they count as a score that is higher by the root of k.

Below the threshold the p-value says how rare a score is among those that were learned. Where the
level wanders, many samples are unusual and not learned, without an alarm. Then a sample is as
frequent as the unusual ones among the samples just before it.
"""

from __future__ import annotations

import math

POINTS = 10.0  # for a factor of ten
HIGHEST = 100.0
LATELY = 64  # samples, with the newest, among which the unusual ones are counted


def severity(ratio: float, p_value: float, unusual: int, rate: float) -> float:
    """Return the severity of a sample, to a tenth.

    `ratio` is score over threshold, `rate` the false-alarm budget. `unusual` is how many of the
    last LATELY samples were unusual if this one is, else 1. A sample that is no anomaly stays below
    the severity of the threshold.

    Examples
    --------
    >>> severity(0.1, 0.1, 1, 1e-4), severity(10.0, 1e-3, 1, 1e-4), severity(10.0, 1e-3, 10, 1e-4)
    (10.0, 50.0, 55.0)
    >>> severity(0.9, 1e-3, 1, 1e-4), severity(0.9, 1e-3, 33, 1e-4)
    (30.0, 3.0)
    """
    if ratio > 1:
        decades = math.log10(ratio * math.sqrt(max(unusual, 1)) / rate)
    else:
        decades = math.log10(1 / max(p_value, rate, (unusual - 1) / LATELY))
    return round(min(POINTS * decades, HIGHEST), 1)

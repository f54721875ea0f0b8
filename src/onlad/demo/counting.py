"""From alarms to precision, recall and delay, counted by incident.

An incident is true if one of its alarms lies in a fault or in the `GRACE` samples after it, in
which a good detector may still report the fault. Otherwise it is a false alarm. A fault is found if
a true incident belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onlad.demo.machine import Fault
from onlad.incident import Incident
from onlad.reference import Array
from onlad.report.evaluation import ratio
from onlad.verdict import Verdict, Verdicts

GRACE = 20


class Watched(NamedTuple):
    """Result of the run."""

    verdicts: Verdicts
    incidents: list[Incident]
    seconds: float

    def alarms(self, incident: Incident) -> Array:
        """Return which samples of an incident are alarms."""
        found = self.verdicts.is_anomaly[incident.begin : incident.end + 1]
        return incident.begin + np.flatnonzero(found)

    def strongest(self, incident: Incident) -> int:
        """Return the alarm of an incident that is farthest above the threshold."""
        at = self.alarms(incident)
        above = self.verdicts.score[at] - self.verdicts.threshold[at]
        return int(at[np.argmax(above)])

    def verdict(self, incident: Incident) -> Verdict:
        """Return the verdict on the strongest alarm of an incident."""
        return self.verdicts[self.strongest(incident)]

    def first_alarm(self, incident: Incident, fault: Fault) -> int | None:
        """Return the first alarm in the fault or in the `GRACE` samples after it, or None."""
        about = (t for t in self.alarms(incident).tolist() if fault.start <= t < fault.stop + GRACE)
        return next(about, None)

    def fault_of(self, incident: Incident, faults: Sequence[Fault]) -> Fault | None:
        """Return the first fault that the incident is about, or None for a false alarm."""
        about = (fault for fault in faults if self.first_alarm(incident, fault) is not None)
        return next(about, None)


class Tally(NamedTuple):
    """How many faults were found, and how many incidents were true.

    A ratio of 0 to 0 is NaN, and so is the median of no delays.
    """

    faults: int
    found: int
    incidents: int
    true_incidents: int
    named: int  # found faults whose sensor is the top cause
    delays: tuple[int, ...]  # samples from the start of a found fault to its first alarm
    precision: float  # true incidents of all
    recall: float  # found faults of all
    naming: float  # named faults of those found
    median_delay: float


def tally(watched: Watched, faults: Sequence[Fault]) -> Tally:
    """Count incidents and faults."""
    named, delays = 0, list[int]()
    for fault in faults:
        about = [
            (each, t)
            for each in watched.incidents
            if (t := watched.first_alarm(each, fault)) is not None
        ]
        if about:
            incident, alarm = about[0]
            named += next(iter(watched.verdict(incident).causes), None) == fault.sensor
            delays.append(alarm - fault.start)
    found, count = len(delays), len(watched.incidents)
    true = sum(watched.fault_of(each, faults) is not None for each in watched.incidents)
    return Tally(
        len(faults), found, count, true, named, tuple(delays),
        precision=ratio(true, count), recall=ratio(found, len(faults)),
        naming=ratio(named, found), median_delay=float(np.median(delays)) if delays else math.nan,
    )  # fmt: skip

"""The demo: monitor the pump, print a line for each incident, and count how many were right."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from onlad.demo import machine
from onlad.demo.counting import GRACE, Watched, tally
from onlad.demo.machine import Fault, Recording
from onlad.errors import OnladError
from onlad.incident import QUIET, Incident, Incidents
from onlad.monitor import Monitor

CAUSES = 2  # in a line


def run(n_samples: int, seed: int, output: Path | None) -> None:
    """Show the demo on standard output, and draw it into `output` if that is given."""
    recording = machine.record(n_samples, seed)
    print(
        f"A pump with {len(machine.SENSORS)} sensors and {len(machine.MODES)} modes, one sample "
        f"every ten seconds.\n{len(recording.faults)} faults will come, the first after sample "
        f"{recording.faults[0].start:,}.\n"
    )
    watched = watch(recording, Monitor(seed=seed, names=tuple(machine.SENSORS)))
    print(f"{'sample':>7} {'alarms':>6} {'score':>6} {'threshold':>9}  {'causes':<38}afterwards")
    for incident in watched.incidents:
        print(line(watched, incident, recording.faults))
    print("\n" + "\n".join(summary(recording.faults, watched)))
    if output is not None:
        _draw(output, recording, watched)


def watch(recording: Recording, monitor: Monitor) -> Watched:
    """Show the samples to the monitor, one after the other."""
    began, incidents = time.perf_counter(), Incidents()
    verdicts = monitor.observe_many(recording.values)
    seconds = time.perf_counter() - began
    return Watched(verdicts, incidents.add(verdicts) + incidents.finish(), seconds)


def line(watched: Watched, incident: Incident, faults: Sequence[Fault]) -> str:
    """Return one line on an incident: its strongest alarm, and whether it was right."""
    fault, verdict = watched.fault_of(incident, faults), watched.verdict(incident)
    causes = list(verdict.causes.items())[:CAUSES]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in causes)
    truth = f"true: {fault.sensor}, {fault.kind}" if fault else "false alarm"
    return (
        f"{incident.begin:>7,} {incident.anomalies:>6,} "
        f"{verdict.score:>6.1f} {verdict.threshold:>9.1f}  {shown:<38}{truth}"
    )


def summary(faults: Sequence[Fault], watched: Watched) -> list[str]:
    """Return the lines that end the demo: by kind of fault, then over all."""
    lines = [f"{'fault':<18}{'found':>8}{'median delay':>15}{'sensor named':>15}"]
    for kind in machine.KINDS:
        one = tally(watched, [fault for fault in faults if fault.kind == kind])
        if one.faults:
            found, named = f"{one.found} of {one.faults}", f"{one.named} of {one.found}"
            lines.append(f"{kind:<18}{found:>8}{_shown(one.median_delay, 'g'):>15}{named:>15}")
    all_ = tally(watched, faults)
    rate = 1e6 * watched.seconds / len(watched.verdicts)
    totals = (
        ("precision", all_.precision, ".0%",
         f"{all_.true_incidents} of {all_.incidents} incidents have an alarm in a fault or at most "
         f"{GRACE} samples after"),
        ("recall", all_.recall, ".0%", f"{all_.found} of {all_.faults} faults have an alarm then"),
        ("causes", all_.naming, ".0%",
         f"{all_.named} of {all_.found} found faults have the faulty sensor as the top cause"),
        ("delay", all_.median_delay, "g", "samples to the first alarm of a fault, in the median"),
        ("speed", rate, ".0f", "microseconds per sample, learning included"),
    )  # fmt: skip
    return [
        *lines,
        "",
        *(f"{name:<10}{_shown(number, form):>5}   {text}" for name, number, form, text in totals),
        f"Alarms at most {QUIET} samples apart are one incident; its strongest has the causes.",
    ]


def _shown(number: float, form: str) -> str:
    return "-" if math.isnan(number) else format(number, form)


def _draw(output: Path, recording: Recording, watched: Watched) -> None:
    try:
        from onlad.demo import picture  # noqa: PLC0415  (its import needs the extra)
    except ImportError:
        print("onlad: no picture without matplotlib: pip install onlad[plot]", file=sys.stderr)
        return
    try:
        picture.draw(output, recording, watched)
    except OSError as error:
        raise OnladError(f"cannot write the picture: {error}") from None
    print(f"onlad: the picture is in {output}", file=sys.stderr)

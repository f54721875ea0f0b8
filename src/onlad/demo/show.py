"""The demo: monitor the pump, print a line for each alarm, and summarise how many were right."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from onlad.demo import machine
from onlad.demo.counting import GRACE, JOIN, Episode, Episodes, Watched, fault_of, tally
from onlad.demo.machine import Fault, Recording
from onlad.demo.screen import FRAMES, Screen
from onlad.errors import OnladError
from onlad.monitor import Monitor

# Samples per second on a terminal, so that there is something to see. A slow machine never waits.
PACE = 2400
CAUSE = 19  # characters
WIDE = 108  # characters of a terminal that fits two causes per line


def run(n_samples: int, seed: int, output: Path | None) -> None:
    """Show the demo on standard output, and draw it into `output` if that is given."""
    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, soft_wrap=True)
    recording = machine.record(n_samples, seed)
    console.print(
        f"A pump with {len(machine.SENSORS)} sensors and {len(machine.MODES)} modes, one sample "
        f"every ten seconds.\n{len(recording.faults)} faults will come, the first after sample "
        f"{recording.faults[0].start:,}.\n"
    )
    watched = watch(recording, Monitor(seed=seed), console)
    console.print("\n" + "\n".join(summary(recording.faults, watched)))
    if output is not None:
        _draw(output, recording, watched)


def watch(recording: Recording, monitor: Monitor, console: Console) -> Watched:
    """Show each sample to the monitor in turn, and print its alarms."""
    n = len(recording.values)
    scores, thresholds = np.full(n, np.nan), np.full(n, np.nan)
    joined, episodes, seconds = Episodes(), list[Episode](), 0.0

    def note(episode: Episode | None) -> None:
        if episode:
            episodes.append(episode)
            fault = fault_of(episode, recording.faults)
            console.print(
                line(episode, fault, n_causes), style=None if fault else "red", markup=False
            )

    n_causes = 1 if console.is_terminal and console.width < WIDE else 2
    console.print(heading(n_causes), style="bold", markup=False)
    with contextlib.ExitStack() as stack:
        live = console.is_terminal and console.encoding.startswith("utf")
        screen = stack.enter_context(Screen(console, n)) if live else None
        began = time.perf_counter()
        for t, sample in enumerate(recording.samples()):
            start = time.perf_counter()
            verdict = monitor.observe(sample)
            seconds += time.perf_counter() - start
            if verdict.ready:
                scores[t], thresholds[t] = verdict.score, verdict.threshold
            note(joined.add(t, verdict))
            if screen:
                screen.add(t, verdict)
                if (ahead := began + t / PACE - time.perf_counter()) > 1 / FRAMES:
                    time.sleep(ahead)
        note(joined.close())
    return Watched(scores, thresholds, episodes, seconds)


def heading(n_causes: int) -> str:
    """Return what stands above the lines."""
    return (
        f"{'sample':>7} {'alarms':>6} {'score':>6} {'threshold':>9}  "
        f"{'causes':<{CAUSE * n_causes}}afterwards"
    )


def line(episode: Episode, fault: Fault | None, n_causes: int = 2) -> str:
    """Return one line on an episode: its causes, and whether it was right."""
    causes = list(episode.causes.items())[:n_causes]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in causes)
    truth = f"true: {fault.sensor}, {fault.kind}" if fault else "false alarm"
    return (
        f"{episode.times[0]:>7,} {len(episode.times):>6,} "
        f"{episode.score:>6.1f} {episode.threshold:>9.1f}  {shown:<{CAUSE * n_causes}}{truth}"
    )


def summary(faults: Sequence[Fault], watched: Watched) -> list[str]:
    """Return the lines that end the demo: by kind of fault, then over all."""
    lines = [f"{'fault':<18}{'found':>8}{'median delay':>15}{'sensor named':>15}"]
    for kind in machine.KINDS:
        one = tally(watched.episodes, [fault for fault in faults if fault.kind == kind])
        if one.faults:
            found, named = f"{one.found} of {one.faults}", f"{one.named} of {one.found}"
            lines.append(f"{kind:<18}{found:>8}{_shown(one.median_delay, 'g'):>15}{named:>15}")
    all_ = tally(watched.episodes, faults)
    rate = 1e6 * watched.seconds / len(watched.scores)
    totals = (
        ("precision", all_.precision, ".0%",
         f"{all_.true_episodes} of {all_.episodes} episodes of alarms lie in a fault or at most "
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
        f"Alarms less than {JOIN} samples apart are one episode; the strongest has the causes.",
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

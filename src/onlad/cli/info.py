"""`onlad info`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from onlad.cli.arguments import Commands, Help
from onlad.cli.models import load_model
from onlad.detector import Detector
from onlad.mcu import PortableMonitor
from onlad.mcu.layout import MAGIC, MODE
from onlad.monitor import Monitor
from onlad.reference import Array


def add(commands: Commands) -> None:
    """Add `onlad info`."""
    parser = commands.add_parser(
        "info",
        help="print what a model has learned",
        description="Print what a model file contains: settings, modes, how many samples each has "
        "learned, and the checksum, which is verified.",
        formatter_class=Help,
        epilog="examples:\n  onlad info pump.onlad\n  onlad info pump.onlad --json",
    )
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Load, and print."""
    model = load_model(args.model)
    facts: dict[str, Any] = {"file": str(args.model), "kind": type(model).__name__}
    data = args.model.read_bytes()
    if data[: len(MAGIC)] == MAGIC:
        facts |= {"format": "dump of a chip", "bytes": len(data), "crc32": data[:-5:-1].hex()}
    else:
        facts |= {
            "format": int.from_bytes(data[6:8], "little"),
            "bytes": len(data),
            "sha256": data[-32:].hex(),
        }
    if isinstance(model, PortableMonitor):
        facts |= _portable(model)
    else:
        facts |= _monitor(model) if isinstance(model, Monitor) else _detector(model)
    print(json.dumps(facts) if args.json else _text(facts))
    return 0


def _monitor(monitor: Monitor) -> dict[str, Any]:
    said, state = monitor.describe(), monitor.learned()
    facts: dict[str, Any] = {
        "samples seen": monitor.n_seen,
        "ready": said["ready"],
        "false alarms": monitor.false_alarms,
        "warmup": monitor.warmup,
        "seed": monitor.seed,
    }
    names = [str(name) for name in monitor.names]
    if state is None or state.watching is None:
        return facts | {"why": said["why"], "columns": names}
    now, drifting = state.watching, said["drifting"]
    return facts | {
        "threshold": said["threshold"],
        "ordered": now.ordered,
        "window": now.width,
        "samples at the start": now.begun,
        "samples learned": sum(mode.count for mode in now.modes),
        "samples in quarantine": len(now.quarantine),
        "new mode on trial": now.candidate is not None,
        "drifting": None if drifting is None else str(drifting),
        "never moved": [str(name) for name in said["never moved"]],
        "columns": names,
        "modes": [_mode(mode.count, mode.centre, mode.scale, names) for mode in now.modes],
    }


def _mode(count: int, centre: Array, scale: Array, names: list[str]) -> dict[str, Any]:
    """Return the samples of a mode, and centre and unit of each column; None if not known."""
    pairs = zip(centre.tolist(), scale.tolist(), strict=True)
    units = [{"centre": _finite(each), "unit": unit or None} for each, unit in pairs]
    return {"samples learned": count, "columns": dict(zip(names, units, strict=True))}


def _portable(monitor: PortableMonitor) -> dict[str, Any]:
    said = monitor.describe()
    facts: dict[str, Any] = {
        "samples seen": monitor.n_seen,
        "ready": said["ready"],
        "false alarms": monitor.false_alarms,
        "hidden units": monitor.hidden,
        "places for modes": monitor.modes,
        "warmup": monitor.warmup,
        "seed": monitor.seed,
    }
    names = [str(name) for name in monitor.names]
    if not said["ready"]:
        return facts | {"why": said["why"], "columns": names}
    state = monitor.state()
    drifting = said["drifting"]
    modes = [
        _mode(int(place[1]), mode["centre"], mode["scale"], names)
        for place, mode in zip(state["places"], state["modes"], strict=True)
        if place[0] == MODE
    ]
    return facts | {
        "threshold": said["threshold"],
        "window": said["window"],
        "drifting": None if drifting is None else str(drifting),
        "columns": names,
        "modes": modes,
    }


def _detector(detector: Detector) -> dict[str, Any]:
    state = detector.learned()
    return {
        "samples learned": detector.n_seen,
        "hidden units": detector.n_hidden,
        "inputs": detector.n_features,
        "activation": detector.activation,
        "score": detector.score,
        "forgetting": repr(detector.forgetting),
        "effective samples": round(state.weight, 1) if state else 0,
        "ridge": detector.ridge,
        "dtype": detector.dtype,
        "seed": detector.seed,
        "largest weight": float(np.abs(state.beta).max()) if state else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(facts: dict[str, Any]) -> str:
    modes = facts.pop("modes", [])
    width = max(map(len, facts)) + 2
    lines = [f"{name:<{width}}{_shown(name, value)}" for name, value in facts.items()]
    for i, mode in enumerate(modes, 1):
        lines.append(f"mode {i} of {len(modes)}: {mode['samples learned']:,} samples learned")
        wide = max(map(len, mode["columns"]))
        for name, known in mode["columns"].items():
            said = "  ".join(f"{what} {_shown(what, value)}" for what, value in known.items())
            lines.append(f"  {name:<{wide}}  {said}")
    return "\n".join(lines)


def _shown(name: str, value: Any) -> str:
    if name == "false alarms":
        return f"1 in {1 / value:,.6g} normal samples"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, []):
        return "-"
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

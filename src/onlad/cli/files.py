"""Commands on model files: `onlad info` and `onlad merge`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from onlad import detector, mcu
from onlad.cli.arguments import Commands, add_command
from onlad.cli.models import load_model, save_model
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.mcu import PortableMonitor
from onlad.mcu.layout import MAGIC, MODE
from onlad.monitor import Monitor
from onlad.reference import Array

#: What `describe` returns of a monitor that is ready, and how it is printed.
DESCRIBED = {
    "ordered": "ordered",
    "window": "window",
    "start": "samples at the start",
    "learned": "samples learned",
    "quarantine": "samples in quarantine",
    "candidate": "new mode on trial",
}


def add(commands: Commands) -> None:
    """Add `onlad info` and `onlad merge`."""
    parser = add_command(commands, "info", info)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser = add_command(commands, "merge", merge)
    text = "two or more models of one kind"
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help=text)
    text = "file of the merged model"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help=text)


def info(args: argparse.Namespace) -> int:
    """Print what a model has learned.

    Print what a model file contains: settings, modes, how many samples each has learned, and the
    checksum, which is verified.

        onlad info pump.onlad
        onlad info pump.onlad --json
    """
    model = load_model(args.model)
    facts: dict[str, Any] = {"file": str(args.model), "kind": type(model).__name__}
    data = args.model.read_bytes()
    if data[: len(MAGIC)] == MAGIC:
        facts |= {"format": "dump of a chip", "bytes": len(data), "crc32": data[:-5:-1].hex()}
    else:
        version = int.from_bytes(data[6:8], "little")
        facts |= {"format": version, "bytes": len(data), "sha256": data[-32:].hex()}
    facts |= _detector(model) if isinstance(model, Detector) else _monitor(model)
    print(json.dumps(facts) if args.json else _text(facts))
    return 0


def _monitor(monitor: Monitor | PortableMonitor) -> dict[str, Any]:
    """Return the facts of a monitor, in the order in which they are printed."""
    described, names = monitor.describe(), [str(name) for name in monitor.names]
    facts: dict[str, Any] = {
        "samples seen": monitor.n_seen,
        "ready": described["ready"],
        "false alarms": monitor.false_alarms,
    }
    if isinstance(monitor, PortableMonitor):
        facts |= {"hidden units": monitor.hidden, "places for modes": monitor.modes}
    facts |= {"warmup": monitor.warmup, "seed": monitor.seed}
    if not described["ready"]:
        return facts | {"why": described["why"], "columns": names}
    facts["threshold"] = described["threshold"]
    facts |= {words: described[name] for name, words in DESCRIBED.items() if name in described}
    facts["drifting"] = None if described["drifting"] is None else str(described["drifting"])
    if "never moved" in described:
        facts["never moved"] = [str(name) for name in described["never moved"]]
    units = _chip_modes(monitor) if isinstance(monitor, PortableMonitor) else _modes(monitor)
    first = names[: len(units[0][1])] if units else names
    modes = [
        {"samples learned": count, "columns": dict(zip(first, _units(centre, scale), strict=True))}
        for count, centre, scale in units
    ]
    later = {"came later": names[len(first) :]} if len(first) < len(names) else {}
    return facts | {"columns": names} | later | {"modes": modes}


def _modes(monitor: Monitor) -> list[tuple[int, Array, Array]]:
    """Return samples, centres and scales of each mode."""
    state = monitor.learned()
    now = state.watching if state else None
    return [(mode.count, mode.centre, mode.scale) for mode in (now.modes if now else ())]


def _chip_modes(monitor: PortableMonitor) -> list[tuple[int, Array, Array]]:
    state = monitor.state()
    places = zip(state["places"], state["modes"], strict=True)
    return [(int(p[1]), mode["centre"], mode["scale"]) for p, mode in places if p[0] == MODE]


def _units(centre: Array, scale: Array) -> list[dict[str, float | None]]:
    """Return centre and unit of each column; None if not known."""
    return [
        {"centre": each if math.isfinite(each) else None, "unit": unit or None}
        for each, unit in zip(centre.tolist(), scale.tolist(), strict=True)
    ]


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


def _text(facts: dict[str, Any]) -> str:
    modes = facts.pop("modes", [])
    width = max(map(len, facts)) + 2
    lines = [f"{name:<{width}}{_shown(name, value)}" for name, value in facts.items()]
    for i, mode in enumerate(modes, 1):
        lines.append(f"mode {i} of {len(modes)}: {mode['samples learned']:,} samples learned")
        wide = max(map(len, mode["columns"]))
        for name, known in mode["columns"].items():
            units = "  ".join(f"{what} {_shown(what, value)}" for what, value in known.items())
            lines.append(f"  {name:<{wide}}  {units}")
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


def merge(args: argparse.Namespace) -> int:
    """Merge what detectors or microcontrollers learned.

    Merge models into the model that would have learned all their samples: detectors with the same
    random layer (equal columns, hidden units and seed), or microcontrollers that started from one
    model, as dumps or as files. Monitors cannot be merged, because each scales the sensors by
    itself.

        onlad fit a.csv --detector -o a.onlad
        onlad fit b.csv --detector -o b.onlad
        onlad merge a.onlad b.onlad -o both.onlad
        onlad merge chip1.bin chip2.bin -o both.onlad
    """
    if len(args.models) < 2:
        args.usage("argument MODEL: two or more are needed")
    models = [load_model(path) for path in args.models]
    for path, model in zip(args.models, models, strict=True):
        if not isinstance(model, (Detector, PortableMonitor)):
            raise OnladError(
                f"{path} holds a {type(model).__name__}, which scales sensors by itself: only "
                "detectors and microcontrollers can be merged. onlad fit --detector makes one"
            )
        if type(model) is not type(models[0]):
            raise OnladError(f"{path} and {args.models[0]} are not of one kind")
    merge = mcu.merge if isinstance(models[0], PortableMonitor) else detector.merge
    try:
        merged = reduce(merge, models)
    except ValueError as error:
        raise OnladError(str(error)) from None
    save_model(merged, args.output)
    print(f"onlad: {args.output} has learned {merged.n_seen:,} samples", file=sys.stderr)
    return 0

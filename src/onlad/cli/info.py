"""`onlad info`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onlad import modelfile
from onlad.cli.arguments import Help
from onlad.cli.models import load_model
from onlad.detector import Detector
from onlad.monitor import FIRST, Monitor, default_window
from onlad.scaler import Standard

if TYPE_CHECKING:
    from onlad.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add `onlad info`."""
    parser = commands.add_parser(
        "info",
        help="say what a model has learned",
        description="Say what a model file holds: what it learned and from how many samples, its "
        "thresholds, its sizes, and its checksum, which is verified.",
        formatter_class=Help,
        epilog="examples:\n  onlad info pump.onlad\n  onlad info pump.onlad --json",
    )
    parser.add_argument("model", type=Path, metavar="MODEL").complete = "file"  # type: ignore[attr-defined]
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, usage=parser.error)


def run(args: argparse.Namespace) -> int:
    """Load, and print."""
    model = load_model(args.model)
    data = modelfile.read(args.model)
    facts: dict[str, Any] = {
        "file": str(args.model),
        "kind": type(model).__name__,
        "format": int.from_bytes(data[6:8], "little"),
        "bytes": len(data),
        "sha256": data[-32:].hex(),
    }
    facts |= _monitor(model) if isinstance(model, Monitor) else _detector(model)
    print(json.dumps(facts) if args.json else _text(facts))
    return 0


def _monitor(monitor: Monitor) -> dict[str, Any]:
    learned = monitor.learned()
    n, started = len(monitor.names), monitor.n_seen >= FIRST
    facts: dict[str, Any] = {
        "samples seen": monitor.n_seen,
        "samples learned": learned.get("count", monitor.n_seen),
        "ready": bool(started and learned["yardstick"]["n_ring"] >= learned["opening"]),
        "threshold": _finite(learned.get("limit", math.inf)),
        "threshold rule": repr(monitor.threshold),
        "learned up to a score of": _finite(learned.get("gate_limit", math.inf)),
        "gate": repr(monitor.gate),
        "window": monitor.window or (default_window(n) if n else None),
        "warmup": monitor.warmup,
        "hidden units": monitor.detector.n_hidden,
        "inputs": monitor.detector.n_features,
        "forgetting": repr(monitor.detector.forgetting),
        "seed": monitor.detector.seed,
    }
    columns: dict[str, Any] = {str(name): {} for name in monitor.names}
    if started and isinstance(monitor.scaler, Standard):
        _, mean, variance = learned["scale"]
        for name, m, v in zip(columns, mean.tolist(), variance.tolist(), strict=True):
            columns[name] = {"mean": m, "deviation": math.sqrt(v)}
    elif started:
        low, high = learned["scale"]
        for name, a, b in zip(columns, low.tolist(), high.tolist(), strict=True):
            columns[name] = {"low": a, "high": b}
    return facts | {"columns": columns}


def _detector(detector: Detector) -> dict[str, Any]:
    learned = detector.learned()
    return {
        "samples learned": detector.n_seen,
        "hidden units": detector.n_hidden,
        "inputs": detector.n_features,
        "activation": detector.activation,
        "score": detector.score,
        "forgetting": repr(detector.forgetting),
        "effective samples": round(learned["weight"], 1) if learned else 0,
        "ridge": detector.ridge,
        "dtype": detector.dtype,
        "seed": detector.seed,
        "largest weight": float(np.abs(learned["beta"]).max()) if learned else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _text(facts: dict[str, Any]) -> str:
    columns = facts.pop("columns", {})
    width = max(map(len, facts)) + 2
    lines = [f"{name:<{width}}{_shown(value)}" for name, value in facts.items()]
    if columns:
        wide = max(map(len, columns))
        lines.append(f"columns ({len(columns)})")
        for name, scale in columns.items():
            said = "  ".join(f"{what} {value:.6g}" for what, value in scale.items())
            lines.append(f"  {name:<{wide}}  {said}".rstrip())
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

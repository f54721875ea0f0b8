"""A bank of monitors in a file: each as `onlad.save` writes it, one after the other."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from onlad import modelfile, persist
from onlad.modelfile import Record, need, refusal, short
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names

LARGEST_BANK = 2**40  # bytes of a file
PARTS = {"names": list, "monitors": np.ndarray, "sizes": np.ndarray, "paused": np.ndarray}


def save(
    path: str | os.PathLike[str], names: Names, monitors: list[Monitor], paused: Array
) -> None:
    """Write a bank to the file `path`; its first monitor is what new devices start as."""
    data = [persist.to_bytes(monitor) for monitor in monitors]
    raw = b"".join(each + bytes(-len(each) % 8) for each in data)  # arrays have no single bytes
    learned = {
        "names": list(names),
        "monitors": np.frombuffer(raw, "int64"),
        "sizes": np.array([len(each) for each in data], "int64"),
        "paused": paused,
    }
    modelfile.replace(path, modelfile.pieces(Record("MonitorBank", {"learned": learned})))


def load(path: str | os.PathLike[str]) -> tuple[Names, list[Monitor], Array]:
    """Return what `save` was given."""
    data = modelfile.read(path, LARGEST_BANK)
    try:
        tree = modelfile.decode(data, largest=LARGEST_BANK, copy=False)
        is_bank = isinstance(tree, Record) and tree.type == "MonitorBank"
        need(is_bank, f"it is {short(getattr(tree, 'type', tree))}, which is no MonitorBank")
        return _read(tree.parts.get("learned", {}))
    except modelfile.FAULTS as error:
        raise refusal(path, f"holds no valid bank: {error}. Save the bank again") from None


def _read(learned: dict[str, Any]) -> tuple[Names, list[Monitor], Array]:
    there = {name: type(value) for name, value in learned.items()}
    need(there == PARTS, f"a bank has {short(sorted(PARTS))}, got {short(sorted(there))}")
    sizes, paused, raw = learned["sizes"], learned["paused"], learned["monitors"]
    kinds = (sizes.dtype, paused.dtype, raw.dtype) == ("int64", "bool", "int64")
    shapes = sizes.ndim == raw.ndim == 1 and paused.shape == (len(sizes) - 1,)
    need(kinds and shapes and bool((sizes > 0).all()), "sizes, paused or monitors are wrong")
    ends = np.cumsum(-(-sizes // 8))  # a monitor fills whole numbers of 8 bytes
    need(ends[-1] == len(raw), "sizes and monitors do not fit each other")
    monitors = []
    parts = zip(sizes.tolist(), np.split(raw, ends[:-1]), strict=True)
    for i, (size, part) in enumerate(parts, -1):
        monitor = persist.from_bytes(part.tobytes()[:size], f"monitor {i}")
        need(isinstance(monitor, Monitor), f"monitor {i} is {short(monitor)}")
        monitors.append(monitor)
    names = tuple(learned["names"])
    same = all(monitor.names in ((), names) for monitor in monitors)
    need(same, "the monitors of a bank have the same names")
    return names, monitors, paused.copy()

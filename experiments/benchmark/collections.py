"""Where the labelled streams come from: public collections, read from folders that are not here.

ONLAD_BENCHMARK holds TSB-AD-M, ASD, GECCO and TEP; ONLAD_STREAMS holds SKAB, SMD and NAB;
ONLAD_DATA holds the paper's sets, which have no order and become records.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import datasets
from experiments.benchmark.series import Collection, Range, Series, series
from experiments.testbeds import Array

BENCHMARK, STREAMS, DATA = "ONLAD_BENCHMARK", "ONLAD_STREAMS", "ONLAD_DATA"
GECCO_HISTORY, SKAB_HISTORY, SMD_HISTORY, NAB_SHARE = 5_000, 400, 5_000, 0.15
TEP_ONSET = 160  # row of a fault file
RECORD_ROWS, RECORD_HISTORY = 6_000, 500

# Dataset and the classes that are normal.
RECORDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "letter A": ("letter_recognition", (0,)),
    "letters E F": ("letter_recognition", (4, 5)),
    "drive 1": ("drive_diagnosis", (0,)),
    "drive 4 8": ("drive_diagnosis", (3, 7)),
    "walking": ("smartphone_har", (0,)),
    "sitting standing": ("smartphone_har", (3, 4)),
}


def folder(variable: str) -> Path:
    path = os.environ.get(variable)
    if not path:
        raise SystemExit(f"set {variable} to the folder with the benchmark's files")
    return Path(path)


@lru_cache
def _file(variable: str, name: str) -> Any:
    return np.load(folder(variable) / f"{name}.npz")


def _keys(variable: str, name: str, prefix: str) -> list[str]:
    return [k[len(prefix) :] for k in _file(variable, name).files if k.startswith(prefix)]


def causes(name: str, offset: int = 0) -> dict[Range, tuple[int, ...]]:
    """Return the features of each fault of a series; its rows begin at row `offset`."""
    found = {}
    for line in (folder(BENCHMARK) / "causes.txt").read_text().splitlines():
        match = re.fullmatch(r"(\S+) (\d+)-(\d+):([\d,]+)", line)
        if match and match[1] == name:
            rows = offset + int(match[2]), offset + int(match[3]) + 1
            found[rows] = tuple(int(feature) - 1 for feature in match[4].split(","))
    return found


def tsb_ad_m(name: str) -> Series:
    """Return a series of TSB-AD-M; `tr_N` in its name says how long its history is."""
    data = _file(BENCHMARK, "tsb_ad_m")
    found = re.search(r"tr_(\d+)", name)
    assert found
    short = "_".join(name.split("_")[:4])  # as causes.txt has it: 065_SMD_id_9
    return series(
        "tsb_ad_m",
        name,
        data[f"X_{name}"],
        data[f"y_{name}"],
        history=int(found[1]),
        first=0,
        causes=causes(short),
    )


def asd(name: str) -> Series:
    data = _file(BENCHMARK, "asd")
    train, test = data[f"{name}_train"], data[f"{name}_test"]
    y = np.r_[np.zeros(len(train)), data[f"{name}_label"]]
    X = np.vstack([train, test])
    return series("asd", name, X, y, history=len(train), causes=causes(name, len(train)))


def gecco(name: str) -> Series:
    data = _file(BENCHMARK, "gecco")
    return series("gecco", name, data["X"], data["y"], history=GECCO_HISTORY, first=0)


def tep(name: str) -> Series:
    data = _file(BENCHMARK, "tep")
    parts = [data["normal"], data["normal_te"], data[name]]
    history = len(parts[0]) + len(parts[1])
    X = np.vstack(parts)
    return series("tep", name, X, np.arange(len(X)) >= history + TEP_ONSET, history=history)


def skab(name: str) -> Series:
    data = _file(STREAMS, "skab_valve1")
    return series("skab", name, data[f"X_{name}"], data[f"y_{name}"], history=SKAB_HISTORY)


def smd(name: str) -> Series:
    data = _file(STREAMS, f"smd_machine_{name}")
    X = np.vstack([data["Xtrain"][-SMD_HISTORY:], data["X"]])
    return series("smd", name, X, np.r_[np.zeros(SMD_HISTORY), data["y"]], history=SMD_HISTORY)


def nab(name: str) -> Series:
    """Return a series of NAB; its history ends before the first fault, if that is in the 15 %."""
    data = _file(STREAMS, "nab")
    X, y = data[f"X_{name}"], data[f"y_{name}"]
    first = int(NAB_SHARE * len(y))
    return series("nab", name, X, y, history=min(first, int(np.argmax(y))), first=first)


def quiet(name: str) -> Series:
    """Return a real stream without faults: all alarms are false."""
    if name == "skab":
        X = _file(STREAMS, "skab_valve1")["X_anomaly_free"]
    else:
        X = _file(STREAMS, "smd_machine_1_6")["Xtrain"][:-SMD_HISTORY]
    return series("quiet", name, X, history=len(X) // 6, first=0)


def records(name: str, seed: int = 0) -> Series:
    """Return rows of some classes and a tenth as many of others, shuffled after the history."""
    dataset, normal = RECORDS[name]
    X, classes = datasets.raw(dataset)
    rng = np.random.default_rng(seed)
    usual = np.isin(classes, normal)
    rows = rng.permutation(np.flatnonzero(usual))[:RECORD_ROWS]
    odd = rng.permutation(np.flatnonzero(~usual))[: len(rows) // 10]
    later = rng.permutation(np.r_[rows[RECORD_HISTORY:], odd])
    order: Array = np.r_[rows[:RECORD_HISTORY], later]
    y = ~usual[order]
    return series("records", name, X[order], y, history=RECORD_HISTORY, ordered=False)


LABELLED = (
    Collection(
        "tsb_ad_m", "TSB-AD-M", lambda: _keys(BENCHMARK, "tsb_ad_m", "X_"), tsb_ad_m, BENCHMARK
    ),
    Collection(
        "asd",
        "ASD, servers",
        lambda: [k[:-6] for k in _file(BENCHMARK, "asd").files if k.endswith("_train")],
        asd,
        BENCHMARK,
    ),
    Collection("gecco", "GECCO, drinking water", lambda: ["gecco"], gecco, BENCHMARK),
    Collection(
        "tep",
        "Tennessee Eastman",
        lambda: [k for k in _file(BENCHMARK, "tep").files if k.startswith("fault")],
        tep,
        BENCHMARK,
    ),
    Collection(
        "skab",
        "SKAB, water loop",
        lambda: [k for k in _keys(STREAMS, "skab_valve1", "X_") if k.startswith("valve")],
        skab,
        STREAMS,
    ),
    Collection("smd", "SMD, a server", lambda: ["1_6"], smd, STREAMS),
    Collection("nab", "NAB", lambda: _keys(STREAMS, "nab", "X_"), nab, STREAMS),
    Collection("records", "records without order", lambda: list(RECORDS), records, DATA),
    Collection("quiet", "real streams without faults", lambda: ["skab", "smd"], quiet, STREAMS),
)

"""Labelled streams of which it is known how long a row lasts, with the times of their rows.

With times, a monitor takes patterns of the day and of the week out of the samples. The streams have
no times of their own: the first row is at midnight of a Thursday, and no row is missing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.benchmark import collections
from experiments.benchmark.series import Collection, Series

WHOLE = {c.name: c for c in collections.LABELLED}
SECONDS = {"asd": 300, "gecco": 60, "smd": 60, "nab": 300}  # that a row lasts
LONGER = {"nyc_taxi": 1_800, "ambient_temperature_system_failure": 3_600}


def load(name: str) -> Series:
    collection, stream = name.split(": ")
    whole = WHOLE[collection].load(stream)
    times = float(LONGER.get(stream, SECONDS[collection])) * np.arange(len(whole.X))
    return replace(whole, collection="timed", name=name, times=times)


def names() -> list[str]:
    return [
        f"{collection}: {stream}"
        for collection in SECONDS
        if WHOLE[collection].missing() is None
        for stream in WHOLE[collection].names()
    ]


COLLECTION = Collection("timed", "labelled streams with times", names, load)

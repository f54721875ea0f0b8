"""`fit`: the initial fit of a detector as one tree of sums. `measure`: the unit of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from onlad import reference
from onlad.detector import Detector
from onlad.fleet.spark.columns import NUMBER, need_types, number
from onlad.reference import Array
from onlad.rows import LARGEST

LEAST_SHARE, SMALLEST = 1e-8, 1e-30  # of the mean, and at all: no deviation is smaller


def measure(df: DataFrame, features: Sequence[str]) -> tuple[Array, Array]:
    """Return mean and standard deviation of each feature over all rows of `df`.

    A deviation is at least a hundred-millionth of the mean. Missing values are left out.
    """
    cells = []
    for name in features:
        x = sf.when(~sf.isnan(number(name)), number(name))  # null is in no sum
        parts = [sf.avg(x), sf.var_pop(x)]
        cells.append(sf.array(*(sf.coalesce(part.cast("double"), sf.lit(0.0)) for part in parts)))
    mean, variance = np.array(df.agg(sf.array(*cells)).first()[0]).T
    return mean, np.maximum(np.sqrt(variance), LEAST_SHARE * np.abs(mean) + SMALLEST)


def fit(
    df: DataFrame,
    features: Sequence[str],
    detector: Detector,
    unit: tuple[Array, Array] | None = None,
    clip: float = 20.0,
) -> Detector:
    """Return `detector` fitted to all rows of `df`: what its `fit` does with them on one machine.

    Each partition sums what it has, and a tree adds the sums, so that no machine sees the rows of
    another. It equals the local fit within 100 roundings times the condition of the sum.

    Parameters
    ----------
    unit, clip
        If given, `unit` is subtracted from and divided by, as `measure` returns it, and what is
        then larger than `clip` is cut off.
    """
    names, n = tuple(features), len(features)
    need_types(df, names, NUMBER, "numbers")
    settings, N = detector.settings(), detector.n_hidden

    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        alpha, b = reference.draw(n, N, settings.weights, settings.seed)
        gram, moment, rows, bad = np.zeros((N, N)), np.zeros((N, n)), 0, 0
        for batch in batches:
            X = np.column_stack([c.to_numpy(zero_copy_only=False) for c in batch.columns])
            Z = X if unit is None else np.clip((X - unit[0]) / unit[1], -clip, clip)
            Z = Z[np.abs(Z).max(axis=1) <= LARGEST]  # false for NaN too
            bad, rows = bad + len(X) - len(Z), rows + len(Z)
            H = reference.activate(Z @ alpha + b, settings.activation)
            gram += H.T @ H
            moment += H.T @ Z
        sums = np.concatenate([gram.ravel(), moment.ravel(), [rows, bad]])
        yield pa.RecordBatch.from_pydict({"sums": [sums.tobytes()]})

    numbers = df.select(*(number(name).alias(f"x{j}") for j, name in enumerate(names)))
    parts = numbers.mapInArrow(summed, "sums binary").rdd
    nothing = np.zeros(N * N + N * n + 2)
    total = parts.map(lambda row: np.frombuffer(row[0])).treeAggregate(nothing, np.add, np.add)
    gram, moment, counts = np.split(total, [N * N, N * N + N * n])
    if counts[1]:
        raise ValueError(
            f"{counts[1]:.0f} of {counts.sum():.0f} rows have a value that is missing or infinite. "
            "Leave them out, for example with df.dropna(subset=features)"
        )
    if not counts[0]:
        raise ValueError("fit got no rows")
    fitted = Detector.resumed(settings)
    return fitted.fit_sums(gram.reshape(N, N), moment.reshape(N, n), int(counts[0]))

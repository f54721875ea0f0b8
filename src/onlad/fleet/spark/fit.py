"""`fit`: the initial fit of a detector as one tree of sums. `measure`: what its scaler needs."""

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
from onlad.scaler import scale


def measure(df: DataFrame, features: Sequence[str]) -> Array:
    """Return the memory of `onlad.scaler.Standard` after all rows of `df`.

    It is what ``start`` returns on one machine. ``Standard().unit(memory)`` is what `fit` wants.
    """
    cells = []
    for name in features:
        x = sf.when(~sf.isnan(number(name)), number(name))  # null is in no sum
        parts = [sf.count(x), sf.avg(x), sf.var_pop(x)]
        cells.append(sf.array(*(sf.coalesce(part.cast("double"), sf.lit(0.0)) for part in parts)))
    return np.array(df.agg(sf.array(*cells)).first()[0]).T.copy()


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
        If given, rows are scaled first by `onlad.scaler.scale`; `measure` gives the unit.
    """
    names, n = tuple(features), len(features)
    need_types(df, names, NUMBER, "numbers")
    settings, N = detector.settings(), detector.n_hidden

    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        alpha, b = reference.draw(n, N, settings.weights, settings.seed)
        gram, moment, rows, bad = np.zeros((N, N)), np.zeros((N, n)), 0, 0
        for batch in batches:
            X = np.column_stack([c.to_numpy(zero_copy_only=False) for c in batch.columns])
            Z = X if unit is None else scale(X, unit, clip)
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

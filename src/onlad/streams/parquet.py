"""Read Parquet files in batches; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from onlad.rows import LARGEST, Names
from onlad.streams.block import Bad, Block, Choice, StreamError, Time
from onlad.streams.stop import Stop

ROWS = 4096


def open_parquet(path: Path) -> Any:
    """Return pyarrow's view of the file."""
    try:
        from pyarrow import ArrowInvalid, parquet  # noqa: PLC0415  (an extra)
    except ImportError:
        raise StreamError("Parquet needs pyarrow: pip install onlad[parquet]") from None
    try:
        return parquet.ParquetFile(path, pre_buffer=False)
    except (OSError, ArrowInvalid) as error:
        raise StreamError(f"cannot read {path}: {' '.join(str(error).split())}") from None


def blocks(file: Any, choice: Choice, known: Names, stop: Stop) -> Iterator[Block]:
    """Yield the samples of a Parquet file."""
    roles = choice.roles(file.schema_arrow.names, known)
    wanted = [*roles.features, *(name for name in roles[1:] if name is not None)]
    row = 0
    for batch in file.iter_batches(ROWS, columns=wanted):
        values = np.column_stack([_numbers(batch.column(name), name) for name in roles.features])
        texts = {name: batch.column(name).to_pylist() for name in roles[1:] if name is not None}
        times = None if roles.time is None else [_time(value) for value in texts[roles.time]]
        labels = None if roles.label is None else [_label(value) for value in texts[roles.label]]
        index = row + np.arange(len(values))
        row += len(values)
        bad = []
        strange = np.abs(values) > LARGEST  # never true of NaN
        for i in np.flatnonzero(strange.any(axis=1)).tolist():
            j = int(np.argmax(strange[i]))
            held = f"column {roles.features[j]!r} holds {values[i, j]:g}"
            why = f"{held}, which cannot be a measurement"
            bad.append(Bad(f"row {index[i]}", why, int(index[i])))
        block = Block(roles.features, values, index, times, labels, bad=bad, position=row)
        yield block.part(np.flatnonzero(~strange.any(axis=1))) if bad else block
        if stop.signal:
            return


def _numbers(column: Any, name: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    try:
        numbers = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise StreamError(
            f"column {name!r} holds {column.type}, not numbers. --ignore {name} leaves it out"
        ) from None
    return numbers.to_numpy(zero_copy_only=False)  # null becomes NaN


def _time(value: Any) -> Time:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return value if isinstance(value, (str, int, float)) else None


def _label(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)

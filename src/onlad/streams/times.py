"""Times as sources write them: one rule for files, messages and output."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation

import numpy as np

from onlad.reference import Array

#: Numbers below the first are in s, ms and us: the second is how many make a second. Others are ns.
UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))
LATEST = float(UNITS[0][0])  # seconds since 1970


def nanoseconds(time: str | float) -> int:
    """Return a time as nanoseconds since 1970: ISO 8601, or a number in s, ms, us or ns by size.

    Examples
    --------
    >>> nanoseconds("1970-01-01T00:00:02Z"), nanoseconds("1700000000"), nanoseconds(1700000000123)
    (2000000000, 1700000000000000000, 1700000000123000000)
    """
    return round(_seconds(time) * 10**9)  # OverflowError or ValueError if it is not finite


def seconds(time: str | float) -> float:
    """Return a time as seconds since 1970, by the rule of `nanoseconds`."""
    try:
        found = float(_seconds(time))
    except ValueError:
        found = float("nan")
    if not abs(found) <= LATEST:
        raise ValueError(
            f"the time {time!r:.60} cannot be read: give seconds since 1970, or ISO 8601"
        )
    return found


def seconds_or_nan(time: str | float | None) -> float:
    """Return a time as seconds since 1970, NaN if it is missing or cannot be read."""
    try:
        return math.nan if time is None else seconds(time)
    except ValueError:
        return math.nan


def moments(times: Iterable[str | float | None]) -> Array:
    """Return times as seconds since 1970; `ValueError` if one is missing or is none.

    Examples
    --------
    >>> moments(["2026-11-16 06:00:00", "2026-11-16 06:00:05"]).tolist()
    [1794808800.0, 1794808805.0]
    >>> moments(["1794808800", 1794808800500]).tolist()
    [1794808800.0, 1794808800.5]
    """
    found = list(times)
    # Most are written alike, and read at once.
    with contextlib.suppress(ValueError, TypeError):
        numbers = np.array(found, "float64")
        size = np.abs(numbers)
        if (size < 1e21).all():  # never true of NaN
            below, units = zip(*UNITS, strict=True)
            return np.asarray(numbers / np.select([size < most for most in below], units, 10**9))
    with contextlib.suppress(ValueError, TypeError):
        texts = np.array(found, "U32")
        if (np.char.str_len(texts) == 19).all():
            return texts.astype("datetime64[s]").astype("float64")
    return np.array([seconds("" if time is None else time) for time in found])


def _seconds(time: str | float) -> Decimal:
    text = str(time).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _from_iso(text)
    for below, unit in UNITS:
        if number.is_nan() or abs(number) < below:
            return number / unit
    return number / 10**9


def _from_iso(text: str) -> Decimal:
    fraction = re.search(r"[.,](\d{1,9})", text)  # Python 3.10 knows 3 or 6 digits only, and no Z
    rest = re.sub(r"[zZ]$", "+00:00", re.sub(r"[.,]\d+", "", text))
    when = datetime.fromisoformat(rest)
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    since = when - datetime(1970, 1, 1, tzinfo=timezone.utc)
    part = Decimal(f"0.{fraction.group(1)}") if fraction else Decimal(0)
    return since.days * 86400 + since.seconds + part

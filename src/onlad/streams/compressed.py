"""Read files that gzip or Zstandard compressed; other compressed formats are refused by name."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

from onlad.streams.block import StreamError

#: First bytes of files that are not text, and what to do about it.
OTHERS = {
    b"PK\x03\x04": "is an Excel workbook, or a ZIP archive. Save the table as CSV",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook. Save the table as CSV",
    b"BZh": "is compressed with bzip2. Unpack it: bzip2 -dc FILE | onlad watch -",
    b"\xfd7zXZ": "is compressed with xz. Unpack it: xz -dc FILE | onlad watch -",
    b"PAR1": "is Parquet. Read it with --input parquet",
}
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
DAMAGED = (OSError, EOFError, zlib.error)  # what reading such a file may raise


def _opened(path: Path, kind: bytes) -> Any:
    if kind == GZIP:
        return gzip.open(path)
    try:
        import pyarrow  # noqa: PLC0415  (an extra, and slow to import)
    except ImportError:
        how = "zstd -dc FILE | onlad watch -, or pip install 'onlad[parquet]'"
        raise StreamError(f"{path} is compressed with Zstandard. Unpack it: {how}") from None
    return pyarrow.input_stream(str(path), compression="zstd")


def unpacked(path: Path, head: bytes, follow: bool) -> Any:
    """Return the contents of a compressed file, else None; refuse files that are not text."""
    for start, what in OTHERS.items():
        if head.startswith(start):
            raise StreamError(f"{path} {what.replace('FILE', str(path))}")
    kind = next((kind for kind in (GZIP, ZSTD) if head.startswith(kind)), None)
    if kind is None:
        return None
    if follow:
        raise StreamError(f"{path} is compressed; only a file that grows can be followed")
    return _opened(path, kind)

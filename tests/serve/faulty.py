"""`onlad serve` with a fault in compiled code: a message with `boom` in it ends the process."""

import ctypes
import sys
from pathlib import Path

from onlad.serve import config, run
from onlad.streams import records

real = records.parsed


def faulty(data):
    if b"boom" in data:
        ctypes.string_at(0)
    return real(data)


if __name__ == "__main__":
    records.parsed = faulty
    run.serve(config.load(Path(sys.argv[1])))

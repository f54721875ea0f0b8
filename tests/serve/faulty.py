"""`onlad serve` with a fault in compiled code: a message with `boom` in it ends the process."""

import ctypes
import sys
from pathlib import Path

from onlad.serve import config, payload, run

real = payload.orjson.loads


class Faulty:
    @staticmethod
    def loads(data):
        if b"boom" in data:
            ctypes.string_at(0)
        return real(data)


if __name__ == "__main__":
    payload.orjson = Faulty
    run.serve(config.load(Path(sys.argv[1])))

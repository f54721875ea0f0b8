"""Starts services by fork, so that hundreds of starts do not import everything each time.

Reads lines: ``start`` forks a service and writes its process number; ``wait`` collects it.
"""

import os
import sys
from pathlib import Path

from onlad.serve import config, mqtt, run  # noqa: F401  (imported before the first fork)


def main(path):
    settings = config.load(Path(path))
    child = 0
    for line in sys.stdin:
        if line.strip() == "start":
            child = os.fork()
            if child == 0:
                try:
                    run.serve(settings)
                    os._exit(0)
                finally:
                    os._exit(1)
            print(child, flush=True)
        else:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

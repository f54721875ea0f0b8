"""Import first: one BLAS thread a process. Processes share the cores, and sums keep their order."""

import os

for _name in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

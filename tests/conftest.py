import ctypes
import os
from importlib.util import find_spec

from hypothesis import settings

# Matrices are small and the parts of the tests run side by side: threads would only wait. Set
# before the first test module imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def has_gpu() -> bool:
    """Return whether PyTorch finds a GPU; it is asked only where there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


# Without a GPU the kernels of onlad.fleet run in Triton's interpreter. It looks at this when it is
# imported, by whomever.
os.environ["TRITON_INTERPRET"] = "0" if has_gpu() else "1"

# Searched examples are the same on each machine and each day, and a loaded machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

import os

from hypothesis import settings

# Matrices are small and the parts of the tests run side by side: threads would only wait. Set
# before the first test module imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without a GPU the kernels of onlad.fleet run in Triton's interpreter. It looks at this when it is
# imported, by whomever.
os.environ["TRITON_INTERPRET"] = "1"

# Searched examples are the same on each machine and each day, and a loaded machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

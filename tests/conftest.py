import os

from hypothesis import settings

# Matrices are small and pytest-xdist has a process for each core: threads would only wait. Set
# before the first test module imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Searched examples are the same on each machine and each day, and a loaded machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

"""Leave out the examples of hosts that are not there, and count no lines where it is in vain."""

import os
import shutil
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import is_hypothesis_test

UNCOUNTED = (
    "test_bank_cuda", "test_core_formal", "test_docs", "test_kill", "test_long_life",
    "test_memories_formal", "test_monitors_cuda", "test_pynq", "test_recipes", "test_ends_formal",
    "test_rtl_core", "test_spark", "test_spark_kill",
)  # fmt: skip
SPARK = find_spec("pyspark") and shutil.which("java")

collect_ignore = [] if find_spec("river") else ["docs/howto/adapters.md"]  # none for Python 3.10
collect_ignore += [] if SPARK else ["docs/howto/spark.md"]
# Importing them takes PyTorch and Triton (extra gpu).
collect_ignore += (
    []
    if find_spec("torch") and find_spec("triton")
    else ["src/onlad/fleet/cuda.py", "src/onlad/fleet/kernels.py"]
)
collect_ignore_glob = [] if find_spec("pyspark") else ["src/onlad/fleet/spark/*"]
collect_ignore_glob += [] if find_spec("torch") else ["src/onlad/fleet/tensors/*"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs long and covers next to nothing that others do not: counting costs time.

    A searched example is one of hundreds that go the same way.
    """
    for item in items:
        if item.path.stem in UNCOUNTED or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Leave the processes of an uncounted test uncounted too: the marker stops only our own."""
    counted = {k: v for k, v in os.environ.items() if k.startswith("COVERAGE_PROCESS_")}
    if item.get_closest_marker("no_cover"):
        for name in counted:
            del os.environ[name]
    try:
        return (yield)
    finally:
        os.environ.update(counted)

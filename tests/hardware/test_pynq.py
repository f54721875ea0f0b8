"""PYNQ pins old versions of NumPy and others, so its tests run in an environment of their own."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(sys.prefix) / "pynq" / "bin" / "python"


@pytest.mark.skipif(not PYTHON.exists(), reason="needs PYNQ: make .venv/.pynq")
def test_the_driver_of_the_board_on_the_real_pynq(pynq_core_library):
    here = Path(__file__).parent
    plugins = ["-pno:cacheprovider", "-pno:cov"]
    options = ["-q", *plugins, "-ofilterwarnings=", "-oaddopts="]
    # PYNQ's own packages come first, then this environment's.
    program = (
        f"import site, sys; [site.addsitedir(folder) for folder in {site.getsitepackages()!r}]\n"
        f"sys.path.insert(0, {str(here)!r}); import pytest\n"
        f"sys.exit(pytest.main([*{options!r}, {str(here / 'on_pynq.py')!r}]))"
    )
    done = subprocess.run(
        [PYTHON, "-c", program], cwd=here, capture_output=True, text=True, check=False,
        env=os.environ | {"ONLAD_LIBRARY": str(pynq_core_library)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


@pytest.fixture
def pynq_core_library():
    pytest.importorskip("amaranth")
    from onlad.hardware import OnladCore

    return OnladCore(n=16, hidden=8, lanes=2, activation="sigmoid").build()

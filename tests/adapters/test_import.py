import importlib
import inspect
import subprocess
import sys

import pytest

from onlad import Detector

HOSTS = {
    "sklearn": "scikit-learn",
    "river": "River",
    "pyod": "PyOD",
    "pysad": "PySAD",
    "capymoa": "CapyMOA",
}


def test_importing_onlad_imports_no_host():
    code = f"import sys, onlad, onlad.adapters; print(set(sys.modules) & {set(HOSTS)})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


@pytest.mark.parametrize("host", HOSTS)
def test_a_missing_host_is_named_with_its_extra(host, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == host]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, host, None)
    monkeypatch.delitem(sys.modules, f"onlad.adapters.{host}", raising=False)
    message = rf"onlad.adapters.{host} needs {HOSTS[host]}.*pip install 'onlad\[{host}\]'"
    with pytest.raises(ImportError, match=message):
        importlib.import_module(f"onlad.adapters.{host}")


@pytest.mark.parametrize("host", ["river", "pysad", "capymoa"])
def test_defaults_of_streaming_adapters_are_those_of_the_detector(host):
    pytest.importorskip(host)
    ours = inspect.signature(importlib.import_module(f"onlad.adapters.{host}").OnladDetector)
    theirs = inspect.signature(Detector).parameters
    shared = {("score" if name == "score_type" else name): p for name, p in ours.parameters.items()}
    # River's dicts are read twice a sample, so its default is the faster dtype.
    for name in shared.keys() & theirs.keys() - {"seed", "dtype"}:
        assert shared[name].default == theirs[name].default, name

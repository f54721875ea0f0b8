import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onlad

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
HOSTS = ["sklearn", "river", "pyod", "pysad", "capymoa", "matplotlib", "pandas", "rich"]


def documented():
    """Return directive and target of each entry of the page."""
    return re.findall(r"^\.\. (auto\w+):: ([\w.]+)", PAGE.read_text(), re.MULTILINE)


def public_errors():
    module = importlib.import_module("onlad.errors")
    return {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == "onlad.errors"
    }


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_the_public_names_are_those_of_the_documentation():
    listed = {
        target.removeprefix("onlad.")
        for directive, target in documented()
        if directive != "automodule" and target.count(".") == 1
    }
    assert ("automodule", "onlad.errors") in documented()
    assert sorted(listed | public_errors()) == sorted(onlad.__all__)


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_each_documented_name_is_there():
    for directive, target in documented():
        if target.startswith(("onlad.adapters.", "onlad.fleet.spark")):
            continue  # they need their hosts
        if directive == "automodule":
            assert importlib.import_module(target).__doc__
        else:
            module, name = target.rsplit(".", 1)
            assert getattr(importlib.import_module(module), name).__doc__


def test_all_names_resolve_in_order_and_nothing_else_is_public():
    assert onlad.__all__ == sorted(onlad.__all__)
    names = set(onlad.__all__) - {"__version__"}  # a string
    for name in names:
        assert getattr(onlad, name).__doc__
        assert getattr(onlad, name).__module__.startswith("onlad.")
    extra = {
        name
        for name, value in vars(onlad).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert extra == names


def test_the_package_imports_nothing_but_numpy():
    program = (
        "import sys, onlad; onlad.Monitor().observe([1.0]); "
        f"print([name for name in {HOSTS!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_package_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "onlad", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"onlad {onlad.__version__}\n"


def test_errors_have_one_base():
    for name in public_errors():
        assert issubclass(getattr(onlad, name), onlad.OnladError)


PROJECT = PAGE.parents[1] / "pyproject.toml"


@pytest.mark.skipif(not PROJECT.exists(), reason="the tests of a wheel stand alone")
def test_the_version_is_that_of_the_project():
    text = PROJECT.read_text()
    version = re.search(r'^version = "(.+)"', text, re.MULTILINE).group(1)
    assert importlib.metadata.version("onlad") == version
    assert onlad.__version__ == version


def test_what_make_installs_beside_the_kernel_is_what_it_needs():
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    path = Path(__file__).parents[1] / "pyproject.toml"
    told = tomllib.loads(path.read_text())
    needed = told["project"]["dependencies"] + told["project"]["optional-dependencies"]["plot"]
    assert sorted(told["dependency-groups"]["run"]) == sorted(needed)

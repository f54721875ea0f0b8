"""Sphinx settings. Builds are offline: no intersphinx, no downloads."""

from importlib.metadata import version as installed_version
from importlib.util import find_spec

project = "onlad"
author = "the onlad developers"
copyright = "2026, the onlad developers"
release = version = installed_version("onlad")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# CapyMOA needs Java even to be imported; River has no release for Python 3.10.
autodoc_mock_imports = ["capymoa"] + ([] if find_spec("river") else ["river"])
napoleon_google_docstring = False
napoleon_numpy_docstring = True

html_theme = "furo"
html_title = f"onlad {release}"

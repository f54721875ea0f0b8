"""Leave out the examples of hosts that are not installed: River has no release for Python 3.10."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("river") else ["docs/adapters.md"]

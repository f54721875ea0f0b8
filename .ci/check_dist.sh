#!/usr/bin/env bash
# Build the source package, the wheel from it, and import the wheel in an empty environment.
# Usage: .ci/check_dist.sh PYTHON    (a Python that has the group `build`)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without isolation: what the build needs is in PYTHON's environment already.
if ! "$python" -m build --no-isolation --outdir "$work/dist" >"$work/build.log" 2>&1; then
  cat "$work/build.log"
  exit 1
fi
"$python" -m venv --without-pip "$work/venv"
"$python" -m pip --python "$work/venv" --quiet --disable-pip-version-check install "$work"/dist/*.whl

# From an empty folder: the wheel must be found, never the checkout.
mkdir "$work/empty"
cd "$work/empty"
"$work/venv/bin/python" -c '
import onlad
import onlad._kernel

for name in onlad.__all__:
    getattr(onlad, name)
print("wheel: imports", len(onlad.__all__), "names from", onlad.__file__)
'
"$work/venv/bin/onlad" --help >/dev/null

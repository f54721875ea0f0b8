#!/usr/bin/env bash
# Cross-build the kernel for 64-bit Arm and run its tests under qemu-user, with Debian's Python.
# Usage: .ci/check_arm.sh PYTHON    (a Python that has the group `build`)
# Needs g++-aarch64-linux-gnu, qemu-user-static and a Debian that can be downloaded from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
nanobind=$("$1" -c 'import nanobind, os; print(os.path.dirname(nanobind.__file__))')
version=$("$1" -c 'from onlad import __version__; print(__version__)')
work=${ARM:-build/arm}
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,log,root,objects,site}
work=$(realpath "$work")
root=$work/root

# Packages of the other architecture, beside this system and not in it.
if [[ ! -x $root/usr/bin/python3.11 ]]; then
  : >"$work/state/status"
  cat >"$work/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
Dir::Log "$work/log";
END
  APT_CONFIG=$work/apt.conf apt-get -qq update
  APT_CONFIG=$work/apt.conf apt-get -qq -y --download-only install \
    python3.11 python3-numpy python3-pytest python3-hypothesis libpython3.11-dev >/dev/null
  for package in "$work"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
  cp -L /usr/aarch64-linux-gnu/lib/lib{stdc++.so.6,gcc_s.so.1} "$root/usr/lib/aarch64-linux-gnu/"
fi

flags=(-fPIC -fvisibility=hidden -DNDEBUG -Wno-psabi)
includes=(-I"$root/usr/include/python3.11" -idirafter "$root/usr/include")
includes+=(-I"$nanobind/include" -I"$nanobind/ext/robin_map/include")
plus=(aarch64-linux-gnu-g++ -std=c++17 -O2 -fno-strict-aliasing "${flags[@]}" "${includes[@]}")
level=(-O3 -DONLAD_LEVEL=plain -DONLAD_VECTOR_BYTES=16 -fno-math-errno -fno-trapping-math)
objects=$work/objects
aarch64-linux-gnu-gcc -std=c99 -O2 -ffp-contract=off "${flags[@]}" -c cpp/portable.c \
  -o "$objects/portable_c.o"
"${plus[@]}" -c "$nanobind/src/nb_combined.cpp" -o "$objects/nanobind.o"
for source in cpp/*.cpp; do
  name=$(basename "$source" .cpp)
  more=()
  [[ $name == level ]] && more=("${level[@]}")
  "${plus[@]}" "${more[@]}" -DONLAD_VERSION="\"$version\"" -c "$source" -o "$objects/$name.o"
done
rm -rf "$work/site/onlad"
cp -r src/onlad "$work/site/"
rm -f "$work"/site/onlad/_kernel*.so
aarch64-linux-gnu-g++ -shared "$objects"/*.o \
  -o "$work/site/onlad/_kernel.cpython-311-aarch64-linux-gnu.so"

# Debian's hypothesis is older than the settings of pyproject.toml: only the tests' own count here.
printf '[pytest]\nmarkers =\n  slow: minutes\n  no_cover: without coverage\n' >"$work/pytest.ini"
libraries=$root/usr/lib/aarch64-linux-gnu
PYTHONHOME=$root/usr PYTHONPATH=$work/site:$root/usr/lib/python3/dist-packages \
  qemu-aarch64-static -L "$root" -E LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \
  "$root/usr/bin/python3.11" -m pytest -q -p no:cacheprovider -c "$work/pytest.ini" \
  --rootdir=tests --confcutdir=tests -m "not slow" "${@:2}"

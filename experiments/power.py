"""Energy of a training step, read from the counters that the machine has: RAPL and NVML.

    python -m experiments.power                        # the processor
    python -m experiments.power --only fpelm nn dnn    # JAX alone, where it finds a GPU there

Each implementation trains without pause, at the size of the paper's fig:power. Where a machine
has no counter, the record says so and has no joules: nothing is guessed. RAPL counts the whole
processor package and NVML the whole card, so what else runs counts too; the same counters over
as long a rest give the power at idle.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

from experiments import records
from experiments.latency import replace
from experiments.records import Record
from experiments.settings import paper
from experiments.steps import IMPLEMENTATIONS, device, machine

SECONDS = 5.0
POWERCAP = Path("/sys/class/powercap")
Counter = Callable[[], float]  # joules since some start


def rapl(folder: Path = POWERCAP) -> dict[str, Counter]:
    """Return a counter for each processor package; none where they cannot be read."""

    def counter(zone: Path) -> Counter:
        largest = int((zone / "max_energy_range_uj").read_text())
        last, turns = int((zone / "energy_uj").read_text()), 0

        def joules() -> float:
            nonlocal last, turns
            now = int((zone / "energy_uj").read_text())
            turns += now < last  # the counter starts again at 0
            last = now
            return 1e-6 * (now + turns * largest)

        joules()
        return joules

    found = {}
    for zone in sorted(folder.glob("*rapl:*")):
        try:
            name = (zone / "name").read_text().strip()
            if name.startswith("package"):
                found[f"RAPL {name}"] = counter(zone)
        except OSError:  # only root may read it on most systems
            continue
    return found


def nvml(library: str = "libnvidia-ml.so.1") -> dict[str, Counter]:
    """Return a counter for each GPU; none where there is no driver."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return {}
    count = ctypes.c_uint()
    if driver.nvmlInit_v2() or driver.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return {}

    def counter(handle: ctypes.c_void_p) -> Counter:
        def joules() -> float:
            millijoules = ctypes.c_ulonglong()
            error = driver.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
            if error:
                raise OSError(f"NVML cannot read the energy: error {error}")
            return millijoules.value / 1000

        joules()
        return joules

    found = {}
    for i in range(count.value):
        handle = ctypes.c_void_p()
        try:
            if not driver.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)):
                found[f"NVML GPU {i}"] = counter(handle)
        except OSError:  # cards before Volta have no such counter
            continue
    return found


def counters() -> dict[str, Counter]:
    return rapl() | nvml()


def watch(work: Callable[[], object], found: dict[str, Counter], seconds: float) -> Record:
    """Repeat the work for some seconds; return how often, how long, and each counter's joules."""
    start, begun, steps = {n: read() for n, read in found.items()}, time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        work()
        steps += 1
    elapsed = time.perf_counter() - begun
    joules = {name: read() - start[name] for name, read in found.items()}
    return {"steps": steps, "seconds": round(elapsed, 3), "joules": joules}


def measure(name: str, found: dict[str, Counter], seconds: float = SECONDS) -> Record:
    """Return the record of one implementation; "idle" is none of them, asleep."""
    size = {field: paper()["power"][field] for field in ("n_features", "n_hidden")}
    # Those that count the device of this implementation; any will do for a rest.
    wanted = "" if name == "idle" else "NVML" if device(name) == "gpu" else "RAPL"
    found = {counter: read for counter, read in found.items() if counter.startswith(wanted)}
    if name == "idle":
        run = watch(lambda: time.sleep(0.05), found, seconds) | {"steps": 0}
    else:
        step = IMPLEMENTATIONS[name](**size)
        rows = cycle(step.samples)
        watch(lambda: step.train(next(rows)), {}, seconds / 5)  # compiles, and warms the clocks
        run = watch(lambda: step.train(next(rows)), found, seconds)
    return {
        "implementation": name,
        "device": device(name),
        **size,
        **run,
        "watts": {n: round(j / run["seconds"], 2) for n, j in run["joules"].items()},
        "joules_per_step": {n: j / run["steps"] for n, j in run["joules"].items() if run["steps"]},
        "missing": None
        if found
        else f"no {wanted or 'energy'} counter can be read on this machine",
        "machine": machine(),
        "commit": records.commit("experiments/steps.py", "experiments/power.py"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(IMPLEMENTATIONS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    args = parser.parse_args(arguments)
    found = counters()
    print(f"counters: {', '.join(found) or 'none on this machine'}", file=sys.stderr)
    new = []
    for name in ["idle", *(args.only or IMPLEMENTATIONS)]:
        new.append(measure(name, found, args.seconds))
        print(json.dumps(new[-1]), flush=True)
    replace("power", new, ("implementation", "device"))


if __name__ == "__main__":
    main()

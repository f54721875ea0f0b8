"""Repeat a part of the stored records and compare: `make reproduce QUICK=1`.

OS-ELM methods run on every dataset at hand, and on digits, which scikit-learn brings along; ways to
forget, equal budgets and the peers that take seconds on one of them; then a trial of each other
table that is no timing. Each trial must give its stored AUC again: to 1e-6 on a machine as that of
the record, to 1e-3 elsewhere, where sums are taken in another order. The pages must be those that
the records give. `BY_TESTS` and `TIMINGS` name the tables that are not repeated here.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from experiments import (
    adapter_defaults,
    chunk_size,
    core_accuracy,
    core_detection,
    datasets,
    drift,
    operations,
    records,
    report,
    scaling,
    score_choice,
    streams,
    tune,
)
from experiments.benchmark import report as benchmark
from experiments.records import Record
from experiments.reproduce import cells, in_parallel
from experiments.run import Cell
from onlad.kernel import BACKEND

SAME, ELSEWHERE = 1e-6, 1e-3  # how far an OS-ELM trial may be from its record
SMALL = "letter_recognition"  # where ways to forget, equal budgets and peers are repeated
SLOW = ("hst", "ocsvm", "loda", "kitnet", "iforest", "vae", "deep-svdd")  # offline
SCALED = "drive_diagnosis"  # where a trial with the scale of the first rows is repeated
DRIFTING = "mnist"  # of the picture of drift
STREAMS = ("skab valve1_0", "nab nyc_taxi")
LEVEL = "x86-64-v3"  # the kernel's instructions on the machine of the records
HERE = (  # files of records of which a trial is repeated here, beside those of AUC and search
    "adapter_defaults", "chunk_size", "core_accuracy", "core_detection", "drift", "operations",
    "precision", "scaling", "score_choice", "streams", "wind_up",
)  # fmt: skip
BY_TESTS = ("ablation", "core_area", "core_latency", "neural_deviation")
TIMINGS = ("forgetting_cost", "latency", "power", "ways_cost")  # another machine has others


def wanted() -> Iterator[Cell]:
    """Yield the cells whose first trial is repeated."""
    at_hand = [name for name in datasets.DATASETS if datasets.available(name)]
    for cell in cells(("os-elm",), None, at_hand):
        # Found settings are others of what runs with the paper's; equal budgets are seen once.
        if cell.settings in ("paper", "ours") or (cell.settings, cell.dataset) == ("equal", SMALL):
            yield cell
    small = [name for name in at_hand if name == SMALL]
    yield from cells(("variant",), None, small)
    for cell in cells(("peer",), None, small):
        if cell.testbed == "online" or cell.method not in SLOW:
            yield cell


def _repeat(cell: Cell) -> Record:
    return cell.run([0])[0]


def compare(now: Record) -> tuple[str, bool]:
    """Return a line that compares a record with the stored one, and whether it is as it must be."""
    name = f"{now['testbed']:8}{now['dataset']:20}{now['method']:15}{now['settings']:6}"
    name += f" seed {now['seed']}  {now['seconds']:6.2f} s  AUC {now['auc']:.6f}"
    stored = records.read(records.auc_file(now["testbed"], now["method"]))
    before = [r for r in stored if records.key(r) == records.key(now)]
    if not before:
        return f"{name}  (no record)", True
    gap = abs(now["auc"] - before[-1]["auc"])
    same = before[-1]["machine"] == now["machine"] and BACKEND == LEVEL
    good = gap <= (SAME if same else ELSEWHERE)
    return f"{name}  stored {before[-1]['auc']:.6f}{'' if good else '  DIFFERS'}", good


Line = tuple[str, bool]  # what was compared, and whether it is as it must be


def _line(what: str, now: float, then: float, most: float = ELSEWHERE) -> Line:
    """Return a line that compares a number with the stored one."""
    good = abs(now - then) <= most
    return f"{what}: {now:.5g}  stored {then:.5g}{'' if good else '  DIFFERS'}", good


def _stored(name: str, **fields: Any) -> Record:
    """Return the first record with these values."""
    return next(r for r in records.read(name) if r.items() >= fields.items())


def _scaling() -> Line:
    """Run one trial again in which the initial rows give the scale."""
    (now,) = scaling.aucs("online", SCALED, "onlad", scaling.data("online", SCALED)[0], [0])
    then = _stored("scaling", testbed="online", dataset=SCALED, method="onlad", seed=0)
    return _line(f"scale of the first rows, {SCALED}", now, then["auc"])


def _choice(name: str) -> Line:
    """Run one trial again of the choice of a score or of a limit."""
    stored = _stored(name, dataset=SMALL, testbed="online", guard="restore", seed=0)
    fields = {field: stored[field] for field in score_choice.Setting.__dataclass_fields__}
    limit = stored.get("limit", score_choice.WIND_UP)
    found = score_choice.try_online(score_choice.Setting(**fields), 0, limit)
    now, then = (r["auc"][score_choice.CHOSEN] for r in (found, stored))
    return _line(f"{name}, {SMALL}, {stored['name']}", now, then)


def _search(method: str) -> Line:
    """Try one setting of a search again on one validation stream."""
    stored = _stored(f"tune/online-{method}", dataset=SMALL)
    (now,) = tune.try_out("online", SMALL, method, stored["hyperparameters"], [0])
    return _line(f"search of {method}, {SMALL}", now["aucs"][0], stored["aucs"][0])


def _core() -> Line:
    """Run one trial again of the core's detection."""
    trial = next(t for t in core_detection.trials() if (t.dataset, t.testbed) == (SMALL, "offline"))
    found, then = core_detection.measure(trial), _stored("core_detection", **asdict(trial))
    return _line(f"core's detection, {SMALL}", found["auc"], then["auc"])


def _drift() -> Line:
    """Watch the stream of the drift picture again."""
    found = drift.watch(DRIFTING, "onlad", 0)
    then = _stored("drift", dataset=DRIFTING, method="onlad", seed=0)
    return _line(f"drift, {DRIFTING}", found["auc"], then["auc"])


def _chunks() -> Line:
    """Learn in chunks and one by one again: what differs is rounding."""
    then = _stored("chunk_size", dataset=SMALL, method="onlad")["off"]["8"]
    return _line(f"chunks, {SMALL}: beta differs by", chunk_size.distance(SMALL, 8), then, 1e-11)


def _operations() -> Line:
    """Count the products of a step again."""
    then = records.read("operations")[0]
    now = operations.count(then["n_features"], then["n_hidden"])
    what = f"products of a step, n = {then['n_features']}, N = {then['n_hidden']}"
    return _line(what, now["train_here"], then["train_here"], 0)


def _precision() -> Line:
    """Run one long stream again in float64, which is the same at every instruction level."""
    sys.path.append(str(records.ROOT.parent / "tests"))
    from test_long_life import live  # noqa: PLC0415

    then = _stored("precision", n_features=16, forgetting=0.99)
    now = live(then["n_features"], then["forgetting"], then["rows"], 0, "float64")[1]
    return _line("long stream, float64", now, then["auc"]["float64"][0])


def _adapter() -> Line:
    """Run one split again of the adapter's defaults."""
    name, build = next(iter(adapter_defaults.detectors().items()))
    seed = adapter_defaults.JUDGED[0]
    now = adapter_defaults.score(lambda: build(seed), seed)
    then = _stored("adapter_defaults", table="judged", detector=name, seed=seed)
    return _line(f"adapter, {name}", now, then["auc"])


def _fixed_point() -> Line:
    """Run one case of the core's accuracy again. Where float64 rounds is the machine's."""
    stored = min(core_accuracy.records(), key=lambda r: (r.case["steps"], r.case["n"]))
    now = core_accuracy.measure(core_accuracy.Case(**stored.case))  # type: ignore[arg-type]
    then = stored.score_median
    return _line("core's accuracy, median error", now.score_median, then, 0.01 * then)


def _streams() -> Iterator[Line]:
    """Watch two real streams again, where they are at hand."""
    if not os.environ.get("ONLAD_STREAMS"):
        return
    for stream in (s for s in streams.labelled() if s.name in STREAMS):
        found = streams.measure(stream, *streams.METHODS["Monitor()"](0, stream.X))
        before = _stored("streams", method="Monitor()", stream=stream.name, seed=0)
        yield _line(f"Monitor() on {stream.name}", found["auc"], before["auc"])


def others() -> Iterator[Line]:
    """Yield a sample of each other table, where its data is at hand."""
    samples: dict[str, list[Callable[[], Line]]] = {
        SCALED: [_scaling],
        SMALL: [partial(_choice, name) for name in ("score_choice", "wind_up")],
        DRIFTING: [_drift],
    }
    samples[SMALL] += [*(partial(_search, method) for method in ("onlad", "fpelm")), _core, _chunks]
    for name, mine in samples.items():
        if datasets.available(name):
            yield from (sample() for sample in mine)
    yield from (sample() for sample in (_adapter, _fixed_point, _operations, _precision))
    yield from _streams()


def main() -> None:
    begun = time.monotonic()
    tasks = [(_repeat, (cell,)) for cell in wanted()]
    lines = [compare(now) for now in in_parallel("quick", tasks, os.cpu_count() or 1)]
    lines.sort()
    lines += others()
    for pages in (report, benchmark):
        with tempfile.TemporaryDirectory() as folder:
            fresh = pages.PAGE.exists() and pages.PAGE.read_text() == pages.page(Path(folder))
        stale = f"IS NOT what the records give: run python -m {pages.__name__}"
        lines.append((f"{pages.PAGE.name} {'is what the records give' if fresh else stale}", fresh))
    print("\n".join(line for line, _ in lines))
    bad = sum(not good for _, good in lines)
    print(f"{len(lines)} compared, {bad} differ, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Repeat a part of the stored records and compare: `make reproduce QUICK=1`.

OS-ELM methods run on every dataset at hand, and on digits, which scikit-learn brings along; ways to
forget, equal budgets and the peers that take seconds on one of them; then one trial of the choice
of score and limit, and one of the core's accuracy. Each trial must give its
stored AUC again: to 1e-6 on a machine as that of the record, to 1e-3 elsewhere, where sums are
taken in another order. The pages must be those that the records give.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from experiments import core_accuracy, datasets, records, report, scaling, score_choice, streams
from experiments.benchmark import report as benchmark
from experiments.records import Record
from experiments.reproduce import cells, in_parallel
from experiments.run import Cell
from onlad.kernel import BACKEND

SAME, ELSEWHERE = 1e-6, 1e-3  # how far an OS-ELM trial may be from its record
SMALL = "letter_recognition"  # where ways to forget, equal budgets and peers are repeated
SLOW = ("hst", "ocsvm", "loda", "kitnet", "iforest", "vae", "deep-svdd")  # offline
SCALED = "drive_diagnosis"  # where a trial with the scale of the first rows is repeated
STREAMS = ("skab valve1_0", "nab nyc_taxi")
LEVEL = "x86-64-v3"  # the kernel's instructions on the machine of the records


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
    name = f"{now['testbed']:8}{now['dataset']:20}{now['method']:11}{now['settings']:6}"
    name += f" seed {now['seed']}  {now['seconds']:6.2f} s  AUC {now['auc']:.6f}"
    stored = records.read(records.auc_file(now["testbed"], now["method"]))
    before = [r for r in stored if records.key(r) == records.key(now)]
    if not before:
        return f"{name}  (no record)", True
    gap = abs(now["auc"] - before[-1]["auc"])
    same = before[-1]["machine"] == now["machine"] and BACKEND == LEVEL
    good = gap <= (SAME if same else ELSEWHERE)
    return f"{name}  stored {before[-1]['auc']:.6f}{'' if good else '  DIFFERS'}", good


def _scaling() -> list[tuple[str, bool]]:
    """Run one trial again in which the initial rows give the scale, where the data is at hand."""
    if not datasets.available(SCALED):
        return []
    (now,) = scaling.aucs("online", SCALED, "onlad", scaling.data("online", SCALED)[0], [0])
    (before,) = (
        r["auc"]
        for r in records.read("scaling")
        if (r["testbed"], r["dataset"], r["method"], r["seed"]) == ("online", SCALED, "onlad", 0)
    )
    line = f"scale of the first rows, {SCALED}: AUC {now:.5f}  stored {before:.5f}"
    return [(line, abs(now - before) <= ELSEWHERE)]


def _choices() -> list[tuple[str, bool]]:
    """Run one trial again of the choice of a score and of a limit, where the data is at hand."""
    if not datasets.available(SMALL):
        return []
    lines = []
    for name in ("score_choice", "wind_up"):
        stored = next(
            r
            for r in records.read(name)
            if (r["dataset"], r["testbed"], r["guard"], r["seed"])
            == (SMALL, "online", "restore", 0)
        )
        fields = {field: stored[field] for field in score_choice.Setting.__dataclass_fields__}
        limit = stored.get("limit", score_choice.WIND_UP)
        found = score_choice.try_online(score_choice.Setting(**fields), 0, limit)
        now, then = (r["auc"][score_choice.CHOSEN] for r in (found, stored))
        line = f"{name}, {SMALL}, {stored['name']}: AUC {now:.4f}  stored {then:.4f}"
        lines.append((line, abs(now - then) <= ELSEWHERE))
    return lines


def _fixed_point() -> list[tuple[str, bool]]:
    """Run one case of the core's accuracy again. Where float64 rounds is the machine's."""
    stored = min(core_accuracy.records(), key=lambda r: (r.case["steps"], r.case["n"]))
    now = core_accuracy.measure(core_accuracy.Case(**stored.case))  # type: ignore[arg-type]
    good = abs(now.score_median / stored.score_median - 1) < 0.01
    line = f"core's accuracy: median error {now.score_median:.3e}  stored {stored.score_median:.3e}"
    return [(line, good)]


def _streams() -> list[tuple[str, bool]]:
    """Watch two real streams again, where they are at hand."""
    if not os.environ.get("ONLAD_STREAMS"):
        return []
    lines = []
    stored = {(r["method"], r["stream"], r["seed"]): r for r in records.read("streams")}
    for stream in (s for s in streams.labelled() if s.name in STREAMS):
        found = streams.measure(stream, *streams.METHODS["Monitor()"](0, stream.X))
        before = stored.get(("Monitor()", stream.name, 0))
        good = before is None or abs(before["auc"] - found["auc"]) <= ELSEWHERE
        then = f"stored {before['auc']:.5f}" if before else "(no record)"
        lines.append((f"Monitor() on {stream.name}: AUC {found['auc']:.5f}  {then}", good))
    return lines


def main() -> None:
    begun = time.monotonic()
    tasks = [(_repeat, (cell,)) for cell in wanted()]
    lines = [compare(now) for now in in_parallel("quick", tasks, os.cpu_count() or 1)]
    lines.sort()
    lines += _scaling() + _choices() + _fixed_point() + _streams()
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

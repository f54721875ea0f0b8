"""The stored costs of the chip keep what was asked for, and `onlad export` foretells them."""

import shutil

import numpy as np
import pytest
from experiments.benchmark import collections
from experiments.records import latest

from experiments import mcu
from onlad import Monitor
from onlad.mcu import PortableMonitor, export
from onlad.mcu.definition import Definition
from onlad.mcu.layout import DELAY
from onlad.mcu.portable import to_bytes
from onlad.verdict import Verdicts

RECORDS = latest("mcu/cost", "features", "hidden", "board")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("cost", ("features", "hidden", "board")),
        ("variants", ("variant", "features", "hidden", "board")),
        ("precision", ("collection",)),
        ("judged", ("collection",)),
        ("detection", ("collection",)),
        ("seeds", ("collection",)),
        ("profile", ("board",)),
    ],
)
def test_the_records_are_of_the_source_as_it_is(name, keys):
    records = latest(f"mcu/{name}", *keys)
    stale = [[r[key] for key in keys] for r in records if r["source"] != mcu.source()]
    assert not stale, f"run python -m experiments.mcu {name}"


def test_every_run_on_a_chip_was_equal_to_python():
    assert len(RECORDS) == len(mcu.LIMITS) * len(mcu.BOARDS) + len(mcu.SIZES) - len(mcu.LIMITS)
    assert all(record["equal"] for record in RECORDS)


def check(record, size):
    """Compare what was measured with what was asked for."""
    ram, code, instructions = mcu.LIMITS[size]
    assert record["equal"]
    assert record["ram"] + record["stack"] <= 1024 * ram
    assert record["worst"] <= 2 * record["typical"]
    if record["board"] == "m4f":
        assert record["code"] <= 1024 * code
        assert record["typical"] <= instructions


@pytest.mark.parametrize("size", mcu.LIMITS)
def test_bytes_and_instructions_are_within_what_was_asked_for(size):
    found = [r for r in RECORDS if (r["features"], r["hidden"]) == size]
    assert len(found) == len(mcu.BOARDS)
    for record in found:
        check(record, size)


@pytest.mark.parametrize(
    ("size", "board", "variant"),
    [
        *((size, "m4f", None) for size in mcu.LIMITS),
        *(((3, 16), board, None) for board in mcu.BOARDS if board != "m4f"),
        ((3, 16), "m0-wide", "fixed"),
        ((3, 16), "rv32", "fixed"),
        ((3, 16), "m4f", "seeded"),
    ],
)
def test_the_source_as_it_is_keeps_what_was_asked_for_and_stored(size, board, variant):
    for tool in ("riscv64-unknown-elf-gcc", "qemu-system-riscv32") if board[0] == "r" else (
        "arm-none-eabi-gcc", "qemu-system-arm"
    ):  # fmt: skip
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}; .ci/run installs it")
    options = mcu.VARIANTS[variant][0] if variant else {}
    found = {"board": board, **mcu.measure(*size, board, **options)}
    check(found, size)
    wanted = {"features": size[0], "hidden": size[1], "board": board}
    wanted |= {"variant": variant} if variant else {}
    records = latest("mcu/variants" if variant else "mcu/cost", *wanted)
    record = next(r for r in records if wanted.items() <= r.items())
    assert found["ram"] == record["ram"]
    # Another compiler gives other instructions, the same one the same.
    for key in ("typical", "worst", "code", "stack"):
        assert abs(found[key] / record[key] - 1) < 0.1, key


def test_export_foretells_what_was_measured():
    for r in RECORDS:
        monitor = PortableMonitor(hidden=r["hidden"])
        monitor.names = tuple(range(r["features"]))
        told = export.figures(monitor)
        assert told.ram == r["ram"]
        assert told.stack >= r["stack"]
        if r["board"] == "m4f":
            assert abs(told.flash / (r["code"] + r["constants"]) - 1) < 0.1
            assert abs(told.instructions / r["typical"] - 1) < 0.1


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_export_takes_the_sizes_with_the_memory_that_was_asked_for(arithmetic):
    for (features, hidden), (ram, _, _) in mcu.LIMITS.items():
        monitor = PortableMonitor(hidden=hidden, arithmetic=arithmetic)
        monitor.names = tuple(range(features))
        export.check_ram(monitor, 1024 * ram)


def test_export_foretells_what_was_measured_of_fixed_point_and_drawn_layers():
    boards = {"fixed": "m0-wide", "seeded": "m4f"}
    records = latest("mcu/variants", "variant", "features", "hidden", "board")
    found = [r for r in records if r["board"] == boards[r["variant"]]]
    assert {r["variant"] for r in found} == set(boards)
    for r in records:
        check(r, (r["features"], r["hidden"]))
    for r in found:
        options = mcu.VARIANTS[r["variant"]][0]
        monitor = PortableMonitor(hidden=r["hidden"], **options)
        monitor.names = tuple(range(r["features"]))
        told = export.figures(monitor)
        assert told.ram == r["ram"]
        assert told.stack >= r["stack"]
        assert abs(told.flash / (r["code"] + r["constants"]) - 1) < 0.1
        assert abs(told.instructions / r["typical"] - 1) < 0.15


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_the_source_in_float64_says_what_the_definition_says():
    rows = mcu.stream(1_500, 3)
    monitor = PortableMonitor(hidden=16)
    monitor.names = (0, 1, 2)
    chip = Definition(monitor.sizes(), *monitor.layer())
    score, threshold, _ = np.array([chip.observe(x) for x in rows.astype("float64")]).T
    said = mcu.in_float64(PortableMonitor(hidden=16), rows)
    np.testing.assert_array_equal(said, score > threshold)
    assert said.any()
    monitor.observe_many(rows[:700])
    np.testing.assert_array_equal(mcu.in_float64(monitor, rows[700:]), said[700:])


def test_float64_from_the_same_state_differs_only_near_the_threshold():
    for r in latest("mcu/precision", "collection"):
        for found in (r["fresh"]["same"], r["exported"]["float64"]):
            assert found["near"] == found["differ"] <= 1e-4 * found["rows"], r["collection"]
        assert r["fresh"]["float64"]["differ"] <= 0.01 * r["fresh"]["float64"]["rows"]


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_float64_goes_on_from_the_state_of_each_stretch(monkeypatch):
    rows, dump = mcu.stream(1_500, 3), PortableMonitor.dump

    def with_a_low_limit(self):
        state = self.sizes().state(dump(self))
        state["now"] = 2e-3  # until the next tick
        return to_bytes(state, self)

    wanted = mcu.in_float64(PortableMonitor(hidden=16), rows)
    np.testing.assert_array_equal(mcu.in_float64(PortableMonitor(hidden=16), rows, 500), wanted)
    monkeypatch.setattr(PortableMonitor, "dump", with_a_low_limit)
    low = mcu.in_float64(PortableMonitor(hidden=16), rows, 500)
    differ = np.flatnonzero(low != wanted)
    assert set(differ // 500) == {1, 2}
    assert ((differ % 500) < DELAY).all()


def test_an_export_says_in_its_first_tick_what_its_monitor_says():
    for r in latest("mcu/judged", "collection"):
        assert r["differ"] <= 1e-3 * r["rows"], r["collection"]


def test_an_export_made_anew_at_each_tick_begins_with_the_state_of_its_monitor():
    rows = mcu.stream(1_200, 3)
    said, wanted = mcu.by_tick(Monitor().fit(rows[:700]), rows[700:])
    again = Monitor().fit(rows[:700])
    verdicts = again.observe_many(rows[700:])
    np.testing.assert_array_equal(wanted, verdicts.is_anomaly)
    at = np.arange(0, 500, DELAY)  # the first rows of ticks: nothing was learned since
    np.testing.assert_allclose(said.threshold[at], verdicts.threshold[at], rtol=1e-6)
    np.testing.assert_allclose(said.score[at], verdicts.score[at], rtol=1e-3, atol=1e-3)


def test_a_row_that_differs_is_near_if_rounding_takes_it_across():
    said, compared = Verdicts((0,), 4), mcu.Compared()
    said.score[:], said.threshold[:] = [1, 1.005, 0.995, 1.02], 1
    said.is_anomaly[:] = said.score > said.threshold
    compared.add(said, said.is_anomaly ^ np.array([False, True, True, True]), 1.01)
    found = compared.record()
    assert (found["rows"], found["differ"], found["near"]) == (4, 3, 2)
    assert found["first"][0]["row"] == 1


@pytest.mark.slow
def test_the_source_says_on_a_server_what_its_definition_says():
    """SMD has six new modes, and the chip detects less there than `Monitor`."""
    collection = next(each for each in collections.LABELLED if each.name == "smd")
    if collection.missing():
        pytest.skip("needs ONLAD_BENCHMARK")
    X = collection.load(collection.names()[0]).X.astype("float32").astype("float64")
    monitor = PortableMonitor()
    said = monitor.observe_many(X)
    chip = Definition(monitor.sizes(), *monitor.layer())
    score, threshold, drift = np.array([chip.observe(x) for x in X]).T
    np.testing.assert_array_equal(said.is_anomaly, score > threshold)
    np.testing.assert_array_equal(said.drift, drift.astype(bool))
    # Rounding of float32, 6e-8, times the condition of the sums: some 10,000.
    np.testing.assert_allclose(said.score, score, rtol=2e-3, atol=2e-4)


def test_a_row_on_which_an_export_differs_has_one_reason():
    said, wanted = Verdicts((0,), 5), Verdicts((0,), 5)
    said.score[:], said.threshold[:] = [1, 3, 3, 1, 3], 2
    wanted.score[:], wanted.threshold[:] = [1, 3, 1, 1, 1], [2, 4, 2, 2, 2]
    for each in (said, wanted):
        each.is_anomaly[:] = each.score > each.threshold
    said.drift[3] = True
    assert mcu.apart(said, wanted) == {
        "rows": 5, "differ": 3, "threshold": 1, "score": 1, "mode": 1
    }  # fmt: skip


def test_the_tables_of_the_page_come_from_records():
    for table in mcu.tables().values():
        assert table.count("\n") >= 4

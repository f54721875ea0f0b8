"""Energy: counters that exist are read, those that do not are named."""

import itertools

import pytest

pytest.importorskip("jax")

from experiments import power, records


def zone(folder, name, energy, largest=1_000_000):
    folder.mkdir()
    for file, text in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", largest)):
        (folder / file).write_text(f"{text}\n")
    return folder / "energy_uj"


def test_rapl_is_read_in_joules_and_over_its_end(tmp_path):
    energy = zone(tmp_path / "intel-rapl:0", "package-0", 900_000)
    zone(tmp_path / "intel-rapl:0:0", "core", 5)
    found = power.rapl(tmp_path)
    assert list(found) == ["RAPL package-0"]
    read = found["RAPL package-0"]
    start = read()
    energy.write_text("950000\n")
    assert read() - start == pytest.approx(0.05)
    energy.write_text("20000\n")  # it started again at 0
    assert read() - start == pytest.approx(0.12)


def test_a_counter_that_may_not_be_read_is_left_out(tmp_path):
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "name").write_text("package-0\n")
    assert power.rapl(tmp_path) == {}
    assert power.rapl(tmp_path / "nothing") == {}


def test_no_driver_no_counter():
    assert power.nvml("libno-such-driver.so.1") == {}


def test_joules_a_step_are_the_counters_difference_over_the_steps():
    ticks = itertools.count(100.0, 3.0)  # each reading 3 J after the one before
    record = power.measure("onlad-numpy", {"RAPL package-0": lambda: next(ticks)}, seconds=0.02)
    assert record["joules"] == {"RAPL package-0": 3.0}
    assert record["joules_per_step"]["RAPL package-0"] == 3.0 / record["steps"]
    assert record["watts"]["RAPL package-0"] == pytest.approx(3 / record["seconds"], abs=0.01)
    assert record["missing"] is None


def test_a_machine_without_a_counter_says_so_and_gives_no_joules():
    record = power.measure("onlad-numpy", {}, seconds=0.02)
    assert record["joules_per_step"] == {}
    assert record["missing"] == "no RAPL counter can be read on this machine"
    assert record["steps"] > 0
    rest = power.measure("idle", {}, seconds=0.02)
    assert rest["missing"] == "no energy counter can be read on this machine"
    assert rest["steps"] == 0


def test_the_stored_gpu_records_have_joules_for_every_network():
    stored = {r["implementation"]: r for r in records.read("power") if r["device"] == "gpu"}
    assert set(stored) == {"fpelm", "nn", "dnn"}
    for record in stored.values():
        assert record["missing"] is None
        assert record["joules_per_step"]["NVML GPU 0"] > 0


def test_a_step_of_the_processor_has_no_joules_of_a_gpu():
    record = power.measure("onlad-numpy", {"NVML GPU 0": lambda: 1.0}, seconds=0.02)
    assert (record["joules"], record["watts"]) == ({}, {})
    assert record["missing"] == "no RAPL counter can be read on this machine"

"""The capacity tables of docs/howto/fleet.md are made from the stored records."""

import json
from pathlib import Path

import pytest

bank = pytest.importorskip("benchmarks.bank", reason="not part of a wheel's tests")

monitor = pytest.importorskip("benchmarks.monitor", reason="not part of a wheel's tests")
monitors = pytest.importorskip("benchmarks.monitors", reason="not part of a wheel's tests")

ROOT = Path(__file__).parents[2]


def records(module):
    return [json.loads(line) for line in module.FILE.read_text().splitlines()]


def test_the_tables_are_those_of_the_records():
    text = bank.PAGE.read_text(encoding="utf-8")
    assert bank.page(text) == text  # else: python -m benchmarks.bank table
    assert "NVIDIA H200" in text


def test_the_gpu_was_as_exact_and_nearly_as_fast_as_its_memory():
    records = [r for r in bank.kept() if r["device"] == "cuda" and (r["n"], r["N"]) == (512, 64)]
    single, double = sorted(records, key=lambda record: record["dtype"])
    assert (single["machine"], single["dtype"]) == ("NVIDIA H200", "float32")
    for name, off in single["off the float64 loop"].items():
        assert off < (3e-6 if "loss" in name else 3e-5)
    assert max(double["off the float64 loop"].values()) < 1e-12
    assert single["step / copy"] > 0.85
    assert single["million updates a second"]["block"] > 100


def test_two_threads_do_nearly_twice_as_much_as_one():
    records = [r for r in bank.kept() if r["device"] == "cpu"]
    assert [(r["n"], r["N"]) for r in records] == bank.SIZES * 2
    for record in records:
        pairs = record["2 threads / 1 thread"]
        assert pairs["update_many"] >= 1.8
        assert pairs["update"] > record["memory, 2 threads / 1 thread"]


def test_the_tables_of_monitors_are_those_of_their_records():
    text = monitors.PAGE.read_text(encoding="utf-8")
    assert monitors.page(text) == text  # else: python -m benchmarks.monitors table
    assert monitor.page(text) == text  # else: python -m benchmarks.monitor table


def test_a_monitor_takes_microseconds():
    assert [r["features"] for r in records(monitor)] == [8, 64, 512]
    for record, one, many, saved in zip(
        records(monitor), (6, 15, 60), (5, 10, 60), (60, 200, 1500), strict=True
    ):
        assert record["observe"] <= one
        assert record["observe_many"] <= many
        assert record["saved_kB"] <= saved


def test_a_bank_of_monitors_takes_less_than_a_loop():
    few, many, _ = records(monitors)
    assert (few["features"], few["devices"], many["devices"]) == (8, 1000, 10_000)
    for record in (few, many):
        assert record["rows_per_second"] > 150_000
        assert record["rows_per_second_in_blocks"] > 300_000
        assert record["us_per_row"]["in blocks"] < record["us_per_row"]["loop of observe"]
    assert all(record["two_threads"] >= 1.8 for record in records(monitors))

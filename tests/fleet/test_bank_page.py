"""The capacity tables of docs/howto/fleet.md are made from the stored records."""

from pathlib import Path

import pytest

bank = pytest.importorskip("benchmarks.bank", reason="not part of a wheel's tests")

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_records():
    text = bank.PAGE.read_text(encoding="utf-8")
    assert bank.page(text) == text  # else: python -m benchmarks.bank table
    assert "NVIDIA H200" in text


def test_the_gpu_was_as_exact_and_nearly_as_fast_as_its_memory():
    records = [r for r in bank.kept() if r["device"] == "cuda" and (r["n"], r["N"]) == (512, 64)]
    single, double = sorted(records, key=lambda record: record["dtype"])
    assert (single["machine"], single["dtype"]) == ("NVIDIA H200", "float32")
    for name, off in single["off the float64 loop"].items():
        assert off < (3e-6 if "loss" in name else 2e-5)
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

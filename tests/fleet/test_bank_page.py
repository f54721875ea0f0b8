"""The capacity tables of docs/fleet.md are made from the stored records."""

from pathlib import Path

import pytest

bank = pytest.importorskip("benchmarks.bank", reason="not part of a wheel's tests")

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_records():
    text = bank.PAGE.read_text(encoding="utf-8")
    assert bank.page(text) == text  # else: python -m benchmarks.bank table
    assert "NVIDIA H200" in text


def test_what_the_page_says_of_the_gpu_is_in_the_records():
    records = [r for r in bank.kept() if r["device"] == "cuda" and (r["n"], r["N"]) == (512, 64)]
    single, double = sorted(records, key=lambda record: record["dtype"])
    assert (single["machine"], single["dtype"]) == ("NVIDIA H200", "float32")
    for name, off in single["off the float64 loop"].items():
        assert off < (3e-6 if "loss" in name else 2e-5)
    assert max(double["off the float64 loop"].values()) < 1e-12
    told = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    assert f"at {single['step / copy']:.2f} of the speed" in " ".join(told.split())
    rate = single["million updates a second"]["block"]
    assert f"{rate:.0f} million updates a second" in " ".join(told.split())
    assert single["step / copy"] > 0.85
    assert rate > 100


def test_two_threads_do_nearly_twice_as_much_as_one():
    records = [r for r in bank.kept() if r["device"] == "cpu"]
    assert [(r["n"], r["N"]) for r in records] == bank.SIZES * 2
    for record in records:
        pairs = record["2 threads / 1 thread"]
        assert pairs["update_many"] >= 1.8
        assert pairs["update"] > record["memory, 2 threads / 1 thread"]

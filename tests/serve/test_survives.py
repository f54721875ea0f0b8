"""The page on what the service survives says what records and tests say."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/survives.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the tests of a wheel stand alone")


@pytest.fixture
def survives(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import survives

    yield survives
    sys.modules.pop("benchmarks.survives", None)


def test_the_page_is_made_from_the_records(survives):
    assert PAGE.read_text() == survives.filled(PAGE.read_text())


def test_each_test_that_the_page_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    files = Path(__file__).parent.glob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 30
    assert named <= there


def test_the_record_of_the_soak_is_what_was_promised(survives):
    record = json.loads(survives.RECORD.read_text())
    assert record["learned"] == record["sent"]
    assert record["devices_with_the_right_count"] == record["devices"] >= 1000
    assert record["models_equal_to_the_bit"] == record["models_compared"] >= 10
    assert record["rate"] >= 2
    assert record["kills"]
    assert record["minutes"] >= 60
    assert record["written_mb_per_minute"]["most"] < 20
    assert record["stop_s"] < 2
    assert (record["stop_status"], record["tracebacks"], record["skipped"]) == (0, 0, 0)


def test_the_records_of_the_load_are_what_was_promised(survives):
    def records(name):
        lines = survives.RECORD.with_name(f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    few, many = records("serve"), records("serve-blocks")
    assert all(r["p99_ms"] < 25 and r["verdicts"] == r["sent"] for r in [*few, *many])
    assert all(r["devices"] >= 100 and r["rate"] > 4900 for r in few)
    assert all(r["devices"] >= 1000 and r["rate"] > 19_000 and r["cpu_us"] < 50 for r in many)

from pathlib import Path

import pytest

pytest.importorskip("sklearn")
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "hardware.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_the_tables_of_the_page_are_those_of_the_records():
    from experiments.core_page import page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m experiments.core_page"


def test_the_core_detects_as_float64_does():
    from experiments.records import read
    from experiments.score_choice import PAPER

    whole = [r for r in read("core_detection") if (r["width"], r["alpha"]) == (32, "stored")]
    assert {(r["dataset"], r["testbed"]) for r in whole} == {
        (dataset, testbed) for dataset, testbeds in PAPER.items() for testbed in testbeds
    }
    for r in whole:
        assert abs(r["auc"] - r["auc_float64"]) <= 1e-3, r
        assert r["saturated"] == 0, r

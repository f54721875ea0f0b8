from pathlib import Path

import pytest

pytest.importorskip("sklearn")
PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_the_tables_of_the_page_are_those_of_the_records():
    from experiments.core_page import page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m experiments.core_page"

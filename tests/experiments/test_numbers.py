"""Numbers and tables in the text are those of the code and of the records."""

import re

import pytest

numbers = pytest.importorskip("experiments.numbers", reason="not part of a wheel's tests")


@pytest.mark.parametrize("path", numbers.pages(), ids=lambda path: path.name)
def test_the_numbers_of_a_page_are_current(path):
    text = path.read_text(encoding="utf-8")
    assert numbers.page(text) == text, "run python -m experiments.numbers"


def test_every_number_is_used():
    text = "".join(path.read_text(encoding="utf-8") for path in numbers.pages())
    used = set(re.findall(r"<!--= ([^>]+?) -->", text))
    assert used == set(numbers.NUMBERS)


def test_the_glossary_has_at_most_thirty_two_terms():
    text = (numbers.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (?!term|---)(.+?) \|", text, re.MULTILINE)
    assert 20 <= len(terms) <= 32

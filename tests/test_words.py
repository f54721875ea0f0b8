"""Code and pages use the words of the field; docs/glossary.md lists them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SELF = Path(__file__).name
PRIVATE = re.compile(
    r"yardstick|\bgives in\b|\bheld out\b|\bdoors?\b|doorkeeper|\brooms\b|\bold news\b"
    r"|\bone an? (row|sample|device|key|line|feature|lane|cycle|step|model)\b|\bso many a\b"
    r"|\b(entry|verdict|answer|sample|series|column|module|launch|threshold|microseconds|function)"
    r" an? (row|sample|key|topic|line|class|host|equation)\b"
    r"|\b(rows|samples|requests|bytes|times) an? (second|minute|read|step)\b|\bthe core fares\b"
    r"|\b(for|a stream of|at most|of) so many\b|\byouth\b|\buntold\b"
    r"|\b(not|neither|what is) told\b|\btold nothing\b|\bnothing is told\b|\bas ever\b"
    r"|\bso many (rows|samples)\b|\bhangs? on\b|\bto be had\b|\bmade up\b|\bmoves? on\b"
    r"|\bamong its like\b|\bstands? there (once|twice)\b|\bwritten anew\b",
    re.IGNORECASE,
)

GLOSSARY = ROOT / "docs" / "glossary.md"

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="the tests of a wheel stand alone"
)


@pytest.mark.parametrize(
    "folder", ["src", "cpp", "docs", "deploy", "tests", "experiments", "benchmarks", "."]
)
def test_no_word_has_to_be_learned_first(folder):
    paths = ROOT.glob("*.md") if folder == "." else (ROOT / folder).rglob("*")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in paths
        if path.suffix in (".py", ".hpp", ".cpp", ".md", ".json", ".toml")
        and path.name != SELF
        and "_build" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in PRIVATE.finditer(line)
    ]
    assert found == []


def test_the_glossary_has_at_most_thirty_terms():
    head, rule, *terms = [
        line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    assert (head, rule) == ("| term | meaning |", "|---|---|")
    assert 20 <= len(terms) <= 30

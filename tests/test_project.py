"""Files that contributors and users of an open project expect say what is true."""

import re
from pathlib import Path

import pytest

import onlad

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="the tests of a wheel stand alone"
)


def test_pre_commit_runs_the_tools_of_make_lint():
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    tools = re.findall(r"^\t\$\(BIN\)/(.+)$", recipe, re.MULTILINE)
    hooks = re.findall(r"entry: \.venv/bin/([^,]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    # pre-commit gives the files itself
    given = [re.sub(r" (cpp/\S+|\$\(C\))$", "", tool) for tool in tools]
    assert hooks == given


def test_the_citation_names_this_version_and_the_papers_authors_first():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {onlad.__version__}\n" in text
    assert re.findall(r"family-names: (\w+)", text) == ["Tsukada", "Kondo", "Matsutani"]
    assert text.index("preferred-citation:") < text.index("The onlad developers")


def test_the_public_workflow_calls_what_ci_calls():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "- run: .ci/run\n" in text
    archs = re.search(r"archs = \[(.+)\]", (ROOT / "pyproject.toml").read_text())[1]
    assert re.findall(r"arch: (\w+)\}", text) == re.findall(r'"(\w+)"', archs)


def test_the_page_lists_every_extra_and_the_contributors_page_only_targets_that_exist():
    extras = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]\n")[1]
    names = re.findall(r"^(\w+) = \[", extras.split("\n[")[0], re.MULTILINE)
    listed = (ROOT / "docs" / "start" / "install.md").read_text().split("| extra | for |")[1]
    cells = re.findall(r"^\| (`.+?) \|", listed, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(names)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        named = re.findall(r"(?:`|^|^    )make ([a-z][a-z-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= set(targets), page


def test_each_decision_is_one_short_page_with_its_four_parts():
    pages = sorted((ROOT / "docs" / "explanation" / "decisions").glob("*.md"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text()
        if page.name != "index.md":
            parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
            assert parts == ["Context", "Choice", "Consequences", "Record"], page
            assert len(text.splitlines()) <= 40, page

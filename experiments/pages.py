"""Pages made from records: a template is filled, or generated places of a page are renewed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def filled(template: Path, parts: Mapping[str, str]) -> str:
    """Return the template with a part in the place of each ``{{name}}``."""
    found = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template.read_text())
    return found.rstrip() + "\n"


def renewed(text: str, tables: Mapping[str, str]) -> str:
    """Return the text with each table between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

    def put(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{tables[match[2]]}\n\n{match[3]}"

    place = re.compile(r"(<!-- table: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
    return place.sub(put, text)


def main(
    path: Path, make: Callable[[], str], command: str, arguments: Sequence[str] | None = None
) -> None:
    """Write the page, or with ``--check`` fail where it is not what `make` returns."""
    parser = argparse.ArgumentParser(description=f"Write {path.name} from the records.")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(arguments)
    text = make()
    if args.check and (not path.exists() or path.read_text() != text):
        raise SystemExit(f"{path.name} is stale: run python -m {command}")
    path.write_text(text)

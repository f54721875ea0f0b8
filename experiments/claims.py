"""Make docs/explanation/claims.md: each claim of the paper, ours beside it, and one word.

    python -m experiments.claims             # writes the page, from the stored records alone
    python -m experiments.claims --check     # fails where the page is stale

A claim is judged by a function that reads records and returns ours, the word and the record's name.
The rule of each word stands in that function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from experiments import pages

Word = Literal["holds", "partly", "fails", "not measurable here"]
WORDS: tuple[Word, ...] = get_args(Word)
PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "claims.md"
TEMPLATE = Path(__file__).parent / "claims.template.md"


class Finding(NamedTuple):
    """What the records say about a claim."""

    ours: str
    word: Word
    record: str


@dataclass(frozen=True)
class Claim:
    """One claim: where the paper makes it, what it says, its number, and how it is judged."""

    where: str
    says: str
    number: str
    judge: Callable[[], Finding]


def word(good: int, of: int) -> Word:
    """Return holds if all cases do, fails if none does, else partly."""
    if of < 1:
        raise ValueError("a claim without cases cannot be judged")
    return "holds" if good == of else "fails" if good == 0 else "partly"


def claims() -> dict[str, list[Claim]]:
    """Return all claims by their kind."""
    from experiments import claims_accuracy, claims_core, claims_cost  # noqa: PLC0415  (a cycle)

    return {
        "Detection": claims_accuracy.CLAIMS,
        "Time and operations": claims_cost.CLAIMS,
        "The core": claims_core.CLAIMS,
    }


def page() -> str:
    """Return the page."""
    from experiments import neural_deviation  # noqa: PLC0415
    from experiments.tables import markdown  # noqa: PLC0415

    found = {kind: [(c, c.judge()) for c in mine] for kind, mine in claims().items()}
    counts = Counter(finding.word for mine in found.values() for _, finding in mine)
    heads = "paper", "claim", "its number", "ours", "", "record"
    tables = []
    for kind, mine in found.items():
        rows = [
            [c.where, c.says, c.number, f.ours, f"**{f.word}**", f"`{f.record}`" * bool(f.record)]
            for c, f in mine
        ]
        tables += [f"## {kind}", markdown(heads, rows)]
    shares = ", ".join(f"{counts[each]} {each}" for each in WORDS)
    parts = {
        "counts": f"Of {sum(counts.values())} claims: {shares}.",
        "tables": "\n\n".join(tables),
        "networks": neural_deviation.table(),
        **neural_deviation.numbers(),
    }
    return pages.filled(TEMPLATE, parts)


if __name__ == "__main__":
    pages.main(PAGE, page, "experiments.claims")

"""Messages that a broker may send again, because it did not hear that they were taken."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from onlad.serve.journal import Mark

MOST = 10_000  # the most that a broker may send ahead of their acknowledgement


class Marks:
    """The last messages in the journal, by packet identifier."""

    def __init__(self) -> None:
        self._digests: OrderedDict[int, int] = OrderedDict()

    def add(self, marks: Iterable[Mark]) -> None:
        """Remember messages; the oldest are forgotten."""
        for mark in marks:
            self._digests.pop(mark.mid, None)
            self._digests[mark.mid] = mark.digest
        while len(self._digests) > MOST:
            self._digests.popitem(last=False)

    def clear(self) -> None:
        """Forget all: the broker has forgotten which it sent."""
        self._digests.clear()

    def __contains__(self, mark: Mark) -> bool:
        return self._digests.get(mark.mid) == mark.digest

    def __iter__(self) -> Iterator[Mark]:
        return (Mark(mid, digest) for mid, digest in self._digests.items())

    def __len__(self) -> int:
        return len(self._digests)

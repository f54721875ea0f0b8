"""Messages that a broker may send again, because it did not hear that they were taken.

A broker that was there all the time marks such a message, and it is known by packet identifier and
digest. A broker that crashed sends what it had saved, without a mark and with new identifiers. So
of a stream whose samples have a time, a message with the same topic, samples and times as one of
the last WINDOW is the same message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np

from onlad.serve.frames import Mark, digest

MOST = 10_000  # the most that a broker may send ahead of their acknowledgement
WINDOW = 20_000  # messages with times


class Marks:
    """The last messages in the journal, by packet identifier; those with times by digest."""

    def __init__(self) -> None:
        self._marks: OrderedDict[int, Mark] = OrderedDict()
        self._timed: OrderedDict[int, None] = OrderedDict()

    def add(self, marks: Iterable[Mark], stream: str | None = None) -> None:
        """Remember messages, with the stream if its samples have times; forget the oldest."""
        for mark in marks:
            self._marks.pop(mark.mid, None)
            self._marks[mark.mid] = mark
            if stream is not None:
                self._timed[_of(mark, stream)] = None
        for kept, most in ((self._marks, MOST), (self._timed, WINDOW)):
            while len(kept) > most:
                kept.popitem(last=False)

    def clear(self) -> None:
        """Forget packet identifiers: the broker has forgotten which it sent."""
        self._marks.clear()

    def has_timed(self, mark: Mark, stream: str) -> bool:
        """Return whether a message whose samples have times was taken by a stream."""
        return _of(mark, stream) in self._timed

    @property
    def timed(self) -> bytes:
        """The messages with times, for a checkpoint."""
        return np.fromiter(self._timed, "<u8", len(self._timed)).tobytes()

    @timed.setter
    def timed(self, data: bytes) -> None:
        self._timed = OrderedDict.fromkeys(np.frombuffer(data, "<u8").tolist())

    def __contains__(self, mark: Mark) -> bool:
        return self._marks.get(mark.mid) == mark

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks.values())

    def __len__(self) -> int:
        return len(self._marks)


def _of(mark: Mark, stream: str) -> int:
    # A broker may send a copy to each stream; those are not the same.
    return mark.digest ^ _salt(stream)


@cache
def _salt(stream: str) -> int:
    return digest(b"", stream.encode())

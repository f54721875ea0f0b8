"""Connections to a core. All have one method: send words, and return the answers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onlad.errors import OnladError
from onlad.hardware import packets
from onlad.hardware.model import Model
from onlad.hardware.packets import Mode, Words

Answers = npt.NDArray[np.uint32]


class Transport(Protocol):
    """What the driver needs of a core, wherever it is."""

    def exchange(self, words: Words) -> Answers:
        """Send the words, the last one with TLAST, and return the answers."""
        ...


class Emulator:
    """The bit-exact model as a transport. Runs of words of one kind go to it as arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def exchange(self, words: Words) -> Answers:
        """Send the words and return the answers."""
        heads = words >> np.uint64(packets.READ_SHIFT)
        index = (words >> np.uint64(packets.INDEX_SHIFT)).astype(np.int64)
        index &= (1 << packets.INDEX_BITS) - 1
        values = words.astype(np.uint32).astype(np.int32).astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(heads)) + 1).tolist(), len(words)]
        answers: list[Answers] = []
        for start, stop in pairwise(cuts if len(words) else ()):
            head, run = int(heads[start]), slice(start, stop)
            mode, read = Mode(head >> 1), bool(head & 1)
            if read:
                answers.append(self.model.read(mode, index[run]).astype(np.uint32))
            elif mode > Mode.TRAIN:
                self.model.write(mode, index[run], values[run])
            else:
                step = self.model.train if mode is Mode.TRAIN else self.model.predict
                answers.append(np.array([step(int(k)) for k in index[run]], np.uint32))
        return np.concatenate([np.empty(0, np.uint32), *answers])


class Recorder:
    """A transport that records words and answers, to be replayed without the core."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._words: list[Words] = []
        self._answers: list[Answers] = []

    def exchange(self, words: Words) -> Answers:
        """Send the words and return the answers."""
        answers = self.transport.exchange(words)
        self._words.append(words.copy())
        self._answers.append(answers.copy())
        return answers

    def save(self, path: str | Path) -> None:
        """Write the recording so far."""
        np.savez_compressed(
            path,
            words=np.concatenate([np.empty(0, np.uint64), *self._words]),
            answers=np.concatenate([np.empty(0, np.uint32), *self._answers]),
        )


class ReplayError(OnladError):
    """The words that are sent differ from the recorded ones."""


class Replay:
    """A recording as a transport: it answers as recorded while the words are those recorded."""

    def __init__(self, path: str | Path) -> None:
        with np.load(path) as record:
            self._words: Words = record["words"]
            self._answers: Answers = record["answers"]
        self._sent = self._received = 0

    def exchange(self, words: Words) -> Answers:
        """Compare the words with the recorded ones and return the recorded answers."""
        recorded = self._words[self._sent : self._sent + len(words)]
        if len(recorded) < len(words):
            raise ReplayError(f"the recording ends after {len(self._words)} words")
        if (recorded != words).any():
            k = int(np.flatnonzero(recorded != words)[0])
            now, then = int(words[k]), int(recorded[k])
            raise ReplayError(
                f"word {self._sent + k} is {now:#018x}, but {then:#018x} was recorded"
            )
        self._sent += len(words)
        start = self._received
        self._received += int(packets.answered(words).sum())
        return self._answers[start : self._received]

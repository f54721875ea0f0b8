"""Policies: how much to forget before the next sample.

A policy is a frozen value. What it must remember between samples is a tuple of floats, its
memory: `step` takes the memory and the score of a sample and returns the next memory, whose
first number is the forgetting factor of the next sample. So a memory is saved as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Memory: TypeAlias = tuple[float, ...]


class Forgetting(Protocol):
    """How a forgetting factor follows the scores."""

    @property
    def start(self) -> Memory:
        """The memory before the first sample."""
        ...

    def step(self, memory: Memory, score: float) -> Memory:
        """Return the memory after a sample with this score."""
        ...


def check_factor(name: str, a: float) -> None:
    """Refuse a forgetting factor outside (0, 1]."""
    if not (isinstance(a, (int, float)) and 0.0 < a <= 1.0):
        raise ValueError(f"{name} must be in (0, 1], got {a!r}")


def _check_range(low: float, high: float) -> None:
    check_factor("high", high)
    check_factor("low", low)
    if low > high:
        raise ValueError(f"low must not be above high, got {low!r} > {high!r}")


def log_score(score: float) -> float:
    """Return the logarithm of a score, bounded so that 0 and infinity do no harm."""
    return math.log(min(max(score, 1e-300), 1e300))


@dataclass(frozen=True)
class Constant:
    """Forget by the same factor at each sample.

    Examples
    --------
    >>> Constant(0.99).start
    (0.99,)
    """

    a: int | float

    def __post_init__(self) -> None:
        check_factor("forgetting", self.a)

    @property
    def start(self) -> Memory:
        """The factor, and nothing else."""
        return (float(self.a),)

    def step(self, memory: Memory, score: float) -> Memory:
        """Return the same memory."""
        return memory


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Forget faster while errors are larger than they used to be (paper, Sec. 3.2.1).

    The factor is ``high ** ratio`` and at least ``low``, where ratio, at least 1, compares the
    recent level of the scores with their long level: twice the usual error halves the memory.

    Examples
    --------
    >>> policy = Adaptive()
    >>> memory = policy.start
    >>> for score in [1.0] * 100 + [50.0] * 10:
    ...     memory = policy.step(memory, score)
    >>> policy.low <= memory[0] < policy.high
    True
    """

    high: int | float = 0.999
    low: int | float = 0.95
    recent: int = 16
    long: int = 512

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not 1 <= self.recent < self.long:
            raise ValueError(f"need 1 <= recent < long, got {self.recent!r} and {self.long!r}")

    @property
    def start(self) -> Memory:
        """Factor, recent level, long level, samples."""
        return (float(self.high), 0.0, 0.0, 0.0)

    def step(self, memory: Memory, score: float) -> Memory:
        """Return the memory after a sample with this score."""
        _, recent, long, count = memory
        # Levels are geometric means: one spike must not empty the memory. Until a mean has
        # its number of samples it is the plain mean of those there are.
        value, count = log_score(score), min(count + 1.0, float(self.long))
        recent += (value - recent) / min(count, self.recent)
        long += (value - long) / count
        ratio = math.exp(min(max(recent - long, 0.0), 50.0))
        return (max(self.low, self.high**ratio), recent, long, count)


@dataclass(frozen=True, kw_only=True)
class OnDrift:
    """Forget slowly, but for a while fast once the scores have risen (Page-Hinkley test).

    The test sums how far the log score lies above its mean, less ``slack``; when the sum is
    more than ``limit`` above its minimum the scores have drifted, and the next ``duration``
    samples use ``low``.

    Examples
    --------
    >>> policy = OnDrift(duration=20)
    >>> memory = policy.start
    >>> for score in [1.0, 1.1, 0.9] * 50 + [9.0] * 20:
    ...     memory = policy.step(memory, score)
    >>> memory[0] == policy.low
    True
    """

    high: int | float = 0.999
    low: int | float = 0.95
    duration: int = 100
    slack: int | float = 0.25
    limit: int | float = 25.0

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if self.duration < 1:
            raise ValueError(f"duration must be at least 1, got {self.duration!r}")
        if not (self.slack >= 0 and self.limit > 0):
            got = f"{self.slack!r} and {self.limit!r}"
            raise ValueError(f"need slack >= 0 and limit > 0, got {got}")

    @property
    def start(self) -> Memory:
        """Factor, mean log score, samples in it, excess sum, samples of fast forgetting left."""
        return (float(self.high), 0.0, 0.0, 0.0, 0.0)

    def step(self, memory: Memory, score: float) -> Memory:
        """Return the memory after a sample with this score."""
        _, mean, count, excess, left = memory
        value = log_score(score)
        count += 1.0
        mean += (value - mean) / count
        # The sum above its minimum so far is a sum that is never let below zero.
        excess = max(0.0, excess + value - mean - self.slack)
        if excess > self.limit:
            mean, count, excess, left = 0.0, 0.0, 0.0, float(self.duration)
        elif left > 0:
            left -= 1.0
        return (self.low if left > 0 else self.high, mean, count, excess, left)


# The policies that a model file may name, and the part of a memory of each that is divided by or
# counted down.
POLICIES: dict[type[Forgetting], slice] = {
    Constant: slice(0),
    Adaptive: slice(3, 4),
    OnDrift: slice(2, 5),
}

"""What the engines of a bank share: the layer of all models, and what each has of its own."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Protocol

TRACE, TRACE_START, SHRINK, WEIGHT, FACTOR = range(5)  # columns of the numbers
SEEN, SKIPPED, PAUSED = range(3)  # columns of the counts
NAMED = 10  # models that an error names


class Layer(NamedTuple):
    """The random layer, and how its models are to be run."""

    alpha: Any  # (n, N)
    b: Any  # (N,)
    activation: str
    loss: str

    @property
    def n_features(self) -> int:
        """Features per sample."""
        return int(self.alpha.shape[0])

    @property
    def n_hidden(self) -> int:
        """Hidden units."""
        return int(self.alpha.shape[1])


class Models(NamedTuple):
    """M models: NumPy arrays, or those of an engine."""

    beta: Any  # (M, n, N), transposed: one feature per row
    S: Any  # (M, N, N)
    numbers: Any  # (M, 5) float64
    counts: Any  # (M, 3) int64


class Engine(Protocol):
    """Where the models of a bank live and learn. Samples and masks are of the engine's own kind."""

    layer: Layer

    def __len__(self) -> int:
        """Return how many models there are."""
        ...

    def numbers(self) -> Any:
        """Return a copy of the numbers of all models, as a NumPy array."""
        ...

    def counts(self) -> Any:
        """Return a copy of the counts of all models, as a NumPy array."""
        ...

    def set_factors(self, factors: Any) -> None:
        """Give each model its forgetting factor."""
        ...

    def models(self) -> Models:
        """Return all models as NumPy arrays: views of the memory where that can be."""
        ...

    def take(self, which: Any) -> Models:
        """Return the models of a slice, as NumPy arrays."""
        ...

    def put(self, which: Any, models: Models) -> None:
        """Put NumPy arrays in the place of the models of a slice; one model may stand for many."""
        ...

    def resized(self, count: int) -> Any:
        """Return an engine with `count` models, the first of which are these."""
        ...

    def keep(self, which: Any) -> None:
        """Keep the models with these indices, in this order."""
        ...

    def samples(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Return samples, (M, T, n), and mask, (M, T), in the form that `step` and `many` take.

        A sample that is there, but not finite or too large, is refused here or by those two,
        before a model has changed.
        """
        ...

    def combine(self, losses: Any, leverages: Any, score: Any) -> Any:
        """Return the scores."""
        ...

    def step(self, X: Any, mask: Any, learn: bool) -> tuple[Any, Any]:
        """Score the samples one by one, (M, T, n); return losses and leverages, (M, T)."""
        ...

    def many(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Score the samples and learn each, in blocks."""
        ...


def refuse(bad: list[int]) -> NoReturn:
    """Say which models' samples are not finite, or too large."""
    names = ", ".join(map(str, bad[:NAMED])) + (", ..." if len(bad) > NAMED else "")
    raise ValueError(
        f"X holds numbers that are not finite, or too large, for {len(bad)} of the models: "
        f"{names}. Leave them out by the mask. No model was changed"
    )

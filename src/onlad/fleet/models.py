"""What the engines of a bank share: the layer of all models, and what each has of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple, NoReturn

import numpy as np

from onlad.detector import Detector
from onlad.fields import LARGEST_COUNT, Numbers, check
from onlad.forgetting import Constant
from onlad.modelfile import need
from onlad.reference import Array, Score, combine
from onlad.samples import listed
from onlad.state import DetectorSettings, DetectorState

TRACE, TRACE_START, SHRINK, WEIGHT, FACTOR = range(5)  # columns of the numbers
SEEN, SKIPPED, PAUSED = range(3)  # columns of the counts
NAMED = 10  # models that an error names
AT_ONCE = 1024  # models that are copied, or checked, together
NUMBERS = ("trace", "trace_start", "shrink", "weight")  # the first columns, as a state has them
COUNTS = ("seen", "skipped", "paused")


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


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """M models of n features and N hidden units: NumPy arrays, or those of an engine."""

    beta: Annotated[Array, Numbers(("M", "n", "N"))]  # transposed: one feature per row
    S: Annotated[Array, Numbers(("M", "N", "N"))]
    numbers: Annotated[Array, Numbers(("M", 5), "float64")]
    counts: Annotated[Array, Numbers(("M", 3), "int64")]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.beta, self.S, self.numbers, self.counts))

    def check(self, M: int, n: int, settings: DetectorSettings) -> None:
        """Refuse, with `ValueError`, what no models with these settings could be."""
        check(self, {"M": M, "n": n, "N": settings.n_hidden}, settings.dtype)
        ends = {
            TRACE_START: ("trace_start", np.nextafter(0, 1), math.inf),
            SHRINK: ("shrink", 0, 1),
            WEIGHT: ("weight", 0, math.inf),
            FACTOR: ("the forgetting factor", np.nextafter(0, 1), 1),
            TRACE: ("trace", -math.inf, math.inf),  # its rounding may leave it just below zero
        }
        for column, (name, low, high) in ends.items():
            inside = (self.numbers[:, column] >= low) & (self.numbers[:, column] <= high)
            need(bool(inside.all()), f"{name} of a model is out of range")
        possible = (self.counts >= 0) & (self.counts <= LARGEST_COUNT)
        need(bool(possible.all()), "a count of a model is out of range")
        for first in range(0, len(self.S), AT_ONCE):
            with np.errstate(all="ignore"):
                volume = np.linalg.slogdet(self.S[first : first + AT_ONCE].astype("float64"))[1]
            singular = np.flatnonzero(~np.isfinite(volume))
            if len(singular):
                raise ValueError(f"S of model {first + int(singular[0])} is singular")


class Engine:
    """Where the models of a bank live and learn. Samples and masks are of the engine's own kind."""

    _models: Models  # of the engine's own kind

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def __len__(self) -> int:
        return len(self._models.beta)

    # -- what an engine does by itself --------------------------------------------------------

    def samples(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Return samples, (M, T, n), and mask, (M, T), in the form that `step` and `many` take.

        A sample that is there, but not finite or too large, is refused here or by those two,
        before a model has changed.
        """
        raise NotImplementedError

    def step(self, X: Any, mask: Any, learn: bool) -> tuple[Any, Any]:
        """Score the samples one by one, (M, T, n); return losses and leverages, (M, T)."""
        raise NotImplementedError

    def many(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Score the samples and learn each, in blocks where that pays."""
        raise NotImplementedError

    # -- what it does as NumPy does, unless it has other arrays -------------------------------

    def own(self, array: Any) -> Any:
        """Return a NumPy array as one of the engine's own."""
        return array

    def array(self, own: Any) -> Any:
        """Return a copy of one of the engine's arrays, as a NumPy array."""
        return np.array(own)

    def combine(self, losses: Any, leverages: Any, score: Score) -> Any:
        """Return the scores."""
        return combine(losses, leverages, score)

    # -- models in and out --------------------------------------------------------------------

    def models(self) -> Models:
        """Return all models as NumPy arrays: views of the memory where that can be."""
        return self.take(slice(None))

    def numbers(self) -> Any:
        """Return a copy of the numbers of all models, as a NumPy array."""
        return self.array(self._models.numbers)

    def counts(self) -> Any:
        """Return a copy of the counts of all models, as a NumPy array."""
        return self.array(self._models.counts)

    def set_factors(self, factors: Any) -> None:
        """Give each model its forgetting factor."""
        self._models.numbers[:, FACTOR] = self.own(factors)

    def take(self, which: Any) -> Models:
        """Return copies of the models of a slice, as NumPy arrays."""
        return Models(*(self.array(part[which]) for part in self._models))

    def put(self, which: Any, models: Models) -> None:
        """Put NumPy arrays in the place of the models of a slice; one model may stand for many."""
        for mine, new in zip(self._models, models, strict=True):
            mine[which] = self.own(new)

    def fill(self, take: Callable[[slice], Models]) -> None:
        """Take all models from somewhere else, with no second copy of all of them."""
        for first in range(0, len(self), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            self.put(some, take(some))

    def copy(self, other: Engine, which: Any) -> None:
        """Begin with the models that these indices have in another engine of this kind."""
        for source, target in zip(other._models, self._models, strict=True):
            for first in range(0, len(which), AT_ONCE):  # no second copy of all of them
                some = which[first : first + AT_ONCE]
                target[first : first + len(some)] = source[self.own(some)]


def refuse(bad: list[int]) -> NoReturn:
    """Say which models' samples are not finite, or too large."""
    raise ValueError(
        f"X holds numbers that are not finite, or too large, for {len(bad)} of the models: "
        f"{listed(bad, NAMED)}. Leave them out by the mask. No model was changed"
    )


# -- one model as a detector, and back, without loss ------------------------------------------


def settings_of(detector: Detector) -> DetectorSettings:
    """Return the settings of a detector, whose forgetting factor must be one for good."""
    if not isinstance(detector.forgetting, Constant):
        raise ValueError(
            "a bank takes a constant forgetting factor, which may differ by model; got "
            f"{detector.forgetting!r}"
        )
    return replace(detector.settings(), forgetting=Constant(detector.factor))


def model_of(detector: Detector) -> Models:
    """Return a started detector as one model."""
    one = detector.started()
    numbers = [*(getattr(one, name) for name in NUMBERS), detector.factor]
    counts = [getattr(one, name) for name in COUNTS]
    return Models(one.beta.T[None], one.S[None], np.array([numbers]), np.array([counts], "int64"))


def fitting(detector: Any, wanted: DetectorSettings, layer: Layer) -> Models:
    """Return a detector as one model of a bank with these settings, if it can be one."""
    if not isinstance(detector, Detector):
        raise TypeError(f"a model of a bank is a Detector, got {detector!r:.60}")
    theirs = settings_of(detector)
    wanted = replace(wanted, forgetting=theirs.forgetting)  # it may differ by model
    both = [(f.name, getattr(wanted, f.name), getattr(theirs, f.name)) for f in fields(wanted)]
    other = [pair for pair in both if pair[1] != pair[2]]
    if other:
        own = ", ".join(f"{name}={value!r}" for name, value, _ in other)
        found = ", ".join(f"{name}={value!r}" for name, _, value in other)
        raise ValueError(f"the models of this bank have {own}; the detector has {found}")
    if detector.n_features is None:
        detector = Detector.resumed(theirs).start(layer.n_features)
    one = detector.started()
    if not (np.array_equal(one.alpha, layer.alpha) and np.array_equal(one.b, layer.b)):
        raise ValueError(
            f"the detector has another random layer: {detector.n_features} features, where "
            f"the bank has {layer.n_features}, or other weights"
        )
    return model_of(detector)


def detector_of(one: Models, wanted: DetectorSettings, layer: Layer) -> Detector:
    """Return one model as a detector of its own."""
    *numbers, a = one.numbers[0].tolist()
    own = dict(zip((*NUMBERS, *COUNTS), (*numbers, *one.counts[0].tolist()), strict=True))
    state = DetectorState(
        S=one.S[0], alpha=layer.alpha, b=layer.b, beta=one.beta[0].T, memory=np.array([a]), **own
    )
    return Detector.resumed(replace(wanted, forgetting=Constant(a)), state)

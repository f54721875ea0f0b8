"""What devices tell each other: the sums that a detector has learned, and no samples.

`sums` takes them out of a detector, ``to_bytes`` and ``from_bytes`` are the message, `join` makes
the detector that has seen what all have. Sums hold the samples alone, not the ridge of the start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import numpy as np

from onlad import fields, modelfile
from onlad.detector import Detector
from onlad.fields import LARGEST_COUNT, Numbers, Within, read, values
from onlad.modelfile import Record, need
from onlad.reference import Array, symmetric

T = TypeVar("T")
Own = TypeVar("Own", bound="Message")


class Message:
    """A value that devices send each other; a subclass is a dataclass whose fields have rules."""

    def check(self) -> None:
        """Refuse, with `ValueError`, what nobody could have sent."""

    def sent(self: Own) -> Own:
        """Return the value as it is sent."""
        return self

    def whole(self: Own) -> Own:
        """Return the value that was sent, or raise `ValueError`."""
        return self

    def to_bytes(self) -> bytes:
        """Return the message, with a checksum."""
        return modelfile.encode(Record(type(self).__name__, {"fields": values(self.sent())}))

    @classmethod
    def from_bytes(cls: type[Own], data: bytes, name: str = "the message") -> Own:
        """Return the sums in a message. It is trusted in nothing but what it says it has seen.

        Raises
        ------
        ModelFileError
            It is damaged, or nobody could have sent it; `name` is what the error calls it.
        """
        try:
            tree = modelfile.decode(modelfile.check(data, name))
            of = cls.__name__
            known = type(tree) is Record and tree.type == of and tree.parts.keys() == {"fields"}
            need(known, "it is something else")
            found = read(cls, tree.parts["fields"], "the message")
            found.check()
            return found.whole()
        except modelfile.FAULTS as error:
            raise modelfile.refusal(name, f"holds no sums: {error}. Send it again") from None


@dataclass(frozen=True, eq=False)
class Sums(Message):
    """What one detector has learned, as sums over its samples; a sample's weight is w^2.

    Attributes
    ----------
    layer
        Digest of random layer and activation: only sums of one layer can be added.
    gram
        K, the sum of w^2 h'h over the samples, (N, N), symmetric.
    moment
        V, the sum of w^2 h'x, (N, n).
    weight
        The sum of w^2.
    seen
        Samples behind it.
    """

    layer: str
    gram: Annotated[Array, Numbers(("gram",))]
    moment: Annotated[Array, Numbers((range(1, LARGEST_COUNT), range(1, LARGEST_COUNT)))]
    weight: float
    seen: Annotated[int, Within(0)]

    def check(self) -> None:
        """Refuse, with `ValueError`, what no detector could have sent; `gram` is a triangle."""
        need(len(self.layer) == 64, "layer must be a digest")
        N = len(self.moment) if self.moment.ndim else 0
        fields.check(self, {"gram": N * (N + 1) // 2})
        possible = 0 <= self.weight < np.inf
        need(possible, f"weight must be finite and not negative, got {self.weight}")

    def sent(self) -> Sums:
        """Return one triangle of K, and all of V."""
        return replace(self, gram=self.gram[np.tril_indices(len(self.gram))])

    def whole(self) -> Sums:
        """Return sums with all of the gram, or raise `ValueError` with what cannot be."""
        N = len(self.moment)
        gram = np.zeros((N, N))
        gram[np.tril_indices(N)] = self.gram
        gram += np.tril(gram, -1).T
        # A sum of squares is never negative; the sender's product of N terms may round below 0.
        lowest, highest = np.linalg.eigvalsh(gram)[[0, -1]]
        need(lowest >= -N * 1e-12 * max(highest, 1.0), "gram is no sum of squares")
        return replace(self, gram=gram)


def sums(detector: Detector) -> Sums:
    """Return what `detector` has learned, without the ridge that it started from."""
    if detector.n_features is None:
        raise ValueError("a detector that has seen nothing has no sums")
    state = detector.started()
    R = np.linalg.inv(state.S.astype("float64"))  # K = R'R
    gram = symmetric(R.T @ R)
    size, direction = np.linalg.eigh(gram)
    # Without the ridge nothing is left where nothing was seen; rounding may leave less.
    size = np.maximum(size - detector.ridge * state.shrink, 0.0)
    return Sums(
        _layer(detector),
        symmetric((direction * size) @ direction.T),
        gram @ state.beta.astype("float64"),
        state.weight,
        state.seen,
    )


def join(
    detector: Detector, others: Iterable[Sums], weights: Sequence[float] | None = None
) -> Detector:
    """Return the detector that has seen what `detector` and all `others` have.

    Exact for forgetting 1; else each sample keeps the weight that it has where it was seen.
    `weights` multiplies the sums of each of the others, for example to let old ones count less.
    `detector` is not modified: keep it apart, and send only its own sums, so that no sample
    comes back and counts twice.
    """
    own, mine = sums(detector), detector.started()
    gram = own.gram + detector.ridge * mine.shrink * np.eye(detector.n_hidden)
    moment, weight, seen = own.moment, own.weight, own.seen
    for other, w in weighed(others, weights):
        if not 0 <= w < np.inf:
            raise ValueError(f"a weight must be finite and not negative, got {w!r}")
        if (other.layer, other.moment.shape) != (own.layer, own.moment.shape):
            raise ValueError(
                "only sums of one random layer can be joined: equal features, n_hidden, "
                f"activation, weights and seed. Got {other.moment.shape} of layer "
                f"{other.layer[:8]} for {own.moment.shape} of layer {own.layer[:8]}"
            )
        gram, moment = gram + w * other.gram, moment + w * other.moment
        weight, seen = weight + w * other.weight, seen + other.seen
    S = np.linalg.inv(np.linalg.cholesky(gram)).T
    state = replace(
        mine,
        S=S.astype(mine.S.dtype),
        beta=(S @ (S.T @ moment)).astype(mine.beta.dtype),
        trace=float(np.sum(S * S)),
        weight=weight,
        seen=seen,
    )
    return Detector.resumed(detector.settings(), state)


def _layer(detector: Detector) -> str:
    """Return a digest that two detectors share if their sums can be added."""
    state = detector.started()
    digest = hashlib.sha256(detector.activation.encode())
    for array in (state.alpha, state.b):  # as float32, which detectors of both dtypes have
        digest.update(array.astype("<f4").tobytes())
    return digest.hexdigest()


def weighed(others: Iterable[T], weights: Sequence[float] | None) -> list[tuple[T, float]]:
    """Return the sums of others with their weights, which are 1 if there are none."""
    others = list(others)
    weights = [1.0] * len(others) if weights is None else weights
    if len(weights) != len(others):
        raise ValueError(f"there are {len(weights)} weights for the sums of {len(others)} others")
    return list(zip(others, weights, strict=True))

"""A core as a detector, wherever it is: emulated, simulated, recorded or on a board."""

from __future__ import annotations

from dataclasses import replace
from math import ldexp, sqrt
from typing import Any

import numpy as np

from onlad import samples
from onlad.detector import Detector
from onlad.errors import OnladError
from onlad.forgetting import Constant
from onlad.hardware import fixed, packets
from onlad.hardware.config import ACTIVATIONS, STORAGES, Config
from onlad.hardware.packets import CoreRefusedError, Describe, Ff, Mode, Reason, Status, Words
from onlad.hardware.seeded import weights
from onlad.hardware.transport import Answers, Transport
from onlad.reference import Array, State, symmetric
from onlad.state import DetectorSettings, DetectorState

_SCORED = 1  # index of a TRAIN that is answered by the score
COUNTS = 1 << 16  # the core's counts of steps wrap around here
WIND_UP = 1e4  # trace(P) may grow to this many times its start; the core's words hold it


class Device:
    """A core behind a transport. It scores and learns like a `Detector`.

    A core that has just been reset refuses samples: `load` a detector first.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.config = _config(transport)
        self._scale = 1.0  # c: the core holds c alpha, c b, S / c, beta / c
        self._settings: DetectorSettings | None = None  # of the loaded detector
        self._start: DetectorState | None = None  # what it had learned
        self._steps = self._singular = 0  # since then
        self._paused_before = 0  # the core's count at that time

    # -- samples ------------------------------------------------------------------------------

    def score_one(self, x: Any) -> float:
        """Return the mean squared reconstruction error of `x`, and learn nothing."""
        return float(self.score_many(self._vector(x)[None])[0])

    def learn_one(self, x: Any) -> None:
        """Learn `x`."""
        self.learn_many(self._vector(x)[None])

    def update_one(self, x: Any) -> float:
        """Return the score of `x`, then learn it, in one training step of the core."""
        return float(self.update_many(self._vector(x)[None])[0])

    def score_many(self, X: Any) -> Array:
        """Return the score of each row of `X`, and learn nothing."""
        X = self._matrix(X)
        return self._scores(self.transport.exchange(self._samples(X, Mode.PREDICT, 0)))

    def learn_many(self, X: Any) -> None:
        """Learn the rows of `X` in order."""
        X = self._matrix(X)
        answers = self.transport.exchange(self._samples(X, Mode.TRAIN, 0))
        _refuse(answers)
        self._note(answers == 0)

    def update_many(self, X: Any) -> Array:
        """Return the scores of the rows of `X`, each learned after its score."""
        X = self._matrix(X)
        answers = self.transport.exchange(self._samples(X, Mode.TRAIN, _SCORED))
        singular = answers == packets.REFUSED | Reason.SINGULAR
        _refuse(answers[~singular])
        self._note(singular)
        if not singular.any():
            return self._scores(answers)
        # A sample that could not be learned still has a score, and changed nothing.
        scores = np.empty(len(X))
        scores[~singular] = self._scores(answers[~singular])
        for k in np.flatnonzero(singular):
            scores[k] = self.score_one(X[k])
        return scores

    # -- looking ------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Features per sample."""
        return self.config.n

    @property
    def cycles(self) -> int:
        """Clock cycles from the last training or prediction to its answer.

        It is 0 on an emulated core, which has no clock.
        """
        return int(self.status()[Status.CYCLES])

    @property
    def n_seen(self) -> int:
        """Samples learned, those of the loaded detector included."""
        return (self._start.seen if self._start else 0) + self._steps - self._singular

    @property
    def n_skipped(self) -> int:
        """Samples that could not be learned."""
        return (self._start.skipped if self._start else 0) + self._singular

    @property
    def n_paused(self) -> int:
        """Steps that forgot nothing because P was wound up; the core counts to 65,535 of them."""
        ours = int(self.status()[Status.PAUSED]) - self._paused_before
        return (self._start.paused if self._start else 0) + ours % COUNTS

    def status(self) -> Array:
        """Return the words of `packets.Status`."""
        return self._read(Mode.TRAIN, len(Status)) & 0xFFFFFFFF

    @property
    def state(self) -> State:
        """alpha, b, beta and P as the core holds them."""
        S = self._root()
        alpha, b, beta = self._layer()
        return State(alpha, b, beta, symmetric(S @ S.T))

    @property
    def forgetting(self) -> float:
        """The factor a of the next step. Setting it takes effect at once."""
        return float(fixed.value(self._read(Mode.FF, 1)[0], self.config.ff_fraction))

    @forgetting.setter
    def forgetting(self, a: float) -> None:
        if not 0 < a <= 1:
            raise ValueError(f"forgetting must be in (0, 1], got {a!r}")
        self.transport.exchange(packets.writes(Mode.FF, [self._factor(a)], Ff.FACTOR))

    # -- models in and out --------------------------------------------------------------------

    def load(self, detector: Detector) -> Device:
        """Write what a detector has learned into the core."""
        _refuse_unlike(detector, self.config)
        state, config = detector.started(), self.config
        c = 1.0
        if config.activation == "identity":
            c = _scale(state.alpha, state.b, config)
        start = state.trace_start
        limit = fixed.limit_word(WIND_UP * start / c**2)
        ridge = int(fixed.quantize(c * sqrt(config.hidden / start), config.width, config.fraction))
        root, mantissa, exponent = fixed.root_words(config, state.S / c)
        words = [
            self._parameter(Mode.B, "b", state.b * c),
            self._parameter(Mode.BETA, "beta", state.beta / c),
            packets.writes(Mode.P, root),
            packets.writes(Mode.FF, [limit, ridge, mantissa, exponent], Ff.LIMIT),
            # Last: it makes the core ready.
            packets.writes(Mode.FF, [self._factor(detector.factor)], Ff.FACTOR),
        ]
        if config.alpha != "seeded":
            words.insert(0, self._parameter(Mode.ALPHA, "alpha", state.alpha * c))
        elif not np.array_equal(state.alpha, weights(config)):
            raise ValueError(
                "this core generates alpha from its seed, and the detector has a different alpha. "
                "Start from OnladCore.detector()"
            )
        self.transport.exchange(np.concatenate(words))
        self._scale = c
        self._settings, self._start = detector.settings(), state
        self._steps = self._singular = 0
        status = self.status()
        self._paused_before = int(status[Status.PAUSED])
        reasons = Reason(int(status[Status.REASONS]))
        if reasons:
            raise CoreRefusedError(reasons)
        return self

    def read(self) -> Detector:
        """Return a detector that continues from the state of the core."""
        alpha, b, beta = self._layer()
        S, a = self._root(), self.forgetting
        N, activation = self.config.hidden, self.config.activation
        plain = Detector(n_hidden=N, activation=activation, score="reconstruction")
        settings = replace(self._settings or plain.settings(), forgetting=Constant(a))
        limit = fixed.limit_value(int(self._read(Mode.FF, 1, Ff.LIMIT)[0]) & 0xFFFFFFFF)
        steps = self._steps - self._singular
        shrink, weight = (self._start.shrink, self._start.weight) if self._start else (1.0, 0.0)
        state = DetectorState(
            S=S, alpha=alpha, b=b, beta=beta, memory=np.array([a]),
            seen=self.n_seen, skipped=self.n_skipped, paused=self.n_paused,
            trace=float(np.sum(S * S)),
            trace_start=limit / WIND_UP * self._scale**2 or float(np.sum(S * S)),
            # As if no step had been paused: both only serve to merge detectors.
            shrink=shrink * a ** (2 * steps), weight=_weight(weight, a, steps),
        )  # fmt: skip
        return Detector.resumed(settings, state)

    # -- inside -------------------------------------------------------------------------------

    def _vector(self, x: Any) -> Array:
        return samples.vector(x, self.config.n, "float64", self._largest)

    def _matrix(self, X: Any) -> Array:
        return samples.matrix(X, self.config.n, "float64", self._largest)

    @property
    def _largest(self) -> float:
        """Return the largest number that a word of data holds."""
        return ldexp((1 << self.config.width - 1) - 1, -self.config.fraction)

    def _samples(self, X: Array, mode: Mode, index: int) -> Words:
        """Return the words that put each row of `X` into the input buffer and start a step."""
        n = self.config.n
        words = np.empty((len(X), n + 1), np.uint64)
        values = fixed.quantize(X, self.config.width, self.config.fraction)
        words[:, :n] = packets.writes(Mode.X, np.zeros(n, np.int64))
        words[:, :n] |= values.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        words[:, n] = packets.Packet(mode, False, index, 0).encode()
        return words.ravel()

    def _scores(self, answers: Answers) -> Array:
        _refuse(answers)
        return fixed.value(answers, self.config.score_fraction)

    def _parameter(self, mode: Mode, name: str, values: Array) -> Words:
        c = self.config
        alpha = mode is Mode.ALPHA
        width, fraction = (c.alpha_width, c.alpha_fraction) if alpha else (c.width, c.fraction)
        largest = ldexp(1, width - 1 - fraction)
        if not np.abs(values).max(initial=0) <= largest:
            raise OnladError(
                f"{name} has a value of {np.abs(values).max():g}, but a core with {width}-bit "
                f"words holds at most {largest:g}. Scale the data, or use wider words"
            )
        return packets.writes(mode, fixed.quantize(values, width, fraction))

    def _factor(self, a: float) -> int:
        return int(fixed.quantize(a, 32, self.config.ff_fraction))

    def _read(self, mode: Mode, count: int, start: int = 0) -> Array:
        answers = self.transport.exchange(packets.reads(mode, count, start))
        return answers.astype(np.int32).astype(np.int64)

    def _layer(self) -> tuple[Array, Array, Array]:
        c, n, N = self.config, self.config.n, self.config.hidden
        if c.alpha == "seeded":
            alpha = weights(c)
        else:
            alpha = fixed.value(self._read(Mode.ALPHA, n * N), c.alpha_fraction).reshape(n, N)
        b = fixed.value(self._read(Mode.B, N), c.fraction)
        beta = fixed.value(self._read(Mode.BETA, N * n), c.fraction).reshape(N, n)
        return alpha / self._scale, b / self._scale, beta * self._scale

    def _root(self) -> Array:
        N = self.config.hidden
        words = self._read(Mode.P, N * N).reshape(N, N)
        mantissa, exponent = self._read(Mode.FF, 2, Ff.MANTISSA).tolist()
        return fixed.root_value(self.config, words, mantissa, exponent) * self._scale

    def _note(self, singular: Array) -> None:
        self._steps += len(singular)
        self._singular += int(singular.sum())


def load(detector: Detector, device: Device) -> Device:
    """Load a trained detector into a core: emulated, simulated or real."""
    return device.load(detector)


def read(device: Device) -> Detector:
    """Return a detector that continues, in floating point, from the state of a core."""
    return device.read()


def _refuse(answers: Answers) -> None:
    """Raise the error of the first refusal among the answers."""
    refused = answers[answers >= packets.REFUSED]
    if refused.size:
        raise CoreRefusedError(Reason(int(refused[0]) - packets.REFUSED))


def _config(transport: Transport) -> Config:
    words = transport.exchange(packets.reads(Mode.PREDICT, len(Describe))).tolist()
    if words[Describe.IDENTITY] >> 8 != packets.MAGIC:
        raise OnladError(
            f"this is not an ONLAD Core: it identifies itself as {words[Describe.IDENTITY]:#010x}"
        )
    if words[Describe.IDENTITY] & 0xFF != packets.VERSION:
        raise OnladError(
            f"this core uses version {words[Describe.IDENTITY] & 0xFF} of the packets, this "
            f"driver {packets.VERSION}. Build the core again, or install the driver of its version"
        )
    options = words[Describe.OPTIONS]
    config = Config(
        n=words[Describe.FEATURES],
        hidden=words[Describe.HIDDEN],
        lanes=words[Describe.LANES],
        activation=ACTIVATIONS[options & 0xFF],
        width=words[Describe.FORMATS] & 0xFF,
        alpha=STORAGES[options >> 8 & 0xFF],
        seed=words[Describe.SEED],
    )
    if config.describe() != words:
        raise OnladError(f"this core has other number formats than this driver expects: {words}")
    return config


def _refuse_unlike(detector: Detector, config: Config) -> None:
    if detector.n_features is None:
        raise ValueError("the detector has learned nothing: fit it, or start it with n features")
    have = (detector.n_features, detector.n_hidden, detector.activation)
    want = (config.n, config.hidden, config.activation)
    for name, mine, core in zip(
        ("features", "hidden units", "activation"), have, want, strict=True
    ):
        if mine != core:
            raise ValueError(f"the detector has {name} {mine!r}, the core was built for {core!r}")
    if (detector.score, detector.loss) != ("reconstruction", "squared"):
        raise ValueError(
            "the core's score is the paper's, so the detector needs score='reconstruction' and "
            f"loss='squared'; it has {detector.score!r} and {detector.loss!r}"
        )
    if not isinstance(detector.forgetting, Constant):
        raise ValueError(
            "the core holds one forgetting factor and follows no policy. Give the detector a "
            "number, and set device.forgetting to change it"
        )


def _scale(alpha: Array, b: Array, config: Config) -> float:
    """Return a power of two, at most 1, by which no hidden unit leaves the range of a word.

    For identity activation the scale of the hidden layer is free: beta and S take its inverse.
    Inputs are assumed to lie in [0, 1]; half of the range is reserved for those that do not.
    """
    if config.alpha == "seeded":
        return 1.0
    sums = np.maximum(np.maximum(alpha, 0).sum(axis=0), np.maximum(-alpha, 0).sum(axis=0))
    largest = ldexp(1, config.width - 2 - config.fraction)
    largest = max(
        float((sums + np.abs(b)).max()) / largest,
        float(np.abs(alpha).max()) / ldexp(1, config.alpha_width - 1 - config.alpha_fraction),
    )
    return float(2.0 ** min(0, -int(np.ceil(np.log2(largest))))) if largest > 0 else 1.0


def _weight(weight: float, a: float, steps: int) -> float:
    """Return the weight of all samples after `steps` more."""
    if a == 1:
        return weight + steps
    fading = a ** (2 * steps)
    return weight * fading + (1 - fading) / (1 - a * a)

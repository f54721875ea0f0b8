"""`Bank`: many detectors of one shape in one array, each with its own stream."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from onlad import samples
from onlad.detector import Detector
from onlad.fleet import bankfile, given
from onlad.fleet.host import HostEngine
from onlad.fleet.models import (
    FACTOR,
    PAUSED,
    SEEN,
    SKIPPED,
    Engine,
    Layer,
    Models,
    detector_of,
    fitting,
    model_of,
    settings_of,
)  # fmt: skip
from onlad.forgetting import check_factor
from onlad.reference import Array


class Bank:
    """Detectors with one random layer, each of which learns the stream of its own device.

    A model of the bank computes what a `Detector` computes. On the processor `update` and `score`
    give its numbers to the last bit; blocks and the GPU give them within rounding. A bank is for
    one caller at a time.

    Parameters
    ----------
    detector
        How all models start: fresh, or with what it has learned. Its forgetting must be constant.
    models
        How many.
    n_features
        Of a sample; needed if `detector` has seen nothing.
    device
        ``cpu``, or ``cuda`` for an NVIDIA GPU (extra ``gpu``; at most 128 hidden units).
    threads
        On the processor; by default as many as this process has cores. Results do not depend on it.

    Examples
    --------
    >>> bank = Bank(Detector(n_hidden=8), models=1000, n_features=3)
    >>> X = np.random.default_rng(0).uniform(size=(1000, 3))      # one sample per device
    >>> scores = bank.update(X)
    >>> sent = np.arange(1000) != 7                               # device 7 is silent
    >>> scores = bank.update(X, sent)
    >>> int(np.isnan(scores).sum()), bank.n_seen[6:9].tolist()
    (1, [2, 1, 2])
    >>> detector = bank[7]                             # a copy; and back by bank[7] = detector
    >>> detector.n_seen
    1
    """

    def __init__(
        self,
        detector: Detector,
        models: int,
        *,
        n_features: int | None = None,
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = None,
    ) -> None:
        if not isinstance(detector, Detector):
            raise TypeError(f"detector must be a Detector, got {detector!r:.60}")
        count = samples.whole("models", models, 0)
        self.threads = None if threads is None else samples.whole("threads", threads, 1)
        if detector.n_features is None:
            if n_features is None:
                raise ValueError("n_features is needed: the detector has seen nothing yet")
            width = samples.whole("n_features", n_features, 1)
            detector = Detector.resumed(detector.settings()).start(width)
        elif n_features not in (None, detector.n_features):
            raise ValueError(
                f"n_features is {n_features}, but the detector was started with "
                f"{detector.n_features}"
            )
        self._settings = settings_of(detector)
        self._start = model_of(detector)
        state = detector.started()
        self._layer = Layer(state.alpha, state.b, detector.activation, detector.loss)
        self.device = device
        self._engine = self._make(count, device)
        self._engine.put(slice(None), self._start)

    # -- learning ---------------------------------------------------------------------------

    def update(self, X: Any, mask: Any = None) -> Any:
        """Return the score of one sample per model, (models, n), then learn it.

        Where `mask` is False there is no sample: that row is not looked at, its model stays as it
        is and its score is NaN. On a GPU a tensor gives a tensor; all else gives an array.

        Raises
        ------
        ValueError
            `X` or `mask` does not fit, or models sent numbers that are not finite, or beyond what
            the type can square. The message names the models, and no model has changed.
        """
        return self._run(X, mask, many=False, learn=True)

    def update_many(self, X: Any, mask: Any = None) -> Any:
        """Return the scores of T samples per model, (models, T, n), each learned after its score.

        The same as T calls of `update`, within rounding. `mask` has shape (models,) or (models, T).
        """
        return self._run(X, mask, many=True, learn=True)

    def score(self, X: Any, mask: Any = None) -> Any:
        """Return how unusual one sample per model is, and learn nothing."""
        return self._run(X, mask, many=False, learn=False)

    def score_many(self, X: Any, mask: Any = None) -> Any:
        """Return how unusual each of T samples per model is, and learn nothing."""
        return self._run(X, mask, many=True, learn=False)

    # -- looking ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._engine)

    @property
    def n_features(self) -> int:
        """Features per sample."""
        return self._layer.n_features

    @property
    def n_seen(self) -> Array:
        """Samples learned, by model."""
        return np.asarray(self._engine.counts()[:, SEEN])

    @property
    def n_skipped(self) -> Array:
        """Samples that were scored but could not be learned, by model."""
        return np.asarray(self._engine.counts()[:, SKIPPED])

    @property
    def n_paused(self) -> Array:
        """Steps that forgot nothing because P was wound up, by model."""
        return np.asarray(self._engine.counts()[:, PAUSED])

    @property
    def forgetting(self) -> Array:
        """The forgetting factor of each model. Set it to one number, or to one per model."""
        return np.asarray(self._engine.numbers()[:, FACTOR])

    @forgetting.setter
    def forgetting(self, factors: Any) -> None:
        factors = np.asarray(factors, "float64")
        if factors.shape not in ((), (len(self),)):
            raise ValueError(
                f"forgetting must be one number or {len(self)}, got shape {factors.shape}"
            )
        for factor in np.unique(factors):
            check_factor("forgetting", float(factor))
        self._engine.set_factors(np.broadcast_to(factors, (len(self),)).copy())

    def __repr__(self) -> str:
        detector = Detector.resumed(self._settings)
        return (
            f"Bank({detector!r}, models={len(self)}, n_features={self.n_features}, "
            f"device={self.device!r})"
        )

    # -- models in and out ------------------------------------------------------------------

    def __getitem__(self, model: int) -> Detector:
        """Return a copy of one model as a detector of its own."""
        at = given.place(model, len(self), "model")
        one = self._engine.take(slice(at, at + 1))
        return detector_of(one, self._settings, self._layer)

    def __setitem__(self, model: int, detector: Detector) -> None:
        """Replace one model by a copy of a detector; a fresh one starts it from nothing."""
        at = given.place(model, len(self), "model")
        self._engine.put(slice(at, at + 1), fitting(detector, self._settings, self._layer))

    def grow(self, models: int = 1, detector: Detector | None = None) -> None:
        """Add models at the end, which start as `detector`, by default as the first ones did."""
        count = samples.whole("models", models, 0)
        start = self._start if detector is None else fitting(detector, self._settings, self._layer)
        before = len(self)
        self._keep(np.arange(before), count)
        self._engine.put(slice(before, before + count), start)

    def remove(self, models: Any) -> None:
        """Take models out, by their indices. Those after them move up."""
        kept = given.others(models, len(self), "model")
        self._keep(np.array(kept, "int64"))

    def to(self, device: Literal["cpu", "cuda"]) -> Bank:
        """Move all models to ``cpu`` or ``cuda``, and return the bank."""
        if device != self.device:
            engine = self._make(len(self), device)
            engine.fill(self._engine.take)
            self._engine, self.device = engine, device
        return self

    # -- files and copies -------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all models to the file `path`, whole or not at all, as `onlad.save` does.

        The memory of a bank on the processor is written as it is, in small pieces.
        """
        bankfile.save(path, self._settings, self._layer, self._start, self._engine.models())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Literal["cpu", "cuda"] = "cpu",
        threads: int | None = None,
    ) -> Bank:
        """Return the bank in the file `path`; it goes on to the last bit as the saved one would.

        Raises
        ------
        ModelFileError
            The file is not onlad's, is damaged, or holds no valid bank. The message says which.
        """
        bank = cls.__new__(cls)
        bank.device, bank.threads = device, threads
        bank._settings, bank._layer, bank._start, models = bankfile.load(path)
        bank._fill(models)
        return bank

    def __getstate__(self) -> dict[str, Any]:
        models = Models(*(np.array(part) for part in self._engine.models()))
        return self.__dict__ | {"_engine": models}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fill(state["_engine"])

    # -- inside -----------------------------------------------------------------------------

    def _make(self, count: int, device: str) -> Engine:
        if device == "cpu":
            return HostEngine(self._layer, count, self.threads)

        def there() -> Engine:
            from onlad.fleet.cuda import CudaEngine  # noqa: PLC0415  (PyTorch is an extra)

            return CudaEngine(self._layer, count)

        return given.on_gpu(device, there)

    def _keep(self, which: Array, more: int = 0) -> None:
        """Keep the models of these indices, in this order, and make place for more."""
        engine = self._make(len(which) + more, self.device)
        engine.copy(self._engine, which)
        self._engine = engine

    def _fill(self, models: Models) -> None:
        self._engine = self._make(len(models.counts), self.device)
        self._engine.fill(lambda some: Models(*(part[some] for part in models)))

    def _run(self, X: Any, mask: Any, *, many: bool, learn: bool) -> Any:
        tensors = self.device == "cuda" and given.is_tensor(X)
        if not tensors:
            X = samples.numbers(X, "X")
        shape, M, n = tuple(X.shape), len(self), self.n_features
        if len(shape) != 2 + many or (shape[0], shape[-1]) != (M, n):
            here = (
                f"(models, T, n), here ({M}, T, {n})" if many else f"(models, n), here ({M}, {n})"
            )
            raise ValueError(f"X must have shape {here}; got {shape}. No model was changed")
        if 0 in shape:
            return np.empty(shape[:-1])
        if mask is not None:
            mask = given.mask_of(mask, shape[:-1], "sample")
        X, mask = self._engine.samples(X.reshape(M, -1, n), mask)
        if learn and many:
            losses, leverages = self._engine.many(X, mask)
        else:
            losses, leverages = self._engine.step(X, mask, learn)
        scores = self._engine.combine(losses, leverages, self._settings.score)
        scores = scores.reshape(shape[:-1])
        return scores if tensors else np.asarray(scores.cpu() if self.device == "cuda" else scores)

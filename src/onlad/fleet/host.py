"""The bank on the processor: the memory of the models, padded as the compiled step wants it."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from onlad import _kernel, block, kernel, reference
from onlad._kernel import LINE, ROW_GROUP
from onlad.fields import values
from onlad.fleet.models import Engine, Layer, Models, refuse
from onlad.reference import ACTIVATIONS, LOSSES, Array

BLOCK_PAYS = 8  # rows of one model from which the block form is worth its two transpositions


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros that begin at a whole cache line; a page is touched when it is written."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + LINE, "uint8")
    start = -raw.ctypes.data % LINE
    zeros: Array = raw[start : start + size].view(dtype).reshape(shape)
    return zeros


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


class HostEngine(Engine):
    """Models of one shape in memory, and threads that run them."""

    def __init__(self, layer: Layer, count: int, threads: int | None = None) -> None:
        n, N = layer.alpha.shape
        dtype = layer.alpha.dtype
        super().__init__(layer)
        self.threads = threads
        stride = _up(N, LINE // dtype.itemsize)
        self._alpha, self._b = aligned((n, stride), dtype), aligned((stride,), dtype)
        self._alpha[:, :N], self._b[:N] = layer.alpha, layer.b
        beta = aligned((count, _up(n, ROW_GROUP), stride), dtype)
        S = aligned((count, _up(N, ROW_GROUP), stride), dtype)
        numbers, counts = np.zeros((count, 5)), np.zeros((count, 3), "int64")
        self._padded = Models(beta, S, numbers, counts)
        self._models = Models(beta[:, :n, :N], S[:, :N, :N], numbers, counts)
        self._update = _kernel.bank_update32 if dtype == "float32" else _kernel.bank_update64

    def models(self) -> Models:
        """Return views of all models."""
        return self._models

    def samples(self, X: Any, mask: Any) -> tuple[Array, Array]:
        """Return samples and mask as the compiled step takes them."""
        there = np.ones(X.shape[:-1], bool) if mask is None else np.ascontiguousarray(mask)
        with np.errstate(over="ignore"):  # what is too large is found later, if it is a sample
            return np.ascontiguousarray(X, self.layer.alpha.dtype), there.view("uint8")

    def step(self, X: Array, mask: Array, learn: bool) -> tuple[Array, Array]:
        """Score the samples one by one, and learn each if so."""
        return self._run(X, mask, learn=learn, blocks=False)

    def many(self, X: Array, mask: Array) -> tuple[Array, Array]:
        """Score and learn the samples, in blocks where that pays."""
        pays = X.shape[1] >= BLOCK_PAYS and block.pays(*self.layer.alpha.shape)
        return self._run(X, mask, learn=True, blocks=pays)

    def _run(self, X: Array, mask: Array, *, learn: bool, blocks: bool) -> tuple[Array, Array]:
        losses, leverages = np.full(mask.shape, np.nan), np.full(mask.shape, np.nan)
        largest = kernel.LARGEST[X.dtype.name]
        good = self._update(
            alpha=self._alpha, b=self._b, **values(self._padded),
            X=X, mask=mask, losses=losses, leverages=leverages, hidden=self.layer.n_hidden,
            activation=ACTIVATIONS.index(self.layer.activation),
            loss=LOSSES.index(self.layer.loss), learn=learn, blocks=blocks, largest=largest,
            threads=self.threads or usable_cores(), constants=reference,
        )  # fmt: skip
        if not good:
            fits = (np.abs(X) <= largest).all(-1)
            refuse(np.flatnonzero((mask & ~fits).any(-1)).tolist())
        return losses, leverages

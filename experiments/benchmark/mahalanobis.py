"""What a process engineer would take: T² and SPE of a PCA, fitted again every 1,000 rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.testbeds import Array

REFIT, KEPT = 1_000, 4_096  # rows
VARIANCE = 0.9  # that the components explain
# Of the rows it was fitted on: beyond so often the 0.999 quantile a row is an alarm.
QUANTILE, MARGIN = 0.999, 1.5


@dataclass(frozen=True)
class Pca:
    """Components of standardised windows, and the limits of both statistics."""

    mean: Array
    deviation: Array
    components: Array  # (inputs, components)
    variances: Array
    limits: tuple[float, float]  # of T² and SPE

    def parts(self, W: Array) -> tuple[Array, Array]:
        """Return each input's part in T² and in SPE, (rows, inputs) each."""
        Z = np.clip((W - self.mean) / self.deviation, -100, 100)
        scores = Z @ self.components
        inside = (scores / np.sqrt(self.variances)) @ self.components.T
        return inside**2, (Z - scores @ self.components.T) ** 2


def fit(W: Array) -> Pca:
    mean, deviation = W.mean(axis=0), W.std(axis=0)
    deviation = np.where(deviation > 1e-9 * (np.abs(mean) + 1), deviation, np.inf)
    Z = (W - mean) / deviation
    variances, components = np.linalg.eigh(Z.T @ Z / len(Z))
    variances, components = np.maximum(variances[::-1], 1e-9), components[:, ::-1]
    explained = np.cumsum(variances) / variances.sum()
    k = min(int(np.searchsorted(explained, VARIANCE)) + 1, len(variances))
    found = Pca(mean, deviation, components[:, :k], variances[:k], (1.0, 1.0))
    limits = [MARGIN * np.quantile(part.sum(axis=1), QUANTILE) for part in found.parts(W)]
    t2, spe = (max(float(limit), 1e-6) for limit in limits)
    return Pca(mean, deviation, components[:, :k], variances[:k], (t2, spe))


def windows(X: Array, width: int) -> Array:
    """Return each row with those before it, oldest first: (rows, width * features)."""
    padded = np.concatenate([np.repeat(X[:1], width - 1, axis=0), X])
    view = np.lib.stride_tricks.sliding_window_view(padded, width, axis=0)
    return np.ascontiguousarray(view.transpose(0, 2, 1)).reshape(len(X), -1)


def watch(X: Array, history: int, width: int) -> tuple[Array, Array]:
    """Return score and shares of each row; a score above 1 is an alarm.

    The history is learned first. Later rows are learned at the next fit if they were below.
    """
    W, n = windows(X, width), X.shape[1]
    score, shares = np.empty(len(X)), np.empty(X.shape)
    kept = W[max(0, history - KEPT) : history]
    model = fit(kept)
    for start in (0, *range(history, len(X), REFIT)):
        stop = history if start == 0 else min(start + REFIT, len(X))
        parts = model.parts(W[start:stop])
        ratios = np.array(
            [part.sum(axis=1) / limit for part, limit in zip(parts, model.limits, strict=True)]
        )
        score[start:stop] = ratios.max(axis=0)
        higher = np.where((ratios[0] > ratios[1])[:, None], *parts)
        shares[start:stop] = higher.reshape(stop - start, width, n).sum(axis=1)
        if start > 0:
            below = W[start:stop][score[start:stop] <= 1]
            kept = np.concatenate([kept, below])[-KEPT:]
            model = fit(kept)
    return score, shares

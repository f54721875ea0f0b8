"""A stream with all that a monitor has to bear: gaps, a sensor that sticks, one that is out."""

import numpy as np


def machine(rows, features, seed=0):
    """Return rows of three sources in float32, with missing values; the second half is other."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    sources = np.array([np.sin(t / period + i) for i, period in enumerate((20, 47, 133))]).T
    X = sources @ rng.normal(size=(3, features)) + 0.1 * rng.normal(size=(rows, features))
    X = X * rng.uniform(1, 100, features) + rng.uniform(-1000, 1000, features)
    X[rows // 2 :] = 1.5 * X[rows // 2 :, ::-1]  # another mode
    X[rng.random(X.shape) < 0.01] = np.nan
    X[rows // 4 : rows // 4 + 60, 1] = X[rows // 4, 0]  # stuck
    X[rows // 3 : rows // 3 + 100, -1] = np.nan  # out
    X[rows // 3 + 200 : rows // 3 + 203] = np.nan  # all are
    X[rows // 5, 0] *= 3  # a spike
    return X.astype("float32").astype("float64")

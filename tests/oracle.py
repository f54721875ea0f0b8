"""The closed form that every recursion must equal, solved directly in float64."""

import numpy as np


def solve(H, X, a=1.0, ridge=0.0):
    """Return beta, P and the Gram matrix of weighted ridge least squares.

    `a` is one factor, or one per row. Row s weighs the product of a^2 over the rows after it, and
    the ridge the product over all rows.
    """
    left = np.cumprod((np.ones(len(H)) * a)[::-1] ** 2)[::-1]
    weight = np.append(left[1:], 1.0)
    gram = (H.T * weight) @ H + ridge * (left[0] if len(left) else 1.0) * np.eye(H.shape[1])
    return np.linalg.solve(gram, (H.T * weight) @ X), np.linalg.inv(gram), gram


def tolerance(gram, dtype="float64"):
    """Return how far two solutions of one system may lie apart, relative to the largest entry.

    Both sides solve one linear system, so they differ by rounding times its condition number;
    100 covers the operations per entry. The inverse of the Gram matrix has the same condition.
    """
    return 100 * np.finfo(dtype).eps * np.linalg.cond(gram)


def assert_near(found, expected, relative):
    """Assert that no entry is off by more than `relative` times the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=relative * np.abs(expected).max())


def assert_positive_definite(P):
    """Assert that P is symmetric to the last bit, and that its Cholesky factor exists."""
    np.testing.assert_array_equal(P, P.T)
    np.linalg.cholesky(P)


def auc(scores, labels):
    """Return the area under the ROC curve by ranks; ties count half.

    Examples
    --------
    >>> auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([0, 0, 1, 1]))
    0.875
    """
    _, position, count = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[position]
    positive = labels.astype(bool)
    n_positive, n_negative = positive.sum(), (~positive).sum()
    wins = rank[positive].sum() - n_positive * (n_positive + 1) / 2
    return float(wins / (n_positive * n_negative))

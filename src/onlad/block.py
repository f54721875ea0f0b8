"""The exact block form: T steps of score-then-learn as matrix products.

Only S must go one sample at a time, and it does not depend on the errors. With the gains g_t
that its steps leave, sample t is predicted with beta_0 + sum_{s<t} g_s' e_s, so its error is

    e_t = (x_t - h_t beta_0) - sum_{s<t} (h_t . g_s) e_s        or (I + A) E = X - H beta_0

with A the strictly lower part of H G', and beta_T = beta_0 + G'E. Nothing is approximated: the
wind-up guard and a forgetting factor that varies act inside the block as they do in the loop.
The product X alpha of many rows is NumPy's; the rest of a block is in block.hpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onlad._kernel import BLOCK_ROWS as ROWS
from onlad.reference import Array

if TYPE_CHECKING:
    from onlad.kernel import Kernel

CHUNK = 512  # rows whose product with alpha is computed at once


def pays(n_features: int, n_hidden: int) -> bool:
    """Return whether blocks beat the compiled loop at this size (benchmarks/ measures it)."""
    return n_features * n_hidden >= 128 * 64


def update_many(model: Kernel, X: Array, forgetting: Array) -> tuple[Array, Array]:
    """Score and learn the rows of `X` in order; return their losses and leverages.

    The model is modified. ``forgetting`` has one factor per row.
    """
    losses, leverages = np.empty(len(X)), np.empty(len(X))
    alpha = np.ascontiguousarray(model.alpha)
    beta = np.ascontiguousarray(model.beta_t.T)
    for start in range(0, len(X), CHUNK):
        part = slice(start, start + CHUNK)
        XA = X[part] @ alpha
        model.update_blocks(
            X=X[part], XA=XA, a=forgetting[part], beta=beta, block_rows=ROWS,
            loss=losses[part], leverage=leverages[part],
        )  # fmt: skip
    model.beta_t[:] = beta.T
    return losses, leverages

"""Other ways to forget and to stack, in NumPy: variants of OS-ELM that the paper names.

One function per equation, on the `State` of `onlad.reference`, with sigmoid units unless it says
otherwise. mathematics.md derives them and says of each where it is from. `onlad.compound` has those
that run on the compiled step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onlad import reference
from onlad.reference import Activation, Array, State


def fos_elm_update(state: State, new: Array, old: Array) -> State:
    """Return the state after one chunk has come into the window and one has left it (FOS-ELM).

    With G = [H_old; H_new] and J = diag(-I, I), K' = K + G' J G, so by the Woodbury formula
    P' = P - P G' (J + G P G')^-1 G P, and beta' = beta + P' G' J (X - G beta). J is its own
    inverse. Zhao, Wang and Park (2012); nothing else may be forgotten.
    """
    X = np.vstack([old, new])
    H = reference.hidden(state, X)
    sign = np.repeat([-1.0, 1.0], [len(old), len(new)])
    PH = state.P @ H.T
    P = reference.symmetric(state.P - PH @ np.linalg.solve(np.diag(sign) + H @ PH, PH.T))
    error = sign[:, None] * (X - H @ state.beta)
    return State(state.alpha, state.b, state.beta + P @ H.T @ error, P)


class Directional(NamedTuple):
    """What directional forgetting remembers: the factor, the level of errors, their number.

    The values before the first sample are those of Bobal et al. (2005), p. 39.
    """

    factor: float = 1.0
    level: float = 1e-3
    number: float = 1e-6


def dff_update(
    state: State,
    memory: Directional,
    x: Array,
    rho: float = 0.99,
    activation: Activation = "sigmoid",
) -> tuple[State, Directional]:
    """Return state and memory after one sample, forgetting along its h alone (lambda_DFF OS-ELM).

    The factor of the next sample follows the error of this one. Kulhavy's adaptive directional
    forgetting, as Bobal, Bohm, Fessl and Machacek print it (Digital Self-tuning Controllers, 2005,
    eqs. 3.41 to 3.48). Ours: the squared error is the mean over the features.
    """
    h = reference.hidden(state, x, activation)
    u = state.P @ h
    xi = float(h @ u)
    e = x - h @ state.beta
    beta = state.beta + np.outer(u / (1 + xi), e)
    if not xi > 0:
        return state._replace(beta=beta), memory
    phi = memory.factor
    # eq. 3.44 with 3.45 put in: along h the information becomes phi (1 / xi + 1).
    P = state.P - np.outer(u, u) * ((phi * (1 + xi) - 1) / (phi * xi * (1 + xi)))
    return State(state.alpha, state.b, beta, P), dff_follow(memory, xi, float(np.mean(e * e)), rho)


def dff_follow(memory: Directional, xi: float, squared: float, rho: float) -> Directional:
    """Return the memory after a sample with leverage `xi` and this squared error (eq. 3.41 on)."""
    phi, level, number = memory
    level, number = phi * (level + squared / (1 + xi)), phi * (number + 1)
    eta = squared / level
    surprise = ((number + 1) * eta / (1 + xi + eta) - 1) * xi / (1 + xi)
    return Directional(1 / (1 + (1 + rho) * (math.log1p(xi) + surprise)), level, number)


def ml_hidden(layers: Sequence[State], x: Array) -> list[Array]:
    """Return what each layer gets: x_1 = x, then x_{l+1} = G(x_l beta_l') (ML-OSELM)."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(reference.activate(inputs[-1] @ layer.beta.T, "sigmoid"))
    return inputs


def ml_predict(layers: Sequence[State], x: Array) -> Array:
    """Return the reconstruction of `x` by the last layer."""
    return reference.predict(layers[-1], ml_hidden(layers, x)[-1])


def ml_update(layers: Sequence[State], x: Array, forgetting: float = 1.0) -> list[State]:
    """Return the layers after one sample (ML-OSELM: Mirza, Kok and Dong, 2016).

    Each layer but the last is an autoencoder of its own input; the last learns the target, which
    is `x` here. A layer learns what the layers below gave it before they learned `x`.
    """
    inputs = ml_hidden(layers, x)
    below = [
        reference.update(layer, given, forgetting)
        for layer, given in zip(layers[:-1], inputs[:-1], strict=True)
    ]
    return [*below, reference.update(layers[-1], inputs[-1], forgetting, t=x)]


def ml_fit(layers: Sequence[State], X: Array, ridge: float = 0.0) -> list[State]:
    """Return the layers after the initial samples, from the lowest to the last."""
    fitted: list[State] = []
    given = X
    for layer in layers[:-1]:
        fitted.append(reference.fit(layer, given, ridge=ridge))
        given = reference.activate(given @ fitted[-1].beta.T, "sigmoid")
    return [*fitted, reference.fit(layers[-1], given, ridge=ridge, T=X)]


def mixture_update(
    instances: Sequence[State], x: Array, forgetting: float = 1.0
) -> tuple[list[State], int]:
    """Return the instances after one sample, and which of them has learned it.

    The one that reconstructs `x` best learns it, the others stay as they are. The score of a
    mixture is the lowest of its instances' scores.
    """
    losses = [reference.score(state, x) for state in instances]
    best = int(np.argmin(losses))
    changed = list(instances)
    changed[best] = reference.update(instances[best], x, forgetting)
    return changed, best

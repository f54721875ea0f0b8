"""The definition: ELM, OS-ELM, FP-ELM and ONLAD in NumPy, one function per equation.

Symbols, here and everywhere in the project:

======  =======  ================================================================
x       (n,)     one sample of n features
alpha   (n, N)   input weights, drawn once and never learned
b       (N,)     hidden biases, drawn once and never learned
h       (N,)     hidden activation G(x alpha + b) of N hidden units
beta    (N, n)   output weights, learned; (N, m) for targets of m numbers
P       (N, N)   inverse of the weighted Gram matrix of the h seen so far
t       (m,)     target; the sample itself where none is given, as in the autoencoder
e       (m,)     a priori error t - h beta
a                forgetting factor, 0 < a <= 1 (the paper's alpha_i): each step weighs the
                 squared errors of the past by a^2
d                1 + h P h' / a^2; d - 1 is the leverage of the sample
r                ridge: P starts at I / r
======  =======  ================================================================

Capitals H, X, T, E are the same with one row per sample. Labels like ``eq:detector_train`` are
those of the paper's equations; ``docs/explanation/mathematics.md`` has them all.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Activation: TypeAlias = Literal["sigmoid", "identity", "relu", "tanh"]
Weights: TypeAlias = Literal["uniform", "uniform01", "normal"]
Loss: TypeAlias = Literal["squared", "absolute"]
Score: TypeAlias = Literal["reconstruction", "leverage", "combined"]

ACTIVATIONS: tuple[Activation, ...] = ("sigmoid", "identity", "relu", "tanh")
WEIGHTS: tuple[Weights, ...] = ("uniform", "uniform01", "normal")
LOSSES: tuple[Loss, ...] = ("squared", "absolute")
SCORES: tuple[Score, ...] = ("reconstruction", "leverage", "combined")

EPSILON = 1e-4  # alg:detector: no learning when d is below it
LEAST_LEVERAGE = 1e-3  # so that h = 0 (all relu units off) cannot hide an error
LARGEST_LEVERAGE = 1e30  # h P h' from which the compiled step, which has no EPSILON, skips a sample
WOUND_UP = 1e4  # P is wound up when its trace is above this times its start, by the growth of P
OLDEST = 3  # times N samples ago is the oldest one that P is determined by
LEAST_GROWTH = 1e-4  # so that a short memory does not put the limit out of reach
TRACE_INTERVAL = 64  # samples between measurements of trace(P), where it is followed by differences


class State(NamedTuple):
    """A model between two samples. `P` is exactly symmetric, not nearly."""

    alpha: Array
    b: Array
    beta: Array
    P: Array


def symmetric(P: Array) -> Array:
    """Return the symmetric part of `P`, exact to the last bit."""
    part: Array = (P + P.T) / 2
    return part


def draw(n_features: int, n_hidden: int, weights: Weights, seed: int) -> tuple[Array, Array]:
    """Draw the random layer: alpha and b.

    ``uniform`` is Uniform[-1, 1], as the authors' code draws. ``uniform01`` is Uniform[0, 1], as
    the paper prints; a wide sigmoid layer saturates on it. ``normal`` is Normal(0, 1/n): unit
    inputs of any number give unit activations. Its biases are Uniform[-1, 1].

    Examples
    --------
    >>> alpha, b = draw(3, 5, "uniform", seed=0)
    >>> alpha.shape, b.shape
    ((3, 5), (5,))
    """
    rng = np.random.default_rng(seed)
    low = 0.0 if weights == "uniform01" else -1.0
    if weights == "normal":
        alpha = rng.normal(0, 1 / np.sqrt(n_features), (n_features, n_hidden))
    else:
        alpha = rng.uniform(low, 1, (n_features, n_hidden))
    return alpha, rng.uniform(low, 1, n_hidden)


def activate(z: Array, activation: Activation) -> Array:
    """Return G(z), element by element."""
    if activation == "sigmoid":
        z = 1 / (1 + np.exp(-np.clip(z, -700, 700)))
    elif activation == "tanh":
        z = np.tanh(z)
    elif activation == "relu":
        z = np.maximum(z, 0)
    return z


def hidden(state: State, x: Array, activation: Activation = "sigmoid") -> Array:
    """Return h of one sample, or H of one row per sample."""
    return activate(x @ state.alpha + state.b, activation)


def predict(state: State, x: Array, activation: Activation = "sigmoid") -> Array:
    """Return the reconstruction of `x` (eq:elm_predict)."""
    y: Array = hidden(state, x, activation) @ state.beta
    return y


def leverage(
    state: State, x: Array, forgetting: float = 1.0, activation: Activation = "sigmoid"
) -> float:
    """Return d - 1 = h P h' / a^2: how far `x` lies from what was seen lately."""
    h = hidden(state, x, activation)
    return float(h @ state.P @ h / forgetting**2)


def reduce_error(e: Array, loss: Loss = "squared") -> Array:
    """Return the loss L of errors along the last axis: mean squared or mean absolute."""
    mean: Array = np.mean(e * e if loss == "squared" else np.abs(e), axis=-1)
    return mean


def combine(loss: Array, leverage: Array, score: Score) -> Array:
    """Return the anomaly score from a sample's loss and leverage.

    ``reconstruction`` is the paper's score. ``combined`` multiplies it by the root of the
    leverage: docs/explanation/score-measurements.md shows the measurement that chose it.
    """
    if score == "reconstruction":
        return loss
    if score == "leverage":
        return leverage
    combined: Array = loss * np.sqrt(leverage + LEAST_LEVERAGE)
    return combined


def score(
    state: State,
    x: Array,
    forgetting: float = 1.0,
    *,
    activation: Activation = "sigmoid",
    loss: Loss = "squared",
    kind: Score = "reconstruction",
) -> float:
    """Return how unusual one sample is (eq:detector_predict).

    The state is not modified: scoring never learns.

    Examples
    --------
    >>> state = init(n_features=2, n_hidden=3, seed=0)
    >>> x = np.array([0.2, 0.8])
    >>> score(update(state, x), x) < score(state, x)
    True
    """
    error = reduce_error(x - predict(state, x, activation), loss)
    return float(combine(error, np.asarray(leverage(state, x, forgetting, activation)), kind))


def init(
    n_features: int,
    n_hidden: int,
    *,
    weights: Weights = "uniform",
    ridge: float = 1e-2,
    seed: int = 0,
) -> State:
    """Return a state that has seen nothing: beta = 0, P = I / r."""
    alpha, b = draw(n_features, n_hidden, weights, seed)
    return State(alpha, b, np.zeros((n_hidden, n_features)), np.eye(n_hidden) / ridge)


def elm_fit(state: State, X: Array, T: Array | None = None) -> Array:
    """Return beta of the batch ELM by pseudo inverse (eq:elm_train, eq:elm_zero_error)."""
    beta: Array = np.linalg.pinv(hidden(state, X)) @ (X if T is None else T)
    return beta


def fit(
    state: State,
    X: Array,
    *,
    ridge: float = 0.0,
    activation: Activation = "sigmoid",
    T: Array | None = None,
) -> State:
    """Return the state after the initial samples (eq:os_elm_init, eq:detector_init).

    With ``ridge`` 0, as in the paper, more samples than hidden units are needed.
    """
    H = hidden(state, X, activation)
    K = H.T @ H + ridge * np.eye(H.shape[1])
    beta = np.linalg.solve(K, H.T @ (X if T is None else T))
    return State(state.alpha, state.b, beta, symmetric(np.linalg.inv(K)))


def update(
    state: State,
    x: Array,
    forgetting: float = 1.0,
    activation: Activation = "sigmoid",
    t: Array | None = None,
) -> State:
    """Return the state after one sample (eq:detector_train, eq:lfp_elm_train_bsize_1).

    With ``forgetting`` 1 it is OS-ELM with chunks of one (eq:os_elm_train_bsize_1). A sample
    whose d is below EPSILON is not learned (alg:detector).
    """
    h = hidden(state, x, activation)
    P = state.P / forgetting**2
    u = P @ h
    d = 1 + h @ u
    if d < EPSILON:
        return state
    # Departs from the paper: P_i h' equals u / d, so its second N^2 product is not needed. An
    # unsymmetric part of P would never shrink, and forgetting would multiply it by 1/a^2 on
    # every sample: outer(u, u) / d is symmetric to the last bit, outer(u / d, u) is not.
    return State(
        state.alpha,
        state.b,
        state.beta + np.outer(u / d, (x if t is None else t) - h @ state.beta),
        P - np.outer(u, u) / d,
    )


def update_chunk(
    state: State,
    X: Array,
    forgetting: float = 1.0,
    activation: Activation = "sigmoid",
    T: Array | None = None,
) -> State:
    """Return the state after a chunk of any size that is forgotten as one (eq:lfp_elm_train).

    With ``forgetting`` 1 it is OS-ELM (eq:os_elm_train), and equal to a loop of `update`.
    """
    H = hidden(state, X, activation)
    P = state.P / forgetting**2
    PH = P @ H.T
    P = symmetric(P - PH @ np.linalg.solve(np.eye(len(H)) + H @ PH, PH.T))
    error = (X if T is None else T) - H @ state.beta
    return State(state.alpha, state.b, state.beta + P @ H.T @ error, P)


def fp_elm_fit(
    state: State, X: Array, ridge: float = 0.02, activation: Activation = "sigmoid"
) -> tuple[Array, Array]:
    """Return K and beta of FP-ELM after the initial samples (eq:fp_elm_init)."""
    H = hidden(state, X, activation)
    K = H.T @ H
    return K, np.linalg.solve(ridge * np.eye(len(K)) + K, H.T @ X)


def fp_elm_update(
    state: State,
    K: Array,
    X: Array,
    forgetting: float = 1.0,
    *,
    ridge: float = 0.02,
    activation: Activation = "sigmoid",
) -> tuple[Array, Array]:
    """Return K and beta of FP-ELM after a chunk (eq:fp_elm_train).

    Only ``alpha``, ``b`` and ``beta`` of `state` are read: FP-ELM carries K where ONLAD has P.
    """
    H = hidden(state, X, activation)
    K = forgetting**2 * K + H.T @ H
    step = H.T @ (X - H @ state.beta) - ridge * (1 - forgetting**2) * state.beta
    return K, state.beta + np.linalg.solve(ridge * np.eye(len(K)) + K, step)


def trace_limit(start: float, N: int, forgetting: float, activation: Activation) -> float:
    """Return the trace(P) above which P is wound up; ``start`` is the trace at the start.

    P needs N samples to be full, in practice half as many again, and the oldest of them weighs
    a^3N: P grows so far along a direction that only it excites. Nonlinear units excite all
    directions in the end; of the others some are never excited, and a higher limit would not help
    them. Measured in docs/explanation/score-measurements.md.
    """
    growth = 1.0 if activation in ("identity", "relu") else forgetting ** (OLDEST * N)
    return WOUND_UP / max(growth, LEAST_GROWTH) * start


def guarded(state: State, forgetting: float, limit: float) -> float:
    """Return the forgetting factor of the next step: 1 while P is wound up."""
    return 1.0 if np.trace(state.P) > limit else forgetting


def restore(state: State, start: float, limit: float) -> State:
    """Put the forgotten ridge back for the hidden unit where P is largest, if P is wound up.

    Forgetting divides what the stream does not excite by a^2 at every step, without end. This is a
    step of OS-ELM on h = e_k sqrt(N / start) with x = 0, as the ridge is N of them.
    """
    # Departs from the paper, which has no guard: a stuck sensor ends its learning for good.
    if np.trace(state.P) <= limit:
        return state
    k = int(np.argmax(np.diag(state.P)))
    weight = len(state.P) / start
    u = state.P[k]
    scale = weight / (1 + weight * u[k])
    return state._replace(
        beta=state.beta - np.outer(u * scale, state.beta[k]),
        P=state.P - np.outer(u, u) * scale,
    )


def unlearn(state: State, x: Array) -> State:
    """Return the state as if `x` had never been learned (the downdate; exact for a = 1)."""
    h = hidden(state, x)
    u = state.P @ h
    d = 1 - h @ u
    return State(
        state.alpha,
        state.b,
        state.beta - np.outer(u / d, x - h @ state.beta),
        state.P + np.outer(u, u) / d,
    )


def merge(one: State, other: State, ridge: float = 0.0) -> State:
    """Return the state that saw both streams: K = P^-1 and V = K beta add.

    ``ridge`` is what both started from, and would else be counted twice. Both must have the
    same random layer; exact for a = 1.
    """
    K1, K2 = np.linalg.inv(one.P), np.linalg.inv(other.P)
    K = K1 + K2 - ridge * np.eye(len(K1))
    beta = np.linalg.solve(K, K1 @ one.beta + K2 @ other.beta)
    return State(one.alpha, one.b, beta, symmetric(np.linalg.inv(K)))

"""One training step and one prediction of each implementation, at any size, for one sample.

What latency and power are measured on, with the settings of tb:hard_hp: identity for the OS-ELM
methods, relu and Adam for the networks, DNN-AE with 2N, N, 2N units. JAX runs on the device that
it finds: a GPU where there is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.testbeds import Array

# Before JAX loads. On a processor it shall compute in the calling thread and in no other: for one
# sample a hand-over costs more than it gains.
os.environ.setdefault("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

FORGETTING, RIDGE = 0.99, 0.02


class Step(NamedTuple):
    """Both return when their work is done, on a GPU too."""

    train: Callable[[Array], object]
    predict: Callable[[Array], float]
    samples: Array  # to feed it, one per row


def samples(n_features: int, dtype: str = "float32") -> Array:
    rng = np.random.default_rng(0)
    return np.clip(rng.normal(0.5, 0.15, (64, n_features)), 0, 1).astype(dtype)


def onlad(n_features: int, n_hidden: int) -> Step:
    """Return the compiled detector's step; it scores what it learns, as it always does."""
    from onlad import Detector  # noqa: PLC0415  (a machine for the networks alone may lack it)

    detector = Detector(
        n_hidden=n_hidden,
        activation="identity",
        forgetting=FORGETTING,
        score="reconstruction",
        dtype="float32",
        seed=0,
    )
    X = samples(n_features)
    detector.update_many(X)
    return Step(detector.update_one, detector.score_one, X)


def onlad_numpy(n_features: int, n_hidden: int) -> Step:
    """Return the reference's step, in NumPy."""
    from onlad import reference  # noqa: PLC0415

    state = reference.init(n_features, n_hidden, ridge=RIDGE)

    def train(x: Array) -> None:
        nonlocal state
        state = reference.update(state, x, FORGETTING, "identity")

    def predict(x: Array) -> float:
        return float(reference.reduce_error(x - reference.predict(state, x, "identity")))

    return Step(train, predict, samples(n_features, "float64"))


def fpelm_numpy(n_features: int, n_hidden: int) -> Step:
    """Return the reference's step of FP-ELM, in NumPy."""
    from onlad import reference  # noqa: PLC0415

    state, K = reference.init(n_features, n_hidden), np.eye(n_hidden)

    def train(x: Array) -> None:
        nonlocal K, state
        K, beta = reference.fp_elm_update(
            state, K, x[None], FORGETTING, ridge=RIDGE, activation="identity"
        )
        state = state._replace(beta=beta)

    def predict(x: Array) -> float:
        return float(reference.reduce_error(x - reference.predict(state, x, "identity")))

    return Step(train, predict, samples(n_features, "float64"))


def _jax(
    n_features: int, state: Any, train: Callable[..., Any], predict: Callable[..., Any]
) -> Step:
    """Return the step of pure functions, compiled; the state stays on the device."""
    import jax  # noqa: PLC0415  (loads slowly)

    learn = jax.jit(train, donate_argnums=0)
    score = jax.jit(predict)
    state = jax.device_put(state)

    def step(x: Array) -> None:
        nonlocal state
        state = jax.block_until_ready(learn(state, x))

    return Step(step, lambda x: float(score(state, x)), samples(n_features))


def fpelm(n_features: int, n_hidden: int) -> Step:
    """Return the step of FP-ELM (eq:fp_elm_train) in JAX."""
    import jax.numpy as jnp  # noqa: PLC0415
    from jax.scipy.linalg import cho_factor, cho_solve  # noqa: PLC0415

    rng = np.random.default_rng(0)
    alpha = rng.uniform(-1, 1, (n_features, n_hidden)).astype("float32")
    b = rng.uniform(-1, 1, n_hidden).astype("float32")

    def train(state: Any, x: Any) -> Any:
        K, beta, alpha, b = state
        h = x @ alpha + b
        K = FORGETTING**2 * K + jnp.outer(h, h)
        right = jnp.outer(h, x - h @ beta) - RIDGE * (1 - FORGETTING**2) * beta
        factor = cho_factor(K + RIDGE * jnp.eye(n_hidden))
        return K, beta + cho_solve(factor, right), alpha, b

    def predict(state: Any, x: Any) -> Any:
        _, beta, alpha, b = state
        return jnp.mean((x - (x @ alpha + b) @ beta) ** 2)

    beta = np.zeros((n_hidden, n_features), "float32")
    return _jax(n_features, (np.eye(n_hidden, dtype="float32"), beta, alpha, b), train, predict)


def _network(hidden: list[int], n_features: int) -> Step:
    from experiments.methods import _autoencoder as ae  # noqa: PLC0415

    network = ae.draw(ae.Settings("relu", hidden, batch=1, epochs=1), n_features, hidden, seed=0)
    one = np.ones(1, "float32")
    return _jax(
        n_features,
        network,
        lambda network, x: ae.train(network, x[None], one)[0],
        lambda network, x: ae.errors(network.weights, network, x[None])[0],
    )


def nn(n_features: int, n_hidden: int) -> Step:
    return _network([n_hidden], n_features)


def dnn(n_features: int, n_hidden: int) -> Step:
    return _network([2 * n_hidden, n_hidden, 2 * n_hidden], n_features)


IMPLEMENTATIONS: dict[str, Callable[[int, int], Step]] = {
    "onlad": onlad,
    "onlad-numpy": onlad_numpy,
    "fpelm-numpy": fpelm_numpy,
    "fpelm": fpelm,
    "nn": nn,
    "dnn": dnn,
}
JAX = ("fpelm", "nn", "dnn")


def device(implementation: str) -> str:
    """Return "cpu", or "gpu" for a JAX implementation where JAX finds one."""
    if implementation not in JAX:
        return "cpu"
    import jax  # noqa: PLC0415

    return "cpu" if jax.devices()[0].platform == "cpu" else "gpu"


def machine() -> str:
    """Return the processor, and before it the GPU that JAX runs on."""
    import jax  # noqa: PLC0415

    from experiments import records  # noqa: PLC0415

    gpu = jax.devices()[0]
    return (f"{gpu.device_kind}, " if gpu.platform != "cpu" else "") + records.machine()

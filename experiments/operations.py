"""The paper's counts of operations and of matrix elements, and a counter to check them by.

    python -m experiments.operations        # count them anew, results/operations.jsonl

An iteration is what the paper counts: pqr for a product of p x q and q x r, r^3 for the inverse of
r x r (ssec:detector_anal). Work on single elements is not among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from experiments import records
from experiments.records import Record
from experiments.settings import paper
from onlad import reference
from onlad.reference import Array, State


def chunk(n: int, N: int, k: int, m: int | None = None) -> int:
    """Return I_k, a training step on k samples (eq:anal); m outputs, n in an autoencoder."""
    m = n if m is None else m
    return 4 * k * N**2 + k * (2 * k + 2 * m + n) * N + k**3


def train(n: int, N: int) -> int:
    """Return I_train (eq:train_iter): k = 1, where the inverse is a division."""
    return 4 * N**2 + (3 * n + 1) * N


def predict(n: int, N: int) -> int:
    """Return I_predict (eq:predict_iter)."""
    return 2 * n * N


def train_here(n: int, N: int) -> int:
    """Return the iterations of `reference.update`: P is symmetric, and P_i h' equals u / d."""
    return train(n, N) - 2 * N**2


def train_fpelm(n: int, N: int) -> int:
    """Return the iterations of a step of FP-ELM (eq:fp_elm_train) on one sample."""
    return N**3 + (n + 1) * N**2 + 3 * n * N


def space(n: int, N: int) -> dict[str, int]:
    """Return S, the matrix elements of each part (eq:param_space to eq:predict_space)."""
    return {
        "parameter": N**2 + (2 * n + 1) * N,
        "input": n,
        "train": 2 * N**2 + 4 * N + 2 * n + 1,
        "predict": N + n,
    }


def space_printed(n: int, N: int) -> int:
    """Return S_onlad as eq:onlad_space prints it. It is not the sum of its parts."""
    return 5 * N**2 + (5 * n + 4) * N + 2 * n + 1


@dataclass
class Count:
    """What was done."""

    iterations: int = 0


_COUNT = Count()


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, Counted) else value


class Counted(np.ndarray):
    """An array whose products and inverses are counted; what comes of it is one too."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = _plain(inputs)
        result = np.asarray(getattr(ufunc, method)(*plain, **_plain_options(options)))
        if ufunc is np.matmul:
            _COUNT.iterations += result.size * np.shape(plain[0])[-1]
        return result.view(Counted)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        plain = _plain(args)
        result = function(*plain, **_plain_options(options))
        if function is np.outer:
            _COUNT.iterations += result.size
        elif function is np.linalg.solve:
            size = len(plain[0])
            _COUNT.iterations += size**3 + size * result.size
        elif function is np.linalg.inv:
            _COUNT.iterations += len(plain[0]) ** 3
        return np.asarray(result).view(Counted)


def _plain_options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in options.items()}


@contextmanager
def counting() -> Iterator[Count]:
    """Count what is done with `Counted` arrays meanwhile."""
    global _COUNT  # noqa: PLW0603  (NumPy calls the arrays back with no room for a context)
    before, _COUNT = _COUNT, Count()
    try:
        yield _COUNT
    finally:
        _COUNT = before


def papers_step(state: State, x: Array, forgetting: float) -> tuple[State, dict[str, Array]]:
    """Train as fig:train_module does; return the state and what it keeps on the way.

    The product with P is taken from both sides, and again with the new P.
    """
    alpha, b, beta, P = state
    kept: dict[str, Any] = {}
    kept["h"] = h = x @ alpha + b
    P = P / forgetting**2
    kept["hP"] = hP = h @ P
    kept["Ph"] = Ph = P @ h
    kept["d"] = d = 1 + hP @ h
    kept["outer"] = outer = np.outer(Ph, hP)
    kept["P"] = P = P - outer / d
    kept["gain"] = gain = P @ h
    kept["y"] = y = h @ beta
    kept["e"] = e = x - y
    return State(alpha, b, beta + np.outer(gain, e), P), kept


def count(n: int, N: int) -> Record:
    """Return the counted iterations of each kind of step and the numbers kept, at one size."""
    state = State(*(part.view(Counted) for part in reference.init(n, N)))
    x = np.random.default_rng(0).uniform(0, 1, n).view(Counted)

    def iterations(step: Callable[[], Any]) -> int:
        with counting() as found:
            step()
        return found.iterations

    _, kept = papers_step(state, x, 0.99)
    return {
        "n_features": n,
        "n_hidden": N,
        "train_as_printed": iterations(lambda: papers_step(state, x, 0.99)),
        "train_here": iterations(lambda: reference.update(state, x, 0.99, "identity")),
        "train_fpelm": iterations(
            lambda: reference.fp_elm_update(state, state.P, x[None], 0.99, activation="identity")
        ),
        "predict": iterations(lambda: reference.predict(state, x, "identity")),
        "space_parameter": sum(part.size for part in state),
        "space_train": sum(part.size for part in kept.values()),
        **records.origin("python -m experiments.operations", "experiments/operations.py"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    sizes = product(paper()["latency"]["n_features"], paper()["latency"]["n_hidden"])
    (records.RESULTS / "operations.jsonl").unlink(missing_ok=True)
    records.append("operations", [count(*size) for size in sizes])


if __name__ == "__main__":
    main()

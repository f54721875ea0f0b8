"""OS-ELM and networks by batch size and by number of epochs (sections 3.1 and 5.3 of the paper).

    ONLAD_DATA=... python -m experiments.chunk_size      # results/chunk_size.jsonl; some minutes

The paper: OS-ELM gives the same weights in chunks of k and one by one, backpropagation does not;
and the networks need several epochs. Stored is, for one class of each dataset with the paper's
settings, how far beta after chunks is from beta after single samples, relative to its largest
entry; the AUC of NN-AE by batch size; and the AUC of both networks after one epoch, to be compared
with the trials of the tables, which have the same seeds.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

from experiments import records, testbeds
from experiments.methods import run_trials
from experiments.run import dataset, trial_auc
from experiments.settings import paper
from onlad import reference

CHUNKS, BATCHES, SEEDS = (2, 8, 64), (1, 8, 32), 3
# The paper's settings, on the smallest dataset: its widest network is soon trained.
NETWORK = "letter_recognition"


def distance(name: str, chunk: int) -> float:
    """Return how far beta is after chunks of `chunk` from beta after single samples."""
    data, given = dataset(name), paper()["settings"]["offline"][name]["onlad"]
    X = np.float64(testbeds.trial("offline", data.X, data.y, 0).parts[0].train)
    start = 4 * given["n_hidden"]
    X = X[: start + (len(X) - start) // 64 * 64]
    one = reference.fit(
        reference.init(X.shape[1], given["n_hidden"], seed=0),
        X[:start],
        ridge=1e-4,
        activation=given["activation"],
    )
    other = one
    for x in X[start:]:
        one = reference.update(one, x, activation=given["activation"])
    for rows in np.split(X[start:], (len(X) - start) // chunk):
        other = reference.update_chunk(other, rows, activation=given["activation"])
    return float(np.abs(one.beta - other.beta).max() / np.abs(one.beta).max())


def network(method: str, name: str, seed: int, **changed: int) -> float:
    """Return the AUC of a network offline, with one of the paper's settings changed."""
    data = dataset(name)
    given = paper()["settings"]["offline"][name][method] | changed
    trial = testbeds.trial("offline", data.X, data.y, seed)
    return trial_auc(trial, run_trials(method, "offline", given, [trial])[0])


def cases() -> Iterator[tuple[records.Record, Callable[[], records.Record]]]:
    """Yield what each record is of, and what measures the rest of it."""

    def off(name: str) -> records.Record:
        return {"off": {str(k): distance(name, k) for k in CHUNKS}}

    def aucs(method: str, name: str, **changed: int) -> records.Record:
        return {"aucs": [round(network(method, name, seed, **changed), 5) for seed in range(SEEDS)]}

    for name in paper()["datasets"]:
        yield {"method": "onlad", "dataset": name}, partial(off, name)
    for batch in BATCHES:
        what = {"method": "nn", "dataset": NETWORK, "batch": batch}
        yield what, partial(aucs, "nn", NETWORK, batch=batch)
    for name, method in product(paper()["datasets"], ("nn", "dnn")):
        what = {"method": method, "dataset": name, "epochs": 1}
        yield what, partial(aucs, method, name, epochs=1)


def main() -> None:
    source = records.origin(
        "python -m experiments.chunk_size",
        "experiments/chunk_size.py",
        "experiments/methods/_autoencoder.py",
    )
    for what, measure in cases():
        if not any(r.items() >= what.items() for r in records.read("chunk_size")):
            found = what | measure()
            records.append("chunk_size", [found | source])
            print(found, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

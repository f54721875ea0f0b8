"""Does a batch of one cost anything? OS-ELM in chunks beside samples one by one (section 3.1).

    ONLAD_DATA=... python -m experiments.chunk_size      # results/chunk_size.jsonl; a minute

The paper: OS-ELM gives the same weights in chunks of k and one by one, backpropagation does not.
Stored is, for one class of each dataset with the paper's settings, how far beta after chunks is
from beta after single samples, relative to its largest entry; and the AUC of NN-AE by batch size.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys

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


def network(batch: int, seed: int) -> float:
    """Return the AUC of NN-AE offline with another batch size."""
    data = dataset(NETWORK)
    given = paper()["settings"]["offline"][NETWORK]["nn"] | {"batch": batch}
    trial = testbeds.trial("offline", data.X, data.y, seed)
    return trial_auc(trial, run_trials("nn", "offline", given, [trial])[0])


def main() -> None:
    (records.RESULTS / "chunk_size.jsonl").unlink(missing_ok=True)
    source = records.origin(
        "python -m experiments.chunk_size",
        "experiments/chunk_size.py",
        "experiments/methods/_autoencoder.py",
    )
    for name in paper()["datasets"]:
        found = {str(k): distance(name, k) for k in CHUNKS}
        records.append("chunk_size", [{"method": "onlad", "dataset": name, "off": found} | source])
        print(name, found, file=sys.stderr)
    for batch in BATCHES:
        aucs = [round(network(batch, seed), 5) for seed in range(SEEDS)]
        found = {"method": "nn", "dataset": NETWORK, "batch": batch, "aucs": aucs}
        records.append("chunk_size", [found | source])
        print(found, file=sys.stderr)


if __name__ == "__main__":
    main()

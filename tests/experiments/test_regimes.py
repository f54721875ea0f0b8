"""Machines that change for good: what is made, and what the table says of the records."""

import numpy as np
import pytest
from experiments.benchmark import regimes

from experiments import records


@pytest.mark.parametrize("change", regimes.CHANGES)
def test_a_machine_changes_at_its_row_and_has_faults_before_and_after(change):
    machine = regimes.make("Gaussian", change, 0)
    X, y = machine.X, machine.y.astype(bool)
    Z = (X - X[:6_000].mean(axis=0)) / X[:6_000].std(axis=0)
    weights = np.linalg.lstsq(Z[:6_000, 1:], Z[:6_000, 0], rcond=None)[0]
    errors = (Z[:, 0] - Z[:, 1:] @ weights) ** 2
    before, after = slice(8_500, regimes.CHANGE), slice(regimes.CHANGE, 10_500)
    assert errors[after].mean() > 1.5 * errors[before].mean()
    assert y[: regimes.CHANGE].any()
    assert y[regimes.COUNTED :].any()
    assert not y[: regimes.HISTORY].any()


def test_the_table_is_made_from_the_records(monkeypatch):
    rows = [
        {"told": "anew", "noise": "Gaussian", "change": change, "faults": faults, "found": found,
         "false_episodes": 3, "normal_rows": 10_000, "average_precision": precision}
        for change, faults, found, precision in (("a", 10, 9, 0.5), ("b", 30, 11, 0.7))
    ]  # fmt: skip
    monkeypatch.setattr(records, "read", lambda name: rows)
    assert regimes.means("anew") == pytest.approx({"found": 0.5, "false": 3, "precision": 0.6})
    assert regimes.means("anew", change="a")["found"] == pytest.approx(0.9)

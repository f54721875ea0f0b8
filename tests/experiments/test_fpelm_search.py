"""FPELM-AE's search for a GPU: the scores of `FpElm`, and the records of `experiments.tune`."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from experiments.methods import _fpelm_batch as batch  # noqa: E402
from experiments.methods import run_trials  # noqa: E402

from experiments import datasets, fpelm_search, records, run, testbeds, tune  # noqa: E402


@pytest.fixture
def float64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def test_all_streams_at_once_give_what_fpelm_gives_for_each(float64, monkeypatch):
    data = datasets.load("digits")
    trials = [testbeds.validation("online", data.X, data.y, k) for k in range(3)]
    settings = [
        {"n_hidden": 16, "activation": activation, "forgetting": forgetting, "ridge": 0.02}
        for activation, forgetting in (("sigmoid", 0.95), ("identity", 0.99), ("sigmoid", 1.0))
    ]
    assert len({len(t.parts[0].train_rows) for t in trials}) > 1  # so that something is padded
    assert len({len(t.parts[0].rows) for t in trials}) > 1
    monkeypatch.setattr(batch, "BYTES", 8 * 16 * 16 * 3 * 50)  # blocks of 50
    for setting, trial, found in zip(settings, trials, batch.stream(settings, trials), strict=True):
        expected = run_trials("fpelm", "online", setting, [trial])[0][0]
        # Both solve the same systems, whose condition numbers are below 1e5 here.
        np.testing.assert_allclose(found, expected, rtol=1e5 * np.finfo(float).eps)


def test_it_stores_what_tune_stores_and_nothing_twice(float64, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    rng = np.random.default_rng(0)
    data = datasets.Dataset("mnist", rng.random((400, 3), "float32"), np.arange(400) % 4, "x")
    for module in (run, tune, fpelm_search):
        monkeypatch.setattr(module, "dataset", lambda name: data)
    grid = tune.grid("online", "fpelm")[:13]  # all of the first hidden size, one of the next
    monkeypatch.setattr(tune, "grid", lambda *_: grid)
    expected = [
        r for setting in grid for r in tune.try_out("online", "mnist", "fpelm", setting, tune.FOLDS)
    ]
    fpelm_search.main(["--dataset", "mnist"])
    stored = records.read("tune/online-fpelm")
    for mine, its in zip(stored, expected, strict=True):
        assert list(mine) == list(its)
        same = set(mine) - {"seconds", "machine", "commit"}
        assert {k: mine[k] for k in same} == {k: its[k] for k in same}
    assert len(capsys.readouterr().err.splitlines()) == 2
    fpelm_search.main(["--dataset", "mnist"])
    assert len(records.read("tune/online-fpelm")) == len(grid)

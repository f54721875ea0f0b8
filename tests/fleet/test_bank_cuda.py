"""The GPU's kernels against the bank on the processor: on a GPU, or in Triton's interpreter."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from checks import rounding
from onlad import Detector, kernel, reference
from onlad.fields import values
from onlad.fleet import Bank
from oracle import assert_near

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra gpu)")
pytest.importorskip("triton", reason="Triton is not installed (extra gpu)")

cuda = pytest.importorskip("onlad.fleet.cuda")

KINDS = {
    "default": {},
    "float32": {"dtype": "float32"},
    "tanh": {"activation": "tanh", "loss": "absolute", "score": "reconstruction"},
    "relu": {"activation": "relu", "dtype": "float32", "loss": "absolute", "ridge": 10.0},
    "identity": {"activation": "identity", "score": "leverage", "weights": "normal"},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let few samples be many: several tiles, chunks and rounds."""
    monkeypatch.setattr(cuda, "CHUNK", 16)
    monkeypatch.setattr(cuda, "SAMPLES", 20)
    monkeypatch.setattr(cuda, "TILE_BYTES", 16 * 16 * 4)


@pytest.fixture(autouse=True)
def _count(monkeypatch):
    """Let the interpreter count: Triton 3.6 makes an int of an array, which NumPy 2.4 refuses."""
    if cuda.INTERPRETED:
        from triton.runtime import interpreter

        patch = interpreter._patch_lang_tensor

        def patched(tensor, *scope):
            patch(tensor, *scope)
            tensor.__index__ = lambda self: self.handle.data.item()

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


def make(**options):
    return Detector(**{"n_hidden": 11, "ridge": 1.0, "seed": 4, "forgetting": 0.95} | options)


def pair(models, n, **options):
    """Return two equal banks, on the processor and on what stands for a GPU."""
    return [Bank(make(**options), models, n_features=n, device=d) for d in ("cpu", "cuda")]


def streams(models, rows, n, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (models, rows, n))


def assert_equal_banks(gpu, cpu):
    """Assert that all models are equal within rounding times the condition of their P."""
    for name in ("n_seen", "n_skipped", "n_paused", "forgetting"):
        np.testing.assert_array_equal(getattr(gpu, name), getattr(cpu, name))
    for i in range(len(cpu)):
        bound = rounding(cpu[i])
        assert bound < 0.1  # or it would say nothing
        mine, theirs = gpu[i].state, cpu[i].state
        assert_near(mine.beta, theirs.beta, bound)
        assert_near(mine.P, theirs.P, bound)
        # The trace is followed by differences until it is measured again, after 64 samples: till
        # then each sample divides its rounding by a^2.
        growth = cpu.forgetting[i] ** (-2.0 * (cpu.n_seen[i] % 64))
        followed = max(1e-12, growth * np.finfo(theirs.P.dtype).eps)
        for name, least in {"shrink": 1e-12, "weight": 1e-12, "trace": followed}.items():
            found, expected = (values(bank[i].learned())[name] for bank in (gpu, cpu))
            assert found == pytest.approx(expected, rel=max(bound, least))


def assert_near_scores(found, expected, cpu):
    for i in range(len(cpu)):
        there = ~np.isnan(expected[i])
        np.testing.assert_array_equal(np.isnan(found[i]), ~there)
        assert_near(found[i][there], expected[i][there], rounding(cpu[i]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_that_of_the_processor(kind):
    cpu, gpu = pair(3, 20, **KINDS[kind])
    X, mask = streams(3, 12, 20), np.random.default_rng(1).random((3, 12)) < 0.8
    expected = np.array([cpu.update(X[:, t], mask[:, t]) for t in range(12)]).T
    found = np.array([gpu.update(X[:, t], mask[:, t]) for t in range(12)]).T
    assert_near_scores(found, expected, cpu)
    assert_equal_banks(gpu, cpu)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_those_of_the_processor(kind):
    cpu, gpu = pair(2, 20, **KINDS[kind])
    X, mask = streams(2, 47, 20), np.random.default_rng(1).random((2, 47)) < 0.8
    found, expected = (bank.update_many(X, mask) for bank in (gpu, cpu))
    assert_near_scores(found, expected, cpu)
    assert_equal_banks(gpu, cpu)


@pytest.mark.parametrize(("n", "N"), [(1, 1), (3, 17), (33, 16)])
def test_any_shape_is_that_of_the_processor(n, N):
    cpu, gpu = pair(2, n, n_hidden=N)
    X = streams(2, 21, n)
    found = np.hstack([gpu.update_many(X[:, :20]), gpu.update(X[:, 20])[:, None]])
    assert_near_scores(found, cpu.update_many(X), cpu)
    assert_equal_banks(gpu, cpu)


@pytest.mark.parametrize("many", [False, True])
def test_the_guard_against_wind_up_acts(many):
    cpu, gpu = pair(2, 20, n_hidden=12, ridge=0.01, forgetting=0.7)
    X = streams(2, 40, 20)
    X[1, 5:] = X[1, 5]  # stuck
    for t in range(40):
        cpu.update(X[:, t])
    if many:
        gpu.update_many(X)
    else:
        for t in range(40):
            gpu.update(X[:, t])
    assert cpu.n_paused[1] > 0
    assert_equal_banks(gpu, cpu)


@pytest.mark.parametrize("many", [False, True])
def test_the_trace_is_measured_now_and_then(many):
    cpu, gpu = pair(1, 4, n_hidden=3)
    X = streams(1, 64, 4)
    for bank in (cpu, gpu):
        bank[0] = make(n_hidden=3).fit(X[0, :60])  # the next fourth is measured
        before = bank._engine.models()
        wrong = before.numbers.copy()
        wrong[:, 0] *= 1.5
        bank._engine.put(slice(None), replace(before, numbers=wrong))
        if many:
            bank.update_many(X[:, 60:])
        else:
            for t in range(60, 64):
                bank.update(X[:, t])
    assert_equal_banks(gpu, cpu)
    P = gpu[0].state.P
    assert gpu[0].learned().trace == pytest.approx(np.trace(P))


@pytest.mark.parametrize("many", [False, True])
def test_a_step_that_is_not_finite_is_skipped_and_counted(many):
    cpu, gpu = pair(2, 4, activation="identity")
    X = streams(2, 6, 4)
    X[1, 3] = 1e60  # f.f is beyond 1e30
    for bank in (cpu, gpu):
        if many:
            bank.update_many(X)
        else:
            for t in range(6):
                bank.update(X[:, t])
    assert gpu.n_skipped.tolist() == [0, 1]
    assert_equal_banks(gpu, cpu)


def test_scoring_learns_nothing():
    cpu, gpu = pair(2, 20)
    X, mask = streams(2, 8, 20), np.array([[True] * 8, [True, False] * 4])
    for bank in (cpu, gpu):
        bank.update_many(X)
    before = gpu._engine.models()
    assert_near_scores(gpu.score_many(X, mask), cpu.score_many(X, mask), cpu)
    assert_near_scores(gpu.score(X[:, 1])[:, None], cpu.score(X[:, 1])[:, None], cpu)
    for mine, theirs in zip(gpu._engine.models(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_models_that_do_not_fit_in_the_scratch_take_turns(monkeypatch):
    X = streams(5, 8, 3)
    banks = [Bank(make(), 5, n_features=3, device="cuda") for _ in range(2)]
    expected = banks[0].update_many(X)
    monkeypatch.setattr(cuda, "SCRATCH", 1)
    np.testing.assert_array_equal(banks[1].update_many(X), expected)
    for mine, theirs in zip(banks[1]._engine.models(), banks[0]._engine.models(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_tensors_give_tensors():
    arrays, tensors = (Bank(make(), 3, n_features=4, device="cuda") for _ in range(2))
    X, mask = streams(3, 5, 4), np.array([True, False, True])
    expected = arrays.update_many(X, mask)
    found = tensors.update_many(torch.as_tensor(X), torch.as_tensor(mask))
    assert isinstance(expected, np.ndarray)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
    found = tensors.update(torch.as_tensor(X[:, 0]), mask)
    np.testing.assert_array_equal(found.cpu().numpy(), arrays.update(X[:, 0], mask))


@pytest.mark.parametrize("of", [np.asarray, torch.as_tensor])
def test_a_bad_number_is_refused_with_its_models_and_nothing_changes(of):
    bank, X = Bank(make(dtype="float32"), 4, n_features=4, device="cuda"), streams(4, 3, 4)
    bank.update_many(X)
    before = bank._engine.models()
    for value in (np.nan, np.inf, 1e13, -1e13):
        X[[0, 3], 1, 2] = value
        with pytest.raises(ValueError, match=r"for 2 of the models: 0, 3\. Leave them out"):
            bank.update_many(of(X))
    for mine, theirs in zip(bank._engine.models(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    mask = np.ones((4, 3), bool)
    mask[:, 1] = False
    assert np.isfinite(bank.update_many(X, mask)[mask]).all()
    assert bank.n_seen.tolist() == [5, 5, 5, 5]


def test_models_go_to_the_gpu_and_back_without_loss(tmp_path):
    bank, X = Bank(make(dtype="float32"), 3, n_features=4), streams(3, 30, 4)
    bank.update_many(X)
    expected = bank._engine.take(slice(None))
    assert bank.to("cuda").device == "cuda"
    bank.save(tmp_path / "bank.onlad")
    twin = Bank.load(tmp_path / "bank.onlad", device="cuda")
    for moved in (bank, bank.to("cpu"), twin):
        for mine, theirs in zip(moved._engine.models(), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_bank_on_the_gpu_grows_and_shrinks():
    cpu, gpu = pair(3, 4)
    X = streams(5, 6, 4)
    for bank in (cpu, gpu):
        bank.update_many(X[:3])
        bank.forgetting = [0.9, 0.95, 1.0]
        bank.grow(2)
        bank.remove([1])
        bank[3] = bank[0]
        bank.update_many(X[:4])
    assert_equal_banks(gpu, cpu)
    assert len(gpu) == 4


def test_too_many_hidden_units_are_refused():
    with pytest.raises(ValueError, match="a bank on a GPU has at most 128 hidden units, got 129"):
        Bank(make(n_hidden=129), 2, n_features=3, device="cuda")


def test_constants_are_those_of_the_definition():
    assert cuda.LEAST_LEVERAGE == reference.LEAST_LEVERAGE
    assert {str(k).rpartition(".")[2]: v for k, v in cuda.LARGEST.items()} == kernel.LARGEST


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_where_there_is_a_gpu_the_kernels_run_on_it():
    assert cuda.device() == "cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_so_in_one_line():
    program = """
from onlad import Detector
from onlad.fleet import Bank
Bank(Detector(), 3, n_features=4, device="cuda")
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = run.stderr.strip().splitlines()[-1]
    says = "device='cuda' needs a GPU, but PyTorch finds no NVIDIA GPU. Use 'cpu'"
    assert last == f"onlad.errors.OnladError: {says}"

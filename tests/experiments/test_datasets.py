import os

import numpy as np
import pytest

from experiments import datasets


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONLAD_CACHE", str(tmp_path / "cache"))


def write(folder, name, X, y):
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", X=X, y=y)
    return folder


def unreachable():
    raise OSError("no network")


@pytest.fixture
def tiny(monkeypatch):
    """A dataset of our own, and its entry: that is all a new one needs."""
    X = np.array([[0, 10], [5, 20], [10, 10]], "float32")
    y = np.array([0, 1, 0], "uint8")
    entry = datasets.Entry("Tiny", datasets.digest(X, y), unreachable, "nowhere")
    monkeypatch.setitem(datasets.DATASETS, "tiny", entry)
    return X, y


def test_digits_need_no_data_at_hand(monkeypatch):
    monkeypatch.delenv("ONLAD_DATA", raising=False)
    first, second = datasets.load("digits"), datasets.load("digits")
    assert first.X.shape == (1797, 64)
    assert first.X.dtype == np.float32
    assert (first.X.min(), first.X.max()) == (0, 1)
    assert first.sha256 == datasets.DATASETS["digits"].sha256
    np.testing.assert_array_equal(first.X, second.X)  # the second time from the cache


def test_columns_are_scaled_to_the_unit_interval_each_by_itself(tiny, tmp_path):
    found = datasets.load("tiny", write(tmp_path / "data", "tiny", *tiny))
    np.testing.assert_array_equal(found.X, [[0, 0], [0.5, 1], [1, 0]])
    np.testing.assert_array_equal(found.y, tiny[1])


def test_integer_columns_share_one_unit():
    X = np.array([[0, 100], [10, 200]], "uint8")
    np.testing.assert_allclose(datasets.scale(X), [[0, 0.5], [0.05, 1]])


def test_a_column_that_never_moves_is_zero():
    np.testing.assert_array_equal(datasets.scale(np.full((3, 1), 7.0)), 0)


def test_the_folder_given_comes_before_the_one_of_the_environment(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("ONLAD_DATA", str(write(tmp_path / "other", "tiny", tiny[0] + 1, tiny[1])))
    datasets.load("tiny", write(tmp_path / "data", "tiny", *tiny))
    with pytest.raises(SystemExit, match="is not the expected data"):
        datasets.load("tiny")


def test_other_arrays_are_refused(tiny, tmp_path):
    X = tiny[0].copy()
    X[0, 0] = 1e-3
    folder = write(tmp_path / "data", "tiny", X, tiny[1])
    with pytest.raises(SystemExit, match=r"tiny from .*tiny.npz is not the expected data"):
        datasets.load("tiny", folder)


def test_a_missing_source_is_one_line_that_says_what_to_put_where(tiny, monkeypatch):
    monkeypatch.delenv("ONLAD_DATA", raising=False)
    with pytest.raises(SystemExit) as caught:
        datasets.load("tiny")
    message = str(caught.value)
    assert "\n" not in message
    assert "tiny.npz" in message
    assert "ONLAD_DATA" in message
    assert "nowhere (OSError)" in message


def test_an_unknown_name_lists_those_that_exist():
    with pytest.raises(SystemExit, match="no dataset 'iris'; there are fashion_mnist, mnist"):
        datasets.load("iris")


def test_a_download_is_checked_and_kept(tiny, monkeypatch):
    calls = []

    def fetch():
        calls.append(1)
        return tiny

    entry = datasets.Entry("Tiny", datasets.digest(*tiny), fetch, "home")
    monkeypatch.setitem(datasets.DATASETS, "tiny", entry)
    monkeypatch.delenv("ONLAD_DATA", raising=False)
    datasets.load("tiny")
    datasets.load("tiny")
    assert len(calls) == 1
    monkeypatch.setitem(
        datasets.DATASETS, "tiny", datasets.Entry("Tiny", "0" * 64, lambda: tiny, "home")
    )
    with pytest.raises(SystemExit, match="tiny from home is not the expected data"):
        datasets.raw("tiny")


@pytest.mark.skipif(not os.environ.get("ONLAD_DATA"), reason="ONLAD_DATA names no folder")
def test_the_papers_datasets_are_what_their_readme_says():
    shapes = {"drive_diagnosis": (58_509, 48, 11), "letter_recognition": (20_000, 16, 26)}
    for name, (rows, columns, classes) in shapes.items():
        data = datasets.load(name)
        assert data.X.shape == (rows, columns)
        assert data.y.max() + 1 == classes


def test_the_next_source_is_asked_when_one_fails(tiny):
    assert datasets._first(unreachable, lambda: tiny) is tiny
    with pytest.raises(OSError, match="no network"):
        datasets._first(unreachable, unreachable)

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments import testbeds


@st.composite
def labelled(draw):
    """Samples that say their own row number, and classes of 60 to 90 rows."""
    sizes = draw(st.lists(st.integers(60, 90), min_size=4, max_size=6))
    y = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(draw(st.integers(0, 99))).shuffle(y)
    return np.arange(len(y), dtype="float32")[:, None], y


trials = st.tuples(
    labelled(), st.sampled_from(["offline", "online", "fold", "valid"]), st.integers(0, 9)
)


def make(case):
    (X, y), kind, seed = case
    if kind == "fold":
        return X, y, testbeds.fold(X, y, seed)
    if kind == "valid":
        return X, y, testbeds.online(X, y, seed, judged="valid")
    return X, y, testbeds.trial(kind, X, y, seed)


@given(trials)
def test_no_sample_is_both_trained_on_and_judged(case):
    _, _, trial = make(case)
    for part in trial.parts:
        assert not np.intersect1d(part.train_rows, part.rows).size
        normal, anomalies = part.rows[~part.anomalous], part.rows[part.anomalous]
        assert len(np.unique(normal)) == len(normal)
        assert not np.intersect1d(normal, anomalies).size


@given(labelled())
def test_the_parts_of_a_division_share_no_row_and_have_the_papers_shares(case):
    _, y = case
    for testbed, shares in (
        ("offline", {"train": 0.8, "test": 0.2}),
        ("online", {"init": 0.1, "valid": 0.45, "test": 0.45}),
    ):
        parts = testbeds.divide(len(y), testbed)
        assert sorted(np.concatenate(list(parts.values()))) == list(range(len(y)))
        for name, share in shares.items():
            assert abs(len(parts[name]) - share * len(y)) <= 1, name


@given(trials)
def test_anomalies_are_a_tenth_of_the_normals_and_never_of_the_concepts_own_class(case):
    _, y, trial = make(case)
    for part in trial.parts:
        for i, start, stop in zip(
            part.concepts, part.starts, (*part.starts[1:], len(part.rows)), strict=True
        ):
            rows, anomalous = part.rows[start:stop], part.anomalous[start:stop]
            assert np.all(y[rows[~anomalous]] == i)
            assert np.all(y[rows[anomalous]] != i)
            assert anomalous.sum() == int((~anomalous).sum() * 0.1)
            assert len(np.unique(rows)) == len(rows)  # an anomaly comes once in a concept


@given(trials)
def test_each_class_is_normal_once_and_the_first_is_the_one_trained_on(case):
    _, y, trial = make(case)
    concepts = [i for part in trial.parts for i in part.concepts]
    assert sorted(concepts) == list(range(y.max() + 1))
    for part in trial.parts:
        assert np.all(y[part.train_rows] == part.concepts[0])


@given(trials)
def test_the_same_seed_gives_the_same_trial_and_another_seed_another(case):
    X, y, trial = make(case)
    (_, kind, seed) = case
    again = make(case)[2]
    other = make(((X, y), kind, seed + 1 if kind != "fold" else (seed + 1) % 10))[2]
    for part, same in zip(trial.parts, again.parts, strict=True):
        np.testing.assert_array_equal(part.rows, same.rows)
        np.testing.assert_array_equal(part.anomalous, same.anomalous)
    assert any(
        not np.array_equal(part.rows, differs.rows)
        for part, differs in zip(trial.parts, other.parts, strict=True)
    )


@given(labelled(), st.integers(0, 9))
def test_settings_are_chosen_without_a_row_of_test_data(case, k):
    X, y = case
    for testbed in testbeds.TESTBEDS:
        test = testbeds.divide(len(y), testbed)["test"]
        for part in testbeds.validation(testbed, X, y, k).parts:
            assert not np.intersect1d(test, np.r_[part.rows, part.train_rows]).size
        for part in testbeds.trial(testbed, X, y, k).parts:
            assert np.isin(part.rows, test).all()


@given(labelled(), st.integers(0, 9))
def test_the_online_stream_splits_its_part_nine_to_one(case, seed):
    X, y = case
    test = testbeds.divide(len(y), "online")["test"]
    (part,) = testbeds.online(X, y, seed).parts
    assert (~part.anomalous).sum() == round(0.9 * len(test))


def test_a_part_gives_the_rows_of_the_data():
    X = np.arange(400, dtype="float32")[:, None]
    y = np.arange(400) % 2
    (part,) = testbeds.online(X, y, 0).parts
    np.testing.assert_array_equal(part.X[:, 0], part.rows)
    np.testing.assert_array_equal(part.train[:, 0], part.train_rows)


def test_folds_judge_each_row_of_the_training_part_once():
    X, y = np.zeros((500, 1)), np.arange(500) % 2
    parts = [part for k in range(10) for part in testbeds.fold(X, y, k).parts]
    judged = np.concatenate([part.rows[~part.anomalous] for part in parts])
    assert sorted(judged) == sorted(testbeds.divide(500, "offline")["train"])


def test_where_there_are_too_few_others_all_of_them_are_anomalies():
    X, y = np.zeros((100, 1)), (np.arange(100) >= 90).astype(int)
    part = testbeds.offline(X, y, 0).parts[1]
    assert part.anomalous.sum() == int(0.1 * (~part.anomalous).sum())
    part = testbeds.online(X, y, 0).parts[0]
    assert part.anomalous.sum() <= round(0.1 * len(part.rows)) + 1

import doctest
import math
import pickle

import numpy as np
import pytest

pytest.importorskip("river")

from river import anomaly, checks, compose, datasets, evaluate, metrics, preprocessing

import onlad.adapters.river as adapter
from onlad.adapters.river import OnladDetector
from onlad.fields import values

MODELS = {
    "alone": OnladDetector(),
    "standard": preprocessing.StandardScaler() | OnladDetector(),
    "minmax": preprocessing.MinMaxScaler() | OnladDetector(),
}


def river_checks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "CreditCard", datasets.Shuttle)  # bundled; the other downloads
        for name, model in MODELS.items():
            for check in checks.yield_checks(model):
                yield pytest.param(model, check, id=f"{name}-{check.__name__}")


@pytest.mark.parametrize(("model", "check"), list(river_checks()))
def test_river_check(model, check):
    assert check.__name__ not in model._unit_test_skips()
    check(model.clone())


def stream(n_samples=300, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.uniform(-1, 1, (2, n_features))
    X = rng.uniform(0, 1, (n_samples, 2)) @ mix
    return [{f"f{i}": float(v) for i, v in enumerate(x)} for x in X]


def learned(rows, **settings):
    model = OnladDetector(**{"n_hidden": 16, "seed": 3, **settings})
    for x in rows:
        model.learn_one(x)
    return model


class Frame:
    """What pandas and Polars frames have in common."""

    def __init__(self, rows, columns=None, dtype=None):
        self.columns = list(rows[0]) if columns is None else columns
        self.values = np.array([[x[c] for c in self.columns] for x in rows], dtype)

    def __len__(self):
        return len(self.values)

    def to_numpy(self):
        return self.values


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_a_feature_that_is_absent_or_late_counts_as_zero_from_the_start(forgetting):
    rng = np.random.default_rng(1)
    full = [
        {
            name: v if t >= 40 * i and rng.uniform() < 0.8 else 0.0
            for i, (name, v) in enumerate(pairs)
        }
        for t, pairs in enumerate(x.items() for x in stream())
    ]
    sparse = [{name: v for name, v in x.items() if v} for x in full]
    one, other = learned(full, forgetting=forgetting), learned(sparse, forgetting=forgetting)
    scores = [[model.score_one(x) for x in stream(seed=2)] for model in (one, other)]
    # The same sums in another order: they differ by rounding times the condition of P, which the
    # ridge bounds by the sum of squares seen over 1e-2, about 1e6.
    np.testing.assert_allclose(*scores, rtol=1e6 * np.finfo(float).eps)


def test_scoring_unknown_features_changes_nothing():
    rows = stream()
    model = learned(rows)
    names, before, usual = model._names, values(model._model.learned()), model.score_one(rows[0])
    assert model.score_one({**rows[0], "new": 5.0}) > usual
    assert model._names == names
    np.testing.assert_equal(values(model._model.learned()), before)


def test_an_unseen_feature_scores_as_it_does_once_known():
    rows = stream()
    model = learned(rows)
    strange = {**rows[0], "new": 5.0}
    before = model.score_one(strange)
    model._grow(["new"])
    assert model.score_one(strange) == before


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "red", 1e101, 10**400, [1]])
@pytest.mark.parametrize("name", ["f1", "new"])
def test_what_is_no_finite_number_counts_as_lacking(name, value):
    rows = stream()
    one, other = learned(rows), learned(rows)
    sick = {**rows[0], name: value}
    lacking = {n: v for n, v in sick.items() if n != name}
    assert one.score_one(sick) == other.score_one(lacking)
    one.learn_one(sick)
    other.learn_one(lacking)
    assert one.score_one(rows[1]) == other.score_one(rows[1])
    assert math.isfinite(one.score_one(rows[1]))


def test_truth_values_and_numpy_scalars_are_numbers():
    model = learned(stream())
    plain = {"f0": 1.0, "f1": 0.5, "f2": 2.0, "f3": 1.0, "f4": 1.0, "f5": 0.25}
    mixed = {
        "f0": True,
        "f1": np.float32(0.5),
        "f2": 2,
        "f3": np.int8(1),
        "f4": np.bool_(True),
        "f5": np.float64(0.25),
    }
    assert model.score_one(mixed) == model.score_one(plain)


def test_any_order_of_keys_is_read_as_the_same_sample():
    rows = stream()
    model = learned(rows)
    turned = dict(reversed(rows[0].items()))
    assert model.score_one(turned) == model.score_one(rows[0])


def test_a_sample_without_features_scores_zero_and_teaches_nothing():
    model = OnladDetector(seed=0)
    assert model.score_one({}) == 0.0
    model.learn_one({})
    model.learn_one({"colour": "red"})
    assert model.score_one({"colour": "red"}) == 0.0


@pytest.mark.parametrize("dtype", [None, object])
def test_frames_do_what_a_loop_does(dtype):
    one = learned(stream())
    many = OnladDetector(n_hidden=16, seed=3)
    rows = stream()
    names = list(rows[0])
    many.learn_many(Frame(rows[:100], dtype=dtype))
    many.learn_many(Frame(rows[100:], names[::-1], dtype))
    scores = many.score_many(Frame(stream(seed=2), dtype=dtype))
    expected = [one.score_one(x) for x in stream(seed=2)]
    # A block and a loop of steps are the same sums in another order (see above).
    np.testing.assert_allclose(scores, expected, rtol=1e6 * np.finfo(float).eps)


def test_frames_may_bring_and_lack_features():
    rows = stream()
    late = [{**x, "late": 1.0} for x in rows]
    one, many = learned(rows), learned(rows)
    frame = Frame(late, ["late", "f2"])
    scores = many.score_many(frame)
    assert scores.tolist() == [one.score_one({"late": 1.0, "f2": x["f2"]}) for x in rows]
    many.learn_many(frame)
    assert set(many._names) == {*rows[0], "late"}
    many.learn_many(Frame([{"f0": math.nan}, {"f0": 1.0}]))
    many.learn_many(Frame([], ["never"]))
    assert "never" not in many._names


def test_equal_seeds_give_equal_scores_and_no_seed_gives_others():
    rows = stream()
    assert learned(rows).score_one(rows[0]) == learned(rows).score_one(rows[0])
    assert learned(rows, seed=4).score_one(rows[0]) != learned(rows).score_one(rows[0])
    loose = [learned(rows, seed=None).score_one(rows[0]) for _ in range(2)]
    assert loose[0] != loose[1]


def test_a_pickle_goes_on_to_the_last_bit():
    rows = stream()
    model = learned(rows[:150])
    other = pickle.loads(pickle.dumps(model))
    for x in rows[150:]:
        model.learn_one(x)
        other.learn_one(x)
        assert model.score_one(x) == other.score_one(x)


def test_float32_agrees_to_its_precision():
    rows = stream()
    scores = [
        [learned(rows, dtype=dtype).score_one({**x, "f0": x["f0"] + 1}) for x in rows[:20]]
        for dtype in ("float64", "float32")
    ]
    assert scores[0] != scores[1]
    # The kernel carries the root of P, so the condition 1e6 of above enters by its root.
    np.testing.assert_allclose(*scores, rtol=1e3 * np.finfo("float32").eps)


def test_ridge_zero_is_refused():
    with pytest.raises(ValueError, match="ridge must be above 0"):
        OnladDetector(ridge=0)


def test_it_finds_the_anomalies_of_shuttle_and_works_behind_a_filter():
    model = compose.Pipeline(preprocessing.StandardScaler(), OnladDetector(seed=1))
    # River's plain ROCAUC is for scores within 0 and 1; the rolling one sorts them.
    metric = metrics.RollingROCAUC(window_size=4000)
    assert evaluate.progressive_val_score(datasets.Shuttle().take(4000), model, metric).get() > 0.9
    guard = anomaly.QuantileFilter(OnladDetector(seed=1), q=0.98)
    for x in stream():
        guard.learn_one(x)
    assert guard.classify(guard.score_one({name: 3.0 for name in stream()[0]}))


def test_examples():
    assert doctest.testmod(adapter).failed == 0


def test_the_order_in_a_dict_changes_no_bit_of_a_score():
    rows = stream()
    one, other = learned(rows), learned([dict(reversed(x.items())) for x in rows])
    for x in rows[:50]:
        lacking = dict(list(x.items())[1:])
        one.learn_one(lacking)  # a feature is missing once; the fast order comes back
        other.learn_one(dict(reversed(lacking.items())))
        assert one.score_one(x) == other.score_one(dict(reversed(x.items())))

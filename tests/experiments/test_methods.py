import numpy as np
import pytest
from experiments.methods import registry, run_trials
from experiments.settings import hyperparameters
from experiments.testbeds import offline, online, trial

from experiments import ways
from onlad import reference

pytest.importorskip("river")
pytest.importorskip("pysad")

OURS = {"n_hidden": 8, "activation": "tanh", "forgetting": 0.99, "score": "combined"}
STREAMING = [name for name, entry in registry().items() if "online" in entry.testbeds]
FAST = [name for name in registry() if registry()[name].family != "neural"]


@pytest.fixture(scope="module")
def data():
    """Four classes, each a line in eight dimensions; HalfSpaceTrees needs 250 rows to begin."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 350)
    centres, directions = rng.uniform(0.3, 0.7, (4, 8)), rng.normal(0, 0.1, (4, 8))
    X = centres[y] + rng.normal(size=(1400, 1)) * directions[y] + rng.normal(0, 0.01, (1400, 8))
    return np.clip(X, 0, 1).astype("float32"), y


def settings(name):
    if name == "onlad-plus":
        return OURS
    if registry()[name].family == "variant":
        return ways.grid(name, {"activation": "sigmoid", "n_hidden": 8}, offline=False)[3]
    kind = "paper" if registry()[name].family != "peer" else "ours"
    return hyperparameters(kind, "online", "digits", name)


# River's OneClassSVM is linear: it tells a side from the other, not a middle from what is around.
@pytest.mark.parametrize("name", [n for n in FAST if n != "ocsvm"])
def test_every_method_tells_other_classes_from_its_own(name, data):
    X, y = data
    (found,) = run_trials(name, "offline", settings(name), [offline(X, y, 0)])
    part = offline(X, y, 0).parts[0]
    assert len(found) == 4
    assert all(len(s) == len(p.rows) for s, p in zip(found, offline(X, y, 0).parts, strict=True))
    assert found[0][part.anomalous].mean() > found[0][~part.anomalous].mean()


@pytest.mark.parametrize("name", FAST)
def test_scoring_does_not_learn(name, data):
    X, _ = data
    model = registry()[name].build(settings(name), 8, 0)
    model.fit(X[:200])
    np.testing.assert_array_equal(model.score(X[200:260]), model.score(X[200:260]))


@pytest.mark.parametrize("name", [n for n in STREAMING if n in FAST])
def test_a_stream_scores_a_row_before_it_learns_it(name, data):
    X, _ = data
    one, other = (registry()[name].build(settings(name), 8, 0) for _ in range(2))
    one.fit(X[:200])
    other.fit(X[:200])
    first = one.score(X[200:201])[0]
    scores = other.stream(X[200:260])
    # A row alone and a row among others are summed in another order, in float32 at worst.
    assert scores[0] == pytest.approx(first, rel=1e-4)
    assert len(scores) == 60


@pytest.mark.parametrize("name", [n for n in STREAMING if n in FAST])
def test_the_same_seed_gives_the_same_scores(name, data):
    X, y = data
    runs = [run_trials(name, "online", settings(name), [online(X, y, 3)]) for _ in range(2)]
    np.testing.assert_array_equal(runs[0][0][0], runs[1][0][0])


def test_fpelm_and_onlad_agree_without_forgetting_and_almost_no_ridge(data):
    X, y = data
    small = {"activation": "sigmoid", "n_hidden": 4, "forgetting": 1.0}
    one = run_trials("fpelm", "online", small | {"ridge": 1e-9}, [online(X, y, 0)])[0][0]
    other = run_trials("onlad", "online", small | {"dtype": "float64"}, [online(X, y, 0)])[0][0]
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_onlad_nf_is_onlad_that_never_forgets(data):
    X, y = data
    parameters = {"activation": "sigmoid", "n_hidden": 4, "forgetting": 0.95}
    trials = [trial("online", X, y, 0)]
    kept = run_trials("onlad-nf", "online", parameters, trials)[0][0]
    same = run_trials("onlad", "online", parameters | {"forgetting": 1.0}, trials)[0][0]
    np.testing.assert_array_equal(kept, same)
    assert not np.allclose(kept, run_trials("onlad", "online", parameters, trials)[0][0])


@pytest.mark.parametrize("learn", [True, False])
def test_all_kinds_of_score_follow_from_one_pass(learn, data):
    X, _ = data
    for kind in reference.SCORES:
        one, other = (registry()["onlad-plus"].build(OURS | {"score": kind}, 8, 0) for _ in "ab")
        one.fit(X[:100])
        other.fit(X[:100])
        scores = one.stream(X[100:300]) if learn else one.score(X[100:300])
        np.testing.assert_array_equal(
            reference.combine(*other.evidence(X[100:300], learn), kind), scores
        )


@pytest.mark.parametrize("name", ["pca", "lof", "knn", "ocsvm-rbf"])
def test_one_model_for_all_trials_scores_as_a_model_for_each(name, data):
    if name == "knn":
        pytest.importorskip("pyod")
    trials = [trial("offline", *data, seed) for seed in range(3)]
    together, build = run_trials(name, "offline", {}, trials), registry()[name].build
    for one, scores in zip(trials, together, strict=True):
        for part, found in zip(one.parts, scores, strict=True):
            model = build({}, part.data.shape[1], one.seed)
            model.fit(part.train)
            np.testing.assert_allclose(found, model.score(part.X), rtol=1e-5, atol=1e-7)


def test_methods_that_learn_once_have_no_stream(data):
    model = registry()["pca"].build({}, 8, 0)
    with pytest.raises(NotImplementedError, match="learns once"):
        model.stream(data[0])

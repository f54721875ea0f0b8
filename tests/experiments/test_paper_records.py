"""The pages that judge the paper are those that the records give, and the records are whole."""

import inspect
import json
import subprocess

import numpy as np
import pytest
from experiments.methods import peers, registry
from experiments.settings import paper
from experiments.tables import Aucs

from experiments import (
    ablation,
    claims,
    neural_deviation,
    records,
    reproduce,
    scaling,
    tables,
    tune,
    ways,
)
from onlad import reference

DATASETS = list(paper()["datasets"])


def test_the_page_of_claims_is_what_the_records_give():
    assert claims.PAGE.read_text() == claims.page(), "run python -m experiments.claims"


def test_every_record_says_where_it_is_from():
    commits = set()
    for path in records.RESULTS.rglob("*.jsonl"):
        if path.stem in ("published", "choice"):  # numbers of others; a choice among records
            continue
        for line in path.read_text().splitlines():
            record = json.loads(line)
            assert record["machine"] != "not recorded", path.name
            commits.add(record["commit"].removesuffix("+").split()[-1])
    history = subprocess.run(
        ["git", "log", "--format=%H"], cwd=records.ROOT, capture_output=True, text=True, check=False
    )
    known = history.stdout.splitlines()
    shallow = (records.ROOT.parent / ".git" / "shallow").exists()
    if history.returncode or shallow:
        pytest.skip("a copy without its history")
    gone = {c for c in commits if not any(whole.startswith(c) for whole in known)}
    assert not gone, "commits that the history lacks"


UNCLEAR = {"changed": 0, "machine": 0}  # these numbers may only fall


def test_ever_fewer_records_do_not_say_all_of_where_they_are_from(tmp_path, monkeypatch):
    found = {what: sum(counts.values()) for what, counts in records.unclear().items()}
    assert all(found[what] <= most for what, most in UNCLEAR.items()), found
    one = {"commit": "0123456789ab", "machine": "AMD"}
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    records.append("tune/x", [one, one | {"commit": "0123456789ab+"}])
    records.append("y", [one, one | {"machine": "not recorded"}])
    assert records.unclear() == {"changed": {"tune/x": 1}, "machine": {"y": 1}}


def test_reproduce_runs_every_trial_that_the_tables_have():
    for testbed in ("offline", "online"):
        for (name, method, settings), found in Aucs(testbed).cells.items():
            assert settings in reproduce.settings_of(method, testbed), (
                testbed,
                name,
                method,
                settings,
            )
            assert len(found) <= registry()[method].trials, (testbed, name, method, settings)


def test_a_search_from_nothing_tries_the_settings_that_are_stored():
    neural = pytest.importorskip("experiments.neural")
    for path in sorted((records.RESULTS / "tune").glob("*.jsonl")):
        testbed, method = path.stem.split("-", 1)
        for name in DATASETS:
            if method in neural.PAPERS:
                first = neural.candidates(testbed, name, method)
            else:
                first = tune.grid(testbed, method, name)
            wanted = {tune._without_score(each) for each in first}
            stored = [r for r in records.read(f"tune/{path.stem}") if r["dataset"] == name]
            tried = {tune._without_score(r["hyperparameters"]) for r in stored}
            if method in tune.METHODS and method not in peers.GRIDS:
                assert tune.tasks(testbed, name, method) == []
            if method == "onlad-plus":  # the second stage has other ridges
                wanted |= {
                    tune._without_score(each | {"ridge": ridge})
                    for each in first
                    for ridge in tune.RIDGES
                }
            assert tried <= wanted, (path.stem, name)


def test_reproduce_runs_what_every_other_page_is_made_of():
    run = {*reproduce.PERFORMANCE.values(), *reproduce.JUDGED, *reproduce.CORE, "drift", "streams"}
    assert {path.stem for path in records.RESULTS.glob("*.jsonl")} == run


def test_a_sample_of_every_other_table_is_repeated_or_said_to_be_a_timing():
    from experiments import quick

    named = [*quick.HERE, *quick.BY_TESTS, *quick.TIMINGS]
    assert sorted(named) == sorted(path.stem for path in records.RESULTS.glob("*.jsonl"))
    source = inspect.getsource(quick)
    assert all(source.count(name) > 1 for name in quick.HERE)  # named in the list, and in a sample


# -- claims -------------------------------------------------------------------------------------


def test_some_forty_claims_are_judged_with_one_word_each():
    found = [claim for mine in claims.claims().values() for claim in mine]
    assert len(found) >= 40
    assert len({(claim.where, claim.says) for claim in found}) == len(found)
    for claim in found:
        finding = claim.judge()
        assert finding.word in claims.WORDS
        assert finding.ours


def test_what_the_records_contradict_is_said_to_fail():
    found = {c.says: c.judge().word for mine in claims.claims().values() for c in mine}
    assert found["on MNIST NN-AE is above DNN-AE online"] == "fails"
    assert found["S_onlad is the sum of the four parts"] == "fails"
    # After one epoch a network is worse on most datasets, and on one it is not.
    assert found["ONLAD needs one epoch, the networks several"] == "partly"
    # With the paper's settings they hold, with searched ones they do not.
    assert found["online ONLAD is above both networks on three datasets"] == "partly"
    assert found["online ONLAD and FPELM-AE are similar on most datasets"] == "partly"
    assert found["ONLAD is the best method on three datasets online"] == "partly"


def test_a_claim_turns_with_its_records(monkeypatch):
    claim = next(c for c in claims.claims()["Detection"] if c.says.startswith("without forgetting"))
    assert claim.judge().word == "holds"
    from experiments import claims_accuracy

    class Swapped(Aucs):
        def paired(self, dataset, one, other):
            return super().paired(dataset, other, one)

    monkeypatch.setattr(claims_accuracy, "aucs", Swapped)
    assert claim.judge().word == "fails"


def test_a_word_needs_cases():
    assert [claims.word(good, 3) for good in (3, 2, 0)] == ["holds", "partly", "fails"]
    with pytest.raises(ValueError, match="without cases"):
        claims.word(0, 0)


def test_paired_differences_are_taken_seed_by_seed():
    aucs = Aucs("online")
    one, other = (
        {r["seed"]: r["auc"] for r in aucs.cells[("mnist", *who)]}
        for who in (("onlad", "paper"), ("hst", "ours"))
    )
    seeds = one.keys() & other.keys()
    found = aucs.paired("mnist", ("onlad", "paper"), ("hst", "ours"))
    assert found.n == len(seeds) < len(one)
    assert found.mean == pytest.approx(np.mean([one[s] - other[s] for s in seeds]))
    assert aucs.paired("mnist", ("onlad", "paper"), ("pca", "ours")) is None


def test_bold_is_what_is_above_the_paper_by_more_than_the_interval():
    aucs = Aucs("offline")
    shown = next(r for r in aucs.all_methods().splitlines() if r.startswith("| ONLAD+"))
    cells = [cell.strip() for cell in shown.split("|")[2:-1]]
    for name, cell in zip(DATASETS, cells, strict=True):
        found, best = aucs.mean(name, "onlad-plus"), max(aucs.paper[name].values())
        above = found.mean - found.half > best and name != tables.SUBSTITUTE
        assert cell.startswith("**") == above, name
    assert not cells[DATASETS.index("mnist")].startswith("**")  # 0.961, as in the paper


def test_what_is_said_of_the_neighbours_beside_our_own_best_is_so():
    aucs = Aucs("offline")
    above = [
        max(
            found.mean - found.half
            for peer in ("lof", "knn")
            if (found := aucs.paired(name, (peer, "equal"), ("onlad-plus", "equal")))
        )
        > 0
        for name in DATASETS
    ]
    assert sum(above) > len(above) / 2
    shown = next(r for r in aucs.ours().splitlines() if r.startswith("| MNIST"))
    assert "| LOF, equal 0.975 | -0.014, below" in shown


# -- ways to forget -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ways.GRIDS)
def test_each_way_has_at_most_six_settings_on_the_papers_hidden_layer(method):
    layer = {"activation": "sigmoid", "n_hidden": 8, "forgetting": 0.9}
    for offline in (True, False):
        found = ways.grid(method, layer, offline)
        assert 0 < len(found) <= 6
        assert len({json.dumps(p) for p in found}) == len(found)
        assert all(p["activation"] == "sigmoid" for p in found)
        registry()[method].build(found[0], 5, 0)


def test_what_a_model_keeps_is_counted():
    one = {"n_hidden": 6}
    state = reference.init(4, 6)
    assert ways.kept("constant", one, 4) == sum(part.size for part in state)
    assert ways.kept("fos-elm", one | {"window": 50}, 4) == ways.kept("constant", one, 4) + 200
    assert ways.kept("mixture", one | {"instances": 3}, 4) == 3 * ways.kept("constant", one, 4)
    layers = [reference.init(4, 8), reference.init(8, 6)]
    sizes = sum(part.size for part in layers[0]) + sum(
        part.size for part in layers[1]._replace(beta=np.zeros((6, 4)))
    )
    assert ways.kept("ml-oselm", {"n_hidden": [8, 6]}, 4) == sizes


@pytest.mark.parametrize("testbed", ["offline", "online"])
def test_each_way_was_run_on_each_dataset_fifty_times(testbed):
    aucs = Aucs(testbed)
    for method in ways.GRIDS:
        for name in DATASETS:
            found = aucs.cells.get((name, method, "ours"), [])
            assert len(found) == paper()["trials"]["testbed"], (testbed, method, name)


@pytest.mark.parametrize("testbed", ["offline", "online"])
@pytest.mark.parametrize("method", ["onlad", "fpelm"])
def test_each_column_of_the_papers_os_elm_has_fifty_trials(testbed, method):
    aucs = Aucs(testbed)
    for name in DATASETS:
        for settings in ("paper", "found", "equal"):
            found = aucs.cells.get((name, method, settings), [])
            assert len(found) == paper()["trials"]["testbed"], (testbed, name, settings)


# -- the step as printed, scaling, networks -----------------------------------------------------


@pytest.mark.parametrize("step", [ablation.printed, ablation.one_product])
def test_all_forms_are_one_step_in_exact_arithmetic(step):
    state = reference.fit(reference.init(4, 6), np.random.default_rng(0).uniform(size=(40, 4)))
    x = np.random.default_rng(1).uniform(size=4)
    found, expected = step(state, x, 0.97, "sigmoid"), reference.update(state, x, 0.97)
    tolerance = 100 * np.finfo(float).eps * np.linalg.cond(state.P)
    np.testing.assert_allclose(found.P, expected.P, atol=tolerance * np.abs(expected.P).max())
    np.testing.assert_allclose(found.beta, expected.beta, rtol=1e-6)


def test_a_lost_P_is_seen():
    assert ablation.sound(np.eye(3))
    assert not ablation.sound(np.diag([1.0, -1e-9, 1.0]))
    assert not ablation.sound(np.diag([1.0, np.inf, 1.0]))


def test_a_stored_case_is_lost_where_it_was():
    wanted = ablation.Case("stuck", "printed", "float64", 0.9, 0)
    stored = [
        r
        for r in records.read("ablation")
        if tuple(r[name] for name in ablation.Case._fields) == wanted
    ]
    found = ablation.measure(wanted)["lost_after"]
    # When rounding wins depends on the order of sums, which is the machine's.
    assert abs(found - stored[-1]["lost_after"]) <= 10


def test_every_case_of_the_ablation_is_stored():
    stored = {tuple(r[name] for name in ablation.Case._fields) for r in records.read("ablation")}
    assert set(ablation.cases()) <= stored


def test_the_scale_is_that_of_the_training_rows():
    X = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 9.0]])
    np.testing.assert_allclose(
        scaling.scaled(X, np.array([0, 1])), [[0, 0], [1, 0], [2, 4]], rtol=1e-6
    )
    pixels = np.array([[0, 10], [20, 40], [80, 5]], "uint8")
    np.testing.assert_allclose(scaling.scaled(pixels, np.array([0, 1]))[2], [2, 0.125], rtol=1e-6)


def test_the_networks_that_differ_are_all_looked_at():
    far = {
        (testbed, name, method)
        for testbed in ("offline", "online")
        for name in DATASETS
        if name != tables.SUBSTITUTE
        for method in ("nn", "dnn")
        if abs(
            Aucs(testbed).mean(name, method, "paper").mean - paper()["auc"][testbed][name][method]
        )
        > 0.01
    }
    assert far == set(neural_deviation.CELLS)


def test_as_printed_the_networks_are_those_of_the_tables():
    printed = [r for r in records.read("neural_deviation") if r["change"] == "as printed"]
    assert printed
    for r in printed:
        stored = records.read(records.auc_file(r["testbed"], r["method"]))
        cell = {
            s["seed"]: s["auc"]
            for s in stored
            if (s["dataset"], s["settings"]) == (r["dataset"], "paper")
        }
        # One is a processor's, the other a GPU's: thousands of steps carry float32's rounding on,
        # at worst to another draw of the weights. So they are as near as two trials of a cell are.
        assert cell[r["seed"]] == pytest.approx(r["auc"], abs=np.std(list(cell.values()))), r


def test_what_is_said_of_drive_diagnosis_is_so():
    """One change may bring a cell of the networks to the paper's number, none brings all three."""
    drive = neural_deviation.CELLS[1:]
    for change in neural_deviation.CHANGES:
        gaps = [
            abs(np.mean(found) - paper()["auc"][testbed][name][method])
            for testbed, name, method in drive
            if (found := neural_deviation._aucs((testbed, name, method), change))
        ]
        assert max(gaps) > 0.01, change

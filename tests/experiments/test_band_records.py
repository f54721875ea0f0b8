"""The record of bands and severities holds what the page says of it."""

import numpy as np
import pytest
from experiments.benchmark.normals import NORMALS, SEEDS

from experiments import bands


def test_bands_hold_93_to_97_percent_of_the_values_on_every_kind_of_normal_data():
    found = {(record["kind"], record["seed"]): record["inside"] for record in bands.found()}
    assert sorted(found) == sorted((kind, seed) for kind in NORMALS for seed in range(SEEDS))
    assert [key for key, inside in found.items() if not 0.93 <= inside <= 0.97] == []


def test_incidents_of_severity_40_are_about_as_rare_as_the_budget_on_every_kind():
    """The budget is 1 in 10,000; what none of the samples of a start showed may cost six."""
    for kind in NORMALS:
        own = [record for record in bands.found() if record["kind"] == kind]
        rows = sum(record["rows"] for record in own)
        assert sum(record["incidents"]["40"] for record in own) <= 6 * 1e-4 * rows, kind


def test_incidents_of_50_and_60_are_about_as_rare_as_they_say():
    """On the mean of the kinds without pumps that rarely run, whose alarms are too many already."""
    assert bands.mean_share(50, without="rarely on") <= 2 * 1e-5
    assert bands.mean_share(60, without="rarely on") <= 2 * 1e-6


@pytest.mark.parametrize("name", ["machines", "plants", "tsb_ad_m", "asd", "gecco", "skab"])
def test_incidents_at_faults_are_more_severe_than_others(name):
    assert np.median(bands.at_faults(name, "at faults")) > np.median(bands.at_faults(name, "else"))


def test_severities_of_samples_are_about_as_rare_as_they_say_on_every_kind():
    """One in 10 reaches 10, one in 100 reaches 20; anomalies of few incidents are among these."""
    for kind in NORMALS:
        own = [record for record in bands.found() if record["kind"] == kind]
        rows = sum(record["rows"] for record in own)
        shares = [sum(record["severe"][s] for record in own) / rows for s in ("10", "20")]
        assert 0.05 <= shares[0] <= 0.15, kind
        # Long alarms on normal data are severe too, and these two kinds have them.
        most = 0.06 if kind in {"rarely on", "random walk"} else 0.03
        assert 0.005 <= shares[1] <= most, kind


def test_severity_20_comes_about_once_in_100_samples_on_every_kind_if_an_incident_counts_once():
    for kind in NORMALS:
        own = [record for record in bands.found() if record["kind"] == kind]
        share = sum(record["times"]["20"] for record in own) / sum(each["rows"] for each in own)
        assert 0.005 <= share <= 0.025, kind


def test_a_run_makes_the_record_again():
    old = next(record for record in bands.found() if record["kind"] == "gaussian")
    new = bands.run("gaussian", old["seed"])
    # Rounding may decide single samples; a band that works otherwise moves far more.
    assert abs(new["inside"] - old["inside"]) < 0.003

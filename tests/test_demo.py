import builtins
import math
import re
import sys
from itertools import pairwise

import numpy as np
import pytest

from onlad import Incidents, Monitor, Verdicts
from onlad.demo import machine, show
from onlad.demo.counting import GRACE, Watched, tally
from onlad.demo.machine import KINDS, MODES, QUIET, SENSORS, SLOT, Fault
from onlad.errors import OnladError

NAMES = list(SENSORS)


@pytest.fixture(scope="module")
def recording():
    return machine.record(seed=3)


def faults_of(recording, kind):
    return [
        (fault, NAMES.index(fault.sensor), slice(fault.start, fault.stop))
        for fault in recording.faults
        if fault.kind == kind
    ]


# -- the machine ----------------------------------------------------------------------------


def test_one_seed_gives_one_recording():
    one, same, other = (machine.record(2000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.values, same.values)
    assert one.faults == same.faults
    assert not np.array_equal(one.values, other.values)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n_samples", [1000, 1500, QUIET + 9 * SLOT, 8640])
def test_faults_are_apart_and_after_a_quiet_start(n_samples, seed):
    faults = machine.record(n_samples, seed).faults
    assert faults
    assert faults[0].start >= min(QUIET, n_samples // 2)
    assert faults[-1].stop <= n_samples
    for fault, following in pairwise(faults):
        assert following.start - fault.stop > 100


def test_a_day_has_several_faults_of_each_kind(recording):
    counts = {kind: len(faults_of(recording, kind)) for kind in KINDS}
    assert min(counts.values()) == max(counts.values()) == (machine.DAY - QUIET) // SLOT // 5


@pytest.mark.parametrize("seed", range(5))
def test_the_quiet_start_visits_every_mode_more_than_once(seed):
    rng = np.random.default_rng(seed)
    steps, targets = machine._schedule(QUIET, rng)
    visits = [tuple(targets[t]) for t in steps if t < QUIET]
    assert all(visits.count(mode) > 1 for mode in MODES.values())
    assert all(one != following for one, following in pairwise(visits))


def test_values_differ_from_the_truth_in_the_faults_and_nowhere_else(recording):
    differs = recording.values != recording.truth
    labels = np.zeros_like(differs)
    for fault in recording.faults:
        labels[fault.start : fault.stop, NAMES.index(fault.sensor)] = True
    assert not (differs & ~labels).any()
    # A stuck sensor starts stuck at a true value; everything else that is labelled is wrong.
    assert labels.sum() - differs.sum() == len(faults_of(recording, "stuck"))


def test_a_spike_is_short_and_far_off(recording):
    for fault, column, inside in faults_of(recording, "spike"):
        off = recording.values[inside, column] - recording.truth[inside, column]
        assert fault.stop - fault.start <= 3
        assert np.abs(off).min() > 1.9 * recording.truth[:, column].std()


@pytest.mark.parametrize("seed", range(5))
def test_a_stuck_sensor_repeats_itself_while_the_truth_moves_away(seed):
    recording = machine.record(seed=seed)
    for _, column, inside in faults_of(recording, "stuck"):
        assert np.ptp(recording.values[inside, column]) == 0
        assert np.ptp(recording.truth[inside, column]) > recording.truth[:, column].std() / 2
        soon = recording.truth[inside, column][:15] - recording.values[inside, column][0]
        assert np.abs(soon).max() > recording.truth[:, column].std() / 5


def test_a_bias_is_constant(recording):
    for _, column, inside in faults_of(recording, "bias"):
        off = recording.values[inside, column] - recording.truth[inside, column]
        # Adding and subtracting again rounds twice.
        assert np.ptp(off) <= 4 * np.spacing(np.abs(recording.values[inside, column]).max())
        assert 0.7 < abs(off[0]) / recording.truth[:, column].std() < 1.3


def test_noise_has_no_mean_but_a_spread(recording):
    for _, column, inside in faults_of(recording, "noise"):
        off = recording.values[inside, column] - recording.truth[inside, column]
        spread = 0.6 * recording.truth[:, column].std()
        # Five standard errors, of a mean and of a standard deviation.
        assert abs(off.mean()) < 5 * spread / math.sqrt(len(off))
        assert abs(off.std() / spread - 1) < 5 / math.sqrt(2 * len(off))


def test_a_lost_correlation_keeps_the_values_but_not_their_company(recording):
    for fault, column, inside in faults_of(recording, "lost correlation"):
        said = recording.values[inside, column]
        past = recording.truth[: fault.start, column]
        assert np.isin(said, past).all()  # each is a value that the sensor once had
        off = np.abs(said - recording.truth[inside, column]).mean()
        assert off > recording.truth[:, column].std() / 2


def test_sensors_are_coupled_and_temperatures_are_slow(recording):
    correlation = np.corrcoef(recording.truth.T)
    assert correlation[NAMES.index("speed"), NAMES.index("pressure_out")] > 0.9
    jumps = np.abs(np.diff(recording.truth, axis=0)).max(axis=0) / recording.truth.std(axis=0)
    assert jumps[NAMES.index("oil_temp")] < 0.3 < jumps[NAMES.index("speed")]


def test_wear_and_weather_drift_slowly(recording):
    vibration, oil = (recording.drift[:, NAMES.index(name)] for name in ("vibration", "oil_temp"))
    assert vibration[-1] - vibration[0] > 0.5
    assert oil.max() - oil[0] > 5
    steps = np.abs(np.diff(recording.drift, axis=0)).max(axis=0)
    assert (steps < np.array(machine.NOISE)).all()


# -- counting -------------------------------------------------------------------------------

SPIKE = Fault(100, 103, "spike", "flow")
STUCK = Fault(300, 360, "stuck", "speed")


def watched(alarms, rows=600):
    """Return the result of a run with these alarms: the score of each, and its largest cause."""
    verdicts = Verdicts(tuple(NAMES), rows)
    verdicts.ready[:], verdicts.threshold[:], verdicts.score[:] = True, 1.0, 0.5
    for t, (score, cause) in alarms.items():
        verdicts.is_anomaly[t], verdicts.score[t] = True, score
        verdicts.shares[t, NAMES.index(cause)] = 0.7
        verdicts.shares[t, NAMES.index("oil_temp")] += 0.3
    incidents = Incidents()
    return Watched(verdicts, incidents.add(verdicts) + incidents.finish(), 0.1)


@pytest.mark.parametrize(
    ("t", "fault"),
    [(99, None), (100, SPIKE), (102 + GRACE, SPIKE), (103 + GRACE, None), (359, STUCK)],
)
def test_an_alarm_belongs_to_a_fault_until_shortly_after_it(t, fault):
    run = watched({t: (2.0, "flow")})
    assert run.fault_of(run.incidents[0], [SPIKE, STUCK]) == fault


def test_the_tally_counts_by_incident():
    run = watched(
        {
            101: (2.0, "flow"),
            102: (2.0, "flow"),
            200: (2.0, "flow"),
            310: (9.0, "flow"),
            320: (2.0, "speed"),
            400: (2.0, "speed"),
        }
    )
    result = tally(run, [SPIKE, STUCK, Fault(500, 540, "bias", "flow")])
    assert (result.faults, result.found) == (3, 2)
    assert (result.incidents, result.true_incidents) == (4, 2)
    assert result.precision == 2 / 4
    assert result.recall == 2 / 3
    assert result.delays == (1, 10)
    assert result.median_delay == 5.5
    assert result.named == 1  # the strongest alarm of the stuck one is blamed on flow
    assert result.naming == 1 / 2


def test_the_delay_is_counted_from_alarms_in_the_fault():
    assert tally(watched({90: (2.0, "flow"), 101: (2.0, "flow")}), [SPIKE]).delays == (1,)


def test_a_tally_of_nothing_is_not_a_number():
    nothing = tally(watched({}), [])
    numbers = (nothing.precision, nothing.recall, nothing.median_delay, nothing.naming)
    assert all(math.isnan(number) for number in numbers)
    assert tally(watched({}), [SPIKE]).recall == 0


# -- the show -------------------------------------------------------------------------------


class Oracle:
    """A monitor that knows the faults, and is wrong once, at sample 600."""

    def __init__(self, recording):
        self.alarms = {t: (8.0, f.sensor) for f in recording.faults for t in range(f.start, f.stop)}
        self.alarms[600] = (8.0, "oil_temp")

    def observe_many(self, X):
        return watched(self.alarms, len(X)).verdicts


def watch():
    recording = machine.record(1500, seed=0)
    return recording, show.watch(recording, Oracle(recording))


def test_a_line_has_the_strongest_alarm_and_says_whether_it_was_true():
    recording, run = watch()
    lines = [show.line(run, incident, recording.faults) for incident in run.incidents]
    assert len(lines) == 1 + len(recording.faults)
    assert lines[0].split() == ["600", "1", "8.0", "1.0", "oil_temp", "100%", "false", "alarm"]
    fault = recording.faults[0]
    assert lines[1].split()[0] == str(fault.start)
    assert lines[1].endswith(f"true: {fault.sensor}, {fault.kind}")


def test_the_demo_prints_a_line_for_each_incident(capsys):
    show.run(2600, 0, None)
    out = capsys.readouterr().out
    assert out.startswith("A pump with 8 sensors and 4 modes")
    lines = re.findall(r"^ +[\d,]+ +\d+ +[\d.]+ +[\d.]+  \w+ .*(?:true: |false alarm)", out, re.M)
    assert len(lines) == int(re.search(r"of (\d+) incidents", out)[1]) >= 3
    assert "microseconds per sample" in out


def test_the_summary_gives_the_counts():
    recording, run = watch()
    text = "\n".join(show.summary(recording.faults, run))
    n = len(recording.faults)
    assert f"{n} of {n + 1} incidents" in text
    assert f"{n} of {n} faults" in text
    assert "recall     100%" in text


def test_the_summary_of_no_alarms_has_no_numbers_that_are_none():
    recording = machine.record(1500, seed=0)
    text = "\n".join(show.summary(recording.faults, watched({}, 1500)))
    assert "nan" not in text
    assert "precision     -   0 of 0 incidents" in text


# -- the picture ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [1000, 2900])
def test_the_picture_is_a_png(tmp_path, capsys, n_samples):
    pytest.importorskip("matplotlib")
    path = tmp_path / "pump.png"
    recording = machine.record(n_samples, seed=0)
    show._draw(path, recording, show.watch(recording, Oracle(recording)))
    raw = path.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")) == (1600, 1200)
    assert 50_000 < len(raw) < 2_000_000
    assert capsys.readouterr() == ("", f"onlad: the picture is in {path}\n")


def test_a_picture_that_cannot_be_written_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    recording = machine.record(1000, seed=0)
    run = show.watch(recording, Oracle(recording))
    with pytest.raises(OnladError, match=r"cannot write the picture: .*No such file"):
        show._draw(tmp_path / "nowhere" / "pump.png", recording, run)


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "onlad.demo.picture", raising=False)
    monkeypatch.delattr("onlad.demo.picture", raising=False)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    show._draw(tmp_path / "pump.png", None, None)
    assert capsys.readouterr() == (
        "",
        "onlad: no picture without matplotlib: pip install onlad[plot]\n",
    )
    assert not list(tmp_path.iterdir())


def test_the_demo_finds_its_faults_and_names_their_sensors():
    recording = machine.record(machine.DAY, seed=0)
    run = show.watch(recording, Monitor(seed=0, names=tuple(NAMES)))
    count = tally(run, recording.faults)
    assert (count.faults, count.found >= 19, count.named >= 18) == (20, True, True), count
    assert count.incidents - count.true_incidents <= 5

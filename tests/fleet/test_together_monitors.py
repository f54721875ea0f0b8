"""Monitors that learn together: one scale by sums, and modes whose sums add."""

import re

import numpy as np
import pytest

from onlad import Monitor, modelfile
from onlad.errors import ModelFileError
from onlad.fields import values
from onlad.fleet.together import Measured, MonitorSums, agreed, join, measure, sums
from onlad.mode import unit
from onlad.modelfile import Record

NAMES = ("flow", "power", "heat")


def pump(rows, seed, mode=0):
    """Return rows of a pump; in each mode flow, power and heat have another relation."""
    rng = np.random.default_rng([seed, mode])
    load = np.sin(np.arange(rows) / 17 + seed)
    gain = ((9, 90, 3), (9, -80, 5), (-7, 60, -4))[mode]
    level = np.array([50, 800, 41]) + mode * np.array([5, 200, 6])
    return level + load[:, None] * gain + rng.normal(size=(rows, 3)) * (0.5, 5, 0.2)


def fitted(histories, **settings):
    scale = agreed([Measured.from_bytes(measure(X, NAMES).to_bytes()) for X in histories])
    return [Monitor(names=NAMES, **settings).fit(X, scale=scale) for X in histories]


def heard(monitors, k):
    """Return the monitor of a device that has heard the bytes of all others."""
    messages = [sums(monitor).to_bytes() for i, monitor in enumerate(monitors) if i != k]
    return join(monitors[k], [MonitorSums.from_bytes(message) for message in messages])


def test_the_scale_of_parts_is_that_of_the_whole():
    parts = [pump(300, seed) for seed in range(4)]
    parts[0][:, 2] = np.nan
    whole = np.concatenate(parts)
    centre, scale = agreed([measure(X) for X in parts])
    np.testing.assert_allclose(centre, np.nanmean(whole, axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale, unit(whole)[1], rtol=1e-12)
    centre, scale = agreed([measure(np.full((5, 1), np.nan)), measure(np.full((5, 1), np.nan))])
    assert np.isnan(centre).all()
    assert scale.tolist() == [0.0]


def test_sums_of_alike_devices_are_those_of_one_that_saw_everything():
    histories = [pump(400, seed)[np.random.default_rng(seed).permutation(400)] for seed in range(3)]
    monitors = fitted(histories)
    scale = agreed([measure(X) for X in histories])
    whole = Monitor(names=NAMES).fit(np.concatenate(histories), scale=scale)
    joint = heard(monitors, 0)
    (one,), (other,) = sums(joint).modes, sums(whole).modes
    for name in ("gram", "linear_gram", "moment"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)
    assert (one.count, one.weight) == (other.count, other.weight)
    # Errors of one model on all rows, beside those of models of the other half of all rows.
    np.testing.assert_allclose(one.usual, other.usual, rtol=0.2)


def test_devices_know_the_modes_of_all_after_they_exchanged_their_sums():
    monitors = fitted([pump(1500, seed, mode=seed) for seed in range(3)])
    fresh = [pump(600, 10 + mode, mode) for mode in range(3)]
    for k, alone in enumerate(monitors):
        joint = heard(monitors, k)
        before = [m.n_seen for m in (alone, joint)]
        assert before[0] == before[1]
        assert len(sums(joint).modes) == 3
        for mode, X in enumerate(fresh):
            odd = X[:64].copy()
            odd[32:, 1] += 300.0
            one = Monitor.resumed(alone.settings(), alone.learned())
            other = Monitor.resumed(joint.settings(), joint.learned())
            if mode != k:
                assert one.observe_many(X[:64]).is_anomaly.mean() > 0.5
            assert other.observe_many(X).is_anomaly.mean() < 0.02
            other = Monitor.resumed(joint.settings(), joint.learned())
            assert other.observe_many(odd).is_anomaly[32:].mean() > 0.9


def test_a_joint_monitor_is_a_monitor():
    joint = heard(fitted([pump(500, seed) for seed in range(3)]), 1)
    X = pump(400, 9)
    twin = Monitor.resumed(joint.settings(), joint.learned())
    assert joint.observe_many(X)[:] == twin.observe_many(X)[:]
    assert joint.observe_many(X).is_anomaly.mean() < 0.02


def test_sums_that_do_not_belong_together_are_refused():
    one, other = fitted([pump(400, 0), pump(400, 1)])
    with pytest.raises(ValueError, match="equal features, window and seed"):
        join(one, [sums(fitted([pump(400, 0)], seed=3)[0])])
    with pytest.raises(ValueError, match="the scales differ: fit all monitors with the agreed one"):
        join(one, [sums(fitted([pump(400, 5)])[0])])
    with pytest.raises(ValueError, match="a weight must be finite and above 0, got -1"):
        join(one, [sums(other)], [-1])
    with pytest.raises(ValueError, match="there are 2 weights for the sums of 1 others"):
        join(one, [sums(other)], [1, 1])
    with pytest.raises(ValueError, match="a monitor that has not started has no sums"):
        sums(Monitor())
    with pytest.raises(ValueError, match="at most 256 inputs"):
        sums(Monitor().fit(np.random.default_rng(0).normal(size=(100, 300))))
    with pytest.raises(ValueError, match="a scale needs the sums of at least one device"):
        agreed([])
    with pytest.raises(ValueError, match="devices have the features"):
        agreed([measure(pump(9, 0)), measure(pump(9, 0), NAMES)])
    with pytest.raises(ValueError, match="scale must be 0 or at least"):
        Monitor().fit(pump(100, 0), scale=(np.zeros(3), np.full(3, 1e-300)))


def test_old_sums_may_count_less():
    one, other = fitted([pump(400, 0), pump(400, 1)])
    whole, half = join(one, [sums(other)]), join(one, [sums(other)], [0.5])
    own = sums(one).modes[0].gram
    part = sums(whole).modes[0].gram - own
    np.testing.assert_allclose(sums(half).modes[0].gram - own, part / 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [Measured, MonitorSums])
def test_what_no_device_could_have_sent_is_refused(kind):
    (monitor,) = fitted([pump(400, 0)])
    found = sums(monitor) if kind is MonitorSums else measure(pump(9, 0), NAMES)
    data = found.to_bytes()
    with pytest.raises(ModelFileError, match=r"^the message of pump-3 is damaged"):
        kind.from_bytes(data[:-1] + bytes([data[-1] ^ 1]), "the message of pump-3")
    for change, why in (
        ({"names": ["a", "a", "b"]}, "each once"),
        ({"width": 0} if kind is MonitorSums else {"count": -found.count}, "must be in|not in"),
    ):
        other = modelfile.encode(Record(kind.__name__, {"fields": values(found) | change}))
        with pytest.raises(ModelFileError, match=why):
            kind.from_bytes(other)
    with pytest.raises(ModelFileError, match=re.escape("it is something else")):
        kind.from_bytes(modelfile.encode(Record("Sums", {"fields": {}})))

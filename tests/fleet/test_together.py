"""Devices that share what they learned: ten that each saw one mode, and what a message is."""

import re
from pathlib import Path

import numpy as np
import pytest

from checks import assert_same_state, stream
from onlad import Detector, merge, modelfile, persist
from onlad.errors import ModelFileError
from onlad.fields import values
from onlad.fleet.exchange import Sums, join, sums
from onlad.reference import hidden
from oracle import assert_near, solve, tolerance

MODES, N, n = 10, 24, 4
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "together.md"


def mode(k, rows, seed=0):
    """Return samples of mode `k`: four sensors that stay near a centre of their own."""
    centre = np.random.default_rng(1000 + k).uniform(-1, 1, n)
    return centre + 0.05 * np.random.default_rng([seed, k]).normal(size=(rows, n))


def trained(X, **settings):
    detector = Detector(**{"n_hidden": N, "forgetting": 1.0, "ridge": 0.1} | settings)
    detector.learn_many(X)
    return detector


def exchanged(devices, **options):
    """Return the detector of each device after all have heard the bytes of all others."""
    messages = [sums(device).to_bytes() for device in devices]
    return [
        join(device, [Sums.from_bytes(m) for i, m in enumerate(messages) if i != k], **options)
        for k, device in enumerate(devices)
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_ten_devices_know_ten_modes_after_they_exchanged_their_sums(dtype):
    parts = [mode(k, 200) for k in range(MODES)]
    devices = [trained(X, dtype=dtype) for X in parts]
    whole = trained(np.vstack(parts), dtype=dtype)
    fresh = np.vstack([mode(k, 50, seed=1) for k in range(MODES)])
    usual = np.median(whole.score_many(fresh))
    everything = np.vstack(parts)
    beta, P, gram = solve(hidden(whole.state, everything), everything, 1.0, 0.1)
    # The sums are solved in float64; each detector carries a root, whose condition is the root.
    bound = tolerance(gram) + 100 * np.finfo(dtype).eps * np.sqrt(np.linalg.cond(gram))
    for k, (alone, joint) in enumerate(zip(devices, exchanged(devices), strict=True)):
        others = np.delete(np.arange(len(fresh)), slice(50 * k, 50 * k + 50))
        # Alone it takes the modes of the others for unusual; joined it does not.
        assert np.median(alone.score_many(fresh[others])) > 100 * usual
        assert_near(joint.state.P, P, bound)
        assert_near(joint.state.beta, beta, bound)
        assert_near(joint.score_many(fresh), whole.score_many(fresh), bound)
        assert joint.n_seen == 200 * MODES


def test_a_joint_detector_goes_on_and_can_be_joined_again():
    one, other = trained(mode(0, 100)), trained(mode(1, 100))
    joint, whole = join(one, [sums(other)]), trained(np.vstack([mode(0, 100), mode(1, 100)]))
    more = mode(1, 50, seed=2)
    assert_near(joint.update_many(more), whole.update_many(more), tolerance(whole.state.P))


def test_join_is_merge_of_two():
    one, other = trained(mode(0, 100)), trained(mode(1, 60))
    for joint in (join(one, [sums(other)]), join(other, [sums(one)])):
        both = merge(one, other)
        assert_near(joint.state.P, both.state.P, tolerance(both.state.P))
        assert_near(joint.state.beta, both.state.beta, tolerance(both.state.P))


def test_with_forgetting_each_sample_keeps_the_weight_of_its_own_device():
    a, parts = 0.98, [stream(rows, seed=k) for k, rows in enumerate([40, 80, 25])]
    settings = {"n_hidden": 5, "forgetting": a}
    devices = [trained(X, **settings) for X in parts]
    grams = [  # the first device's ridge, as far as it is not forgotten, and no other
        solve(hidden(devices[0].state, X), X, a, ridge)[2]
        for X, ridge in zip(parts, (0.1, 0.0, 0.0), strict=True)
    ]
    joint = exchanged(devices)[0]
    assert_near(joint.state.P, np.linalg.inv(sum(grams)), tolerance(sum(grams)))
    expected = sum((1 - a ** (2 * len(X))) / (1 - a * a) for X in parts)
    np.testing.assert_allclose(joint.learned().weight, expected, rtol=1e-12)


def test_weights_multiply_the_sums_of_the_others():
    a, other = trained(stream(40), n_hidden=5), trained(stream(30, seed=5), n_hidden=5)
    joint = join(a, [sums(other)], weights=[0.25])
    both = np.vstack([stream(40), 0 * stream(30)])
    H = hidden(a.state, np.vstack([stream(40), stream(30, seed=5)]))
    H[40:] *= 0.5  # the root of the weight
    both[40:] = 0.5 * stream(30, seed=5)
    beta, _, gram = solve(H, both, 1.0, 0.1)
    assert_near(joint.state.beta, beta, tolerance(gram))
    np.testing.assert_allclose(joint.learned().weight, 40 + 0.25 * 30, rtol=1e-12)
    nothing = join(a, [sums(other)], weights=[0.0])
    assert_near(nothing.state.beta, a.state.beta, tolerance(a.state.P))


def test_to_hear_the_same_message_again_changes_nothing():
    # A device keeps its own detector apart and joins the newest message of each other device.
    one, other = trained(mode(0, 100)), trained(mode(1, 60))
    heard = {}
    for _ in range(3):
        heard["other"] = Sums.from_bytes(sums(other).to_bytes())
        joint = join(one, heard.values())
    assert joint.n_seen == 160
    assert_same_state(joint, join(one, [sums(other)]))


def test_groups_of_groups_are_one_group():
    devices = [trained(mode(k, 60)) for k in range(6)]
    flat = join(devices[0], [sums(device) for device in devices[1:]])
    heads = [join(devices[k], [sums(devices[k + 1]), sums(devices[k + 2])]) for k in (0, 3)]
    tree = join(heads[0], [sums(heads[1])])
    assert_near(tree.state.P, flat.state.P, tolerance(flat.state.P))
    assert_near(tree.state.beta, flat.state.beta, tolerance(flat.state.P))
    assert tree.n_seen == flat.n_seen == 360


def test_joining_changes_neither_side():
    one, other = trained(mode(0, 50)), trained(mode(1, 50))
    before = [detector.learned() for detector in (one, other)]
    join(one, [sums(other)])
    for detector, then in zip((one, other), before, strict=True):
        np.testing.assert_equal(values(detector.learned()), values(then))


# -- what is sent -----------------------------------------------------------------------------


@pytest.mark.parametrize(("features", "units"), [(3, 8), (8, 16), (32, 64), (256, 64)])
def test_a_message_is_a_triangle_and_a_matrix(features, units):
    rng = np.random.default_rng(0)
    small = trained(rng.normal(size=(20, features)), n_hidden=units)
    large = trained(rng.normal(size=(2000, features)), n_hidden=units)
    numbers = units * (units + 1) // 2 + units * features
    for detector in (small, large):  # the size does not depend on the samples
        size = len(sums(detector).to_bytes())
        assert 0 < size - 8 * numbers <= 512  # a header, padding and a checksum
    if not PAGE.exists():
        return  # the documentation is not part of a wheel's tests
    row = re.search(rf"^\| {features} \| {units} \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert abs(int(row[1].replace(",", "")) - size) <= 64  # what the page says


def test_a_message_comes_back_as_it_was():
    sent = sums(trained(mode(0, 30)))
    got = Sums.from_bytes(sent.to_bytes())
    np.testing.assert_array_equal(got.gram, sent.gram)
    np.testing.assert_array_equal(got.moment, sent.moment)
    assert (got.layer, got.weight, got.seen) == (sent.layer, sent.weight, sent.seen)


def test_one_sample_can_be_read_out_of_its_sums():
    # What docs/howto/together.md says of what is revealed: sums over one sample are the sample.
    x = mode(0, 1)[0]
    got = sums(trained(x[None, :]))
    h = np.sqrt(np.diag(got.gram))
    assert_near(got.moment[0] / h[0], x, 1e-6)


def test_second_moments_can_be_read_out_with_the_identity():
    X = mode(0, 500)
    detector = trained(X, activation="identity", weights="normal")
    alpha, b = detector.state.alpha, detector.state.b
    got = sums(detector)
    # V = (X alpha + 1 b)'X; with the layer known, X'X follows, and so do the correlations.
    basis = np.vstack([alpha, b])
    moments = np.linalg.lstsq(basis.T, got.moment, rcond=None)[0]
    np.testing.assert_allclose(moments[:-1], X.T @ X, rtol=1e-6)
    np.testing.assert_allclose(moments[-1] / 500, X.mean(axis=0), rtol=1e-6)


# -- what is refused --------------------------------------------------------------------------


def test_a_damaged_message_is_refused():
    data = sums(trained(mode(0, 30))).to_bytes()
    for spoiled in (b"", data[:-1], data[:200] + b"\x01" + data[201:], data + b"\x00"):
        with pytest.raises(ModelFileError, match=r"^the message of pump-7 "):
            Sums.from_bytes(spoiled, "the message of pump-7")


def spoiled(**changes):
    got = sums(trained(mode(0, 30), n_hidden=3))
    fields = {
        "layer": got.layer,
        "gram": got.gram[np.tril_indices(3)],
        "moment": got.moment,
        "weight": got.weight,
        "seen": got.seen,
    }
    return modelfile.encode(modelfile.Record("Sums", {"fields": fields | changes}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layer": "x"}, "layer must be a digest"),
        ({"gram": np.zeros(5)}, "gram must have shape (6,), got (5,)"),
        ({"gram": np.full(6, np.inf)}, "gram holds a number that is not finite"),
        ({"gram": np.array([-1.0, 0, 1, 0, 0, 1])}, "gram is no sum of squares"),
        ({"gram": [1.0]}, "gram must be ndarray, got [1.0]"),
        ({"moment": np.zeros((0, 4))}, "gram must have shape (0,), got (6,)"),
        ({"moment": np.zeros((3, 0))}, "moment must have shape (3, 1), got (3, 0)"),
        ({"moment": np.full((3, 4), np.nan)}, "moment holds a number that is not finite"),
        ({"weight": -1.0}, "weight must be finite and not negative, got -1.0"),
        ({"weight": True}, "weight must be float, got True"),
        ({"seen": -1}, "seen must be in [0, 2^62], got -1"),
        ({"more": 1}, "missing in the message or not known: ['more']"),
    ],
)
def test_a_message_that_no_detector_could_have_sent_is_refused(changes, says):
    with pytest.raises(ModelFileError, match=re.escape(f"holds no sums: {says}. Send it again")):
        Sums.from_bytes(spoiled(**changes))


def test_a_model_file_is_no_message():
    with pytest.raises(ModelFileError, match="holds no sums: it is something else"):
        Sums.from_bytes(persist.to_bytes(trained(mode(0, 30))))


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"n_hidden": 6}, {"activation": "tanh"}, {"weights": "normal"}], ids=str
)
def test_sums_of_another_layer_are_refused(other):
    with pytest.raises(ValueError, match="only sums of one random layer can be joined"):
        join(trained(mode(0, 30)), [sums(trained(mode(1, 30), **other))])


def test_weights_that_cannot_be_are_refused():
    one, other = trained(mode(0, 30)), sums(trained(mode(1, 30)))
    for weight in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="a weight must be finite and not negative"):
            join(one, [other], weights=[weight])
    with pytest.raises(ValueError, match="there are 2 weights for the sums of 1 others"):
        join(one, [other], weights=[1.0, 1.0])


def test_a_detector_that_has_seen_nothing_has_no_sums():
    with pytest.raises(ValueError, match="a detector that has seen nothing has no sums"):
        sums(Detector())

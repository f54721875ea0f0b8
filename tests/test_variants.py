import numpy as np
import pytest

from onlad import reference, variants
from onlad.reference import State
from oracle import assert_near, assert_positive_definite, solve, tolerance

RIDGE = 0.1


def samples(rows, n=4, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (rows, n))


def start(n=4, N=6, m=None, seed=1):
    alpha, b = reference.draw(n, N, "uniform", seed)
    return State(alpha, b, np.zeros((N, m or n)), np.eye(N) / RIDGE)


# -- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [1.0, 0.97])
def test_updates_with_targets_are_the_closed_form(a):
    X, T, state = samples(60), samples(60, 2, seed=1), start(m=2)
    for x, t in zip(X, T, strict=True):
        state = reference.update(state, x, a, t=t)
    beta, P, gram = solve(reference.hidden(state, X), T, a, RIDGE)
    assert_near(state.beta, beta, tolerance(gram))
    assert_near(state.P, P, tolerance(gram))


def test_chunks_fit_and_elm_with_targets_are_the_closed_form():
    X, T, fresh = samples(60), samples(60, 2, seed=1), start(m=2)
    beta, _, gram = solve(reference.hidden(fresh, X), T, 1.0, RIDGE)
    fitted = reference.fit(fresh, X, ridge=RIDGE, T=T)
    chunk = reference.update_chunk(fresh, X, T=T)
    assert_near(fitted.beta, beta, tolerance(gram))
    assert_near(chunk.beta, beta, tolerance(gram))
    beta, _, gram = solve(reference.hidden(fresh, X), T)
    assert_near(reference.elm_fit(fresh, X, T=T), beta, tolerance(gram))


# -- FOS-ELM ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 5])
def test_fos_elm_is_the_closed_form_of_the_window(chunk):
    X, window = samples(400), 50
    state = reference.fit(start(), X[:window], ridge=RIDGE)
    for i in range(window, len(X), chunk):
        new, old = X[i : i + chunk], X[i - window : i - window + chunk]
        state = variants.fos_elm_update(state, new, old)
    _, _, gram = solve(reference.hidden(state, X[-window:]), X[-window:])
    gram += RIDGE * np.eye(len(gram))
    expected = np.linalg.solve(gram, reference.hidden(state, X[-window:]).T @ X[-window:])
    steps = (len(X) - window) / chunk  # each adds its own rounding
    assert_near(state.beta, expected, steps * tolerance(gram))
    assert_near(state.P, np.linalg.inv(gram), steps * tolerance(gram))


def test_a_fos_elm_step_is_an_update_and_an_unlearn():
    X = samples(61)
    state = reference.fit(start(), X[:60], ridge=RIDGE)
    both = variants.fos_elm_update(state, X[60:], X[:1])
    apart = reference.unlearn(reference.update(state, X[60]), X[0])
    assert_near(both.beta, apart.beta, tolerance(state.P))
    assert_near(both.P, apart.P, tolerance(state.P))


# -- directional forgetting ---------------------------------------------------------------------


def test_directional_forgetting_is_os_elm_while_its_factor_is_one():
    X, state = samples(1), start()
    found, _ = variants.dff_update(state, variants.Directional(), X[0])
    expected = reference.update(state, X[0])
    assert_near(found.beta, expected.beta, tolerance(state.P))
    assert_near(found.P, expected.P, tolerance(state.P))


def test_directional_forgetting_forgets_along_h_alone():
    state = reference.fit(start(), samples(60), ridge=RIDGE)
    x, phi = samples(1, seed=9)[0], 0.6
    h = reference.hidden(state, x)
    found, _ = variants.dff_update(state, variants.Directional(factor=phi), x)
    K, xi = np.linalg.inv(state.P), float(h @ state.P @ h)
    # K' = K + c h'h with the c for which the information along h is phi times the old, plus one.
    c = phi - (1 - phi) / xi
    assert_near(np.linalg.inv(found.P), K + c * np.outer(h, h), tolerance(K))
    assert 1 / (h @ found.P @ h) == pytest.approx(phi * (1 / xi + 1))


def test_a_stuck_sensor_does_not_wind_directional_forgetting_up():
    state, memory = reference.fit(start(), samples(60), ridge=RIDGE), variants.Directional()
    before, x = np.trace(state.P), samples(1, seed=3)[0]
    for _ in range(20_000):
        state, memory = variants.dff_update(state, memory, x)
    assert_positive_definite(state.P)
    assert 0 < memory.factor <= 1
    assert np.trace(state.P) < 10 * before


def test_the_directional_factor_falls_with_the_error():
    state, usual = reference.fit(start(), samples(200), ridge=RIDGE), samples(100, seed=4)
    memory = variants.Directional()
    for x in usual:
        state, memory = variants.dff_update(state, memory, x)
    x = usual[0]
    _, after_usual = variants.dff_update(state, memory, x)
    worse = state._replace(beta=state.beta + 1.0)
    _, after_error = variants.dff_update(worse, memory, x)
    assert after_error.factor < after_usual.factor


# -- stacked layers -----------------------------------------------------------------------------


def layers(n=4):
    return [start(n, 8), start(8, 6, m=n, seed=2)]


def test_layers_learn_what_the_layers_below_gave_them():
    X = samples(80)
    fitted = variants.ml_fit(layers(), X[:60], ridge=RIDGE)
    np.testing.assert_array_equal(
        fitted[0].beta, reference.fit(layers()[0], X[:60], ridge=RIDGE).beta
    )
    first, last = variants.ml_hidden(fitted, X[70])
    np.testing.assert_array_equal(first, X[70])
    np.testing.assert_array_equal(last, reference.activate(X[70] @ fitted[0].beta.T, "sigmoid"))
    after = variants.ml_update(fitted, X[70], 0.99)
    np.testing.assert_array_equal(after[0].P, reference.update(fitted[0], X[70], 0.99).P)
    np.testing.assert_array_equal(
        after[1].beta, reference.update(fitted[1], last, 0.99, t=X[70]).beta
    )


# -- mixture ------------------------------------------------------------------------------------


def test_only_the_best_instance_learns():
    X, Y = samples(60), samples(60, seed=1) + 2
    instances = [reference.fit(start(), rows, ridge=RIDGE) for rows in (X, Y)]
    after, best = variants.mixture_update(instances, Y[0] + 0.01)
    assert best == 1
    assert after[0] is instances[0]
    assert not np.array_equal(after[1].beta, instances[1].beta)

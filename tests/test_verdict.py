import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad.verdict import Verdict, Verdicts, causes

COLUMNS = ("ready", "score", "threshold", "p_value", "is_anomaly", "learned", "drift")


def filled(rows=5):
    verdicts = Verdicts(("flow", "power", "heat"), rows)
    rng = np.random.default_rng(0)
    for name in COLUMNS:
        column = getattr(verdicts, name)
        draw = rng.uniform(0, 1, rows)
        column[:] = draw < 0.5 if column.dtype == bool else draw
    verdicts.drifting[2] = 1
    verdicts.shares[:] = rng.dirichlet([1, 1, 1], rows)
    return verdicts


def test_a_verdict_of_many_has_the_numbers_of_its_row():
    verdicts = filled()
    for i in range(5):
        for name in COLUMNS:
            value = getattr(verdicts[i], name)
            assert value == getattr(verdicts, name)[i]
            assert type(value) in (bool, float)  # of Python's: they print and serialise
        assert sorted(verdicts[i].causes) == ["flow", "heat", "power"]
        assert verdicts[i].causes["heat"] == verdicts.shares[i, 2]
        assert verdicts[i].drifting == ("power" if i == 2 else None)


def test_causes_are_the_shares_above_0_with_the_largest_first():
    shares = np.array([0.2, 0.0, 0.3, np.nan, 0.2, 0.3])
    found = causes(tuple("abcdef"), shares)
    assert list(found.items()) == [("c", 0.3), ("f", 0.3), ("a", 0.2), ("e", 0.2)]


def test_verdicts_are_a_sequence():
    verdicts = filled()
    assert len(verdicts) == 5
    assert list(verdicts) == [verdicts[i] for i in range(5)] == verdicts[:]
    assert verdicts[-1] == verdicts[4]
    assert verdicts[3:0:-2] == [verdicts[3], verdicts[1]]
    assert verdicts[2] in verdicts
    assert verdicts.index(verdicts[2]) == 2
    assert [v.score for v in reversed(verdicts)] == verdicts.score[::-1].tolist()
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            verdicts[beyond]


def test_nothing_is_said_before_it_is_known():
    assert Verdicts(("a", "b"), 1)[0] == Verdict(
        ready=False,
        score=0.0,
        threshold=np.inf,
        p_value=1.0,
        is_anomaly=False,
        causes={},
        learned=True,
        drift=False,
        drifting=None,
    )
    assert list(Verdicts((), 0)) == []


def test_a_verdict_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        filled()[0].score = 1.0


@given(st.dictionaries(st.text(max_size=2), st.sampled_from([0.0, 0.25, 0.5, 0.1]), min_size=1))
def test_causes_are_the_largest_first_and_none_is_zero(shares):
    found = causes(tuple(shares), np.array(list(shares.values())))
    assert found == {name: share for name, share in shares.items() if share > 0}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    order = list(shares)
    for one, other in zip(list(found), list(found)[1:], strict=False):
        if found[one] == found[other]:  # equal ones stay in the order of the stream
            assert order.index(one) < order.index(other)

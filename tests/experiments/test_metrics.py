import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from experiments import metrics

labelled = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(y for y, _ in pairs) < len(pairs)
)


@given(labelled)
def test_auc_is_that_of_scikit_learn_ties_included(pairs):
    y, score = (np.array(part) for part in zip(*pairs, strict=True))
    # A quotient of sums of half integers: only its last rounding differs.
    assert metrics.auc(y, score) == pytest.approx(roc_auc_score(y, score), abs=1e-14)


def test_auc_wants_both_kinds_of_rows_and_finite_scores():
    with pytest.raises(ValueError, match="0 of 3 rows are anomalous"):
        metrics.auc(np.zeros(3), np.arange(3.0))
    with pytest.raises(ValueError, match="score 1 is not a finite number"):
        metrics.auc(np.array([0, 1, 0]), np.array([0.0, np.nan, 1.0]))


def test_the_interval_is_students():
    mean = metrics.mean([1.0, 2.0, 3.0])
    assert mean.mean == 2
    assert mean.half == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)  # t at 0.975, 2 degrees
    assert np.isnan(metrics.mean([1.0]).half)


def test_intervals_join_over_short_gaps():
    flags = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1], bool)
    assert metrics.intervals(flags) == [(1, 3), (4, 5), (8, 9)]
    assert metrics.intervals(flags, gap=2) == [(1, 5), (8, 9)]


def test_delays_count_from_the_start_of_each_fault():
    y = np.array([0, 1, 1, 1, 0, 1, 1, 0])
    alarms = np.array([1, 0, 1, 1, 0, 0, 0, 1], bool)
    assert metrics.delays(y, alarms) == (2, [1])
    assert metrics.false_alarms(y, alarms) == 1  # both within ten rows


def test_precision_and_recall_of_a_perfect_score_is_one():
    assert metrics.auc_pr(np.array([0, 1, 0, 1]), np.array([0, 3, 1, 2.0])) == 1

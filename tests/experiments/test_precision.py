"""The records of float32 beside float64 are whole, and as the pages say."""

import numpy as np

from experiments import precision, records


def test_every_case_is_stored_and_float64_is_the_same_at_every_level():
    stored = records.read("precision")
    cases = {(r["n_features"], r["forgetting"], r["level"]) for r in stored}
    assert len(stored) == len(cases) == 2 * len(precision.FACTORS) * len(precision.LEVELS)
    for n, a in {case[:2] for case in cases}:
        same = [r["auc"]["float64"] for r in stored if (r["n_features"], r["forgetting"]) == (n, a)]
        assert same == [same[0]] * len(precision.LEVELS)


def test_the_mean_of_float32_is_that_of_float64_within_what_seeds_move_it():
    for r in records.read("precision"):
        apart = precision.differences(r)
        assert len(apart) == precision.SEEDS
        # Four standard errors; where none is seen, what is rounded off in a record.
        assert abs(apart.mean()) <= 4 * apart.std(ddof=1) / np.sqrt(len(apart)) + 1e-5, r

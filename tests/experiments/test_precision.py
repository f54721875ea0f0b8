"""What docs/explanation/mathematics.md says of float32 is in the stored records."""

import re
from pathlib import Path

import numpy as np

from experiments import precision, records

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "mathematics.md"


def test_what_the_page_says_of_float32_is_in_the_records():
    stored = records.read("precision")
    cases = {(r["n_features"], r["forgetting"], r["level"]) for r in stored}
    assert len(stored) == len(cases) == 2 * len(precision.FACTORS) * len(precision.LEVELS)
    text = re.sub("<!--.*?-->", "", PAGE.read_text(encoding="utf-8"))  # numbers stand between marks
    told = " ".join(text.split())
    assert precision.told(stored) in told
    for n, a in {case[:2] for case in cases}:
        same = [r["auc"]["float64"] for r in stored if (r["n_features"], r["forgetting"]) == (n, a)]
        assert same == [same[0]] * len(precision.LEVELS)


def test_the_mean_of_float32_is_that_of_float64_within_what_seeds_move_it():
    for r in records.read("precision"):
        apart = precision.differences(r)
        assert len(apart) == precision.SEEDS
        # Four standard errors; where none is seen, what is rounded off in a record.
        assert abs(apart.mean()) <= 4 * apart.std(ddof=1) / np.sqrt(len(apart)) + 1e-5, r

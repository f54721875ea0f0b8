"""The constants of docs/explanation/mathematics.md are those of the code.

python tests/test_constants.py writes them into the page.
"""

import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "mathematics.md"
BEGIN, END = "<!-- constants: python tests/test_constants.py -->\n", "<!-- end of constants -->"
CONSTANTS = [
    ("$C$", "mode.CLIP", "largest scaled value"),
    ("$A$", "watching.ORDERED", "least rank autocorrelation of an ordered stream"),
    ("", "counter.RISES, counter.FALLS", "a counter: least rises, largest share of falls"),
    ("", "counter.RESET", "share of the last value below which a fall is a reset"),
    ("$w$", "watching.LONGEST_WINDOW", "longest default window"),
    ("$n w$", "watching.WIDEST", "inputs that a default window may have"),
    ("$g$, $N / g$", "instance.GROUPS, instance.HIDDEN", "groups of tanh units, units of each"),
    ("$d$", "instance.WIDEST", "inputs above which the linear layer is a projection"),
    ("$r$", "instance.RIDGE", "ridge of an instance"),
    ("$a$", "mode.FORGETTING", "forgetting factor"),
    ("$m_{\\max}$", "mode.MEMORY", "rows that a baseline weighs at most"),
    ("$m_0$, $u_0$", "mode.PRIOR, mode.PRIOR_SQUARE", "shrinkage: rows, least mean square"),
    ("$L$", "mode.OFTEN", "largest square learned, in units of the least baseline"),
    ("$B$, $F$", "mode.BEYOND, mode.FEW", "reach of a level, widening for few rows"),
    ("$\\operatorname{reach}_{\\min}$", "mode.LEAST", "of rows and EWMAs, of running means"),
    ("$\\gamma$", "mode.SMOOTHING", "weight of the newest row in a running mean"),
    ("$\\gamma_l$", "mode.LEANING", "weight of the newest error in its EWMA"),
    ("", "mode.COVERED, mode.WIDENING", "share that a band holds, its step"),
    ("", "mode.WINSOR", "deviations that an error counts for at most in its EWMA"),
    ("$c$", "mode.CORRELATED", "rows over which errors are taken to be alike in an EWMA"),
    ("", "judge.KEEP", "score up to which the mode of the row before is kept"),
    ("", "watching.HELD", "usual gaps for which a missing value is held"),
    (
        "$\\eta$",
        "rhythm.NEW_DAY, rhythm.NEW_WEEK",
        "weight of the newest day, or week, in a pattern",
    ),
    ("", "rhythm.LEVEL", "weight of the newest day in the level of a feature"),
    ("", "rhythm.TRUST, rhythm.LEAST", "share of a pattern: weight per day of age, least share"),
    ("$s_{\\max}$", "rhythm.MOST", "share of a pattern that is subtracted at most"),
    ("", "rhythm.FEWEST", "least parts of a day with a value"),
    ("$G$", "split.GAIN", "gain from which a history is split"),
    ("$m_q$", "watching.CANDIDATE", "refused rows that make a candidate"),
    ("", "watching.EXPIRING", "of them let go in a tick with none to add"),
    ("", "watching.FOREIGN", "share of refused rows that it may fail to explain"),
    (
        "",
        "watching.PATIENCE, watching.SHORTEST, watching.LONGEST",
        "rows to explain: share of those learned, least, most",
    ),
    ("", "watching.MODES", "most modes"),
    (
        "",
        "recurring.TIMES, recurring.ALIKE, recurring.AS_LARGE",
        "events that recur: least number, least cosine of two jumps, largest ratio of their sizes",
    ),
    ("$\\tau$", "watching.TICK", "rows of a tick"),
    ("", "watching.REFUSED, watching.SPARED", "delayed learning: share of the edge, of rows"),
    ("$m_g$", "watching.YOUNG", "rows learned at which twice as high a score is still learned"),
    ("$m_y$", "limit.YOUNG", "rows learned at which a score counts for half"),
    ("$\\kappa$", "limit.SINGLE", "limits that a single row has to exceed"),
    ("$g$", "limit.GAP", "rows that end a cluster, and an episode"),
    ("$b_{\\min}$", "limit.LEAST", "least limit"),
    ("$n$", "limit.RECENT", "recent normal scores"),
    ("$k / n$", "limit.TAIL", "share of the scores that is the tail"),
    ("$\\gamma_f$, $f_{\\max}$", "limit.STEP, limit.HIGHEST", "factor: step, largest logarithm"),
    ("$M$", "limit.FARTHEST", "how far a tail is followed, in roots of the 0.999 quantile"),
    (
        "",
        "limit.WEAK, limit.SHORT, limit.STRONG",
        "an episode is weak below this peak; if of fewer rows, below this peak",
    ),
    ("", "limit.LASTING, limit.TOLD", "an alarm is shelved after refused rows, rows in alarm,"),
    ("", "watching.SHELVED", "until this rise"),
    ("", "anchor.SETTLED, anchor.MEASURED", "rows learned before the anchor, rows measured"),
    (
        "$m_\\ell$, $D$",
        "anchor.MEAN, anchor.OUTSIDE",
        "rows of the mean error, reach of a drift",
    ),
    (
        "",
        "anchor.SLACK, anchor.GROWS",
        "baseline deviations added to that reach; growth of the mean error of a random walk",
    ),
]


def value(name):
    module, constant = name.split(".")
    found = getattr(importlib.import_module(f"onlad.{module}"), constant)
    numbers = found if isinstance(found, tuple) else (found,)
    return ", ".join(f"{number:,.6g}" for number in numbers)


def table():
    lines = ["| symbol | constant | value | |", "|---|---|---|---|"]
    for symbol, names, meaning in CONSTANTS:
        each = names.split(", ")
        code = ", ".join(f"`{name}`" for name in each)
        lines.append(f"| {symbol} | {code} | {', '.join(map(value, each))} | {meaning} |")
    return "\n" + "\n".join(lines) + "\n\n"


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of a wheel's tests")
def test_the_page_has_the_constants_of_the_code():
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert shown == table(), "run python tests/test_constants.py"


if __name__ == "__main__":
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1])

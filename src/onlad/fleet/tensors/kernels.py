# mypy: ignore-errors
# Triton compiles these functions: it reads annotations as its own, so arguments have none.
"""What PyTorch would do slowly for monitors on a GPU, in Triton: each has its twin in PyTorch."""

from __future__ import annotations

import triton
import triton.language as tl

from onlad import limit, mode

SMOOTHING, LEANING = tl.constexpr(mode.SMOOTHING), tl.constexpr(mode.LEANING)
WINSOR = tl.constexpr(mode.WINSOR)
STEP, HIGHEST = tl.constexpr(limit.STEP), tl.constexpr(limit.HIGHEST)
GAP, SHORT = tl.constexpr(limit.GAP), tl.constexpr(limit.SHORT)
WEAK, STRONG = tl.constexpr(limit.WEAK), tl.constexpr(limit.STRONG)


@triton.jit
def count_at_least(recent, scores, found, n_scores, RECENT: tl.constexpr):
    """Count, for each score of a device, the device's recent scores that are at least as high."""
    device = tl.program_id(0).to(tl.int64)
    values = tl.load(recent + device * RECENT + tl.arange(0, RECENT))
    for i in range(n_scores):
        at = device * n_scores + i
        above = (values >= tl.load(scores + at)).to(tl.int32)
        tl.store(found + at, tl.sum(above, 0))


@triton.jit
def score_rows(
    E, inverse, present, levels, leaning, means, leans, scores, T,
    n: tl.constexpr, BLOCK: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    """Turn the errors of one device, (2, T, n), into usual deviations; score its rows.

    The running means and leans are left as they are after the last row.
    """
    device = tl.program_id(0).to(tl.int64)
    k, j = tl.arange(0, 2), tl.arange(0, BLOCK)
    both = (k < 2)[:, None] & (j < n)[None, :]
    own = device * 2 * n + k[:, None] * n + j[None, :]
    root, usual = tl.load(inverse + own, both, 0.0), tl.load(leaning + own, both, 1.0)
    lean = tl.load(leans + own, both, 0.0).to(E.dtype.element_ty)
    # Median and reach of rows, of running means and of leans: of means, and of largest squares.
    level = levels + device * 24 + k
    median, reach = tl.load(level), tl.load(level + 4)
    median_slow, reach_slow = tl.load(level + 8), tl.load(level + 12)
    median_lean, reach_lean = tl.load(level + 16), tl.load(level + 20)
    top_median, top_reach = tl.load(level + 2), tl.load(level + 6)
    top_median_slow, top_reach_slow = tl.load(level + 10), tl.load(level + 14)
    top_median_lean, top_reach_lean = tl.load(level + 18), tl.load(level + 22)
    slow, slow_top = tl.load(means + device * 4 + k), tl.load(means + device * 4 + 2 + k)
    slow, slow_top = slow.to(lean.dtype), slow_top.to(lean.dtype)
    for t in range(T):
        row = device * T + t
        there = tl.load(present + row * n + j, j < n, 0) != 0
        here = there.to(lean.dtype)
        at = E + ((device * 2 + k[:, None]) * T + t) * n + j[None, :]
        e = tl.load(at, both, 0.0) * root * here[None, :]
        tl.store(at, e, both)
        count = tl.sum(here, 0)
        squares = e * e
        mean = (tl.sum(squares, 1) / tl.maximum(count, 1.0) - median) / reach
        top = (tl.max(squares, 1) - top_median) / top_reach
        if ORDERED:
            weight = (count > 0).to(lean.dtype) * SMOOTHING
            slow += weight * (tl.minimum(mean, 1.0) - slow)
            slow_top += weight * (tl.minimum(top, 1.0) - slow_top)
            lean += (here * LEANING)[None, :] * (tl.minimum(tl.maximum(e, -WINSOR), WINSOR) - lean)
            squares = lean * lean / usual
            mean_lean = (tl.sum(squares, 1) / n - median_lean) / reach_lean
            top_lean = (tl.max(squares, 1) - top_median_lean) / top_reach_lean
            mean_slow = (slow - median_slow) / reach_slow
            top_slow = (slow_top - top_median_slow) / top_reach_slow
            mean = tl.maximum(tl.maximum(mean, mean_slow), mean_lean)
            top = tl.maximum(tl.maximum(top, top_slow), top_lean)
        total = tl.sum(tl.maximum(mean, 0.0) + tl.maximum(top, 0.0), 0)
        tl.store(scores + row, tl.where(count > 0, total / 4, 0.0))
    tl.store(leans + own, lean, both)
    tl.store(means + device * 4 + k, slow)
    tl.store(means + device * 4 + 2 + k, slow_top)


@triton.jit
def follow(
    ratio, refused, judged, episode, factor, devices, T,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Let episodes, (devices, 4), and factors follow rows, (T, devices): `Limit.follow`."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < devices
    since, length = tl.load(episode + i * 4, inside, -1.0), tl.load(episode + i * 4 + 1, inside)
    peak, alarms = tl.load(episode + i * 4 + 2, inside), tl.load(episode + i * 4 + 3, inside)
    raised = tl.load(factor + i, inside, 0.0)
    for t in range(T):
        at = t * devices + i
        value = tl.load(ratio + at, inside, 0.0).to(peak.dtype)
        unusual = tl.load(refused + at, inside, 0) != 0
        counts = tl.load(judged + at, inside, 0) != 0
        length += tl.where(unusual, 1.0, 0.0)
        peak = tl.where(unusual, tl.maximum(peak, value), peak)
        alarms += tl.where(unusual & (value > 1), 1.0, 0.0)
        going = (since >= 0) & counts & (unusual == 0)
        since = tl.where(unusual, 0.0, since + tl.where(going, 1.0, 0.0))
        over = going & (since > GAP)
        weak = (length < SHORT).to(peak.dtype) * (STRONG - WEAK) + WEAK
        rises = over & (peak > 1) & (peak < weak)
        raised = tl.where(rises, tl.minimum(raised + STEP, HIGHEST), raised)
        since = tl.where(over, -1.0, since)
        length, peak = tl.where(over, 0.0, length), tl.where(over, 0.0, peak)
        alarms = tl.where(over, 0.0, alarms)
    tl.store(episode + i * 4, since, inside)
    tl.store(episode + i * 4 + 1, length, inside)
    tl.store(episode + i * 4 + 2, peak, inside)
    tl.store(episode + i * 4 + 3, alarms, inside)
    tl.store(factor + i, raised, inside)

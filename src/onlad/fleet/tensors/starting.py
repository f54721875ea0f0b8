"""`start`: many modes from their first rows; `Mode.start` of `onlad.mode` defines it."""

from __future__ import annotations

from typing import Any

import torch

from onlad import mode
from onlad.fleet.tensors.modes import Modes, statistics
from onlad.fleet.tensors.pool import FLOAT


def start(modes: Modes, at: Any, windows: Any, rows: Any) -> None:
    """Let modes of ordered streams learn raw windows, (modes, most rows, inputs).

    Mode i has the first ``rows[i]`` of them.
    """
    n, most = modes.features, windows.shape[1]
    order = torch.arange(most, device=windows.device)
    there, first = order < rows[:, None], order < (rows // 2)[:, None]
    known = there[..., None] & ~windows[..., :n].isnan()
    modes.centre[at], modes.scale[at] = unit(windows[..., :n], known)
    V = modes.scaled(at, windows.reshape(len(rows), -1, n)).view(windows.shape)
    X = V[..., :n].contiguous()
    H, U = modes.layers(X, V)
    E = X.new_zeros(len(X), 2, most, n)
    for part, rest in ((first, there & ~first), (there & ~first, first)):
        beta = (each[1] for each in modes.solution(*modes.sums(X, H.clone(), U, rest)))
        E = torch.where(part[:, None, :, None], modes.left(X, H, U, *beta), E)
    modes.usual[at], modes.weight[at] = 0.0, 0.0
    modes.take(at, E, known, rows)
    band = quantile(E[:, 1].abs().transpose(1, 2), known.transpose(1, 2), mode.COVERED)
    modes.write("band", at, torch.where(known.any(1), band, 0.0))
    modes.solve(at, modes.sums(X, H, U, there))
    modes.write("count", at, rows)
    modes.settle(at)
    E.mul_(modes.inverse[at][:, :, None]).mul_(known[:, None])
    _levels(modes, at, E, known, there)


def _levels(modes: Modes, at: Any, E: Any, known: Any, there: Any) -> None:
    """Settle what is usual for the statistics, from errors in usual deviations."""
    n, rows = modes.features, there.sum(1).to(FLOAT)
    there = there[:, None]
    found = statistics(E**2, known.sum(2).clamp(min=1)[:, None])
    levels = [*_level(found, there, 1.0, mode.LEAST[0])]
    standard = ((found - levels[0][..., None]) / levels[1][..., None]).clamp(max=1.0)
    means, leans = torch.empty_like(standard), torch.empty_like(E)
    mean, lean = quantile(standard, there, 0.5), E.new_zeros(len(E), 2, n)
    errors, pull = E.clamp(-mode.WINSOR, mode.WINSOR), mode.LEANING * known.to(FLOAT)[:, None]
    for t in range(E.shape[2]):
        mean = torch.lerp(mean, standard[..., t], mode.SMOOTHING)
        lean = torch.lerp(lean, errors[:, :, t], pull[:, :, t])
        means[..., t], leans[:, :, t] = mean, lean
    levels += _level(means, there, 1 / mode.SMOOTHING, mode.LEAST[1])
    squares = leans.square_()
    wide = rows[:, None, None]
    usual = (squares * there[..., None]).sum(2) / wide
    shrunk = (wide * usual + mode.PRIOR * usual.mean(2, keepdim=True)) / (wide + mode.PRIOR)
    leaning = shrunk.clamp(min=mode.CORRELATED * mode.LEANING / (2 - mode.LEANING))
    modes.write("leaning", at, leaning)
    found = statistics(squares / leaning[:, :, None], n)
    levels += _level(found, there, mode.CORRELATED / mode.LEANING, mode.LEAST[0])
    modes.write("levels", at, torch.stack(levels, 1))


def _level(found: Any, there: Any, rows_in_mean: float, least: float) -> tuple[Any, Any]:
    """Return median and reach of statistics, (modes, 4, rows)."""
    median, high = (quantile(found, there, q) for q in (0.5, mode.QUANTILE))
    widened = mode.BEYOND * (1 + mode.FEW * rows_in_mean / there.sum(2).to(FLOAT))
    return median, (widened * (high - median)).clamp(min=least)


def unit(rows: Any, known: Any) -> tuple[Any, Any]:
    """Return centre and unit of each feature of rows, (modes, rows, features)."""
    count = known.sum(1)
    some = torch.where(known, rows, 0.0)
    mean = some.sum(1) / count.clamp(min=1)
    squares = torch.where(known, rows - mean[:, None], 0.0).square().sum(1)
    high = torch.where(known, rows, -torch.inf).amax(1)
    low = torch.where(known, rows, torch.inf).amin(1)
    centre = quantile(rows.transpose(1, 2), known.transpose(1, 2), 0.5)
    scale = torch.maximum((squares / count.clamp(min=1)).sqrt(), (high - low) / mode.RANGE)
    moves = (count > 0) & (scale > mode.STILL * centre.abs() + mode.SMALLEST_UNIT)
    return torch.where(count > 0, centre, torch.nan), torch.where(moves, scale, 0.0)


def quantile(values: Any, known: Any, q: float) -> Any:
    """Return a quantile of those values of the last axis that are known, as NumPy does."""
    count = known.sum(-1, keepdim=True).expand(*values.shape[:-1], 1)
    inside = torch.where(known, values, torch.inf).sort(-1).values
    place = q * (count - 1).clamp(min=0).to(FLOAT)
    below = place.long()
    t = place - below
    a = inside.gather(-1, below)
    b = inside.gather(-1, torch.minimum(below + 1, (count - 1).clamp(min=0)))
    return torch.where(t < 0.5, a + (b - a) * t, b - (b - a) * (1 - t))[..., 0]

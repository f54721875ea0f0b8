"""`scored`: what rows of many devices with one mode score; `onlad.judge` defines it.

Running means and leans go from row to row. In PyTorch that is a loop of some launches per row,
which take longer than what they do; on a GPU one kernel goes through the rows of each device.
"""

from __future__ import annotations

from typing import Any

import torch

from onlad.fleet.tensors.modes import Modes, statistics
from onlad.fleet.tensors.pool import FLOAT
from onlad.mode import LEANING, SMOOTHING, WINSOR


def scored(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, *, ordered: bool
) -> tuple[Any, Any, Any]:
    """Return the scores of rows, (modes, rows), and their running means and leans after the last.

    `E`, (modes, 2, rows, features), becomes usual deviations.
    """
    means, leans = means.to(FLOAT, copy=True), leans.to(FLOAT, copy=True)
    score = in_a_kernel if E.is_cuda else in_pytorch
    return score(modes, at, E, present, means, leans, ordered)


def in_a_kernel(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, ordered: bool
) -> tuple[Any, Any, Any]:
    """Do it in one launch."""
    from onlad.fleet import kernels  # noqa: PLC0415  (Triton is only there with a GPU)

    devices, _, T, n = E.shape
    scores = E.new_empty(devices, T)
    columns = modes.inverse[at], present.contiguous(), modes.levels[at], modes.leaning[at]
    block = max(2, 1 << (n - 1).bit_length())
    kernels.score_rows[devices,](
        E, *columns, means, leans, scores, T, n, block, ordered, num_warps=1
    )
    return scores, means, leans


def in_pytorch(
    modes: Modes, at: Any, E: Any, present: Any, means: Any, leans: Any, ordered: bool
) -> tuple[Any, Any, Any]:
    """Do it on a processor."""
    some, levels = present.any(2), modes.levels[at][..., None]
    highest = standard = modes.standardised(at, E, present)
    if ordered:
        weight = SMOOTHING * some.T.to(FLOAT)[..., None]
        bounded = standard.clamp(max=1.0).permute(2, 0, 1).contiguous()
        slow = torch.empty_like(bounded)
        errors, leaned = E.clamp(-WINSOR, WINSOR), torch.empty_like(E)
        pull = LEANING * present.to(FLOAT)[:, None]
        for t in range(E.shape[2]):
            means = torch.lerp(means, bounded[t], weight[t], out=slow[t])
            leans = torch.lerp(leans, errors[:, :, t], pull[:, :, t])
            leaned[:, :, t] = leans
        means = means.clone()
        slow = (slow.permute(1, 2, 0) - levels[:, 2]) / levels[:, 3]
        squares = leaned.square_().div_(modes.leaning[at][:, :, None])
        lean = (statistics(squares, modes.features) - levels[:, 4]) / levels[:, 5]
        highest = torch.maximum(torch.maximum(standard, slow), lean)
    return torch.where(some, highest.clamp(min=0.0).mean(1), 0.0), means, leans

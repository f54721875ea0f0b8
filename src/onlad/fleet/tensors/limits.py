"""`Limits`: from which scores rows are anomalies, for many devices; `onlad.limit` defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onlad import limit
from onlad.fleet.tensors.pool import FLOAT, SINGLE, Fields, Pool, tensor
from onlad.limit import LimitState
from onlad.watching import TICK

ROOM = limit.RECENT // limit.FRESH + TICK  # fresh scores; the entry after them is never read
HIGH = max(int(limit.RECENT * limit.TAIL), limit.FEWEST) + 1  # scores that the tail depends on
BITS, STEPS = 16, torch.int16  # of a root of a score, in steps
EMPTY = -(2 ** (BITS - 1))  # what stands where there is none; above it they begin, with 0
LARGEST = 2**BITS - 2
TOGETHER = 128  # devices of one program of the kernel that follows episodes
COMPARED = 2**28  # pairs of a score and a recent one that are compared at once


class Limits(Pool):
    """The limits of devices. Recent scores lie in a ring, their roots as whole steps.

    No score counts for more than the gate, which is at most half the edge if the edge is above 1.
    So roots never grow beyond those at the start, and a step can be settled there.
    """

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        return {
            "rate": ((), FLOAT, 1e-4),
            "step": ((), SINGLE, 1.0),  # a power of 2
            "recent": ((limit.RECENT,), STEPS, EMPTY),
            "head": ((), torch.int32, 0),  # where the next one goes
            "size": ((), torch.int32, 0),
            "fresh": ((ROOM + 1,), STEPS, EMPTY),
            "waiting": ((), torch.int32, 0),  # fresh ones
            "factor": ((), FLOAT, 0.0),
            "episode": ((4,), SINGLE, 0.0),
            "edge": ((), FLOAT, limit.LEAST),
            "base": ((), FLOAT, limit.LEAST),
        }

    def refresh(self, at: Any) -> None:
        """Fit the tails again."""
        steps = torch.topk(self.recent[at], HIGH).values  # the largest first
        top = self._roots(at, steps)
        n = self.size[at].long()
        wide = n.to(FLOAT)
        k = torch.minimum((limit.TAIL * wide).long().clamp(min=limit.FEWEST), n - 1)
        inside = torch.arange(HIGH, device=self.device) < k[:, None]
        u = top.gather(1, k.clamp(min=0)[:, None])
        excess = torch.where(inside, top - u, 0.0)
        b0 = excess.sum(1) / k
        b1 = (excess * torch.arange(HIGH, device=self.device)).sum(1) / k / (k - 1)
        least = torch.maximum(b0 - 2 * b1, limit.LEAST_SPREAD * b0)
        shape = (2 - b0 / least).clamp(0.0, limit.HEAVIEST)
        scale = b0 * (1 - shape)
        high = n - 1 - torch.minimum(n - 1, (limit.HIGH * wide).long())
        most = limit.FARTHEST * top.gather(1, high.clamp(min=0)[:, None])[:, 0]
        clusters = self._clusters(at, steps.gather(1, k.clamp(min=0)[:, None]))
        u = u[:, 0]
        for name, exceeding in (("edge", k), ("base", clusters)):
            ratio = self.rate[at] * wide / exceeding
            far = torch.where(shape < limit.EXPONENTIAL, -ratio.log(), (ratio**-shape - 1) / shape)
            root = torch.where((b0 <= 0) | (ratio >= 1), u, torch.minimum(u + scale * far, most))
            root = torch.where(k < 2, top[:, 0], root)
            getattr(self, name)[at] = torch.clamp(root**2, min=limit.LEAST)

    def _clusters(self, at: Any, u: Any) -> Any:
        """Return how many clusters of recent scores lie above `u`, in steps, (devices, 1)."""
        order = self.head[at].long()[:, None] + torch.arange(limit.RECENT, device=self.device)
        high = self.recent[at].gather(1, order % limit.RECENT) > u
        first = high.clone()
        for before in range(1, limit.GAP + 2):
            first[:, before:] &= ~high[:, :-before]
        return first.sum(1).clamp(min=1)

    def doubt(self, learned: Any) -> Any:
        """Return by what scores are divided when they are reported."""
        return 1 + limit.YOUNG / learned.to(FLOAT).clamp(min=1)

    def value(self, at: Any, learned: Any) -> Any:
        """Return the limits of devices that have learned this number of rows."""
        return self.base[at] * self.factor[at].exp() * self.doubt(learned)

    def lasts(self, at: Any) -> Any:
        """Return whose rows have been refused for long."""
        episode = self.episode[at]
        return (episode[:, 0] >= 0) & (episode[:, 1] >= limit.LASTING)

    def shelved(self, at: Any) -> Any:
        """Return whose alarm has lasted so long that it was reported."""
        return self.lasts(at) & (self.episode[at][:, 3] >= limit.TOLD)

    def _steps(self, at: Any, roots: Any) -> Any:
        """Return roots, (devices, rows), as they are kept."""
        steps = (roots / self.step[at][:, None]).round_().clamp_(max=LARGEST)
        return steps.add_(EMPTY + 1).to(STEPS)

    def _roots(self, at: Any, steps: Any) -> Any:
        """Return the roots that `_steps` was given."""
        return (steps.to(FLOAT) - (EMPTY + 1)) * self.step[at][:, None]

    def take(self, at: Any, scores: Any, chosen: Any, most: Any) -> None:
        """Put the chosen scores of normal rows, (devices, rows), among the recent ones."""
        roots = self._steps(at, torch.minimum(scores, most[:, None]).sqrt().float())
        waiting = self.waiting[at].long()
        place = torch.where(chosen, waiting[:, None] + chosen.cumsum(1) - 1, ROOM)
        fresh = self.fresh[at].scatter(1, place, roots)
        waiting = waiting + chosen.sum(1)
        self.fresh[at] = fresh
        self.write("waiting", at, waiting)
        due = (limit.FRESH * waiting >= self.size[at]).nonzero()[:, 0]
        if len(due):
            self._look(due + at.start if isinstance(at, slice) else at[due])

    def _look(self, at: Any) -> None:
        """Let fresh scores of devices replace their oldest."""
        order = torch.arange(ROOM, device=self.device)
        waiting, head = self.waiting[at].long(), self.head[at].long()
        new = order < waiting[:, None]
        place = (head[:, None] + order) % limit.RECENT
        ring = self.recent[at]
        old = ring.gather(1, place)
        ring.scatter_(1, place, torch.where(new, self.fresh[at][:, :ROOM], old))
        self.recent[at] = ring
        self.write("head", at, (head + waiting) % limit.RECENT)
        self.write("size", at, (self.size[at] + waiting).clamp(max=limit.RECENT))
        self.waiting[at] = 0
        self.refresh(at)

    def follow(self, at: Any, ratio: Any, refused: Any, judged: Any) -> None:
        """Let factors follow rows, (devices, rows), that were judged, in units of the limit."""
        fallen = self.factor[at] - limit.STEP * self.rate[at] * judged.sum(1)
        self.factor[at] = fallen.clamp(min=0.0)
        refused = refused & judged
        active = ((self.episode[at][:, 0] >= 0) | refused.any(1)).nonzero()[:, 0]
        if len(active) == 0:
            return
        rows = active + at.start if isinstance(at, slice) else at[active]
        columns = (each[active].T.contiguous() for each in (ratio, refused, judged))
        follow = in_a_kernel if ratio.is_cuda else in_pytorch
        episode, factor = follow(*columns, self.episode[rows], self.factor[rows])
        self.write("episode", rows, episode)
        self.factor[rows] = factor

    def p_values(self, at: Any, scores: Any) -> Any:
        """Return the shares of recent normal rows that score as high, with the row itself."""
        # Whole steps are as high as a root if they are as high as the root, rounded up.
        steps = (scores.sqrt() / self.step[at][:, None]).ceil_().clamp_(max=LARGEST + 1)
        above = counted(self.recent[at], steps.add_(EMPTY + 1).long()).to(scores.dtype)
        return (1 + above) / (1 + self.size[at])[:, None]

    def put(self, at: Any, state: LimitState, rate: float) -> None:
        """Let devices go on from a state."""
        n, waiting = len(state.recent), len(state.fresh)
        self.rate[at] = rate
        top = 2 * max(1.0, float(state.recent.max()), float(state.fresh.max(initial=0)))
        self.step[at] = 2.0 ** np.ceil(np.log2(top)) / 2**BITS
        one = at[:1] if torch.is_tensor(at) else slice(at.start, at.start + 1)
        recent, fresh = (
            self._steps(one, tensor(each, self.device, FLOAT)[None])
            for each in (state.recent, state.fresh)
        )
        self.recent[at] = EMPTY
        self.recent[at, :n] = recent
        self.head[at], self.size[at] = n % limit.RECENT, n
        self.fresh[at, :waiting] = fresh
        self.waiting[at] = waiting
        self.factor[at] = state.factor
        self.write("episode", at, tensor(state.episode, self.device))
        self.refresh(at)

    def learned(self, at: int) -> LimitState:
        """Return what the limit of one device comes from."""
        n, head, waiting = (int(each[at]) for each in (self.size, self.head, self.waiting))
        ring, fresh = (
            self._roots(slice(at, at + 1), each[at])[0].cpu().numpy().astype("float32")
            for each in (self.recent, self.fresh)
        )
        order = [*range(head, limit.RECENT), *range(head)] if n == limit.RECENT else [*range(n)]
        return LimitState(
            ring[order],
            fresh[:waiting],
            float(self.factor[at]),
            self.array("episode", at),
        )


def in_a_kernel(*given: Any) -> tuple[Any, Any]:
    """Return what `in_pytorch` returns, by one launch."""
    from onlad.fleet.tensors import kernels  # noqa: PLC0415  (Triton is only there with a GPU)

    ratio, refused, judged, episode, factor = given
    episode, factor = episode.to(FLOAT, copy=True), factor.clone()
    T, devices = ratio.shape
    programs = -(-devices // TOGETHER)
    kernels.follow[programs,](ratio, refused, judged, episode, factor, devices, T, TOGETHER)
    return episode, factor


def in_pytorch(*given: Any) -> tuple[Any, Any]:
    """Return episodes, (devices, 4), and factors after rows, (rows, devices)."""
    ratio, refused, judged, episode, factor = given
    since, length, peak, alarms = episode.unbind(1)
    for value, unusual, counts in zip(ratio, refused, judged, strict=True):
        length = length + unusual
        peak = torch.where(unusual, torch.maximum(peak, value), peak)
        alarms = alarms + (unusual & (value > 1))
        going = (since >= 0) & counts & ~unusual
        since = torch.where(unusual, 0.0, since + going)
        over = going & (since > limit.GAP)
        weak = limit.WEAK + (limit.STRONG - limit.WEAK) * (length < limit.SHORT)
        raised = over & (peak > 1) & (peak < weak)
        factor = torch.where(raised, (factor + limit.STEP).clamp(max=limit.HIGHEST), factor)
        since = torch.where(over, -1.0, since)
        length, peak, alarms = (torch.where(over, 0.0, x) for x in (length, peak, alarms))
    return torch.stack((since, length, peak, alarms), 1), factor


def counted(recent: Any, scores: Any) -> Any:
    """Return, for each of the scores (devices, rows), how many of the recent ones are as high.

    On a GPU one kernel reads the recent scores of a device once. PyTorch would write each
    comparison to memory, which takes half of the time of all that a monitor does.
    """
    found = torch.empty(scores.shape, dtype=torch.int32, device=scores.device)
    if scores.is_cuda:
        from onlad.fleet.tensors import kernels  # noqa: PLC0415  (Triton is only there with a GPU)

        scores = scores.contiguous()
        kernels.count_at_least[len(scores),](recent, scores, found, scores.shape[1], limit.RECENT)
        return found
    some = max(1, COMPARED // (scores.shape[1] * limit.RECENT))
    for first in range(0, len(scores), some):
        part = slice(first, first + some)
        found[part] = (recent[part, None, :] >= scores[part, :, None]).sum(2, dtype=torch.int32)
    return found

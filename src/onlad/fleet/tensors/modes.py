"""`Modes`: what was learned of many modes; `onlad.mode` and `onlad.instance` define it.

Instead of the sums, what is solved from them is kept: the Cholesky root L of gram + ridge, and
beta, which is (L L')^-1 times the moment. So the sums follow from what is kept. Rounding cannot
make them indefinite: it changes each singular value of L by a share of the largest, so that a
small eigenvalue of L L' keeps half as many digits more than it would in a gram.

Arrays, for S modes of n features and windows of `width` rows, d = n width inputs, G groups of
HIDDEN tanh units that predict k = n / G features each (rounded up; the rest is 0), and M units of
the second instance. A triangle of N rows has N (N + 1) / 2 entries, row by row:

============  =====================  ==============================================
root          (S, G, triangle, 3)    L of the tanh units in units of `size`
size          (S, G)                 powers of 2
beta          (S, G, HIDDEN, k)      feature g + G i is entry i of group g
linear_root   (S, 1, triangle, 3)    L of the linear or projected instance
============  =====================  ==============================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onlad import mode
from onlad.fleet.tensors import pool
from onlad.fleet.tensors.anchors import Anchors
from onlad.fleet.tensors.pool import FLOAT, SINGLE, Fields, Pool, halved, tensor
from onlad.instance import CONSTANT, HIDDEN, LEAST_REST, RIDGE
from onlad.mode import Mode, ModeState, packed, unpacked

ARRAYS = ("centre", "scale", "usual", "largest", "band", "leaning", "levels")  # as `ModeState` has


class Modes(Pool):
    """Modes of one shape, each with its anchor."""

    def __init__(self, features: int, width: int, seed: int, count: int, device: str) -> None:
        self.features, self.width = features, width
        tanh, linear = Mode(features, width, True, seed).instances
        self.groups, self.units = len(tanh.gram), len(linear.b)
        self.each = -(-features // self.groups)
        self.projected = linear.kind == "projected"
        self._below, self._linear_below = (
            torch.tensor(np.flatnonzero(np.tri(size)), device=device)
            for size in (HIDDEN, self.units)
        )
        self.make(count, device)
        alpha = tanh.alpha.reshape(features, self.groups, HIDDEN).swapaxes(0, 1)
        self._alpha = tensor(np.ascontiguousarray(alpha), device)
        self._b = tensor(tanh.b.reshape(self.groups, HIDDEN), device)
        self.projection = tensor(linear.alpha[:, :-1], device) if self.projected else None
        ridge = np.append(np.full(self.units - 1, RIDGE), CONSTANT)
        self._ridge = tensor(np.diag(ridge), device)
        self._tanh_ridge = tensor(np.diag(np.full(HIDDEN, RIDGE)), device)
        self.anchors = Anchors(features, self.units)
        self.anchors.make(count, device)

    def fields(self) -> Fields:
        """Return shape, type and first value of each tensor, by its name."""
        n, G, M = self.features, self.groups, self.units
        shapes = {
            "size": (G,),
            "linear_size": (1,),
            "beta": (G, HIDDEN, self.each),
            "linear_beta": (M, n),
            "usual": (2, n),
            "largest": (2, n),
            "band": (n,),
            "leaning": (2, n),
            "levels": (6, mode.STATISTICS),
            "weight": (),
            "inverse": (2, n),  # root of one over each usual square
        }
        fields = {name: (shape, SINGLE, 0.0) for name, shape in shapes.items()}
        return fields | {
            "root": ((G, len(self._below), 3), torch.uint8, 0),
            "linear_root": ((1, len(self._linear_below), 3), torch.uint8, 0),
            "centre": ((n,), FLOAT, 0.0),
            "scale": ((n,), FLOAT, 0.0),
            "count": ((), torch.int32, 0),
        }

    def grow(self, count: int) -> None:
        """Add modes at the end."""
        super().grow(count)
        self.anchors.grow(count)

    def copy(self, to: Any, source: Pool, at: Any) -> None:
        """Copy modes and their anchors."""
        assert isinstance(source, Modes)
        super().copy(to, source, at)
        self.anchors.copy(to, source.anchors, at)

    def nbytes(self) -> int:
        """Return the bytes of all tensors."""
        return super().nbytes() + self.anchors.nbytes()

    # -- from raw rows to statistics ----------------------------------------------------------

    def scaled(self, at: Any, rows: Any) -> Any:
        """Return raw rows, (modes, rows, features), in units of their modes."""
        scale = self.scale[at]
        scale = torch.where(scale > 0, scale, torch.inf)[:, None]
        Z = (rows - self.centre[at][:, None]).div_(scale)
        most = mode.CLIP
        return torch.nan_to_num_(Z, nan=0.0, posinf=most, neginf=-most).clamp_(-most, most)

    def hidden(self, Z: Any, alone: Any) -> tuple[Any, Any]:
        """Return the tanh units, (groups * modes, rows, HIDDEN), and the inputs of the other.

        `Z` has the `width` - 1 rows before the first, (modes, width - 1 + rows, features). A row
        that is `alone`, (modes, rows), stands in for those before it; None: no row is.
        """
        before = self.width - 1
        rows = Z.shape[1] - before
        lags = [Z[:, before - lag : before - lag + rows] for lag in range(self.width)]
        if before and alone is not None:
            lags = [torch.where(alone[..., None], lags[0], each) for each in lags]
        return self.layers(Z[:, before:], torch.cat(lags, 2) if before else Z)

    def layers(self, X: Any, V: Any) -> tuple[Any, Any]:
        """Return the units of scaled rows `X`, (modes, rows, features), and windows `V`."""
        modes, rows, n = X.shape
        X = X.reshape(modes * rows, n)
        H = X.new_empty(self.groups, modes * rows, HIDDEN)
        for k in range(self.groups):
            torch.addmm(self._b[k], X, self._alpha[k], out=H[k])
        H.tanh_()
        U = V if self.projection is None else V @ self.projection
        return H.view(self.groups * modes, rows, HIDDEN), U

    def errors(self, at: Any, Z: Any, H: Any, U: Any) -> Any:
        """Return the errors of both instances, (modes, 2, rows, features)."""
        beta = self.beta[at].to(FLOAT), self.linear_beta[at].to(FLOAT)
        return self.left(Z[:, self.width - 1 :], H, U, *beta)

    def left(self, X: Any, H: Any, U: Any, beta: Any, linear_beta: Any) -> Any:
        """Return what is left of scaled rows when their predictions are taken off."""
        modes, rows, n = X.shape
        beta = beta.transpose(0, 1).reshape(self.groups * modes, HIDDEN, self.each)
        made = torch.bmm(H, beta).view(self.groups, modes, -1, self.each)
        made = made.permute(1, 2, 3, 0).flatten(2)[..., :n]
        E = X.new_empty(modes, 2, rows, n)
        torch.sub(X, made, out=E[:, 0])
        made = torch.baddbmm(linear_beta[:, -1:], U, linear_beta[:, :-1])
        torch.sub(X, made, out=E[:, 1])
        return E

    def standardised(self, at: Any, E: Any, present: Any) -> Any:
        """Turn errors into usual deviations; return standardised statistics, (modes, 4, rows)."""
        E.mul_(self.inverse[at][:, :, None])
        E.mul_(present[:, None])
        levels = self.levels[at]
        found = statistics(E**2, present.sum(2).clamp(min=1)[:, None])
        return found.sub_(levels[:, 0, :, None]).div_(levels[:, 1, :, None])

    def fits(self, at: Any, rows: Any, present: Any, alone: Any) -> Any:
        """Return the scores of rows without order, (modes, rows)."""
        Z = self.scaled(at, rows)
        E = self.errors(at, Z, *self.hidden(Z, alone))
        return self.standardised(at, E, present).clamp(min=0.0).mean(1)

    def wake(self, at: Any, x: Any) -> None:
        """Give features that never moved their unit, at their first move; NaN is no move."""
        centre, scale = self.centre[at], self.scale[at]
        asleep = ~(scale > 0) & ~x.isnan()
        centre = torch.where(asleep & centre.isnan(), x, centre)
        moved = (x - centre).abs()
        moves = asleep & (moved > mode.STILL * centre.abs() + mode.SMALLEST_UNIT)
        self.centre[at], self.scale[at] = centre, torch.where(moves, moved, scale)

    # -- learning -----------------------------------------------------------------------------

    def learn(self, at: Any, rows: Any, present: Any, alone: Any, chosen: Any) -> None:
        """Learn the chosen rows, (modes, rows), and forget as much of the past."""
        Z = self.scaled(at, rows)
        H, U = self.hidden(Z, alone)
        E = self.errors(at, Z, H, U)
        count = chosen.sum(1)
        forgotten = torch.pow(mode.FORGETTING, 2 * count.to(FLOAT))
        added = self.sums(Z[:, self.width - 1 :], H, U, chosen)
        for old, new in zip(self.past(at), added, strict=True):
            new.add_(old.mul_(forgotten.view(-1, *[1] * (old.ndim - 1))))
        self.solve(at, added)
        known = present & chosen[..., None]
        self.take(at, E, known, count)
        self.widen(at, E[:, 1], known, count > 0)
        self.write("count", at, self.count[at] + count)
        self.settle(at)

    def sums(self, X: Any, H: Any, U: Any, chosen: Any) -> list[Any]:
        """Return gram and moment of both instances; the tanh units of rows not chosen become 0.

        A linear instance has no moment: it is part of the gram.
        """
        modes, weight = len(X), chosen.to(FLOAT)[..., None]
        by_group = H.view(self.groups, modes, -1, HIDDEN).mul_(weight)
        gram = torch.bmm(H.transpose(1, 2), H).view(self.groups, modes, HIDDEN, HIDDEN)
        wide = torch.nn.functional.pad(X, (0, self.groups * self.each - self.features))
        parts = wide.unflatten(2, (self.each, self.groups)).permute(3, 0, 1, 2)
        moment = by_group.transpose(2, 3) @ parts
        U = torch.cat((U * weight, weight), 2).transpose(1, 2)
        sums = [gram.transpose(0, 1), moment.transpose(0, 1), torch.bmm(U, U.mT)]
        return [*sums, torch.bmm(U, X)] if self.projected else sums

    def past(self, at: Any) -> list[Any]:
        """Return the sums that the roots and beta of modes stand for, as `sums` does."""
        L, linear = self.roots(at)
        sums = [L @ L.mT, L @ (L.mT @ self.beta[at].to(FLOAT)), linear @ linear.mT]
        if self.projected:
            sums.append(linear @ (linear.mT @ self.linear_beta[at].to(FLOAT)))
        sums[0] -= self._tanh_ridge
        sums[2] -= self._ridge
        return sums

    def roots(self, at: Any) -> tuple[Any, Any]:
        """Return the roots of gram + ridge of both instances."""
        found = []
        for name, below, N in self._triangles():
            entries = pool.of_three_bytes(getattr(self, f"{name}root")[at])
            entries.mul_(getattr(self, f"{name}size")[at][..., None])
            L = entries.new_zeros(*entries.shape[:-1], N * N)
            found.append(L.index_copy_(-1, below, entries).unflatten(-1, (N, N)))
        return found[0], found[1][:, 0]

    def _triangles(self) -> list[tuple[str, Any, int]]:
        """Return of both instances: how names of fields begin, places of a triangle, units."""
        return [("", self._below, HIDDEN), ("linear_", self._linear_below, self.units)]

    def take(self, at: Any, E: Any, known: Any, count: Any) -> None:
        """Let the usual squares follow errors of the rows that are known, `count` of them."""
        squares = E.square().mul_(known[:, None])
        weight, usual, largest = self.weight[at], self.usual[at], self.largest[at]
        asleep = (~(self.scale[at] > 0)).to(FLOAT)[:, None]
        first = (weight == 0) & (count > 0)
        largest = torch.where(first[:, None, None], asleep, largest)
        self.write("largest", at, torch.maximum(largest, squares.amax(2)))
        seen = known.sum(1)[:, None]
        total = (weight[:, None, None] + seen).clamp(min=1)
        mean = (weight[:, None, None] * usual + squares.sum(2)) / total
        self.write("usual", at, torch.where(seen > 0, mean, usual))
        self.write("weight", at, (weight + count).clamp(max=mode.MEMORY))

    def widen(self, at: Any, errors: Any, known: Any, moves: Any) -> None:
        """Let the bands of some modes follow errors of their predictions that are known."""
        band = self.band[at]
        outside = ((errors.abs() > band[:, None]) & known).sum(1)
        within = (1 - mode.COVERED) * known.sum(1).to(FLOAT)
        grown = band * torch.exp(mode.WIDENING * (outside - within))
        least = mode.NARROWEST * self.usual[at][:, 1].sqrt()
        grown = torch.maximum(grown, least).clamp(max=mode.CLIP)
        self.write("band", at, torch.where(moves[:, None], grown, band))

    def solve(self, at: Any, sums: list[Any]) -> None:
        """Keep the roots of sums, and beta."""
        (L, beta), (linear, linear_beta) = self.solution(*sums)
        self.write("beta", at, beta)
        self.write("linear_beta", at, linear_beta)
        for (name, below, _), root in zip(self._triangles(), (L, linear[:, None]), strict=True):
            size = root.square().sum(-1).amax(-1).sqrt().log2().ceil().exp2()  # of the longest row
            self.write(f"{name}size", at, size)
            kept = pool.three_bytes(root.flatten(-2)[..., below].div_(size[..., None]))
            self.write(f"{name}root", at, kept)

    def solution(
        self, gram: Any, moment: Any, linear_gram: Any, linear_moment: Any = None
    ) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Return what sums say root and beta are, of both instances."""
        tanh, n = solved(gram + self._tanh_ridge, moment), self.features
        if self.projected:
            return tanh, solved(linear_gram + self._ridge, linear_moment)
        root, linear = solved(linear_gram + self._ridge, linear_gram[:, :, :n])
        own = linear.diagonal(dim1=1, dim2=2)
        rest = (1.0 - own).clamp(min=LEAST_REST)
        own.zero_()
        return tanh, (root, linear / rest[:, None])

    def settle(self, at: Any) -> None:
        """Compute the inverse of the usual squares, and give modes that are due an anchor."""
        usual, weight = self.usual[at], self.weight[at][:, None, None]
        least = usual.mean(2, keepdim=True).clamp(min=mode.PRIOR_SQUARE)
        mixed = (weight * usual + mode.PRIOR * least) / (weight + mode.PRIOR)
        self.write("inverse", at, torch.maximum(mixed, self.largest[at] / mode.OFTEN).rsqrt())

    def anchor(self, at: Any) -> None:
        """Give modes an anchor."""
        own = self.anchors
        own.there[at] = True
        own.beta[at] = halved(self.linear_beta[at])
        own.centre[at], own.scale[at] = self.centre[at], self.scale[at]
        own.deviation[at] = 1 / self.inverse[at][:, 1]
        own.lean[at], own.halves[at], own.rows[at] = 0.0, 0.0, 0

    # -- values in and out --------------------------------------------------------------------

    def put(self, at: Any, state: ModeState) -> None:
        """Let modes go on from a state. `at` has at least one."""
        for name in ARRAYS:
            self.write(name, at, tensor(getattr(state, name), self.device))
        self.weight[at], self.count[at] = state.weight, state.count
        sums = [unpacked(state.gram), self._grouped(state.moment)]
        sums += [unpacked(state.linear_gram[None])[0]] + [state.linear_moment] * self.projected
        one = at[:1] if torch.is_tensor(at) else slice(at.start, at.start + 1)
        self.solve(one, [tensor(each, self.device)[None] for each in sums])
        self.settle(one)
        solved_from_sums = ("root", "size", "beta", "linear_root", "linear_size", "linear_beta")
        for name in (*solved_from_sums, "inverse"):
            getattr(self, name)[at] = getattr(self, name)[one].clone()

    def learned(self, at: int) -> ModeState:
        """Return all that was learned of one mode."""
        gram, moment, linear_gram, *rest = (
            each[0].cpu().numpy() for each in self.past(slice(at, at + 1))
        )
        moment = moment.transpose(1, 2, 0).reshape(HIDDEN, -1)[:, : self.features]
        return ModeState(
            gram=packed(gram), linear_gram=packed(linear_gram[None])[0], moment=moment.copy(),
            linear_moment=rest[0] if rest else np.empty(0), weight=float(self.weight[at]),
            count=int(self.count[at]),
            **{name: self.array(name, at) for name in ARRAYS},
        )  # fmt: skip

    def _grouped(self, moment: Any) -> Any:
        """Return a moment, (HIDDEN, features), by group."""
        wide = np.zeros((HIDDEN, self.groups * self.each))
        wide[:, : self.features] = moment
        parts = wide.reshape(HIDDEN, self.each, self.groups).transpose(2, 0, 1)
        return np.ascontiguousarray(parts)


def statistics(squares: Any, count: Any) -> Any:
    """Return the four statistics, (modes, 4, rows), of squares of `count` features."""
    return torch.cat((squares.sum(3) / count, squares.amax(3)), 1)


def solved(gram: Any, moment: Any) -> tuple[Any, Any]:
    """Return the roots of positive definite matrices, and the solutions of their systems."""
    L, _ = torch.linalg.cholesky_ex(gram)
    half = torch.linalg.solve_triangular(L, moment, upper=False)
    return L, torch.linalg.solve_triangular(L.mT, half, upper=True)

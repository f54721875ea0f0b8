"""The bank on a GPU: the memory of the models, and the launches of `onlad.fleet.kernels`.

With TRITON_INTERPRET=1 in the environment the same kernels run on the processor, slowly. That is
how they are tested where there is no GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from onlad import kernel
from onlad.fleet import kernels
from onlad.fleet.models import Engine, Layer, Models, refuse
from onlad.reference import LEAST_LEVERAGE

INTERPRETED = not isinstance(kernels.step, triton.runtime.JITFunction)
LARGEST_HIDDEN = 128  # S of one model must fit in the registers of one program
SAMPLES = 128  # of each model that one round of `many` takes
ROWS = 128  # whose hidden units one program computes
CHUNK = 32  # rows whose errors are solved for at once
SCRATCH = 2**31  # bytes that a round may use besides the models
TILE_BYTES = 2**15  # of beta that a program holds
LARGEST = {torch.float32: kernel.LARGEST["float32"], torch.float64: kernel.LARGEST["float64"]}
OPTIONS = {"enable_fp_fusion": True}  # a * b + c may be rounded once, whatever Triton's default


def device() -> str:
    """Return where the tensors go, or raise an error that says why there is no such place."""
    if INTERPRETED:
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no NVIDIA GPU")
    return "cuda"


def _power(count: int) -> int:
    return max(16, int(triton.next_power_of_2(count)))


def _up(count: int, unit: int) -> int:
    return -(-count // unit)


def _tensor(array: Any) -> Any:
    """Return an array as a tensor; one that may not be written to is copied, or PyTorch warns."""
    writable = torch.is_tensor(array) or array.flags.writeable
    return torch.as_tensor(array if writable else array.copy())


class CudaEngine(Engine):
    """Models of one shape in the memory of a GPU."""

    def __init__(self, layer: Layer, count: int) -> None:
        n, N = layer.alpha.shape
        if N > LARGEST_HIDDEN:
            raise ValueError(f"a bank on a GPU has at most {LARGEST_HIDDEN} hidden units, got {N}")
        super().__init__(layer)
        self.device = device()
        self._alpha, self._b = (
            torch.as_tensor(part).to(self.device) for part in (layer.alpha, layer.b)
        )
        self.dtype = self._alpha.dtype
        zeros = self._zeros
        self._models = Models(
            zeros(count, n, N),
            zeros(count, N, N),
            zeros(count, 5, dtype=torch.float64),
            zeros(count, 3, dtype=torch.int64),
        )
        # Tensor cores in float32: three products of the halves of each number, which is as good.
        self._precision = "tf32x3" if self.dtype == torch.float32 else "ieee"
        self._block = _power(N)
        fits = TILE_BYTES // self._alpha.element_size() // self._block
        self._tile, self._step_tile = min(fits, _power(n)), min(max(1, fits // 2), _power(n))
        self._size = self._tile * self._block  # of the tile of beta that a program holds
        self._shape = {"n": n, "N": N, "BLOCK": self._block}
        self._bends = layer.activation in ("sigmoid", "tanh")
        self._absolute = layer.loss == "absolute"

    def own(self, array: Any) -> Any:
        """Return an array as a tensor on the device."""
        return _tensor(array).to(self.device)

    def array(self, own: Any) -> Any:
        """Return a copy of a tensor, as a NumPy array."""
        return own.cpu().numpy().copy()

    def samples(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Return samples and mask as tensors on the device."""
        X = _tensor(X).to(self.device, self.dtype).contiguous()
        if mask is None:
            mask = torch.ones(X.shape[:-1], dtype=torch.bool, device=self.device)
        mask = self.own(mask).contiguous()
        low, high = torch.stack(X.aminmax()).tolist()  # one pass, which NaN goes through
        largest = LARGEST[self.dtype]
        if not (-largest <= low and high <= largest):
            bad = mask & ~(X.abs().amax(-1) <= largest)
            if bad.any():  # or there is no sample where they stand
                refuse(bad.any(-1).nonzero()[:, 0].tolist())
        return X, mask.view(torch.uint8)

    def combine(self, losses: Any, leverages: Any, score: str) -> Any:
        """Return the scores, as `onlad.reference.combine` does."""
        if score == "combined":
            return losses * (leverages + LEAST_LEVERAGE).sqrt()
        return losses if score == "reconstruction" else leverages

    def step(self, X: Any, mask: Any, learn: bool) -> tuple[Any, Any]:
        """Score the samples one by one, and learn each if so: one launch per sample."""
        if X.shape[1] > 1:
            each = [self.step(X[:, [t]], mask[:, [t]], learn) for t in range(X.shape[1])]
            return torch.cat([loss for loss, _ in each], 1), torch.cat([le for _, le in each], 1)
        M = len(X)
        losses, leverages = (self._empty(M, 1, dtype=torch.float64) for _ in range(2))
        kernels.step[(M,)](
            X, self._alpha, self._b, *self._models, mask, losses, leverages,
            TILE=self._step_tile, LEARN=learn, num_warps=min(8, max(1, self._block**2 // 1024)),
            BENDS=self._bends, ABSOLUTE=self._absolute, ACTIVATION=self.layer.activation,
            **self._shape, **OPTIONS,
        )  # fmt: skip
        return losses, leverages

    def many(self, X: Any, mask: Any) -> tuple[Any, Any]:
        """Score and learn many samples per model, in rounds that fit the scratch memory."""
        M, T, n = X.shape
        leverages = self._nan(M, T)
        sums = self._nan(M, T, _up(n, self._tile), dtype=self.dtype)
        rows = _up(2 * min(T, SAMPLES), CHUNK) * CHUNK
        a_model = rows * (2 * self.layer.n_hidden + CHUNK + 1) * X.element_size()
        models = max(1, SCRATCH // a_model)
        for first in range(0, M, models):
            some = slice(first, first + models)
            for begin in range(0, T, SAMPLES):
                part = (some, slice(begin, begin + SAMPLES))
                own = Models(*(mine[some] for mine in self._models))
                self._round(own, X[part], mask[part], sums[part], leverages[part])
        return sums.sum(-1, dtype=torch.float64) / n, leverages

    def _round(self, own: Models, X: Any, mask: Any, sums: Any, leverages: Any) -> None:
        """Learn the roots, then solve for the errors chunk by chunk, and teach them to beta."""
        M, T, n = X.shape
        pitch = X.stride(0) // n  # samples from one model to the next: X is a part of a whole
        chunks = _up(2 * T, CHUNK)
        room = chunks * CHUNK
        H, gains = self._empty(M, room, self._shape["N"]), self._empty(M, room, self._shape["N"])
        inverse = self._empty(M, chunks, CHUNK, CHUNK)
        order, n_rows = (self._empty(*size, dtype=torch.int32) for size in ((M, room), (M,)))
        layer = {"N": self._shape["N"], "BLOCK": self._block}
        self._hidden(X, H, pitch, room)
        kernels.learn_roots[(M,)](
            H, own.S, own.numbers, own.counts, mask, gains, order, n_rows, leverages,
            T, pitch, room, **layer, BENDS=self._bends,
            num_warps=1 if self._block <= 64 else 8, **OPTIONS,
        )  # fmt: skip
        kernels.invert[(M, chunks)](
            H, gains, order, n_rows, inverse, T, room, **layer, CHUNK=CHUNK, num_warps=1, **OPTIONS
        )
        kernels.teach[(M, sums.shape[-1])](
            X, H, gains, inverse, order, n_rows, own.beta, sums, T, pitch, room,
            CHUNK=CHUNK, TILE=self._tile, ABSOLUTE=self._absolute, PRECISION=self._precision,
            num_warps=min(8, max(1, self._size // 1024)),
            num_stages=1,  # registers are worth more here than early loads
            **self._shape, **OPTIONS,
        )  # fmt: skip

    def _hidden(self, X: Any, H: Any, pitch: int, room: int) -> None:
        rows = len(X) * X.shape[1]
        kernels.hidden[(_up(rows, ROWS),)](
            X, self._alpha, self._b, H, rows, X.shape[1], pitch, room, ROWS=ROWS, DEPTH=32,
            ACTIVATION=self.layer.activation, PRECISION=self._precision, num_warps=4,
            **self._shape, **OPTIONS,
        )  # fmt: skip

    def _zeros(self, *shape: int, dtype: Any = None) -> Any:
        return torch.zeros(shape, dtype=dtype or self.dtype, device=self.device)

    def _empty(self, *shape: int, dtype: Any = None) -> Any:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)

    def _nan(self, *shape: int, dtype: Any = torch.float64) -> Any:
        return torch.full(shape, torch.nan, dtype=dtype, device=self.device)

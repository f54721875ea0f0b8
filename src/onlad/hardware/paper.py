"""The paper's numbers of its core, for comparison with ours (tb:resource, eq:train_iter, ...)."""

from __future__ import annotations

_BRAM = {
    16: (10.0, 12.9, 18.6, 30.0),
    32: (13.6, 19.3, 30.7, 53.6),
    64: (24.3, 35.7, 58.6, 104.2),
}
_FF = {16: (16.0, 16.1, 16.1, 16.1), 32: (16.0,) * 4, 64: (15.9, 15.9, 16.0, 16.0)}
_LUT = {16: (29.9, 30.0, 30.0, 30.0), 32: (29.9, 30.0, 30.0, 30.0), 64: (30.0, 30.0, 30.0, 30.1)}

FEATURES, HIDDEN = (128, 256, 512, 1024), (16, 32, 64)
SIZES = tuple((n, N) for N in HIDDEN for n in FEATURES)

#: Per cent of an xc7z020 by (n, N): tb:resource, Vivado HLS before synthesis, 2 arithmetic units.
AREA = {
    (n, N): {"BRAM": _BRAM[N][k], "DSP": 40.0, "FF": _FF[N][k], "LUT": _LUT[N][k]}
    for N in HIDDEN
    for k, n in enumerate(FEATURES)
}


def elements(n: int, N: int) -> dict[str, int]:
    """Return the matrix elements that the paper's modules hold, S_* by module.

    Their sum is less than the S_onlad that the paper prints (eq:onlad_space has 5 N^2 + 5 n N where
    its own parts add up to 3 N^2 + 2 n N); both are given.
    """
    parts = {
        "parameter": N**2 + (2 * n + 1) * N,
        "input": n,
        "train": 2 * N**2 + 4 * N + 2 * n + 1,
        "predict": N + n,
    }
    return parts | {"sum": sum(parts.values()), "onlad": 5 * N**2 + (5 * n + 4) * N + 2 * n + 1}

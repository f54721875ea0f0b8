# mypy: ignore-errors
# Triton compiles these functions: it reads annotations as its own, so arguments have none.
"""The bank's arithmetic on a GPU, in Triton. `onlad.fleet.cuda` calls it.

The symbols are those of `onlad.reference`, the order of the steps that of ``cpp/oselm.hpp``, the
guards included. A program works on one model (or on a tile of its features) and keeps what it
reads on the chip until it writes it back: beta and S move through memory once in and once out.

Arrays, for M models of n features and N hidden units. A launch takes T of the `pitch` samples that
lie in memory for each model, and holds R >= 2 T rows:

=========  ===============  ========================================================================
beta       (M, n, N)        output weights, transposed: one feature per row
S          (M, N, N)        root of P
numbers    (M, 5) float64   trace of P, the same at the start, shrink, weight, forgetting factor
counts     (M, 3) int64     seen, skipped, paused
X          (M, pitch, n)    samples
mask       (M, pitch) uint8 1 where a sample is there
H          (M, R, N)        hidden activations; from row T on, those of restored ridges
order      (M, R) int32     which row of H is learned first, second, ...
gains      (M, R, N)        what each of them taught, in that order
inverse    (M, R / C, C, C) (I + A)^-1 of each chunk of C rows: see ``onlad.block``
=========  ===============  ========================================================================
"""

from __future__ import annotations

import triton
import triton.language as tl

from onlad import reference

LARGEST_LEVERAGE = tl.constexpr(reference.LARGEST_LEVERAGE)
TRACE_INTERVAL = tl.constexpr(reference.TRACE_INTERVAL)
WOUND_UP = tl.constexpr(reference.WOUND_UP)
OLDEST = tl.constexpr(float(reference.OLDEST))
LEAST_GROWTH = tl.constexpr(reference.LEAST_GROWTH)


@triton.jit
def _activate(z, ACTIVATION: tl.constexpr):
    bounded = tl.minimum(tl.maximum(z, -40.0), 40.0)  # beyond, G moves by less than 1e-17
    if ACTIVATION == "sigmoid":
        z = 1 / (1 + tl.exp(-bounded))
    elif ACTIVATION == "tanh":
        z = 1 - 2 / (1 + tl.exp(2 * bounded))
    elif ACTIVATION == "relu":
        z = tl.where(z > 0, z, 0.0)
    return z


@triton.jit
def hidden(
    X, alpha, b, H, rows, T, pitch, room,
    n: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    DEPTH: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """H = G(X alpha + b) of all samples of all models: they share alpha and b."""
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, BLOCK)
    dtype = H.dtype.element_ty
    at = (r // T) * pitch + r % T
    z = tl.zeros((ROWS, BLOCK), dtype)
    for first in range(0, n, DEPTH):
        j = first + tl.arange(0, DEPTH)
        both = (r < rows)[:, None] & (j < n)[None, :]
        x = tl.load(X + at[:, None] * n + j[None, :], both, 0.0)
        w = tl.load(alpha + j[:, None] * N + i[None, :], (j < n)[:, None] & (i < N)[None, :], 0.0)
        z = tl.dot(x, w, z, input_precision=PRECISION, out_dtype=dtype)
    z += tl.load(b + i, i < N, 0.0)[None, :]
    to = (r // T) * room + r % T
    both = (r < rows)[:, None] & (i < N)[None, :]
    tl.store(H + to[:, None] * N + i[None, :], _activate(z, ACTIVATION), both)


@triton.jit
def _limit(start, a, N: tl.constexpr, BENDS: tl.constexpr):
    """Return the trace above which P is wound up: trace_limit of onlad.reference."""
    growth = tl.exp(tl.log(a) * (OLDEST * N)) if BENDS else a * 0 + 1
    return start * WOUND_UP / tl.maximum(growth, LEAST_GROWTH)


@triton.jit
def _learn(S, f, squared, a, learned):
    """Potter's step on S with f = S'h, and the gain; without effect if nothing is learned."""
    f = tl.where(learned, f, 0.0)
    g = tl.sum(S * f[None, :], 1)
    scaled = tl.where(learned, a * a + squared, 1.0)
    inverse_a = tl.where(learned, 1 / a, 1.0)
    c = g * (inverse_a / (scaled + a * tl.sqrt(scaled)))
    # What becomes of the trace: P <- (P - g g'/d') / a^2.
    less = tl.sum(g * g, 0) / scaled
    return S * inverse_a - c[:, None] * f[None, :], g / scaled, less


@triton.jit
def _restore(S, trace_start, BLOCK: tl.constexpr, N: tl.constexpr):
    """Put the ridge back for the unit k where P is largest, as a sample e_k weight with x = 0."""
    i = tl.arange(0, BLOCK)
    k = tl.argmax(tl.sum(S * S, 1), 0)
    weight = tl.sqrt(N / trace_start).to(S.dtype)
    f = weight * tl.sum(tl.where((i == k)[:, None], S, 0.0), 0)
    squared = tl.sum(f * f, 0)
    one = squared * 0 + 1
    S, gain, _ = _learn(S, f, squared, one, squared >= 0)
    return S, gain, k, weight


@triton.jit
def step(
    X, alpha, b, beta, S, numbers, counts, mask, losses, leverages,
    n: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    ACTIVATION: tl.constexpr, BENDS: tl.constexpr, LEARN: tl.constexpr, ABSOLUTE: tl.constexpr,
):  # fmt: skip
    """Score one sample of one model, then learn it if LEARN."""
    model = tl.program_id(0).to(tl.int64)
    if tl.load(mask + model) == 0:
        tl.store(losses + model, float("nan"))
        tl.store(leverages + model, float("nan"))
        return
    dtype = S.dtype.element_ty
    i = tl.arange(0, BLOCK)
    real = i < N
    number, count = numbers + model * 5, counts + model * 3
    S_at = S + model * N * N + i[:, None] * N + i[None, :]
    square = real[:, None] & real[None, :]
    root = tl.load(S_at, square, 0.0)
    z = tl.zeros((TILE, BLOCK), dtype)
    for first in range(0, n, TILE):  # alpha is every model's: it comes from the cache
        j = first + tl.arange(0, TILE)
        both = (j < n)[:, None] & real[None, :]
        w = tl.load(alpha + j[:, None] * N + i[None, :], both, 0.0, eviction_policy="evict_last")
        z += tl.load(X + model * n + j, j < n, 0.0)[:, None] * w
    z = tl.sum(z, 0) + tl.load(b + i, real, 0.0)
    h = tl.where(real, _activate(z, ACTIVATION), 0.0)
    trace, start, usual = tl.load(number), tl.load(number + 1), tl.load(number + 4)
    limit = _limit(start, usual, N, BENDS)
    held = trace > limit
    factor = tl.where(held, 1.0, usual)
    a = factor.to(dtype)
    f = tl.sum(root * h[:, None], 0)
    squared = tl.sum(f * f, 0)
    tl.store(leverages + model, squared / (factor * factor))

    gain = h * 0
    again, k, weight = h * 0, 0, squared * 0  # of a restored ridge
    if LEARN:
        learned = squared < LARGEST_LEVERAGE  # also catches NaN
        root, gain, less = _learn(root, f, squared, a, learned)
        if learned:
            seen = tl.load(count) + 1
            trace = (trace - less) / (factor * factor)
            if seen % TRACE_INTERVAL == 0:
                trace = tl.sum(root * root).to(tl.float64)
            if trace > limit:
                root, again, k, weight = _restore(root, start, BLOCK, N)
                trace = tl.sum(root * root).to(tl.float64)
            tl.store(S_at, root, square)
            tl.store(number, trace)
            tl.store(number + 2, tl.load(number + 2) * factor * factor)
            tl.store(number + 3, tl.load(number + 3) * factor * factor + 1)
            tl.store(count, seen)
            tl.store(count + 2, tl.load(count + 2) + held.to(tl.int64))
        else:
            tl.store(count + 1, tl.load(count + 1) + 1)

    loss = squared * 0
    for first in range(0, n, TILE):
        j = first + tl.arange(0, TILE)
        at = beta + (model * n + j[:, None]) * N + i[None, :]
        both = (j < n)[:, None] & real[None, :]
        B = tl.load(at, both, 0.0)
        e = tl.load(X + model * n + j, j < n, 0.0) - tl.sum(B * h[None, :], 1)
        loss += tl.sum(tl.abs(e) if ABSOLUTE else e * e, 0)
        if LEARN:
            B += e[:, None] * gain[None, :]
            if weight > 0:
                kept = tl.sum(tl.where((i == k)[None, :], B, 0.0), 1)
                B -= (weight * kept)[:, None] * again[None, :]
            tl.store(at, B, both)
    tl.store(losses + model, loss / n)


@triton.jit
def learn_roots(
    H, S, numbers, counts, mask, gains, order, n_rows, leverages, T, pitch, room,
    N: tl.constexpr, BLOCK: tl.constexpr, BENDS: tl.constexpr,
):  # fmt: skip
    """Take S of one model through T samples; leave their leverages, and the gains row by row."""
    model = tl.program_id(0).to(tl.int64)
    dtype = S.dtype.element_ty
    i = tl.arange(0, BLOCK)
    real = i < N
    number, count = numbers + model * 5, counts + model * 3
    S_at = S + model * N * N + i[:, None] * N + i[None, :]
    square = real[:, None] & real[None, :]
    root = tl.load(S_at, square, 0.0)
    trace, start = tl.load(number), tl.load(number + 1)
    shrink, memory = tl.load(number + 2), tl.load(number + 3)
    usual = tl.load(number + 4)
    limit = _limit(start, usual, N, BENDS)
    seen, skipped, paused = tl.load(count), tl.load(count + 1), tl.load(count + 2)
    first = model * room
    rows = T * 0
    extra = T * 0
    for t in range(T):
        if tl.load(mask + model * pitch + t) != 0:
            h = tl.load(H + (first + t) * N + i, real, 0.0)
            held = trace > limit
            factor = tl.where(held, 1.0, usual)
            a = factor.to(dtype)
            f = tl.sum(root * h[:, None], 0)
            squared = tl.sum(f * f, 0)
            tl.store(leverages + model * pitch + t, squared / (factor * factor))
            learned = squared < LARGEST_LEVERAGE  # also catches NaN
            root, gain, less = _learn(root, f, squared, a, learned)
            tl.store(gains + (first + rows) * N + i, gain, real)
            tl.store(order + first + rows, t)
            rows += 1
            if learned:
                shrink = shrink * factor * factor
                memory = memory * factor * factor + 1
                seen += 1
                paused += held.to(tl.int64)
                trace = (trace - less) / (factor * factor)
                if seen % TRACE_INTERVAL == 0:
                    trace = tl.sum(root * root).to(tl.float64)
                if trace > limit:
                    root, again, k, weight = _restore(root, start, BLOCK, N)
                    trace = tl.sum(root * root).to(tl.float64)
                    tl.store(gains + (first + rows) * N + i, again, real)
                    tl.store(H + (first + T + extra) * N + i, tl.where(i == k, weight, 0.0), real)
                    tl.store(order + first + rows, T + extra)
                    rows += 1
                    extra += 1
            else:
                skipped += 1
    tl.store(S_at, root, square)
    tl.store(n_rows + model, rows)
    tl.store(number, trace)
    tl.store(number + 2, shrink)
    tl.store(number + 3, memory)
    tl.store(count, seen)
    tl.store(count + 1, skipped)
    tl.store(count + 2, paused)


@triton.jit
def invert(
    H, gains, order, n_rows, inverse, T, room,
    N: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """(I + A)^-1 of one chunk by forward substitution; A is H gains' below the diagonal."""
    model, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows = tl.load(n_rows + model)
    if chunk * CHUNK >= rows:
        return
    dtype = inverse.dtype.element_ty
    i = tl.arange(0, BLOCK)
    q = tl.arange(0, CHUNK)
    s = chunk * CHUNK + q
    first = model * room
    place = tl.load(order + first + s, s < rows, 0)
    there = (s < rows)[:, None] & (i < N)[None, :]
    h = tl.load(H + (first + place)[:, None] * N + i[None, :], there, 0.0)
    g = tl.load(gains + (first + s)[:, None] * N + i[None, :], there, 0.0)
    zero = tl.zeros((CHUNK, CHUNK), dtype)
    A = tl.dot(h, tl.trans(g), zero, input_precision="ieee", out_dtype=dtype)
    A = tl.where(q[:, None] > q[None, :], A, 0.0)
    M = tl.where(q[:, None] == q[None, :], zero + 1, zero)
    for t in range(1, CHUNK):
        row = tl.sum(tl.where((q == t)[:, None], A, 0.0), 0)
        M -= tl.where((q == t)[:, None], tl.sum(row[:, None] * M, 0)[None, :], 0.0)
    at = inverse + ((model * (room // CHUNK) + chunk) * CHUNK + q[:, None]) * CHUNK + q[None, :]
    tl.store(at, M)


@triton.jit
def teach(
    X, H, gains, inverse, order, n_rows, beta, losses, T, pitch, room,
    n: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    TILE: tl.constexpr, ABSOLUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take a tile of features of one model through all rows; leave the sums of their losses."""
    model, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dtype = beta.dtype.element_ty
    i = tl.arange(0, BLOCK)
    j = tile * TILE + tl.arange(0, TILE)
    q = tl.arange(0, CHUNK)
    beta_at = beta + (model * n + j[:, None]) * N + i[None, :]
    inside = (j < n)[:, None] & (i < N)[None, :]
    B = tl.load(beta_at, inside, 0.0)
    rows = tl.load(n_rows + model)
    first = model * room
    for begin in range(0, rows, CHUNK):
        s = begin + q
        there = s < rows
        place = tl.load(order + first + s, there, T)
        sample = model * pitch + place
        is_sample = place < T
        h = tl.load(
            H + (first + place)[None, :] * N + i[:, None], there[None, :] & (i < N)[:, None], 0.0
        )
        x = tl.load(
            X + sample[None, :] * n + j[:, None], is_sample[None, :] & (j < n)[:, None], 0.0
        )
        M_at = (model * (room // CHUNK) + begin // CHUNK) * CHUNK + q
        M = tl.load(inverse + M_at[None, :] * CHUNK + q[:, None])  # transposed
        g = tl.load(
            gains + (first + s)[:, None] * N + i[None, :], there[:, None] & (i < N)[None, :], 0.0
        )
        zero = tl.zeros((TILE, CHUNK), dtype)
        E = x - tl.dot(B, h, zero, input_precision=PRECISION, out_dtype=dtype)
        E = tl.dot(E, M, zero, input_precision=PRECISION, out_dtype=dtype)
        loss = tl.sum(tl.abs(E) if ABSOLUTE else E * E, 0)
        tl.store(losses + sample * tl.num_programs(1) + tile, loss, is_sample)
        B = tl.dot(E, g, B, input_precision=PRECISION, out_dtype=dtype)
    tl.store(beta_at, B, inside)

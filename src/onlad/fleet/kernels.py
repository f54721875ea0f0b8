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

from onlad import limit, mode, reference

NUMBERS, COUNTS = 5, 3
LARGEST_LEVERAGE = tl.constexpr(reference.LARGEST_LEVERAGE)
TRACE_INTERVAL = tl.constexpr(reference.TRACE_INTERVAL)
WOUND_UP = tl.constexpr(reference.WOUND_UP)
OLDEST = tl.constexpr(float(reference.OLDEST))
LEAST_GROWTH = tl.constexpr(reference.LEAST_GROWTH)
SMOOTHING, LEANING = tl.constexpr(mode.SMOOTHING), tl.constexpr(mode.LEANING)
WINSOR = tl.constexpr(mode.WINSOR)
STEP, HIGHEST = tl.constexpr(limit.STEP), tl.constexpr(limit.HIGHEST)
GAP, SHORT = tl.constexpr(limit.GAP), tl.constexpr(limit.SHORT)
WEAK, STRONG = tl.constexpr(limit.WEAK), tl.constexpr(limit.STRONG)


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
    growth = tl.exp(OLDEST * N * tl.log(a)) if BENDS else a * 0 + 1
    return start * WOUND_UP / tl.maximum(growth, LEAST_GROWTH)


@triton.jit
def _learn(S, f, squared, a, learned):
    """Potter's step on S with f = S'h, and the gain; without effect if nothing is learned."""
    f = tl.where(learned, f, 0.0)
    g = tl.sum(S * f[None, :], 1)
    scaled = tl.where(learned, a * a + squared, 1.0)
    shrink = tl.where(learned, 1 / a, 1.0)
    c = g * (shrink / (scaled + a * tl.sqrt(scaled)))
    # What becomes of the trace: P <- (P - g g'/d') / a^2.
    less = tl.sum(g * g, 0) / scaled
    return S * shrink - c[:, None] * f[None, :], g / scaled, less


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

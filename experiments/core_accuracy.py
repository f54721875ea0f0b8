"""How close the core's fixed point stays to float64: scores, beta and P after thousands of steps.

    python -m experiments.core_accuracy run      # resumable: skips what is stored for this model
    python -m experiments.core_accuracy table    # from the records alone

Float64 is `reference.update` with the library's wind-up guard. Both start from one state and see
one stream: low-rank data that drifts, in [0, 1]. `exact rank` has no noise, so its own scores are
zero; `stuck` has a quarter of its sensors at rest. For these two the score that counts is that of a
probe: a random sample that is scored after every hundredth step and never learned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from experiments import core_source
from experiments.pages import markdown
from experiments.records import append, latest, origin
from onlad import reference
from onlad.hardware import fixed
from onlad.hardware.config import Activation, Config, Storage
from onlad.hardware.model import Model
from onlad.hardware.packets import Ff, Mode, Status
from onlad.hardware.seeded import weights

WIND_UP = 1e4
FACTORS = (0.95, 0.97, 0.99, 1.0)


@dataclass(frozen=True)
class Case:
    """A core, a stream and a forgetting factor."""

    n: int
    hidden: int
    activation: Activation
    data: str
    factor: float
    steps: int = 10_000
    width: int = 32
    alpha: Storage = "stored"


@dataclass(frozen=True)
class Record:
    """What came of a case. Errors are relative; of beta and P, to the largest entry."""

    case: dict[str, object]
    condition: float  # of H0'H0, of the samples before the start
    score_median: float
    score_worst: float
    probe_median: float
    beta: float
    P: float
    asymmetry: float
    refused: int
    saturated: int
    model: str = ""  # the digest of its code
    command: str = ""
    machine: str = ""
    commit: str = ""


def cases() -> Iterator[Case]:
    """Yield the cases, those of the requirement first."""
    for factor in FACTORS:
        yield Case(128, 16, "identity", "noise", factor)
    for data in ("exact rank", "stuck"):
        for factor in FACTORS:
            yield Case(32, 8, "identity", data, factor)
    for factor in FACTORS:
        yield Case(48, 16, "sigmoid", "noise", factor)
    for width, alpha in ((32, "stored"), (25, "stored"), (18, "stored"), (32, "narrow"),
                         (32, "seeded"), (25, "narrow")):  # fmt: skip
        for activation in ("identity", "sigmoid"):
            yield Case(64, 16, activation, "noise", 0.99, 2_000, width, alpha)
    for factor in (0.99, 1.0):
        yield Case(512, 64, "identity", "noise", factor, 2_000)


def stream(case: Case, learned: int) -> np.ndarray:
    """Return the samples."""
    rng = np.random.default_rng(1)
    count = learned + case.steps
    causes = rng.normal(size=(count, 6)) + 0.02 * np.cumsum(rng.normal(size=(count, 6)), axis=0)
    X = causes @ rng.normal(size=(6, case.n))
    if case.data != "exact rank":
        X += 0.15 * X.std() * rng.normal(size=X.shape)
    X = (X - X.min(0)) / (X.max(0) - X.min(0))
    if case.data == "stuck":
        X[:, : case.n // 4] = 0.5
    return X


def load(core: Model, state: reference.State, factor: float) -> None:
    """Bring a state into the core."""
    c, trace = core.config, float(np.trace(state.P))
    words, mantissa, exponent = fixed.root_words(c, np.linalg.cholesky(state.P))

    def put(mode: Mode, values: np.ndarray) -> None:
        core.write(mode, np.arange(values.size), values.ravel())

    if c.alpha != "seeded":
        put(Mode.ALPHA, fixed.quantize(state.alpha, c.alpha_width, c.alpha_fraction))
    put(Mode.B, fixed.quantize(state.b, c.width, c.fraction))
    put(Mode.BETA, fixed.quantize(state.beta, c.width, c.fraction))
    put(Mode.P, words)
    ridge = int(fixed.quantize(np.sqrt(c.hidden / trace), c.width, c.fraction))
    limit = fixed.limit_word(WIND_UP * trace)
    registers = {Ff.FACTOR: round(factor * 2**c.ff_fraction), Ff.LIMIT: limit, Ff.RIDGE: ridge,
                 Ff.MANTISSA: mantissa, Ff.EXPONENT: exponent}  # fmt: skip
    core.write(Mode.FF, np.array(list(registers)), np.array(list(registers.values())))
    assert not core.reasons, core.reasons


def step(state: reference.State, x: np.ndarray, case: Case, trace: float) -> reference.State:
    """Return the state of float64 after one sample, guard included."""
    wound = np.trace(state.P) > WIND_UP * trace
    state = reference.update(state, x, 1.0 if wound else case.factor, case.activation)
    if np.trace(state.P) <= WIND_UP * trace:
        return state
    k, weight = int(np.argmax(np.diag(state.P))), len(state.P) / trace
    u = state.P[k]
    scale = weight / (1 + weight * u[k])
    beta = state.beta - np.outer(u * scale, state.beta[k])
    return state._replace(beta=beta, P=reference.symmetric(state.P - np.outer(u, u) * scale))


def measure(case: Case) -> Record:
    """Run a core and float64 side by side."""
    config = Config(
        case.n, case.hidden, activation=case.activation, width=case.width, alpha=case.alpha
    )
    learned = 4 * case.hidden
    X = stream(case, learned)
    state = reference.init(case.n, case.hidden, seed=0)
    if case.alpha == "seeded":
        state = state._replace(alpha=weights(config))
    H0 = reference.hidden(state, X[:learned], case.activation)
    condition = float(np.linalg.cond(H0.T @ H0))
    # Exact rank leaves H0'H0 singular; a ridge makes its inverse.
    ridge = 0.0 if case.data == "noise" else 1e-2
    state = reference.fit(state, X[:learned], ridge=ridge, activation=case.activation)
    trace, core = float(np.trace(state.P)), Model(config)
    load(core, state, case.factor)
    probes = np.random.default_rng(2).uniform(0, 1, (case.steps // 100, case.n))
    unit = 2.0**config.score_fraction
    scores, probed, refused = [], [], 0

    def relative(found: int, x: np.ndarray) -> float:
        exact = reference.score(state, x, activation=case.activation)
        return abs(found / unit - exact) / exact

    for k, x in enumerate(X[learned:]):
        core.x[:] = fixed.quantize(x, config.width, config.fraction)
        answer = core.train(1)
        if answer >> 31:
            refused += 1
        else:
            scores.append(relative(answer, x))
        state = step(state, x, case, trace)
        if k % 100 == 99:
            core.x[:] = fixed.quantize(probes[k // 100], config.width, config.fraction)
            probed.append(relative(core.predict(), probes[k // 100]))
    S = fixed.root_value(config, core.S, core.mantissa, core.exponent)
    P, beta = S @ S.T, fixed.value(core.beta, config.fraction)
    return Record(
        asdict(case),
        condition,
        float(np.median(scores)),
        float(np.max(scores)),
        float(np.median(probed)),
        float(np.abs(beta - state.beta).max() / np.abs(state.beta).max()),
        float(np.abs(P - state.P).max() / np.abs(state.P).max()),
        float(np.abs(P - P.T).max()),
        refused,
        core.status[Status.SATURATED],
    )


def records() -> list[Record]:
    """Return the last record of each case, in the order of `cases`."""
    found = [Record(**record) for record in latest("core_accuracy", "case")]
    order = [asdict(case) for case in cases()]
    return sorted(found, key=lambda record: order.index(record.case))


def run() -> None:
    """Measure what is not stored yet of the model as it is."""
    digest = core_source.model()
    done = [record.case for record in records() if record.model == digest]
    for case in cases():
        if asdict(case) in done:
            continue
        print(case, file=sys.stderr, flush=True)
        source = origin("make core-accuracy", "experiments/core_accuracy.py")
        append("core_accuracy", [asdict(measure(case)) | {"model": digest} | source])


HEAD = ("n, N", "activation", "data", "a", "steps", "word", "alpha", "cond(H0'H0)", "score: median",
        "worst", "probe: median", "beta", "P", "cut words")  # fmt: skip


def rows() -> list[tuple[str, ...]]:
    """Return the cells of the table."""
    found = []
    for r in records():
        c = r.case
        # Scores of exact rank are zero: there is nothing for an error to be relative to.
        own = (f"{r.score_median:.0e}", f"{r.score_worst:.0e}")
        cells = (f"{c['n']}, {c['hidden']}", c["activation"], c["data"], c["factor"], c["steps"],
                 c["width"], c["alpha"], f"{r.condition:.0e}",
                 *(("-", "-") if c["data"] == "exact rank" else own),
                 f"{r.probe_median:.0e}", f"{r.beta:.0e}", f"{r.P:.0e}", r.saturated)  # fmt: skip
        found.append(tuple(map(str, cells)))
    return found


def table() -> None:
    """Print the records as Markdown."""
    print(markdown(HEAD, rows()))


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]]()

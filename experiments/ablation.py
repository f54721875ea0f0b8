"""The step as the paper prints it, beside ours: when P is lost, and what that does to the AUC.

    ONLAD_DATA=... python -m experiments.ablation run      # resumable: skips stored cases

Five forms of one step: `printed` is alg:detector line by line, with both products, P h' and h P;
`one product` uses P h' for both and rounds the two sides of P differently; `symmetric` is
`onlad.reference`, which keeps P exactly symmetric; `root` is the compiled step without its guard;
`guarded` is `Detector`. P is lost when it is no longer finite and positive definite.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from experiments import metrics, records, tables, testbeds
from experiments.records import Record
from experiments.settings import paper
from onlad import kernel, reference
from onlad.reference import Activation, Array, State
from onlad.state import DetectorState

COMMAND = "python -m experiments.ablation run"
FORMS = ("printed", "one product", "symmetric", "root", "guarded")
DTYPES = ("float64", "float32")
FACTORS = (0.9, 0.95, 0.97, 0.99)
PARTS: tuple[Literal["drift", "stuck"], ...] = ("drift", "stuck")
STUCK = 20_000
ROWS, N = 12_000, 64

Step = Callable[[Array], tuple[float, bool]]  # the score of a sample, and whether P is still there


def printed(state: State, x: Array, a: float, activation: Activation) -> State:
    """Return the state after one sample, as alg:detector prints it."""
    h = reference.hidden(state, x, activation)
    P = state.P / a**2
    d = 1 + h @ P @ h
    if d < reference.EPSILON:
        return state
    P = P - np.outer(P @ h, h @ P) / d
    return state._replace(P=P, beta=state.beta + np.outer(P @ h, x - h @ state.beta))


def one_product(state: State, x: Array, a: float, activation: Activation) -> State:
    """Return the state after one sample with P h' in place of h P, divided where it is cheap."""
    h = reference.hidden(state, x, activation)
    P = state.P / a**2
    u = P @ h
    gain = u / (1 + h @ u)
    P = P - np.outer(gain, u)
    return state._replace(P=P, beta=state.beta + np.outer(gain, x - h @ state.beta))


def sound(P: Array) -> bool:
    """Return whether P is finite and positive definite."""
    if not np.all(np.isfinite(P)):
        return False
    try:
        np.linalg.cholesky(reference.symmetric(P).astype("float64"))
    except np.linalg.LinAlgError:
        return False
    return True


def stepper(form: str, state: State, a: float, activation: Activation, dtype: str) -> Step:
    """Return the function that scores and learns one sample in this form."""
    if form in ("root", "guarded"):
        start = float(np.trace(state.P))
        limit = reference.trace_limit(start, len(state.P), a, activation)
        alpha, b, beta, P = state
        root, memory = np.linalg.cholesky(P), np.array([a])
        model = kernel.make(
            DetectorState(S=root, alpha=alpha, b=b, beta=beta, memory=memory, trace_start=start),
            activation=activation,
            score="reconstruction",
            loss="squared",
            dtype=dtype,
            trace_limit=limit if form == "guarded" else np.inf,
        )
        return lambda x: (model.update(x, a), bool(np.isfinite(model.trace)))
    update = {"printed": printed, "one product": one_product}.get(form, reference.update)
    now = State(*(np.asarray(part, dtype) for part in state))
    factor = np.dtype(dtype).type(a)

    def step(x: Array) -> tuple[float, bool]:
        nonlocal now
        x = x.astype(dtype)
        score = float(np.mean((x - reference.predict(now, x, activation)) ** 2))
        now = update(now, x, factor, activation)
        return score, sound(now.P)

    return step


def live(step: Step, X: Array) -> tuple[Array, int | None]:
    """Return the scores of the rows, and after how many P was lost."""
    scores, lost = np.full(len(X), np.nan), None
    for i, x in enumerate(X):
        scores[i], there = step(x)
        if not there and lost is None:
            lost = i + 1
        if not np.isfinite(scores[i]):
            break
    return scores, lost


def drifting(rows: int, seed: int) -> Array:
    """Return 16 sensors that four causes drive, by weights that turn slowly."""
    rng = np.random.default_rng(seed)
    one, other = rng.uniform(0, 0.5, (2, 4, 16))
    turn = np.linspace(0, 1, rows)[:, None, None]
    mixed = one * (1 - turn) + other * turn
    X = np.einsum("tk,tkn->tn", rng.uniform(0, 1, (rows, 4)), mixed)
    return X + rng.normal(0, 0.02, X.shape)


def begin(X: Array, n_hidden: int, activation: Activation, seed: int) -> State:
    # Enough ridge that P exists: the question is what becomes of it.
    fresh = reference.init(X.shape[1], n_hidden, seed=seed)
    return reference.fit(fresh, X.astype("float64"), ridge=1e-2, activation=activation)


class Case(NamedTuple):
    """One run: which stream, and which form of the step."""

    part: Literal["drift", "stuck", "testbed"]
    form: str
    dtype: str
    forgetting: float
    seed: int
    dataset: str = ""


def measure(wanted: Case) -> Record:
    """Run one case and return its record."""
    part, form, dtype, a, seed, dataset = wanted
    activation: Activation = "sigmoid"
    found: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        if part == "testbed":
            from experiments.run import dataset as load  # noqa: PLC0415

            data, settings = load(dataset), paper()["settings"]["online"][dataset]["onlad"]
            trial = testbeds.trial("online", data.X, data.y, seed).parts[0]
            activation = settings["activation"]
            state = begin(trial.train, settings["n_hidden"], activation, seed)
            scores, lost = live(stepper(form, state, a, activation, dtype), trial.X)
            alive = bool(np.all(np.isfinite(scores)))
            found["auc"] = round(metrics.auc(trial.anomalous, scores), 5) if alive else None
            rows = len(trial.X)
        else:
            X = drifting(ROWS + 200, seed)
            state = begin(X[:200], N, activation, seed)
            if part == "stuck":
                X = np.vstack([X[:400], np.repeat(X[400:401], STUCK, axis=0)])
            scores, lost = live(stepper(form, state, a, activation, dtype), X[200:])
            rows = len(X) - 200
            if part == "stuck" and lost is not None:
                lost = max(lost - 200, 0)  # samples since the sensor was stuck; 0: before
    return {
        **wanted._asdict(),
        "rows": rows,
        "lost_after": lost,
        **found,
        "command": COMMAND,
        "machine": records.machine(),
        "commit": records.commit("experiments/ablation.py"),
    }


def cases() -> Iterator[Case]:
    """Yield every case, the short ones first."""
    for form, dtype, a, seed in product(FORMS, DTYPES, FACTORS, range(3)):
        for part in PARTS:
            yield Case(part, form, dtype, a, seed)
    for name, form, dtype, seed in product(paper()["datasets"], FORMS, DTYPES, range(3)):
        a = paper()["settings"]["online"][name]["onlad"]["forgetting"]
        yield Case("testbed", form, dtype, a, seed, name)


def run() -> None:
    """Run and store what is not stored."""
    known = {tuple(r[name] for name in Case._fields) for r in records.read("ablation")}
    todo = [wanted for wanted in cases() if wanted not in known]
    for i, wanted in enumerate(todo):
        records.append("ablation", [measure(wanted)])
        print(f"ablation: {i + 1} of {len(todo)}", file=sys.stderr, flush=True)


def _cell(found: Sequence[Record]) -> str:
    lost = sorted(r["lost_after"] for r in found if r["lost_after"] is not None)
    if not lost:
        return "never" if found else ""
    times = f"{lost[0]:,}" if lost[0] == lost[-1] else f"{lost[0]:,} to {lost[-1]:,}"
    return times + (f" ({len(lost)} of {len(found)} seeds)" if len(lost) < len(found) else "")


def table() -> str:
    """Return after how many samples P was lost, and the AUC on the paper's streams."""
    stored = records.read("ablation")
    if not stored:
        return "No records yet."
    columns = list(product(FORMS, DTYPES))
    heads = ("", *(f"{form}, {dtype}" for form, dtype in columns))
    names = {"drift": f"{ROWS:,} drifting samples", "stuck": f"{STUCK:,} stuck samples"}
    rows = []
    for part, a in product(names, FACTORS):
        mine = [r for r in stored if r["part"] == part and r["forgetting"] == a]
        cells = [[r for r in mine if (r["form"], r["dtype"]) == c] for c in columns]
        rows.append([f"{names[part]}, a = {a}", *map(_cell, cells)])
    first = tables.markdown(heads, rows)
    rows = []
    for name, label in tables.names().items():
        cells = []
        for form, dtype in columns:
            mine = [
                r for r in stored if (r["dataset"], r["form"], r["dtype"]) == (name, form, dtype)
            ]
            aucs = [r["auc"] for r in mine]
            lost = [r for r in mine if r["lost_after"] is not None]
            if not aucs:
                cells.append("")
            elif None in aucs:
                cells.append(f"dead ({_cell(mine)})")
            else:
                cells.append(f"{np.mean(aucs):.3f}" + (f" (lost: {_cell(mine)})" if lost else ""))
        rows.append([label, *cells])
    second = tables.markdown(heads, rows)
    about = tables.provenance(stored, {"3": ["each case"]})
    return f"{first}\n\nAUC on Online Testbed, the paper's settings:\n\n{second}\n\n{about}"


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()

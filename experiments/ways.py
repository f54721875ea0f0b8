"""Ways to forget: the settings that are tried for each, at most six, what each costs, the table.

ONLAD_DATA=... python -m experiments.ways        # measures the cost of a sample
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import time

from experiments import records, tables, testbeds
from experiments.methods import Hyperparameters, module_of, registry
from experiments.settings import hyperparameters, paper
from experiments.testbeds import Testbed

TIMED = "mnist"  # the costs are those of this dataset

FACTORS = (0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
POLICIES = [{"high": high, "low": low} for high in (0.99, 0.999) for low in (0.9, 0.95, 0.98)]
GRIDS: dict[str, list[Hyperparameters]] = {
    "constant": [{"forgetting": a} for a in FACTORS],
    "adaptive": POLICIES,
    "on-drift": POLICIES,
    "fos-elm": [{"window": rows} for rows in (100, 200, 400, 800, 1600, 3200)],
    "dff-os-elm": [{"rho": rho} for rho in (0.0, 0.5, 0.99, 2.0, 5.0, 20.0)],
    "fp-elm-dynamic": POLICIES,
    # N is the paper's number of hidden units.
    "ml-oselm": [
        {"layers": layers, "forgetting": a}
        for layers in ((1, 1), (2, 1), (1, 1, 1))
        for a in (0.97, 0.99)
    ],
    "mixture": [{"instances": k, "forgetting": a} for k in (2, 4, 8) for a in (0.97, 0.99)],
}


def grid(method: str, layer: Hyperparameters, offline: bool) -> list[Hyperparameters]:
    """Return the settings to try on the hidden layer of the paper's ONLAD.

    Offline, layers and mixtures forget nothing, as ONLAD does there; the ways to forget forget.
    """
    base = {name: layer[name] for name in ("activation", "n_hidden")}
    wanted = []
    for parameters in GRIDS[method]:
        found = base | parameters
        if offline and method in ("ml-oselm", "mixture"):
            found["forgetting"] = 1.0
        if method == "ml-oselm":
            found["n_hidden"] = [base["n_hidden"] * times for times in found.pop("layers")]
        if found not in wanted:
            wanted.append(found)
    return wanted


def kept(method: str, parameters: Hyperparameters, n: int) -> int:
    """Return how many numbers a model keeps between two samples."""
    N = parameters["n_hidden"]
    if method == "ml-oselm":
        sizes = [n, *N]  # inputs of each layer; the last one has n targets
        below = sum(2 * i * h + h + h * h for i, h in zip(sizes[:-2], N[:-1], strict=True))
        return int(below + sizes[-2] * N[-1] + n * N[-1] + N[-1] + N[-1] ** 2)
    one = 2 * n * N + N + N * N
    return int(one * parameters.get("instances", 1) + n * parameters.get("window", 0))


def measure(rounds: int = 5, rows: int = 2000) -> None:
    """Store the processor time of a sample, scored and learned: the least of rounds in turn."""
    from experiments.run import dataset  # noqa: PLC0415  (it reads the settings of all methods)

    data = dataset(TIMED)
    part = testbeds.trial("online", data.X, data.y, 0).parts[0]
    X, least = part.X[: rounds * rows], dict.fromkeys(GRIDS, float("inf"))
    models = {}
    for method in GRIDS:
        parameters = hyperparameters("ours", "online", TIMED, method)
        models[method] = registry()[method].build(parameters, X.shape[1], 0)
        models[method].fit(part.train)
    for k in range(rounds):
        for method, model in models.items():
            begun = time.process_time()
            model.stream(X[k * rows : (k + 1) * rows])
            least[method] = min(least[method], time.process_time() - begun)
    (records.RESULTS / "ways_cost.jsonl").unlink(missing_ok=True)
    for method, seconds in least.items():
        found = {"method": method, "dataset": TIMED, "microseconds": round(1e6 * seconds / rows, 2)}
        source = records.origin("python -m experiments.ways", module_of(method))
        records.append("ways_cost", [found | source])


def table(testbed: Testbed) -> str:
    """Return the AUC of each way on each dataset, and on one what it costs."""
    aucs, rows, timed = tables.Aucs(testbed), [], records.read("ways_cost")
    costs = {r["method"]: r["microseconds"] for r in timed}
    for method in GRIDS:
        cells = [aucs.cells.get((name, method, "ours"), []) for name in tables.names()]
        if not any(cells):
            continue
        shown = [tables.show(aucs.mean(name, method)) for name in tables.names()]
        known = (TIMED, method, "ours") in aucs.cells
        parameters = hyperparameters("ours", testbed, TIMED, method) if known else {}
        size = kept(method, parameters, paper()["features"][TIMED]) if known else 0
        rows.append(
            [
                registry()[method].label,
                *shown,
                *([f"{costs[method]:.1f}" if method in costs else ""] * (testbed == "online")),
                f"{size:,}" if size else "",
                tables.words({k: v for k, v in parameters.items() if k != "activation"}),
            ]
        )
    if not rows:
        return "No records yet."
    label = paper()["datasets"][TIMED]
    cost = ["µs a sample"] * (testbed == "online")
    heads = "way", *tables.names().values(), *cost, "numbers kept", f"settings, {label}"
    about = aucs.about(GRIDS)
    if cost:
        about += f"\n\nTimes: {tables.provenance(timed)}"
    return f"{tables.markdown(heads, rows)}\n\n{about}"


if __name__ == "__main__":
    measure()

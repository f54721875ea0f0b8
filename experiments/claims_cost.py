"""The claims on time and operations in software, judged by the records of latency and counts."""

from __future__ import annotations

from statistics import fmean

from experiments import forgetting_cost, operations, records
from experiments.claims import Claim, Finding, word
from experiments.settings import hyperparameters, paper
from experiments.tables import names

Size = tuple[int, int]


def times(
    implementation: str, device: str, quantity: str, machine: str | None = None
) -> dict[Size, float]:
    """Return the microseconds of a step by (n, N), on the machine that was timed last, or this."""
    wanted = (implementation, device, quantity, machine or machine_of(device))
    return {
        (r["n_features"], r["n_hidden"]): r["microseconds"]
        for r in records.read("latency")
        if (r["implementation"], r["device"], r["quantity"], r["machine"]) == wanted
    }


def machine_of(device: str) -> str:
    """Return the machine on which a device was timed last."""
    return next(
        (r["machine"] for r in reversed(records.read("latency")) if r["device"] == device), ""
    )


def processor_beside(device: str) -> str:
    """Return the processor whose times a device's are compared with: always that of its machine."""
    machine = machine_of(device)
    return machine.partition(", ")[2] if device == "gpu" else machine


def counted() -> Finding:
    """Say holds if the printed formulas give what was counted, at each size."""
    stored = records.read("operations")
    good = sum(
        r["train_as_printed"] == operations.train(r["n_features"], r["n_hidden"])
        and r["predict"] == operations.predict(r["n_features"], r["n_hidden"])
        for r in stored
    )
    return Finding(
        f"{good} of {len(stored)} sizes as counted", word(good, len(stored)), "operations"
    )


def batch_of_one() -> Finding:
    """Say holds if I_k >= k I_1 at each of the paper's sizes for k up to 64."""
    sizes = [(r["n_features"], r["n_hidden"]) for r in records.read("operations")]
    ratios = [
        operations.chunk(n, N, k) / (k * operations.chunk(n, N, 1))
        for n, N in sizes
        for k in (8, 64)
    ]
    good = sum(ratio >= 1 for ratio in ratios)
    told = f"I_k is {min(ratios):.3f} to {max(ratios):.3f} times k I_1 (k = 8, 64)"
    return Finding(told, word(good, len(ratios)), "operations")


def chunks_do_not_matter() -> Finding:
    """Say holds if beta is the same but for rounding (1e-6) in chunks of 2, 8 and 64."""
    found = [r["off"] for r in records.read("chunk_size") if r["method"] == "onlad"]
    far = [max(off.values()) for off in found]
    told = f"beta differs by {min(far):.0e} to {max(far):.0e} of its largest entry (k = 2, 8, 64)"
    return Finding(told, word(sum(f < 1e-6 for f in far), len(far)), "chunk_size")


def batches_do_matter() -> Finding:
    """Say holds if the AUC of NN-AE differs by batch size by more than it does between trials."""
    found = {r["batch"]: r["aucs"] for r in records.read("chunk_size") if "batch" in r}
    means = {batch: fmean(aucs) for batch, aucs in found.items()}
    spread = max(max(aucs) - min(aucs) for aucs in found.values())
    told = "; ".join(f"batch {batch}: {mean:.3f}" for batch, mean in means.items())
    good = max(means.values()) - min(means.values()) > spread
    return Finding(
        f"NN-AE on Letter Recognition, {told}; trials differ by up to {spread:.3f}",
        "holds" if good else "fails",
        "chunk_size",
    )


def faster_than_backpropagation() -> Finding:
    """Say holds if a step takes less time than NN-AE's at each size, compiled and in NumPy."""
    network, told, good, of = times("nn", "cpu", "training"), [], 0, 0
    for name, said in (("onlad", "compiled"), ("onlad-numpy", "in NumPy")):
        ratios = [network[size] / t for size, t in times(name, "cpu", "training").items()]
        good, of = good + sum(ratio > 1 for ratio in ratios), of + len(ratios)
        told.append(f"{said} {min(ratios):.1f} to {max(ratios):.1f} times")
    return Finding("; ".join(told) + " (NN-AE in JAX, one step each)", word(good, of), "latency")


def forgetting_is_small() -> Finding:
    """Say holds if the N^2 products of forgetting are below a tenth of a step at each size."""
    shares = [r["n_hidden"] ** 2 / r["train_as_printed"] for r in records.read("operations")]
    good = sum(share < 0.1 for share in shares)
    told = f"N² of I_train: {100 * min(shares):.1f} to {100 * max(shares):.1f} %"
    return Finding(told, word(good, len(shares)), "operations")


def space() -> Finding:
    """Say holds if S_onlad is the sum of the four parts that the paper gives."""
    stored = [(r["n_features"], r["n_hidden"]) for r in records.read("operations")]
    good = sum(operations.space_printed(*s) == sum(operations.space(*s).values()) for s in stored)
    ratio = [operations.space_printed(*s) / sum(operations.space(*s).values()) for s in stored]
    told = f"printed {min(ratio):.2f} to {max(ratio):.2f} times the sum of its parts"
    return Finding(told, word(good, len(stored)), "operations")


def _cost(part: str, name: str) -> list[records.Record]:
    return [
        r
        for r in records.read("forgetting_cost")
        if (r["part"], r["implementation"]) == (part, name)
    ]


def cheaper_than_fpelm() -> Finding:
    """Say holds if FP-ELM takes 3.21 times as long: as printed, in its best form, and compiled."""
    ours = {(r["n_features"], r["n_hidden"]): r["milliseconds"] for r in _cost("paper", "onlad")}
    ratios = {
        name: fmean(
            r["milliseconds"] / ours[r["n_features"], r["n_hidden"]] for r in _cost("paper", name)
        )
        for name in ("fpelm", "fpelm-vector")
    }
    # Both in float64, one sample after the other, with the same rule for the factor.
    way = {r["method"]: r["microseconds"] for r in records.read("ways_cost")}
    ratios["compiled"] = way["fp-elm-dynamic"] / way["adaptive"]
    wanted = paper()["forgetting_cost"]["ratio"]
    good = sum(ratio >= wanted for ratio in ratios.values())
    told = (
        f"{ratios['fpelm']:.1f}x against FP-ELM as printed, {ratios['fpelm-vector']:.1f}x"
        f" against its solve for one vector, {ratios['compiled']:.1f}x with both compiled (MNIST)"
    )
    return Finding(told, word(good, len(ratios)), "forgetting_cost, ways_cost")


def growth() -> Finding:
    """Say holds if the exponents are within 0.3 of 2 and 3 where features are few."""
    found = {name: forgetting_cost.growth(_cost("growth", name)) for name in ("onlad", "fpelm")}
    wanted = {"onlad": 2, "fpelm": 3}
    good = sum(abs(found[name] - wanted[name]) <= 0.3 for name in found)
    few = forgetting_cost.GROWTH_FEATURES
    told = f"N^{found['onlad']:.2f} and N^{found['fpelm']:.2f} at n = {few}"
    order = " (FP-ELM grows faster)" if found["fpelm"] > found["onlad"] else ""
    return Finding(
        told + order, "partly" if good < 2 and order else word(good, 2), "forgetting_cost"
    )


def gap_widens() -> Finding:
    """Say holds if the ratio of FP-ELM to ONLAD rises with N at each number of features."""
    rows, good = [], 0
    ours = {(r["n_features"], r["n_hidden"]): r["milliseconds"] for r in _cost("paper", "onlad")}
    ratio = {
        (r["n_features"], r["n_hidden"]): r["milliseconds"] / ours[r["n_features"], r["n_hidden"]]
        for r in _cost("paper", "fpelm")
    }
    features = sorted({n for n, _ in ratio})
    for n in features:
        by_N = [ratio[n, N] for N in sorted({N for m, N in ratio if m == n})]
        good += by_N == sorted(by_N)
        rows.append(f"n = {n}: {by_N[0]:.1f} to {by_N[-1]:.1f}")
    return Finding("; ".join(rows), word(good, len(features)), "forgetting_cost")


def below_a_millisecond() -> Finding:
    """Say holds if a step of the compiled detector takes less than 1 ms at each of the sizes."""
    found = times("onlad", "cpu", "training")
    worst = max(found, key=lambda size: found[size])
    good = sum(t < 1000 for t in found.values())
    told = f"compiled detector, slowest {found[worst]:.1f} µs at {worst}"
    return Finding(told, word(good, len(found)), "latency")


def flat_in_features() -> Finding:
    """Say holds if 1,024 features take less than 1.5 times as long as 128 in each case."""
    told, good, of = [], 0, 0
    for device in ("cpu", "gpu"):
        for name in ("nn", "dnn", "fpelm"):
            found = times(name, device, "training")
            ratio = fmean(found[1024, N] / found[128, N] for N in (16, 32, 64))
            good, of = good + (ratio < 1.5), of + 1
            told.append(f"{name}-{device} {ratio:.2f}")
    told[0] = f"training takes at 1,024 features as many times what it takes at 128: {told[0]}"
    return Finding(", ".join(told) + " (JAX)", word(good, of), "latency")


def gpu_is_slower() -> Finding:
    """Say holds if the GPU takes longer than the processor in each case."""
    told, good, of = [], 0, 0
    for quantity in ("training", "prediction"):
        for name in ("nn", "dnn", "fpelm"):
            gpu = times(name, "gpu", quantity)
            cpu = times(name, "cpu", quantity, processor_beside("gpu"))
            ratio = fmean(gpu[size] / cpu[size] for size in cpu)
            good, of = good + (ratio > 1), of + 1
            told.append(f"{name} {quantity} {ratio:.1f}x")
    return Finding(", ".join(told), word(good, of), "latency")


def wide_and_few() -> Finding:
    """Say holds if n is at least four times N with the paper's settings and with searched."""
    told, good = [], 0
    for settings, said in (("paper", "paper's"), ("found", "searched")):
        ratios = [
            paper()["features"][name] / hyperparameters(settings, bed, name, "onlad")["n_hidden"]  # type: ignore[arg-type]
            for bed in ("offline", "online")
            for name in names()
        ]
        wide = sum(ratio >= 4 for ratio in ratios)
        good += wide == len(ratios)
        told.append(
            f"{said}: n/N {min(ratios):.2g} to {max(ratios):.2g},"
            f" at least 4 in {wide} of {len(ratios)}"
        )
    return Finding("; ".join(told), "partly" if not good else word(good, 2), "tune/*-onlad")


CLAIMS = [
    Claim(
        "eq:train_iter",
        "I_train and I_predict count a step's products",
        "4N² + (3n+1)N, 2nN",
        counted,
    ),
    Claim("3.1", "a chunk of k costs more than k chunks of one: I_k >= k I_1", "", batch_of_one),
    Claim("3.1", "OS-ELM learns the same in chunks and one by one", "", chunks_do_not_matter),
    Claim("3.1", "what backpropagation learns depends on the batch size", "", batches_do_matter),
    Claim("2.2", "OS-ELM trains faster than backpropagation", "", faster_than_backpropagation),
    Claim("3.2", "forgetting adds a tiny cost to OS-ELM", "", forgetting_is_small),
    Claim(
        "eq:onlad_space", "S_onlad is the sum of the four parts", "5N² + (5n+4)N + 2n + 1", space
    ),
    Claim("6.2.2", "the forgetting mechanism is faster than FP-ELM", "3.21x", cheaper_than_fpelm),
    Claim("6.2.2", "a step grows as N², one of FP-ELM as N³", "2, 3", growth),
    Claim("6.2.2", "the gap to FP-ELM widens with N", "", gap_widens),
    Claim(
        "1",
        "ONLAD follows drift in less than a millisecond a sample",
        "< 1 ms",
        below_a_millisecond,
    ),
    Claim("6.2.1", "software's latency hardly grows with the features", "", flat_in_features),
    Claim("6.2.1", "a GPU is slower than a processor for one sample", "", gpu_is_slower),
    Claim(
        "6.2.1",
        "the best settings have far more features than hidden units",
        "n >> N",
        wide_and_few,
    ),
]

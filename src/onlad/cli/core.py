"""`onlad core`: emulate, simulate, synth, export, estimate."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onlad.cli.arguments import Commands, at_least
from onlad.errors import OnladError

if TYPE_CHECKING:
    from onlad.hardware import OnladCore

MEGAHERTZ = 100  # of the paper's board
CLOCK = (
    f"{MEGAHERTZ} MHz is the clock of the paper's board, and assumed: nothing was routed here. "
    "A clock is measured by: onlad core synth --part lfe5u-85f --seeds 1"
)
CYCLES = ("", "cycles", f"us at {MEGAHERTZ} MHz", "products / lanes", "paper's iterations / lanes")
_CHUNK = 50  # samples between two looks at the progress


def add(commands: Commands) -> None:
    """Add `onlad core` and what it can do."""
    parser = commands.add_parser(
        "core",
        help="generate, check and measure the detector as gateware for FPGAs",
        description="ONLAD Core: the detector as gateware, of any size.",
        epilog="example: onlad core estimate --features 512 --hidden 64 --lanes 8",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    emulate = "compare the bit-exact model with the float64 detector"
    _samples(_action(actions, "emulate", _emulate, emulate), 500)
    simulate = "run the gateware in Verilator and compare it with the model"
    action = _action(actions, "simulate", _simulate, simulate)
    _samples(action, 50)
    text = "share of cycles, 0 to 0.99, in which the streams pause (default: 0)"
    action.add_argument("--pauses", type=float, default=0.0, metavar="SHARE", help=text)
    synth = "synthesise the gateware for a chip, and count resources"
    action = _action(actions, "synth", _synth, synth)
    text = "chip: xc7z020 (default, the paper's), xc7z010, xc7z045 or lfe5u-85f"
    action.add_argument("--part", default="xc7z020", metavar="NAME", help=text)
    text = "number of seeds to place and route from (lfe5u-85f only; default: 0)"
    action.add_argument("--seeds", type=at_least(0), default=0, metavar="N", help=text)
    export = "write Verilog, IP-XACT, a Vivado script and a program"
    action = _action(actions, "export", _export, export)
    action.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    _action(actions, "estimate", _estimate, "print cycles and resources by their closed forms")


def _action(
    actions: Commands,
    name: str,
    run: Callable[[OnladCore, argparse.Namespace], None],
    what: str,
) -> argparse.ArgumentParser:
    """Add an action that makes the core first, and reports a wrong size in one line."""

    def command(args: argparse.Namespace) -> int:
        from onlad.hardware import OnladCore  # noqa: PLC0415  (an extra)

        try:
            sizes = args.features, args.hidden, args.lanes
            run(OnladCore(*sizes, args.activation, width=args.width, alpha=args.alpha), args)
        except ValueError as error:
            raise OnladError(str(error)) from None
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("onlad"):
                raise
            missing = f"{error.name} is not installed; pip install 'onlad[hardware]'"
            raise OnladError(missing) from None
        return 0

    tail = " cores/512x64" if name == "export" else ""
    parser = actions.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"example: onlad core {name} --features 128 --hidden 16{tail}",
    )
    parser.set_defaults(run=command)
    parser.add_argument("--features", type=int, required=True, metavar="N", help="of a sample")
    parser.add_argument("--hidden", type=int, required=True, metavar="N", help="hidden units")
    lanes = "parallel multipliers: 1, 2, 4, 8, 16 or 32 (default: 8)"
    parser.add_argument("--lanes", type=int, default=8, metavar="N", help=lanes)
    activation = "identity (default) or sigmoid"
    parser.add_argument("--activation", default="identity", metavar="NAME", help=activation)
    width = "of a word: 32 (default), 25 or 18"
    parser.add_argument("--width", type=int, default=32, metavar="BITS", help=width)
    alpha = (
        "stored (default), narrow (18 bits), or seeded (generated in each step, takes no memory)"
    )
    parser.add_argument("--alpha", default="stored", metavar="HOW", help=alpha)
    return parser


def _samples(parser: argparse.ArgumentParser, default: int) -> None:
    synthetic = f"synthetic ones, learned one by one (default: {default})"
    parser.add_argument("--samples", type=at_least(1), default=default, metavar="N", help=synthetic)


def _emulate(core: OnladCore, args: argparse.Namespace) -> None:
    detector, X = _stream(core, args.samples)
    device = core.emulate(detector)
    begun = time.perf_counter()
    scores = _run(device, X, "emulating")
    seconds = time.perf_counter() - begun
    expected = detector.update_many(X)
    error = np.abs(scores - expected) / expected
    _table(
        f"{_title(core)}: the model beside float64, {len(X)} samples",
        ("", "model", "float64"),
        [
            ("median score", f"{np.median(scores):.4g}", f"{np.median(expected):.4g}"),
            ("relative error, median", f"{np.median(error):.1e}", ""),
            ("relative error, largest", f"{error.max():.1e}", ""),
            ("samples not learned", str(device.n_skipped), str(detector.n_skipped)),
            ("steps that forgot nothing", str(device.n_paused), str(detector.n_paused)),
            ("samples per second", f"{len(X) / seconds:.0f}", ""),
        ],
    )


def _simulate(core: OnladCore, args: argparse.Namespace) -> None:
    detector, X = _stream(core, args.samples)
    with _status() as say:
        device = core.simulate(detector, pauses=args.pauses, say=say)
    scores = _run(device, X, "simulating")
    train = device.cycles
    device.score_one(X[0])
    predict = device.cycles
    model = core.emulate(detector)
    same = np.array_equal(scores, model.update_many(X)) and all(
        map(np.array_equal, device.state, model.state)
    )
    _cycles(core, f"the gateware in Verilator, {len(X)} samples", train, predict)
    if not same:
        raise OnladError("the gateware and the model differ: this is a bug, please report it")
    print("Every score, and the last alpha, b, beta and P, are those of the model to the last bit.")


def _synth(core: OnladCore, args: argparse.Namespace) -> None:
    with _status() as say:
        report = core.synth(args.part, seeds=args.seeds, say=say)
    columns, rows = ["", "pieces", "per cent"], []
    for name, used in report.used.items():
        rows.append([name, f"{used:,}", f"{report.percent[name]:.1f}"])
    if report.paper:
        columns.append("paper, per cent")
        for row in rows:
            row.append(f"{report.paper[row[0]]:.1f}")
    _table(f"{_title(core)} on {report.part}, by {report.tools}", columns, rows)
    if report.logic_ns is not None:
        print(f"Longest path through the logic, without wires: {report.logic_ns:.2f} ns")
    if report.mhz:
        print(f"Placed and routed: {', '.join(f'{f:.1f}' for f in report.mhz)} MHz, by seed")
    if not report.fits:
        print(f"It does not fit {report.part}.")


def _export(core: OnladCore, args: argparse.Namespace) -> None:
    with _status() as say:
        folder = core.export(args.folder, say)
    for path in sorted(folder.iterdir()):
        print(path)


def _estimate(core: OnladCore, args: argparse.Namespace) -> None:
    guess = core.estimate()
    _cycles(core, "cycles in closed form", guess.train, guess.predict, guess.load)
    elements = f"{guess.paper_elements['onlad']:,} elements"
    _table(
        "Memory and multipliers",
        ("", "core", "xc7z020 has", "paper"),
        [
            ("BRAM (18 Kbit)", f"{guess.bram:,}", "280", elements),
            ("DSP", f"{guess.dsp:,}", "220", "88"),
        ],
    )


def _cycles(core: OnladCore, what: str, train: int, predict: int, load: int | None = None) -> None:
    """Print cycles beside the number of products, and beside the paper's iterations."""
    guess, lanes = core.estimate(), core.config.lanes
    rows = [
        (name, f"{cycles:,}", f"{cycles / MEGAHERTZ:.1f}", f"{ideal:,.0f}", f"{paper / lanes:,.0f}")
        for name, cycles, ideal, paper in (
            ("training", train, guess.ideal_train, guess.paper_train),
            ("prediction", predict, guess.ideal_predict, guess.paper_predict),
        )
    ]
    if load is not None:
        rows.append(("loading a sample", f"{load:,}", f"{load / MEGAHERTZ:.1f}", "", ""))
    _table(f"{_title(core)}: {what}", CYCLES, rows)
    print(CLOCK)


def _title(core: OnladCore) -> str:
    c = core.config
    return f"{c.n} features, {c.hidden} hidden units, {c.lanes} lanes"


def _stream(core: OnladCore, count: int) -> tuple[Any, Any]:
    """Return a detector after its first samples, and the samples that follow."""
    rng = np.random.default_rng(0)
    first = 4 * core.config.hidden
    sources = rng.uniform(0, 1, (first + count, 3)) @ rng.uniform(0, 1 / 3, (3, core.config.n))
    X = sources + rng.uniform(0, 0.05, (first + count, core.config.n))
    detector = core.detector(weights="normal")
    detector.learn_many(X[:first])
    return detector, X[first:]


def _run(device: Any, X: Any, what: str) -> Any:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    parts = np.array_split(X, -(-len(X) // _CHUNK))
    shown = track(parts, description=what, console=Console(stderr=True), transient=True)
    return np.concatenate([device.update_many(part) for part in shown])


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status("") as status:
        yield status.update


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", box=box.ASCII2)
    for k, name in enumerate(columns):
        table.add_column(name, justify="right" if k else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)

"""`onlad core`: emulate, simulate, synth, export, estimate."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onlad.cli.arguments import Commands, at_least
from onlad.errors import OnladError

if TYPE_CHECKING:
    from onlad.hardware import OnladCore

MEGAHERTZ = 100  # of the paper's board
CLOCK = (
    f"{MEGAHERTZ} MHz is the clock of the paper's board, and assumed: nothing was routed here. "
    "A clock is measured by: onlad core synth --part lfe5u-85f --seeds 1"
)
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
    action = _action(actions, "emulate", "compare the bit-exact model with the float64 detector")
    _samples(action, 500)
    action.set_defaults(run=_with_core(_emulate))
    action = _action(
        actions, "simulate", "run the gateware in Verilator and compare it with the model"
    )
    _samples(action, 50)
    action.add_argument(
        "--pauses", type=float, default=0.0, metavar="SHARE",
        help="share of cycles, 0 to 0.99, in which the streams pause (default: 0)",
    )  # fmt: skip
    action.set_defaults(run=_with_core(_simulate))
    action = _action(actions, "synth", "synthesise the gateware for a chip, and count resources")
    action.add_argument(
        "--part", default="xc7z020", metavar="NAME",
        help="chip: xc7z020 (default, the paper's), xc7z010, xc7z045 or lfe5u-85f",
    )  # fmt: skip
    action.add_argument(
        "--seeds", type=at_least(0), default=0, metavar="N",
        help="number of seeds to place and route from (lfe5u-85f only; default: 0)",
    )  # fmt: skip
    action.set_defaults(run=_with_core(_synth))
    action = _action(actions, "export", "write Verilog, IP-XACT, a Vivado script and a program")
    action.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    action.set_defaults(run=_with_core(_export))
    action = _action(actions, "estimate", "print cycles and resources by their closed forms")
    action.set_defaults(run=_with_core(_estimate))


def _action(actions: Commands, name: str, what: str) -> argparse.ArgumentParser:
    tail = " cores/512x64" if name == "export" else ""
    parser = actions.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=f"example: onlad core {name} --features 128 --hidden 16{tail}",
    )
    parser.add_argument("--features", type=int, required=True, metavar="N", help="of a sample")
    parser.add_argument("--hidden", type=int, required=True, metavar="N", help="hidden units")
    parser.add_argument(
        "--lanes", type=int, default=8, metavar="N",
        help="parallel multipliers: 1, 2, 4, 8, 16 or 32 (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--activation", default="identity", metavar="NAME", help="identity (default) or sigmoid"
    )
    parser.add_argument(
        "--width", type=int, default=32, metavar="BITS", help="of a word: 32 (default), 25 or 18"
    )
    parser.add_argument(
        "--alpha", default="stored", metavar="HOW",
        help="stored (default), narrow (18 bits), or seeded (generated in each step, takes no "
        "memory)",
    )  # fmt: skip
    return parser


def _samples(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--samples", type=at_least(1), default=default, metavar="N",
        help=f"synthetic ones, learned one by one (default: {default})",
    )  # fmt: skip


def _with_core(run: Callable[[OnladCore, argparse.Namespace], None]) -> Callable[..., int]:
    """Return a command that makes the core first, and reports a wrong size in one line."""

    def command(args: argparse.Namespace) -> int:
        from onlad.hardware import OnladCore  # noqa: PLC0415

        try:
            core = OnladCore(
                args.features,
                args.hidden,
                args.lanes,
                args.activation,
                width=args.width,
                alpha=args.alpha,
            )
            run(core, args)
        except ValueError as error:
            raise OnladError(str(error)) from None
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("onlad"):
                raise
            raise OnladError(
                f"{error.name} is not installed; pip install 'onlad[hardware]'"
            ) from None
        return 0

    return command


def _emulate(core: OnladCore, args: argparse.Namespace) -> None:
    import numpy as np  # noqa: PLC0415

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
    import numpy as np  # noqa: PLC0415

    detector, X = _stream(core, args.samples)
    with _status() as say:
        device = core.simulate(detector, pauses=args.pauses, say=say)
    scores = _run(device, X, "simulating")
    train = device.cycles
    device.score_one(X[0])
    predict, guess = device.cycles, core.estimate()
    model = core.emulate(detector)
    same = np.array_equal(scores, model.update_many(X)) and all(
        map(np.array_equal, device.state, model.state)
    )
    _table(
        f"{_title(core)}: the gateware in Verilator, {len(X)} samples",
        ("", "cycles", f"us at {MEGAHERTZ} MHz", "products / lanes", "paper's iterations / lanes"),
        [
            ("training", *_cycles(train, guess.ideal_train, guess.paper_train, core)),
            ("prediction", *_cycles(predict, guess.ideal_predict, guess.paper_predict, core)),
        ],
    )
    print(CLOCK)
    if not same:
        raise OnladError("the gateware and the model differ: this is a bug, please report it")
    print("Every score, and the last alpha, b, beta and P, are those of the model to the last bit.")


def _synth(core: OnladCore, args: argparse.Namespace) -> None:
    with _status() as say:
        report = core.synth(args.part, seeds=args.seeds, say=say)
    paper = report.paper or {}
    _table(
        f"{_title(core)} on {report.part}, by {report.tools}",
        ("", "pieces", "per cent", *(["paper, per cent"] if paper else [])),
        [
            (
                name,
                f"{report.used[name]:,}",
                f"{report.percent[name]:.1f}",
                *([f"{paper[name]:.1f}"] if paper else []),
            )
            for name in report.used
        ],
    )
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
    _table(
        f"{_title(core)}: cycles in closed form",
        ("", "cycles", f"us at {MEGAHERTZ} MHz", "products / lanes", "paper's iterations / lanes"),
        [
            ("training", *_cycles(guess.train, guess.ideal_train, guess.paper_train, core)),
            (
                "prediction",
                *_cycles(guess.predict, guess.ideal_predict, guess.paper_predict, core),
            ),
            ("loading a sample", f"{guess.load:,}", f"{guess.load / MEGAHERTZ:.1f}", "", ""),
        ],
    )
    print(CLOCK)
    elements = guess.paper_elements
    _table(
        "Memory and multipliers",
        ("", "core", "xc7z020 has", "paper"),
        [
            ("BRAM (18 Kbit)", f"{guess.bram:,}", "280", f"{elements['onlad']:,} elements"),
            ("DSP", f"{guess.dsp:,}", "220", "88"),
        ],
    )


def _cycles(found: int, ideal: float, paper: int, core: OnladCore) -> tuple[str, ...]:
    lanes = core.config.lanes
    return f"{found:,}", f"{found / MEGAHERTZ:.1f}", f"{ideal:,.0f}", f"{paper / lanes:,.0f}"


def _title(core: OnladCore) -> str:
    c = core.config
    return f"{c.n} features, {c.hidden} hidden units, {c.lanes} lanes"


def _stream(core: OnladCore, count: int) -> tuple[Any, Any]:
    """Return a detector after its first samples, and the samples that follow."""
    import numpy as np  # noqa: PLC0415

    rng = np.random.default_rng(0)
    first = 4 * core.config.hidden
    sources = rng.uniform(0, 1, (first + count, 3)) @ rng.uniform(0, 1 / 3, (3, core.config.n))
    X = sources + rng.uniform(0, 0.05, (first + count, core.config.n))
    detector = core.detector(weights="normal")
    detector.learn_many(X[:first])
    return detector, X[first:]


def _run(device: Any, X: Any, what: str) -> Any:
    import numpy as np  # noqa: PLC0415
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


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", box=box.ASCII2)
    for k, name in enumerate(columns):
        table.add_column(name, justify="right" if k else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)

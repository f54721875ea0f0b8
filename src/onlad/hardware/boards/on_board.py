"""Run this on the board, beside onlad.bit and onlad.hwh. It needs `pip install onlad` there."""

import numpy as np
import onlad.hardware.pynq  # makes overlay.onlad a detector
from onlad import Detector
from onlad.hardware import load
from pynq import Overlay

device = Overlay("onlad.bit").onlad
config = device.config
print("found", config)

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (500, 3)) @ rng.uniform(0, 1 / 3, (3, config.n))
detector = Detector(
    n_hidden=config.hidden, activation=config.activation, score="reconstruction", weights="normal"
)
detector.fit(X[:400])
load(detector, device)

for x in X[400:]:
    score = device.update_one(x)
print(f"last score {score:.3g}, in floating point {detector.update_many(X[400:])[-1]:.3g}")
print(f"{device.cycles} cycles per training step")

import json
from pathlib import Path

import numpy as np
import pytest

from onlad.hardware import Config, OnladCore
from onlad.hardware.estimate import estimate

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def stored(name):
    path = RESULTS / name
    lines = path.read_text().splitlines() if path.exists() else []
    last = {}
    for record in map(json.loads, lines):
        last[record.get("part"), json.dumps(record["config"])] = record
    return list(last.values())


def near(found, guess):
    return abs(found - guess) <= 0.01 * found + 12


@pytest.mark.parametrize(
    ("n", "hidden", "lanes", "train", "predict"),
    [  # counted in simulation: power of two or not, whole rows or not, serial part hidden or not
        (8, 8, 2, 526, 128),
        (8, 16, 2, 830, 185),
        (9, 7, 1, 665, 253),
        (12, 6, 2, 512, 191),
        (16, 16, 8, 538, 133),
        (24, 12, 4, 661, 260),
        (32, 16, 8, 640, 204),
        (16, 32, 4, 1385, 318),
        (16, 64, 8, 2228, 325),
    ],
)
def test_cycles_are_near_what_was_counted(n, hidden, lanes, train, predict):
    guess = estimate(Config(n, hidden, lanes))
    assert near(train, guess.train), guess.train
    assert near(predict, guess.predict), guess.predict


def test_cycles_are_near_what_the_gateware_takes_now():
    pytest.importorskip("amaranth")
    core = OnladCore(n=16, hidden=8, lanes=2, activation="sigmoid")
    device, x = core.simulate(), np.full(16, 0.4)
    device.learn_one(x)
    assert near(device.cycles, core.estimate().train)
    assert device.cycles == device.transport.cycles  # the core's own count is that of the clock
    device.score_one(x)
    assert near(device.cycles, core.estimate().predict)


def test_the_bars_of_latency_hold():
    # At 100 MHz: at most 145 us per step with 36 DSP, at most 75 us with 70.
    eight, sixteen = estimate(Config(512, 64, 8)), estimate(Config(512, 64, 16))
    assert eight.train <= 1.03 * eight.ideal_train
    assert eight.predict <= 1.02 * eight.ideal_predict
    assert (eight.train, eight.dsp) <= (14_500, 36)
    assert (sixteen.train, sixteen.dsp) <= (7_500, 70)


@pytest.mark.parametrize("record", stored("core_latency.jsonl"), ids=lambda r: str(r["config"]))
def test_cycles_are_near_the_records(record):
    guess = estimate(Config(**record["config"]))
    assert near(record["train"], guess.train)
    assert near(record["predict"], guess.predict)


@pytest.mark.parametrize("record", stored("core_area.jsonl"), ids=lambda r: str(r["config"]))
def test_memories_and_multipliers_are_those_of_the_records(record):
    if record["part"] == "xc7z020":
        guess = estimate(Config(**record["config"]))
        assert (guess.bram, guess.dsp) == (record["used"]["BRAM"], record["used"]["DSP"])


def test_the_papers_counts_are_the_papers():
    guess = estimate(Config(512, 64))
    assert guess.paper_train == 4 * 64**2 + (3 * 512 + 1) * 64
    assert guess.paper_predict == 2 * 512 * 64
    parts = guess.paper_elements
    assert parts["parameter"] == 64**2 + (2 * 512 + 1) * 64
    assert parts["input"] == 512
    assert parts["train"] == 2 * 64**2 + 4 * 64 + 2 * 512 + 1
    assert parts["predict"] == 64 + 512
    # The paper's own parts do not add up to its sum; both are shown.
    assert parts["sum"] == 3 * 64**2 + (2 * 512 + 6) * 64 + 4 * 512 + 1
    assert parts["onlad"] == 5 * 64**2 + (5 * 512 + 4) * 64 + 2 * 512 + 1


def test_alpha_without_a_memory_halves_the_blocks():
    sizes = [estimate(Config(1024, 64, alpha=how)).bram for how in ("stored", "narrow", "seeded")]
    assert sizes == [266, 202, 138]
    assert sizes[0] / 280 <= 0.957  # it fits; the paper: 104.2 %
    assert sizes[1] / 280 <= 0.74
    assert sizes[2] / 280 <= 0.51

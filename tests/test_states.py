"""Named states: a column of text is watched as a column of 0 and 1 for each state."""

import json

import numpy as np
import pytest

from onlad.cli import main
from onlad.serve import payload
from onlad.serve.tables import SensorTable, StreamTable
from onlad.streams import delimited, records
from onlad.streams.block import Choice
from onlad.streams.lines import Chunk

CHOICE = Choice(states=(("mode", ("off", "run")),))
ROWS = [("run", 5.0), ("off", 0.1), ("", 4.9), ("burning", 5.1)]
EXPECTED = [[0, 1, 5.0], [1, 0, 0.1], [np.nan, np.nan, 4.9], [0, 0, 5.1]]


def csv(quoted=False):
    lines = [f'"{mode}",{x}' if quoted else f"{mode},{x}" for mode, x in ROWS]
    return ("mode,flow\n" + "\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("quoted", [False, True])
def test_a_column_of_csv(quoted):
    data = csv(quoted)
    (block,) = delimited.blocks([Chunk(data, 1, len(data), 0)], CHOICE)
    assert block.names == ("mode=off", "mode=run", "flow")
    np.testing.assert_array_equal(block.values, EXPECTED)
    assert block.bad == []


def test_a_value_of_json():
    reader = records.Records(CHOICE)
    found = [reader.take({"mode": mode or None, "flow": x})[0] for mode, x in ROWS]
    np.testing.assert_array_equal(found, EXPECTED)
    with pytest.raises(ValueError, match="holds 3, which is not text"):
        reader.take({"mode": 3, "flow": 1.0})


def test_a_message_of_the_service():
    sensor = SensorTable(name="mode", states=("off", "run"), role="explain")
    stream = StreamTable(name="pump", sensors=(sensor,))
    data = json.dumps([{"mode": mode or None, "flow": x} for mode, x in ROWS]).encode()
    found = payload.read(stream, data, (), 0.0)
    assert found.names == ("mode=off", "mode=run", "flow")
    np.testing.assert_array_equal(found.rows, EXPECTED)
    again = payload.read(stream, data, found.names, 0.0)
    np.testing.assert_array_equal(again.rows, EXPECTED)
    assert stream.rules.sensor("mode=run").role == "explain"


def machine(rows):
    rng = np.random.default_rng(0)
    run = (np.arange(rows) // 40) % 2
    flow = 1 + 9 * run + rng.normal(0, 0.2, rows)
    return run, np.column_stack((flow, 3 * flow + rng.normal(0, 0.2, rows)))


def test_a_state_that_does_not_fit_is_an_anomaly(tmp_path, capsys):
    run, X = machine(2000)
    run[1700:1720] = 1 - run[1700:1720]  # the flow of a pump that runs, and it says that it is off
    lines = [f"{('off', 'run')[r]},{a:.3f},{b:.3f}" for r, (a, b) in zip(run, X, strict=True)]
    path = tmp_path / "pump.csv"
    path.write_text("mode,flow,power\n" + "\n".join(lines) + "\n")
    found = {}
    for option in ("--states=mode=off,run", "--ignore=mode"):
        assert main(["watch", str(path), option, "--output", "jsonl"]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        found[option] = [each for each in told if each["begin"] <= 1720 and each["end"] >= 1700]
    assert [len(incidents) for incidents in found.values()] == [1, 0]
    assert main(["watch", str(path)]) == 1  # without them a text is no number
    assert "--ignore leaves a column out" in capsys.readouterr().err

"""The exported source on emulated chips: verdicts and the last state are Python's, to the bit."""

import shutil
import subprocess

import numpy as np
import pytest
from rough import machine

from onlad.mcu import PortableMonitor, export
from onlad.mcu.layout import HEADER, VERDICT

TOOLS = {
    "rv32": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
    "m": ("arm-none-eabi-gcc", "qemu-system-arm"),
}


def run(folder, board, monitor, X):
    """Run rows on an emulated board; return its verdicts, its dump, its figures."""
    tools = TOOLS["rv32" if board.startswith("rv32") else "m"]
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}; .ci/run installs it")
    export.write(monitor, folder)
    X.astype("float32").tofile(folder / "rows.bin")
    command = ["make", "-s", "-C", folder / "qemu", f"BOARD={board}", f"ROWS={folder}/rows.bin"]
    subprocess.run([*command, "run"], check=True, timeout=900)
    build = folder / "qemu" / "build" / board
    verdicts = np.fromfile(build / "verdicts.bin", [*VERDICT, ("instructions", "<u4")])
    assert len(verdicts) == len(X)
    return verdicts, (build / "state.bin").read_bytes(), np.fromfile(build / "figures.bin", "<u4")


def check(verdicts, state, monitor, said):
    for name, *_ in VERDICT[:-1]:
        here = getattr(said, name).astype(verdicts[name].dtype)
        assert verdicts[name].tobytes() == here.tobytes(), name
    causes = np.argsort(-said.shares, axis=1, kind="stable")[:, :3]
    named = said.shares.any(axis=1)
    np.testing.assert_array_equal(
        verdicts["causes"]["feature"], np.where(named[:, None], causes, -1)
    )
    shares = np.take_along_axis(said.shares, causes, axis=1).astype("float32")
    np.testing.assert_array_equal(verdicts["causes"]["share"], shares)
    assert state == monitor.dump()


@pytest.mark.parametrize(
    ("board", "settings"),
    [
        ("m0", {}),
        ("m4f", {}),
        ("m33", {}),
        ("rv32", {}),
        ("m0", {"arithmetic": "fixed"}),
        ("rv32", {"arithmetic": "fixed", "layer": "seeded"}),
        ("m4f", {"layer": "seeded", "counters": (1,)}),
    ],
)
def test_a_chip_says_what_python_says_to_the_bit(board, settings, tmp_path):
    X = machine(3000, 3)
    monitor = PortableMonitor(hidden=16, **settings)
    monitor.names = (0, 1, 2)
    verdicts, state, (ram, stack) = run(tmp_path, board, monitor, X)
    said = monitor.observe_many(X)
    check(verdicts, state, monitor, said)
    assert said.is_anomaly.any()  # the stream shows something
    assert said.learned.mean() > 0.3
    assert said.drift.any() or monitor.counters  # the rates of noise have one mode
    assert ram == monitor.sizes().ram(monitor.is_fixed)
    assert stack <= export.figures(monitor).stack


@pytest.mark.parametrize(
    ("board", "arithmetic"), [("m4f", "float"), ("rv32", "float"), ("rv32", "fixed")]
)
def test_a_fitted_model_goes_on_on_the_chip(board, arithmetic, tmp_path):
    X = machine(3000, 4)
    monitor = PortableMonitor(hidden=8, arithmetic=arithmetic)
    monitor.observe_many(X[:1000])
    verdicts, state, (_, stack) = run(tmp_path, board, monitor, X[1000:])
    check(verdicts, state, monitor, monitor.observe_many(X[1000:]))
    assert stack <= export.figures(monitor).stack  # a restore included
    # And what the chip has learned goes on in Python.
    other = PortableMonitor(hidden=8, arithmetic=arithmetic)
    assert other.restore(state).dump()[HEADER.size :] == state[HEADER.size :]


@pytest.mark.parametrize("board", ["m0-wide", "m4f", "m33", "rv32", "rv32f"])
@pytest.mark.parametrize(("features", "hidden"), [(8, 32), (32, 64)])
def test_larger_chips_say_what_python_says(board, features, hidden, tmp_path):
    is_long = features == 32 and board in ("m0-wide", "rv32")  # soft float: seconds for 100 rows
    X = machine(5000, features)[2500 if is_long else 0 :][: 800 if is_long else 5000]
    monitor = PortableMonitor(hidden=hidden)
    monitor.names = tuple(range(features))
    verdicts, state, _ = run(tmp_path, board, monitor, X)
    said = monitor.observe_many(X)
    check(verdicts, state, monitor, said)
    assert said.ready.any()
    assert said.drift.any() or is_long

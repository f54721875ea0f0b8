"""The exported source on emulated chips: verdicts and the last state are Python's, to the bit."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rough import machine

from onlad.mcu import PortableMonitor, export
from onlad.mcu.layout import HEADER, VERDICT

TOOLS = {
    "rv32": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
    "m": ("arm-none-eabi-gcc", "qemu-system-arm"),
}


def run(folder, board, monitor, rows, program=None):
    """Run rows on an emulated board; return its verdicts, its dump, its figures.

    With each verdict comes the word that the program writes after it.
    """
    tools = TOOLS["rv32" if board.startswith("rv32") else "m"]
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}; .ci/run installs it")
    export.write(monitor, folder)
    if program:
        shutil.copy(program, folder / "qemu" / "watch.c")
    rows.tofile(folder / "rows.bin")
    command = ["make", "-s", "-C", folder / "qemu", f"BOARD={board}", f"ROWS={folder}/rows.bin"]
    subprocess.run([*command, "run"], check=True, timeout=900)
    build = folder / "qemu" / "build" / board
    verdicts = np.fromfile(build / "verdicts.bin", [*VERDICT, ("word", "<u4")])
    assert len(verdicts) == len(rows)
    return verdicts, (build / "state.bin").read_bytes(), np.fromfile(build / "figures.bin", "<u4")


def check(verdicts, state, monitor, said):
    check_rows(verdicts, said)
    assert state == monitor.dump()


def check_rows(verdicts, said):
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
    verdicts, state, (ram, stack) = run(tmp_path, board, monitor, X.astype("float32"))
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
    verdicts, state, (_, stack) = run(tmp_path, board, monitor, X[1000:].astype("float32"))
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
    verdicts, state, _ = run(tmp_path, board, monitor, X.astype("float32"))
    said = monitor.observe_many(X)
    check(verdicts, state, monitor, said)
    assert said.ready.any()
    assert said.drift.any() or is_long


PAUSE, GO_ON, ACCEPT, ACCEPT_EARLIER, RESTART, MORE_ALARMS, BAD_BYTES = range(1, 8)  # person.c
BAD_ARGUMENT, BAD_DUMP = 16 * 2, 16 * 3  # onlad_status of what was done before a row,
OUT_OF_RANGE = 1  # and of the row


def act(monitor, what):
    """Do to a monitor in Python what person.c does; return what the chip says to it."""
    if what in (PAUSE, GO_ON):
        monitor.paused = what == PAUSE
    elif what == MORE_ALARMS:
        monitor.false_alarms = 0.01
    elif what in (ACCEPT, ACCEPT_EARLIER):
        try:
            monitor.accept(0 if what == ACCEPT else 5)
        except ValueError:
            return BAD_ARGUMENT
    return BAD_DUMP if what == BAD_BYTES else 0


@pytest.mark.parametrize(
    ("board", "arithmetic"),
    [
        ("m0", "float"),
        ("m4f", "float"),
        ("m33", "float"),
        ("rv32", "float"),
        ("m0", "fixed"),
        ("rv32", "fixed"),
    ],
)
def test_what_a_person_does_to_a_chip_is_what_it_does_in_python(board, arithmetic, tmp_path):
    X = machine(3000, 3).astype("float32")[:2000]
    X[1200, 0] = 1e20
    actions = {
        100: ACCEPT, 200: RESTART, 601: ACCEPT, 650: PAUSE, 700: ACCEPT, 780: GO_ON,
        900: ACCEPT_EARLIER, 1000: RESTART, 1100: BAD_BYTES, 1300: MORE_ALARMS, 1520: ACCEPT,
        1700: PAUSE, 1750: RESTART, 1800: GO_ON,
    }  # fmt: skip
    monitor = PortableMonitor(hidden=16, arithmetic=arithmetic)
    monitor.names = (0, 1, 2)
    what = np.zeros(len(X), "<u4")
    what[list(actions)] = list(actions.values())
    rows = np.column_stack((what.view("<f4"), X))
    person = Path(__file__).with_name("person.c")
    verdicts, state, (_, stack) = run(tmp_path, board, monitor, rows, person)
    words = np.zeros(len(X), int)
    words[1200] = OUT_OF_RANGE
    for first, last in zip([0, *actions], [*actions, len(X)], strict=True):
        words[first] += act(monitor, actions.get(first))
        check_rows(verdicts[first:last], monitor.observe_many(X[first:last]))
    assert state == monitor.dump()
    np.testing.assert_array_equal(verdicts["word"], words)
    assert words[100] == BAD_ARGUMENT  # it was not ready
    assert not verdicts["learned"][650:780].any()
    assert verdicts["learned"][780:900].any()
    assert stack <= export.figures(monitor).stack  # of all calls together


@pytest.mark.parametrize(("board", "arithmetic"), [("m4f", "float"), ("rv32", "fixed")])
def test_a_slow_drift_of_one_sensor_is_told_by_the_chip(board, arithmetic, tmp_path):
    rng = np.random.default_rng(0)
    level = np.sin(np.arange(9_000) / 30)
    X = np.array([level, 2 * level, -level]).T + 0.1 * rng.normal(size=(9_000, 3))
    X[6_600:, 1] += np.linspace(0, 1.2, 2_400)
    X = X.astype("float32")
    monitor = PortableMonitor(hidden=6, modes=1, arithmetic=arithmetic)
    monitor.observe_many(X[:6_600])
    verdicts, state, _ = run(tmp_path, board, monitor, X[6_600:])
    check(verdicts, state, monitor, monitor.observe_many(X[6_600:]))
    assert verdicts["drifting"][0] == -1
    assert verdicts["drifting"][-1] == 1

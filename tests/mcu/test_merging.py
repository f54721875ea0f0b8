"""Chips that began with one model are merged, and the result goes back to a chip."""

import shutil
import subprocess

import numpy as np
import pytest
from rough import machine
from test_export import build

import onlad
from onlad import Monitor
from onlad.cli import main
from onlad.errors import ModelFileError
from onlad.mcu import PortableMonitor, export, merge
from onlad.mcu.convert import factors, from_monitor
from onlad.mcu.merging import sums

ARITHMETIC = pytest.mark.parametrize("arithmetic", ["float", "fixed"])


def chips(arithmetic, rows=1800, features=4):
    """Return two chips that began with one model, and learned another 300 rows each."""
    X = machine(8000, features)
    first = from_monitor(Monitor().fit(X[:rows]), arithmetic=arithmetic)
    found = []
    for part in (X[rows : rows + 300], X[rows + 300 : rows + 600]):
        chip = PortableMonitor.resumed(first.settings(), names=first.names)
        chip.restore(first.dump())
        chip.observe_many(part)
        found.append(chip)
    return first, *found, X[rows + 600 :]


def test_sums_are_what_factors_were_made_of():
    A = np.random.default_rng(0).normal(size=(9, 5))
    np.testing.assert_allclose(sums(factors(A.T @ A)), A.T @ A, rtol=1e-10)


@ARITHMETIC
def test_sums_of_both_are_added(arithmetic):
    _, one, other, _ = chips(arithmetic)
    merged = merge(one, other)
    states = [chip.state() for chip in (one, other, merged)]
    assert states[2]["places"][0, 1] == states[0]["places"][0, 1] + states[1]["places"][0, 1]
    assert merged.n_seen == one.n_seen + other.n_seen
    if arithmetic == "float":
        K = [sums(state["modes"][0]["linear"].astype("float64")) for state in states]
        ridge = np.append(1e-6, np.full(len(K[0]) - 1, 0.1))
        # Factors are float32: 6e-8, times the condition of the sums.
        wanted = K[0] + K[1] - np.diag(ridge)
        limit = 1e-6 * np.linalg.cond(wanted)
        assert np.abs(K[2] - wanted).max() <= limit * np.abs(wanted).max()


@ARITHMETIC
def test_a_merged_monitor_judges_as_its_parts_do(arithmetic):
    _, one, other, rest = chips(arithmetic)
    merged = merge(one, other)
    said, those = merged.observe_many(rest[:600]), one.observe_many(rest[:600])
    assert np.mean(said.is_anomaly != those.is_anomaly) <= 0.01
    assert np.median(np.abs(said.score - those.score)) < 0.1


def test_a_mode_that_only_one_chip_knows_is_taken_along():
    X = machine(5000, 8)
    first = PortableMonitor(modes=4)
    first.observe_many(X[:1000])
    one, other = (
        PortableMonitor.resumed(first.settings(), names=first.names).restore(first.dump())
        for _ in range(2)
    )
    assert other.observe_many(X[2500:4500]).drift.any()
    assert len(one.describe()["modes"]) == 1
    merged = merge(one, other)
    assert len(merged.describe()["modes"]) == len(other.describe()["modes"]) == 2
    assert merged.observe_many(X[4500:]).is_anomaly.mean() < 0.05
    with pytest.raises(ValueError, match="more modes than one has places for"):
        merge(*(chip_of(part, modes=1) for part in (X[:1000], X[1000:2000])))


def chip_of(rows, **settings):
    return PortableMonitor(hidden=8, **settings).fit(rows)


def test_what_cannot_be_merged_is_refused():
    X = machine(4000, 3)[:1000]
    with pytest.raises(ValueError, match="not ready cannot be merged"):
        merge(chip_of(X), PortableMonitor(hidden=8))
    with pytest.raises(ValueError, match="only chips with one random layer can be merged"):
        merge(chip_of(X), chip_of(X, seed=1))


RESTORE = """
#include <stdio.h>
#include "onlad.h"
static onlad_monitor monitor;
static unsigned char bytes[ONLAD_DUMP];
int main(void) {
    float x[ONLAD_FEATURES];
    onlad_init(&monitor);
    if (fread(bytes, sizeof bytes, 1, stdin) != 1) return 1;
    if (onlad_restore(&monitor, bytes, sizeof bytes) != ONLAD_OK) return 2;
    while (fread(x, sizeof x, 1, stdin)) {
        onlad_verdict v;
        onlad_observe(&monitor, x, &v);
        fwrite(&v.score, 4, 1, stdout);
    }
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@ARITHMETIC
def test_dumps_are_merged_by_the_command_line_and_sent_to_a_chip(arithmetic, tmp_path, capsys):
    first, one, other, rest = chips(arithmetic)
    (tmp_path / "one.bin").write_bytes(one.dump(sequence=3))
    (tmp_path / "other.bin").write_bytes(other.dump())
    assert main(["info", str(tmp_path / "one.bin")]) == 0
    assert "dump of a chip" in capsys.readouterr().out
    both = ["merge", str(tmp_path / "one.bin"), str(tmp_path / "other.bin")]
    assert main([*both, "-o", str(tmp_path / "both.onlad")]) == 0
    merged = onlad.load(tmp_path / "both.onlad")
    assert merged.n_seen == one.n_seen + other.n_seen
    export.write(first, tmp_path / "firmware")  # the firmware that the chips have already
    program = build(tmp_path / "firmware", RESTORE)
    rows = rest[:400].astype("float32")
    data = merged.dump() + rows.tobytes()
    done = subprocess.run([program], input=data, capture_output=True, check=True, timeout=60)
    scores = merged.observe_many(rows).score.astype("float32")
    np.testing.assert_array_equal(np.frombuffer(done.stdout, "<f4"), scores)


def test_a_dump_is_read_as_a_model_file(tmp_path):
    X = machine(3000, 3)[:900]
    for settings in ({}, {"layer": "seeded"}, {"arithmetic": "fixed"}):
        chip = PortableMonitor(hidden=8, **settings)
        chip.observe_many(X)
        (tmp_path / "state.bin").write_bytes(chip.dump())
        found = onlad.load(tmp_path / "state.bin")
        assert (found.dump(), found.arithmetic, found.drawn) == (
            chip.dump(), chip.arithmetic, chip.drawn
        )  # fmt: skip
    (tmp_path / "state.bin").write_bytes(chip.dump()[:-1])
    with pytest.raises(ModelFileError, match="the dump is damaged"):
        onlad.load(tmp_path / "state.bin")
    other = PortableMonitor(hidden=8, seed=5)
    other.observe_many(X)
    with pytest.raises(ModelFileError, match="whose seed is not 0"):
        PortableMonitor.from_dump(other.dump())
    assert PortableMonitor.from_dump(other.dump(), seed=5).n_seen == 900

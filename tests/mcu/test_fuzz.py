import shutil
import subprocess
from pathlib import Path

import pytest

from onlad.mcu import PortableMonitor, export

SANITISE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
ROUNDS = 1_500


def fuzz(folder, features, modes, rounds, seed, arithmetic="float"):
    hidden = 4 if features > 1 else 16  # more units than inputs, and fewer
    monitor = PortableMonitor(hidden=hidden, modes=modes, arithmetic=arithmetic)
    monitor.names = tuple(range(features))
    export.write(monitor, folder)
    source = Path(__file__).with_name("fuzz.c")
    command = ["gcc", "-std=c99", *SANITISE, "-I.", source, "onlad.c", "-lm", "-o", "fuzz"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    done = subprocess.run(
        [folder / "fuzz", str(rounds), str(seed)],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    taken = int(done.stdout.split()[0])
    assert 0.05 * rounds < taken < rounds  # both are seen


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize(
    ("features", "modes", "arithmetic"),
    [(1, 1, "float"), (3, 3, "float"), (1, 1, "fixed"), (3, 3, "fixed")],
)
def test_no_bytes_and_no_rows_make_a_model_that_is_not_sound(features, modes, arithmetic, tmp_path):
    fuzz(tmp_path, features, modes, ROUNDS, 1, arithmetic)


@pytest.mark.parametrize("times", [8, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
@pytest.mark.parametrize("seed", range(2, 6))
def test_no_bytes_and_no_rows_make_a_model_that_is_not_sound_for_long(
    seed, arithmetic, times, tmp_path
):
    fuzz(tmp_path, 2 + seed % 3, 3, ROUNDS * times, seed, arithmetic)

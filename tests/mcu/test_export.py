import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rough import machine

import onlad
from onlad import Detector, Monitor
from onlad.cli import main
from onlad.errors import OnladError
from onlad.mcu import PortableMonitor, export
from onlad.mcu.convert import from_monitor
from onlad.mcu.layout import Sizes

STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
NEEDS_CC = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")


def build(folder, program, *sources):
    """Compile a program with the exported sources; return its path."""
    (folder / "program.c").write_text(program)
    parts = ["program.c", "onlad.c", "onlad_flash.c", "onlad_selftest.c", *sources]
    command = ["gcc", *STRICT, *parts, "-lm", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "program"


SELFTEST = """
#include "onlad_selftest.h"
static onlad_monitor monitor;
int main(void) { return !onlad_selftest(&monitor); }
"""


@NEEDS_CC
@pytest.mark.parametrize("modes", ["1", "3"])
def test_a_fresh_export_compiles_without_a_warning_and_passes_its_self_test(tmp_path, modes):
    folder = tmp_path / "firmware"
    arguments = ["--features", "5", "--hidden", "16", "--modes", modes]
    assert main(["export", *arguments, "--target", "c", "-o", str(folder)]) == 0
    assert subprocess.run([build(folder, SELFTEST)], check=False).returncode == 0
    header = folder / "onlad_model.h"
    header.write_text(header.read_text().replace("ONLAD_CHECKSUM 0x", "ONLAD_CHECKSUM 1 + 0x"))
    assert subprocess.run([build(folder, SELFTEST)], check=False).returncode == 1


@NEEDS_CC
def test_a_monitor_that_takes_other_memory_than_was_told_does_not_compile(tmp_path):
    main(["export", "--features", "3", "-o", str(tmp_path)])
    header = tmp_path / "onlad_model.h"
    header.write_text(re.sub(r"ONLAD_RAM \d+", r"\g<0> + 4", header.read_text()))
    command = ["gcc", "-fsyntax-only", "onlad.c"]
    done = subprocess.run(
        command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "onlad_ram_is_as_expected" in done.stderr


@NEEDS_CC
@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
def test_the_source_is_cpp_too(arithmetic, tmp_path):
    main(["export", "--features", "3", "--arithmetic", arithmetic, "-o", str(tmp_path)])
    for standard in ("c++11", "c++20"):
        command = ["g++", "-x", "c++", f"-std={standard}", *STRICT[1:], "-fsyntax-only"]
        parts = ["onlad.c", "onlad_flash.c", "onlad_selftest.c"]
        subprocess.run([*command, *parts], cwd=tmp_path, check=True, timeout=60)


@NEEDS_CC
def test_arithmetic_that_knows_no_missing_value_is_refused(tmp_path):
    main(["export", "--features", "3", "-o", str(tmp_path)])
    for option in ("-ffast-math", "-ffinite-math-only"):
        command = ["gcc", option, "-fsyntax-only", "onlad.c"]
        done = subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60
        )
        assert "onlad needs arithmetic by the standard" in done.stderr


@NEEDS_CC
def test_the_headers_can_be_included_from_cpp(tmp_path):
    main(["export", "--features", "2", "--hidden", "8", "-o", str(tmp_path)])
    includes = ["-include", "onlad.h", "-include", "onlad_flash.h", "-include", "onlad_selftest.h"]
    command = ["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *includes, "-x", "c++"]
    subprocess.run([*command, "/dev/null"], cwd=tmp_path, check=True, timeout=60)


WATCH = """
#include <stdio.h>
#include "onlad.h"
static onlad_monitor monitor;
int main(void) {
    float x[ONLAD_FEATURES];
    onlad_init(&monitor);
    while (fread(x, sizeof x, 1, stdin)) {
        onlad_verdict v;
        onlad_observe(&monitor, x, &v);
        fwrite(&v.score, 4, 1, stdout);
    }
    return 0;
}
"""


@NEEDS_CC
def test_a_fitted_export_goes_on_from_the_model(tmp_path):
    X = machine(6000, 4)[:2500].astype("float32")
    onlad.save(Monitor().fit(X[:2000]), tmp_path / "pump.onlad")
    assert main(["export", str(tmp_path / "pump.onlad"), "-o", str(tmp_path / "firmware")]) == 0
    program = build(tmp_path / "firmware", WATCH)
    out = subprocess.run([program], input=X[2000:].tobytes(), capture_output=True, check=True)
    chip = from_monitor(onlad.load(tmp_path / "pump.onlad"))
    said = chip.observe_many(X[2000:])
    np.testing.assert_array_equal(np.frombuffer(out.stdout, "<f4"), said.score.astype("float32"))
    assert subprocess.run([build(tmp_path / "firmware", SELFTEST)], check=False).returncode == 0


def test_the_monitor_on_the_chip_judges_as_the_monitor_does():
    X = machine(8000, 5)[:3900]
    monitor = Monitor().fit(X[:3000])
    monitor.observe_many(X[3000:3500])
    chip = from_monitor(monitor)
    here, there = monitor.observe_many(X[3500:]), chip.observe_many(X[3500:])
    # float32 and another tanh; after a tick both learn, each in its way.
    np.testing.assert_allclose(there.score[:30], here.score[:30], rtol=0.03, atol=0.01)
    np.testing.assert_allclose(there.threshold[0], here.threshold[0], rtol=1e-6)
    # Then the chip fits its limit anew, to a histogram: a bin is 4 to 6 % wide in roots.
    np.testing.assert_allclose(there.threshold, here.threshold, rtol=0.15)
    assert np.mean(there.is_anomaly != here.is_anomaly) <= 0.01


def test_no_window_of_an_export_reaches_over_a_change_between_modes_of_the_history():
    rng = np.random.default_rng(0)
    load = np.convolve(rng.normal(size=4002), np.ones(3) / 1.7, "valid")
    follows = np.arange(4000) // 100 % 2 == 0  # else the second sensor goes against the first
    X = np.column_stack([load, np.where(follows, load, 8 - load)])
    X += 0.05 * rng.normal(size=X.shape)
    monitor = Monitor().fit(X[:3000])
    assert monitor.learned().watching.first_modes == 2
    chip = from_monitor(monitor)
    here, there = monitor.observe_many(X[3000:]), chip.observe_many(X[3000:])
    # float32 and another tanh; after a tick both learn, each in its way. Row 100 is of the other
    # mode: with the rows before it its score would be much higher.
    np.testing.assert_allclose(there.score[:150], here.score[:150], rtol=0.05, atol=0.005)
    assert here.score[:150].max() < 1
    assert np.mean(there.is_anomaly != here.is_anomaly) <= 0.01


def test_counters_of_a_monitor_go_on_on_the_chip(tmp_path):
    X = machine(8000, 3)[:3900]
    X[:, 2] = np.round(np.cumsum(3 + np.abs(np.nan_to_num(X[:, 2])) % 7), 1)
    X[3600:, 2] -= X[3600, 2]  # the meter is replaced
    monitor = Monitor().fit(X[:3500])
    assert monitor.describe()["counters"] == [2]
    onlad.save(monitor, tmp_path / "pump.onlad")
    chip = from_monitor(monitor)
    assert chip.counters == (2,)
    here, there = monitor.observe_many(X[3500:]), chip.observe_many(X[3500:])
    np.testing.assert_allclose(there.score[:30], here.score[:30], rtol=0.03, atol=0.01)
    assert np.mean(there.is_anomaly != here.is_anomaly) <= 0.01
    assert main(["export", str(tmp_path / "pump.onlad"), "-o", str(tmp_path / "firmware")]) == 0


@NEEDS_CC
def test_a_fresh_export_is_told_its_counters(tmp_path, capsys):
    command = ["export", "--features", "3", "--hidden", "8", "-o", str(tmp_path)]
    assert main([*command, "--counters", "1,2"]) == 0
    X = machine(2000, 3)[:900].astype("float32")
    X[:, 1:] = np.cumsum(np.abs(np.nan_to_num(X[:, 1:])), axis=0)
    done = subprocess.run(
        [build(tmp_path, WATCH)], input=X.tobytes(), capture_output=True, check=True
    )
    said = PortableMonitor(hidden=8, counters=[1, 2]).observe_many(X)
    np.testing.assert_array_equal(np.frombuffer(done.stdout, "<f4"), said.score.astype("float32"))
    assert subprocess.run([build(tmp_path, SELFTEST)], check=False).returncode == 0
    assert main([*command, "--counters", "3"]) == 1
    assert "counters must be names of features, got 3" in capsys.readouterr().err


def test_a_monitor_that_a_chip_cannot_hold_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(OnladError, match="has not started"):
        from_monitor(Monitor())
    with pytest.raises(OnladError, match="samples without order"):
        from_monitor(Monitor().fit(rng.normal(size=(500, 3))))
    walk = np.cumsum(rng.normal(size=(500, 300)), axis=0)
    with pytest.raises(OnladError, match="too many features for a chip"):
        from_monitor(Monitor().fit(walk))


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, capsys):
    folder = tmp_path / "firmware"
    command = ["export", "--features", "32", "--hidden", "64", "-o", str(folder)]
    assert main([*command, "--ram", "32k"]) == 1
    said = capsys.readouterr().err
    needed = f"{Sizes(32, 2, 4, 16, 3).ram():,} bytes"
    assert f"RAM           {needed}" in said
    assert f"needs {needed} of RAM and 680 of stack, which is more than 32,768" in said
    assert not folder.exists()
    assert main([*command, "--ram", "64k"]) == 0


def test_a_fitted_model_that_does_not_fit_says_what_would(tmp_path, capsys):
    X = machine(3000, 3)
    onlad.save(Monitor().fit(X), tmp_path / "pump.onlad")
    onlad.save(PortableMonitor(hidden=16).fit(X), tmp_path / "small.onlad")
    folder = tmp_path / "firmware"
    assert main(["export", str(tmp_path / "pump.onlad"), "--ram", "8k", "-o", str(folder)]) == 1
    assert "PortableMonitor(hidden=16).fit(history)" in capsys.readouterr().err
    small = ["export", str(tmp_path / "small.onlad"), "--ram", "8k", "-o", str(folder)]
    assert main([*small, "--modes", "2"]) == 1
    assert "has 3 places, which --modes cannot change" in capsys.readouterr().err
    assert main(small) == 0


def test_files_of_a_project_are_not_replaced(tmp_path, capsys):
    (tmp_path / "README.md").write_text("of a project")
    command = ["export", "--features", "3", "-o"]
    assert main([*command, str(tmp_path)]) == 1
    assert "has files that are not of an export" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    for _ in range(2):  # an export of before is
        assert main([*command, str(tmp_path / "onlad")]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "x"], "give a MODEL, or --features"),
        (["m.onlad", "--hidden", "8", "-o", "x"], "--hidden is for a fresh monitor"),
        (["--features", "3", "--ram", "much", "-o", "x"], "must be bytes, such as 32768 or 32k"),
    ],
)
def test_wrong_usage_says_what_to_do(words, says, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["export", *words])
    assert says in capsys.readouterr().err


def test_a_model_that_is_no_monitor_is_refused(tmp_path, capsys):
    detector = Detector(n_hidden=4)
    detector.learn_many([[0.1, 0.2]])
    onlad.save(detector, tmp_path / "d.onlad")
    onlad.save(PortableMonitor(), tmp_path / "p.onlad")
    assert main(["export", str(tmp_path / "d.onlad"), "-o", str(tmp_path / "x")]) == 1
    assert main(["export", str(tmp_path / "p.onlad"), "-o", str(tmp_path / "x")]) == 1
    assert main(["export", "--features", "3", "--warmup", "97", "-o", str(tmp_path / "x")]) == 1
    said = capsys.readouterr().err
    assert "holds a Detector; this needs a Monitor or PortableMonitor" in said
    assert "has seen no sample: use --features" in said
    assert "warmup must be a multiple of 12" in said


def test_a_model_of_a_chip_can_be_looked_at(tmp_path, capsys):
    monitor = PortableMonitor(hidden=8)
    monitor.observe_many(machine(2000, 3)[:900])
    onlad.save(monitor, tmp_path / "chip.onlad")
    assert main(["info", str(tmp_path / "chip.onlad"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["samples seen"], facts["ready"]) == ("PortableMonitor", 900, True)
    assert len(facts["modes"]) == 1


NEWLIB = "/usr/lib/arm-none-eabi/include"
PICOLIBC = "/usr/lib/picolibc/riscv64-unknown-elf/include"
COMPILERS = {
    "gcc": ("gcc",),
    "gcc-m0": ("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"),
    "gcc-rv32": ("riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32", "-isystem", PICOLIBC),
    "clang": ("clang",),
    "clang-m0": ("clang", "--target=armv6m-none-eabi", "-mfloat-abi=soft", "-isystem", NEWLIB),
    "clang-m4f": (
        "clang", "--target=armv7em-none-eabihf", "-mcpu=cortex-m4", "-isystem", NEWLIB
    ),
    "clang-rv32": (
        "clang", "--target=riscv32-unknown-elf", "-march=rv32imac", "-mabi=ilp32",
        "-isystem", PICOLIBC,
    ),
}  # fmt: skip
# What a compiler brings itself: soft float, whole numbers of 64 bits, leading zeros.
HELPERS = r"__aeabi_(?!mem)\w+|__\w+[sd][fi][2-4]?"
OF_LIBC = r"(__aeabi_)?memcpy[48]?|sqrtf"


def compiled(folder, compiler, *options):
    """Compile each source that goes onto a chip; return the symbols that it needs of others."""
    command = COMPILERS[compiler]
    for needed in (command[0], command[-1] if "-isystem" in command else command[0]):
        if not (shutil.which(needed) or Path(needed).is_dir()):
            pytest.skip(f"needs {needed}; .ci/run installs it")
    needed = set()
    for name in ("onlad", "onlad_flash", "onlad_selftest"):
        built = [*command, "-std=c99", *STRICT[2:], *options, "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(built, cwd=folder, check=True, timeout=60)
        undefined = subprocess.run(
            ["nm", "-u", f"{name}.o"], cwd=folder, check=True, capture_output=True, text=True
        )
        needed |= set(undefined.stdout.split()) - {"U"}
    return {name for name in needed if not name.startswith("onlad_")}


def exported(folder, **settings):
    monitor = PortableMonitor(hidden=16, **settings)
    monitor.names = tuple(range(5))
    export.write(monitor, folder)


@pytest.mark.parametrize("settings", [{}, {"arithmetic": "fixed", "layer": "seeded"}])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("level", ["-Os", "-O1", "-O2", "-O3"])
def test_of_the_c_library_the_source_needs_memcpy_and_sqrtf(compiler, level, settings, tmp_path):
    exported(tmp_path, **settings)
    needed = compiled(tmp_path, compiler, level)
    strange = {name for name in needed if not re.fullmatch(f"{HELPERS}|{OF_LIBC}", name)}
    assert not strange
    assert needed  # `nm` found some


@pytest.mark.parametrize("settings", [{}, {"arithmetic": "fixed", "layer": "seeded"}])
def test_no_function_of_the_source_calls_itself(settings, tmp_path):
    exported(tmp_path, **settings)
    compiled(tmp_path, "gcc-m0", "-Os", "-fcallgraph-info")
    calls = []
    for path in tmp_path.glob("*.ci"):
        calls += re.findall(
            r'sourcename: "(?:.*:)?(\w+)" targetname: "(?:.*:)?(\w+)"', path.read_text()
        )
    assert len(calls) > 50
    left = {caller for caller, _ in calls}
    while ends := {f for f in left if not any(a == f and b in left for a, b in calls)}:
        left -= ends
    assert not left, f"these call each other in a circle: {left}"

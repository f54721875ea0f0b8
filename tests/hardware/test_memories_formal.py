"""No memory is read and written at one address in one cycle, for any input at any time: proved.

By induction. After a reset the claims of `claims` hold, and what holds in a cycle holds in the
next, so numbers may be anything: products, words that are read, and what scalars do and when.
"""

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
import claims as say
from amaranth.hdl import Assert, Module
from amaranth.lib import wiring
from echo import PORTS
from formal import NUMBERS, induct
from inside import Claims, Inside, any_of

from onlad.hardware import Config
from onlad.hardware.rtl import arithmetic
from onlad.hardware.rtl.finish import Finish
from onlad.hardware.rtl.predict import PredictModule

# Fewer words than cycles in the lanes, more; fewer features than units; each number of lanes.
SMALL = Config(5, 2, 2)
DEEP = Config(5, 12, 4, "sigmoid")  # with passes longer than f and g: they come to where e lies
MORE = (
    Config(5, 3, 1),
    Config(13, 6, 2),
    Config(3, 6, 2),
    Config(33, 9, 8),
    Config(40, 40, 32),
)


class Memories(wiring.Component):
    """The core, and the claim that no memory collides."""

    def __init__(self, config):
        super().__init__(PORTS)
        self.config, self.claims = config, Claims()

    def elaborate(self, platform):
        m, claims = Module(), self.claims
        i = Inside(m, self.config, self)
        say.modules(claims, i)
        say.phases(claims, i)
        say.normalising(claims, i)
        say.addresses(claims, i)
        say.blocks(claims, i, m)
        assert set(i.hits) >= {"beta", "p", "b", "x", "vectors", "gains", "sums", "h"}
        claims.add("no collision", ~any_of(i.hits.values()))
        m.d.comb += Assert(claims.signal(m).all())
        return m


def proved(config, folder):
    cuts = (*NUMBERS, "top.core/scalars")
    top = Memories(config)
    return induct(top, folder, cuts=cuts, names=lambda: list(top.claims.all))


@pytest.mark.parametrize("config", [SMALL, DEEP], ids=str)
def test_no_word_is_read_while_it_is_written(config, tmp_path):
    assert proved(config, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("config", [*MORE, Config(512, 64)], ids=str)
def test_no_word_is_read_while_it_is_written_at_more_sizes(config, tmp_path):
    assert proved(config, tmp_path) == []


def never_busy(plain):
    def elaborate(self, platform):
        m = plain(self, platform)
        m.d.comb += self.idle.eq(1)
        return m

    return elaborate


def writes_where_it_reads(plain):
    def elaborate(self, platform):
        m = plain(self, platform)
        m.d.comb += self.parameters.write_word.eq(self.parameters.address.word)
        return m

    return elaborate


def one_slot(plain):
    def elaborate(self, platform):
        m = plain(self, platform)
        m.d.comb += self.passes.request.slot.eq(0)
        return m

    return elaborate


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        pytest.param(arithmetic.Arithmetic, writes_where_it_reads, marks=pytest.mark.slow),
        pytest.param(Finish, never_busy, marks=pytest.mark.slow),
        pytest.param(PredictModule, one_slot, marks=pytest.mark.slow),
    ],
)
def test_the_proof_finds_what_is_wrong(part, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(part, "elaborate", fault(part.elaborate))
    assert proved(SMALL, tmp_path)


def test_lanes_that_rest_too_early_are_found(tmp_path, monkeypatch):
    plain = arithmetic.delayed

    def shorter(m, signal, cycles, name):
        return plain(m, signal, 12 if name == "at" else cycles, name)

    monkeypatch.setattr(arithmetic, "delayed", shorter)
    assert "the lanes do not rest" in proved(SMALL, tmp_path)

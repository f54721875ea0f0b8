"""What a word starts comes to an end, for any input at any time: proved.

By a number that falls in every cycle from the start of a word's work to its answer. Its first
digit is the command's state, then those of Train and Predict Module, what is left of a pass, and
how long ago the last product was issued. It stands still only while Scalars is waited for, and
then a number of Scalars falls. The input stage waits for nothing else: no
stream of words stops the core.
"""

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
import claims as say
from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from echo import PORTS
from formal import NUMBERS, induct
from inside import Claims, Inside, any_of, count, implies, is_op

from onlad.hardware import Config
from onlad.hardware.fixed import EXPONENTS
from onlad.hardware.rtl.interfaces import Op
from onlad.hardware.rtl.normalise import Normalise
from onlad.hardware.rtl.predict import PredictModule
from onlad.hardware.rtl.scalars import Serial

SMALL = Config(5, 2, 2)
MORE = (Config(5, 3, 1), Config(3, 6, 2), Config(5, 12, 4, "sigmoid"), Config(40, 40, 32))

COMMANDS = ("TRAIN", "HIDDEN", "ERRORS_START", "ERRORS", "MEAN", "MEAN_END", "READ", "ANSWER")
TRAIN = (
    "RESTORE", "HIDDEN", "FORWARD", "FORWARD_END", "NORMALISE", "FORGOTTEN", "SQUARE", "GAIN",
    "GAIN_END", "NORMALISE_GAIN", "FINISH", "FINISHED", "ROOT_GAIN", "BETA_GAIN", "GAINS_END",
    "ROOT", "LIMIT", "ERRORS", "ROW", "ROW_END", "COMPARE", "REFUSED", "DONE", "IDLE",
)  # fmt: skip
FORGET = ("FORGET", "FORGOT", "LIFT")
SCALE = (
    "ALIGN", "ALIGNING", "SQUARE", "SQUARED", "ROOT", "ROOTED", "BY_D", "BY_D_DONE", "BY_ROOT",
    "BY_ROOT_DONE", "EARLY",
)  # fmt: skip
FINISH = ("LATE", "SCALED")
BOUND = ("BOUND", "BOUNDED", "BOUNDING")
MEAN = ("MEAN", "MEAN_WAIT", "MEAN_DONE")
SCALARS = (*FORGET, *SCALE, *FINISH, *BOUND, *MEAN, "DONE", "IDLE")
WAITS = (  # for `Serial`
    "FORGOT", "SQUARED", "ROOTED", "BY_D_DONE", "BY_ROOT_DONE", "BOUNDED", "MEAN_WAIT",
)  # fmt: skip


def digit(m, state, order):
    """Return how many states are still to come."""
    left = Signal(range(len(order)))
    with m.Switch(state.signal):
        for k, name in enumerate(reversed(order)):
            with m.Case(state.codes[name]):
                m.d.comb += left.eq(k)
    return left


def positive(value):
    return Mux(value > 0, value, 0)


def scalars(claims, i, m):
    """Say that each start of Scalars is heard; return the number that falls while it works."""
    add, now, train, at = claims.add, i.scalars, i.train, i.at
    part, serial = i.parts["scalars"], i.parts["scalars.serial"]
    add(now.signal.name, now.known())
    idle, ready = now("IDLE"), i.parts["train_module"]["ready"]
    add("scalars rest", implies(~i.commands("TRAIN", "MEAN_END"), idle))
    add("the mean", implies(i.commands("MEAN_END"), now(*MEAN, "DONE")))

    def works(states, names, otherwise=0):
        claim = Mux(ready, idle, now(*names, "DONE") | otherwise)
        add(f"{names[0]} in {states[0]}", implies(train(*states), claim))

    works(("HIDDEN", "REFUSED", "FORWARD", "FORWARD_END", "NORMALISE", "FORGOTTEN"), FORGET)
    add("forgotten", implies(train("SQUARE"), idle & ~ready))
    # f.f is on its way, once.
    whole = 8 + i.core.arithmetic.tree_depth
    squares = [stage.last & is_op(stage, Op.SQUARE) for stage in at[: whole + 2]]
    coming = [is_op(at[0], Op.SQUARE), *squares[1:]]
    lanes = i.core.arithmetic
    across = lanes.across_valid & (lanes.across_op == Op.SQUARE)
    add("f.f across", across == squares[whole])
    add("f.f is there", i.core.train.squares_valid == squares[whole + 1])
    add("f.f in a row", implies(is_op(at[0], Op.SQUARE), i.outer[0] == i.end))
    add("f.f once", count(coming) <= 1)
    gains = train("GAIN", "GAIN_END")
    add("f.f is awaited", implies(gains, any_of(coming) == (idle & ~ready)))
    works(("GAIN", "GAIN_END"), SCALE, otherwise=idle)
    works(("NORMALISE_GAIN", "FINISH"), SCALE)
    works(("FINISHED",), FINISH)
    rest = ("ROOT_GAIN", "BETA_GAIN", "GAINS_END", "ROOT", "LIMIT", "COMPARE", "RESTORE", "DONE")
    add("scalars rest in training", implies(train(*rest), idle))
    add("bound", implies(train("ERRORS", "ROW", "ROW_END"), idle | now(*BOUND)))

    busy, done = serial["busy"], serial["done"]
    add("a serial result is awaited", implies(now(*WAITS), busy != done))
    add("or none is under way", implies(~now(*WAITS), ~busy & ~done))
    steps = serial["count"]
    root_right = part["root_right"]
    beta_right, v = part["beta_right"], part["v"]
    inner = Signal(12)
    with m.If(now(*WAITS) & busy):
        m.d.comb += inner.eq(steps + 1)
    with m.Elif(now("LIFT")):
        m.d.comb += inner.eq((i.core.scalars.train.new_exponent - EXPONENTS[0])[:7])
    with m.Elif(now("ALIGNING")):
        m.d.comb += inner.eq(abs(v))
    with m.Elif(now("EARLY", "LATE")):
        m.d.comb += inner.eq(positive(root_right) + abs(beta_right))
    with m.Elif(now("BOUNDING")):
        m.d.comb += inner.eq(abs(root_right))
    first = ~part["second"] & ~idle  # of the two products of forgetting
    return Cat(inner, digit(m, now, SCALARS), first)


def rest(claims, i, m):
    """Say when nothing is under way any more; return how many cycles are left until then."""
    U, at = i.config.lanes, i.at
    most = max(len(at) - 1, 8 + U + len(i.hidden))
    since = Signal(range(most + 1))  # the last product was issued
    with m.If(i.core.arithmetic.issue.valid):
        m.d.sync += since.eq(0)
    with m.Elif(since != most):
        m.d.sync += since.eq(since + 1)
    claims.add("time passes", since <= most)
    for k in range(1, len(at)):
        claims.add(f"down the lanes, {k}", implies(at[k].valid, since < k))
    claims.add("down the chain", implies(i.chain, since <= 8 + i.place))
    for name, stages in (("hidden", i.hidden), ("errors", i.errors)):
        for k, stage in enumerate(stages):
            claims.add(f"down {name}, {k}", implies(stage, since <= 8 + U + k))
    return most - since


def step(claims, i, m):
    """Return the number that falls."""
    c, add, train, predict, core = i.config, claims.add, i.train, i.predict, i.core
    part, sums = i.parts["normalise"], i.banks["normalise.sums"]
    index, h_index = sums.read_address, core.train.h_index
    last = [part[f"last_{k}"] for k in range(1, 7)]
    add("a word to normalise", implies(sums.read, index < c.hidden))
    going = any_of([part["started_1"], part["started_2"], sums.read, *last])
    add("normalising", implies(train("NORMALISE", "NORMALISE_GAIN"), going))
    add("a word to restore", implies(train("RESTORE"), (h_index < c.hidden) & core.train.blank))

    inside = Signal(range(c.hidden + 9))
    with m.If(i.commands("READ")):
        m.d.comb += inside.eq(i.parts["commands"]["wait"])
    with m.Elif(train("RESTORE")):
        m.d.comb += inside.eq(c.hidden - h_index)
    with m.Elif(part["started_1"]):
        m.d.comb += inside.eq(c.hidden + 8)
    with m.Elif(part["started_2"]):
        m.d.comb += inside.eq(c.hidden + 7)
    with m.Elif(sums.read):
        m.d.comb += inside.eq(c.hidden + 6 - index)
    for k, bit in enumerate(last):
        with m.Elif(bit):
            m.d.comb += inside.eq(6 - k)

    blocks, block = c.beta_row, i.parts["predict_module"]["block"]
    work = Signal(range(4 * blocks + 5))
    order = {"SETTLE": 1, "HIDDEN": 2, "FIRST": 4 * blocks + 4}
    order |= {s: 4 * (blocks - block) + k for k, s in enumerate(("TEACH", "LOSS", "NEXT"), 1)}
    with m.Switch(predict.signal):
        for name, value in order.items():
            with m.Case(predict.codes[name]):
                m.d.comb += work.eq(value)

    def left(upper, lower):
        value = Signal.like(upper)
        with m.If(i.at[0].valid):
            m.d.comb += value.eq(upper - lower)
        return value

    resting = Signal(range(99 + c.lanes))
    m.d.comb += resting.eq(rest(claims, i, m))
    again = ~core.train.blank & ~train("IDLE")  # the guard's own sample may be to come
    return Cat(
        resting, left(i.top, i.inner[0]), left(i.end, i.outer[0]), i.at[0].valid, inside, work,
        digit(m, train, TRAIN), again, digit(m, i.commands, (*COMMANDS, "IDLE")),
    )  # fmt: skip


class Ends(wiring.Component):
    """The core, and the claim that what it works on comes to an end."""

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
        main, aside = step(claims, i, m), scalars(claims, i, m)
        busy, before, aside_before = Signal(), Signal(len(main)), Signal(len(aside))
        m.d.sync += [
            busy.eq(~i.commands("IDLE", "ANSWER")),
            before.eq(main),
            aside_before.eq(aside),
        ]
        falls = (main < before) | ((main == before) & (aside < aside_before))
        claims.add("nearer to the end", implies(busy, falls))
        m.d.comb += Assert(claims.signal(m).all())
        return m


def proved(config, folder):
    top = Ends(config)
    return induct(top, folder, cuts=NUMBERS, names=lambda: list(top.claims.all))


def test_what_is_started_ends(tmp_path):
    assert proved(SMALL, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("config", [*MORE, Config(512, 64)], ids=str)
def test_what_is_started_ends_at_more_sizes(config, tmp_path):
    assert proved(config, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "domain"), [(PredictModule, "comb"), (Normalise, "comb"), (Serial, "sync")]
)
def test_the_proof_finds_a_module_that_never_ends(part, domain, tmp_path, monkeypatch):
    plain = part.elaborate

    def never_done(self, platform):
        m = plain(self, platform)
        done = self.train.done if part is Normalise else self.done
        m.d[domain] += done.eq(0)
        return m

    monkeypatch.setattr(part, "elaborate", never_done)
    assert proved(SMALL, tmp_path)

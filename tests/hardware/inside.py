"""The core with its inside in view, for proofs: nothing of the gateware is changed for them."""

from amaranth.hdl import Cat, Fragment, Signal
from amaranth.lib import data, wiring
from echo import PORTS

from onlad.hardware.rtl.buffers import Banks
from onlad.hardware.rtl.interfaces import Op, delayed, is_any, issue_layout
from onlad.hardware.rtl.top import Top

SUMMED_IN_LANES = (Op.HIDDEN, Op.FORWARD, Op.ERRORS)


def implies(a, b):
    return ~a | b


def any_of(bits):
    return Cat(*bits).any()


def count(bits):
    return sum(bits, start=0)


def is_op(stage, *ops):
    return stage.valid & is_any(stage.op, ops)


class State:
    """The state of a machine: called with names, it tells whether it is in one of them."""

    def __init__(self, signal):
        self.signal, self.codes = signal, {}
        for code in range(1 << len(signal)):
            try:
                self.codes[signal.decoder(code).split("/")[0]] = code
            except KeyError:  # more codes than states
                break

    def __call__(self, *names):
        return is_any(self.signal, tuple(self.codes[name] for name in names))

    def known(self):
        return self.signal < len(self.codes)


class Part:
    """The signals that a component drives, by name."""

    def __init__(self, fragment):
        self.signals = [s for f in fragment.statements.values() for s in f._lhs_signals()]
        self.origins = fragment.origins or ()

    def __getitem__(self, name):
        return next(s for s in self.signals if s.name == name)


class Inside:
    """The core as a part of `m`, and what a proof looks at.

    at : what is under way in the lanes by cycle; `at[0]` is what Walk issues.
    inner, outer : where in its pass each of `at` was issued.
    hidden, errors : valid bits of `Finish`, first stage first.
    hits : by memory, whether it is read and written at one address.
    """

    def __init__(self, m, config, ports):
        self.config, self.core = config, Top(config)
        core = self.core
        m.submodules.core = fragment = Fragment.get(core, None)
        for name, flow in PORTS.items():
            mine, theirs = getattr(ports, name), getattr(core, name)
            m.d.comb += theirs.eq(mine) if flow.flow is wiring.In else mine.eq(theirs)
        self.parts = parts = dict(_parts(fragment))
        self.commands = State(parts["commands"]["commands_state"])
        self.train = State(parts["train_module"]["train_state"])
        self.predict = State(parts["predict_module"]["predict_state"])
        self.scalars = State(parts["scalars"]["scalars_state"])

        layout, lanes = issue_layout(config), parts["arithmetic"]
        names = {s.name for s in lanes.signals}
        stages = [lanes[f"at_{k}"] for k in range(1, 99) if f"at_{k}" in names]
        self.at = [core.walk.issue, *(data.View(layout, s) for s in stages)]
        walk = parts["walk"]
        self.walk_outer, self.top = walk["outer"], walk["top"]
        self.end, self.stride = walk["end"], walk["stride"]
        self.inner_last, self.outer_last = walk["inner_last"], walk["outer_last"]
        self.inner = delayed(m, walk["inner"], len(stages), "inner")
        self.outer = delayed(m, self.walk_outer, len(stages), "outer")
        self.chain = lanes["going"]
        # A lane's number in the chain; one lane has none.
        self.place = lanes["place"] if config.lanes > 1 else 0
        curve = 6 if config.activation == "sigmoid" else 0
        self.hidden = [parts["finish"][f"hidden_{k + 1}"] for k in range(4 + curve)]
        self.errors = [parts["finish"][f"errors_{k + 1}"] for k in range(4)]
        self.banks = {
            path: bank for path, p in parts.items() for bank in p.origins if isinstance(bank, Banks)
        }
        self.hits = {
            path.split(".")[-1]: b.read & b.write.any() & (b.read_address == b.write_address)
            for path, b in self.banks.items()
        }

    def only(self, *ops):
        """Return whether all that is under way is one of `ops`.

        A word that a host reads goes through the lanes too, as a sum without an end. When a step
        starts it is in cycle 11 or beyond.
        """

        def fine(op, allowed):
            return is_any(op, allowed) if allowed else 0

        summed = tuple(op for op in ops if op in SUMMED_IN_LANES)
        claims = [implies(self.chain, fine(self.core.arithmetic.chain_op, summed))]
        for k, stage in enumerate(self.at):
            read = is_op(stage, *SUMMED_IN_LANES) & ~stage.last if k > 10 else 0
            claims.append(implies(stage.valid, fine(stage.op, ops) | read))
        if Op.HIDDEN not in ops:
            claims.append(~any_of(self.hidden))
        if Op.ERRORS not in ops:
            claims.append(~any_of(self.errors))
        return Cat(*claims).all()


def _parts(fragment, path=""):
    yield path or "top", Part(fragment)
    for part, name, _ in fragment.subfragments:
        if isinstance(part, Fragment):
            yield from _parts(part, f"{path}.{name}" if path else name)


class Claims:
    """Claims that hold together in every cycle: each may need the others, a cycle before."""

    def __init__(self):
        self.all = {}

    def add(self, name, claim):
        assert name not in self.all, name
        self.all[name] = claim

    def signal(self, m):
        """Return a signal with one bit per claim."""
        held = Signal(len(self.all), name="held")
        m.d.comb += held.eq(Cat(*self.all.values()))
        return held

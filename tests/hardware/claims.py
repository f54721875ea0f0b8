"""What holds in every cycle of the core: who works, on what, and where in the memories.

Each function adds claims to a list. Together they follow from themselves a cycle before, which is
all that an induction needs; alone they may not.
"""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data
from inside import SUMMED_IN_LANES, any_of, count, implies, is_op

from onlad.hardware.packets import Mode
from onlad.hardware.rtl.commands import READ_CYCLES
from onlad.hardware.rtl.interfaces import KEPT, WORD, Op

QUIET = (
    "FORWARD", "NORMALISE", "FORGOTTEN", "SQUARE", "NORMALISE_GAIN", "FINISH", "FINISHED",
    "ROOT_GAIN", "ROOT", "ROW", "COMPARE", "RESTORE", "REFUSED", "DONE",
)  # fmt: skip


def modules(claims, i):
    """Say which module works when, and that no word is present while one does."""
    add, commands, train, predict = claims.add, i.commands, i.train, i.predict
    for machine in (commands, train, predict):
        add(machine.signal.name, machine.known())
    front, core = i.parts["front"], i.core
    stages = [  # of the input stage: whether there is a word, and it
        (front["have_one"], front["one"]),
        (front["have_two"], front["two"]),
        (core.front.decoded.present, core.front.decoded.word.as_value()),
    ]
    have = [valid for valid, _ in stages]
    waiting = front["waiting"]
    add("no word comes while one is worked on", implies(~commands("IDLE"), waiting & ~any_of(have)))
    asking = []
    for k, (valid, bits) in enumerate(stages):
        word = data.View(WORD, bits)
        asks = word.read | (word.mode == Mode.PREDICT) | (word.mode == Mode.TRAIN)
        asking.append(valid & asks)
        last = waiting & ~any_of(have[:k]) if k else waiting
        add(f"none follows one that asks, {k}", implies(asking[k], last))
    add("the input waits for an answer", implies(waiting, any_of(asking) | ~commands("IDLE")))

    add("training", train("IDLE") != commands("TRAIN"))
    works = commands("HIDDEN", "ERRORS") | train("HIDDEN", "LIMIT", "ERRORS")
    add("predicting", predict("IDLE") == ~works)
    hidden = commands("HIDDEN") | train("HIDDEN")
    add("of the hidden layer", implies(hidden, predict("HIDDEN", "SETTLE")))
    errors = ("FIRST", "NEXT", "LOSS", "SETTLE")
    add("of errors alone", implies(commands("ERRORS"), predict(*errors)))
    add("of errors", implies(train("LIMIT", "ERRORS"), predict(*errors, "TEACH")))
    add("errors have just begun", implies(train("LIMIT"), predict("FIRST")))

    # A word that a host reads is alone in the lanes, and far down before the next word comes.
    at, wait = i.at, i.parts["commands"]["wait"]
    valid = [stage.valid for stage in at]
    add("a read ends", implies(commands("READ"), wait < READ_CYCLES))
    for k in range(1, 11):
        here = wait == READ_CYCLES - k if k <= READ_CYCLES else 0
        add(f"a word is read, {k}", implies(commands("READ") & valid[k], here))
    for k, when in enumerate((commands("ANSWER"), commands("IDLE"), *have), start=6):
        add(f"a word was read, {k}", implies(when, ~any_of(valid[1:k])))
    calm = commands("IDLE", "READ", "ANSWER")
    add("no pass", implies(calm, ~any_of([valid[0], i.chain, *i.hidden, *i.errors])))
    for k, stage in enumerate(at[1:], start=1):
        read = is_op(stage, *SUMMED_IN_LANES) & ~stage.last
        add(f"no sum, {k}", implies(calm & stage.valid, read))


def phases(claims, i):
    """Say what may be under way in each state."""
    add, commands, train, predict = claims.add, i.commands, i.train, i.predict
    still = i.only()
    add("still", implies(commands("ERRORS_START", "MEAN", "MEAN_END"), still))
    add("still in training", implies(train(*QUIET), still))
    add("still at the start", implies(predict("HIDDEN"), still))
    for when, ops in (
        (commands("HIDDEN") | train("HIDDEN"), (Op.HIDDEN,)),
        (commands("ERRORS"), (Op.ERRORS, Op.LOSS)),
        (train("FORWARD_END"), (Op.FORWARD,)),
        (train("GAIN"), (Op.SQUARE,)),
        (train("GAIN_END"), (Op.SQUARE, Op.GAIN)),
        (train("BETA_GAIN"), (Op.ROOT_GAIN,)),
        (train("GAINS_END"), KEPT),
        (train("LIMIT", "ERRORS"), (Op.ROOT, Op.ERRORS, Op.LOSS, Op.TEACH)),
        (train("ROW_END"), (Op.ROW,)),
    ):
        add(f"under way: {[op.name for op in ops]}", implies(when, i.only(*ops)))
    lanes = i.core.arithmetic
    whole = i.at[8 + lanes.tree_depth]
    add("across", implies(lanes.across_valid, whole.valid & (whole.op == lanes.across_op)))


def normalising(claims, i):
    """Say that words leave Normalise in two states only, the last of them last."""
    part = i.parts["normalise"]
    started = [part["started_1"], part["started_2"]]
    running = i.banks["normalise.sums"].read
    going = [part[f"going_{k}"] for k in range(1, 6)]
    last = [part[f"last_{k}"] for k in range(1, 7)]
    add = claims.add
    some = any_of([*started, running, *going, *last])
    add("normalises", implies(some, i.train("NORMALISE", "NORMALISE_GAIN")))
    add("starts", implies(any_of(started), ~any_of([running, *going, *last])))
    add("starts once", ~(started[0] & started[1]))
    add("runs", implies(running, ~any_of(last)))
    for k, bit in enumerate(last):
        younger = [*started, running, *going[:k], *last[:k]]
        add(f"the last is last, {k}", implies(bit, ~any_of(younger)))


def addresses(claims, i):
    """Say where S and beta are read and written: no later read meets an earlier write."""
    c, add, at, inner, outer = i.config, claims.add, i.at, i.inner, i.outer
    row, blocks, issue = c.alpha_row, c.beta_row, i.at[0]
    block, predict = i.parts["predict_module"]["block"], i.predict
    within = (inner[0] <= i.top) & (outer[0] <= i.end)
    known = (i.inner_last == (inner[0] == i.top)) & (i.outer_last == (outer[0] == i.end))
    add("a pass has an end, and it is known", implies(issue.valid, within & known))
    rows = (i.stride == 1) & (i.top == row - 1) & (i.end == c.hidden - 1)
    there = issue.word == outer[0] * row + inner[0]
    add("a pass over S", implies(is_op(issue, Op.ROOT), rows & there))
    columns = (i.stride == blocks) & (i.top == c.hidden - 1) & (outer[0] == i.end)
    add(
        "a pass over beta",
        implies(is_op(issue, Op.ERRORS, Op.TEACH), columns & (outer[0] < blocks)),
    )
    one = (i.top == 0) & (inner[0] == 0) & (outer[0] == i.end) & (outer[0] < blocks)
    add("a block's loss", implies(is_op(issue, Op.LOSS), one))
    add("a block", implies(predict("NEXT", "LOSS", "TEACH"), block < blocks))
    add("the first block", implies(predict("FIRST"), block == 0))
    calm = i.commands("IDLE", "READ", "ANSWER")
    for k in range(10):
        beta = is_op(at[k], Op.ERRORS, Op.TEACH) & ~calm
        place = (at[k].word == inner[k] * blocks + outer[k]) & (outer[k] < blocks)
        add(f"a word of beta, {k}", implies(beta, place & (inner[k] < c.hidden)))
        new = is_op(at[k], Op.TEACH, Op.ERRORS, Op.LOSS)
        add(f"no block before the first, {k}", implies(predict("FIRST"), ~new))
        add(f"a word of S, {k}", implies(is_op(at[k], Op.ROOT), at[k].word < row * c.hidden))
    for k in range(9):
        earlier = predict("SETTLE") | (outer[k] < block)
        add(f"an earlier block is taught, {k}", implies(is_op(at[k], Op.TEACH), earlier))
    # What is issued is compared with all before it; one cycle on, a read with the write in cycle 9.
    for j, k in [*((0, k) for k in range(1, 9)), (1, 9)]:
        both = is_op(at[j], Op.ROOT) & is_op(at[k], Op.ROOT)
        add(f"S in order, {k}", implies(both, at[j].word == at[k].word + (k - j)))
        after = is_op(at[j], Op.ERRORS, Op.TEACH) & is_op(at[k], Op.TEACH)
        below = is_op(at[j], Op.TEACH) & (outer[j] == outer[k]) & (inner[j] > inner[k])
        add(f"beta in order, {k}", implies(after, (outer[j] > outer[k]) | below))


def blocks(claims, i, m):
    """Say which errors are in place when they are used, and that the next go to the other slot."""
    c, add, at, inner, outer = i.config, claims.add, i.at, i.inner, i.outer
    U, row, blocks = c.lanes, c.alpha_row, c.beta_row
    predict, chain, place, errors = i.predict, i.chain, i.place, i.errors
    block, ready = (i.parts["predict_module"][name] for name in ("block", "ready"))
    index = i.core.finish.place.index
    phase = i.commands("ERRORS") | i.train("LIMIT", "ERRORS")

    def last(k):
        return is_op(at[k], Op.ERRORS) & at[k].last

    # Blocks that have been taken over from the lanes, and errors that are in place.
    taken, placed = Signal(range(blocks + 3)), Signal(range((blocks + 3) * U))
    with m.If(predict("IDLE")):
        m.d.sync += [taken.eq(0), placed.eq(0)]
    with m.Else():
        m.d.sync += [taken.eq(taken + last(8)), placed.eq(placed + i.core.finish.e_valid)]
    left = Mux(chain, (taken - 1) * U + place, taken * U)  # errors that have left the lanes
    issued = taken + count(last(k) for k in range(1, 9))
    asked = issued + is_op(at[0], Op.ERRORS)

    add("a chain of a block", implies(phase & chain, taken >= 1))
    add("errors in order", implies(phase, placed + count(errors) == left))
    for k, error in enumerate(errors):
        here = i.parts["finish"][f"place_{k + 1}"] == placed + count(errors[k + 1 :])
        add(f"an error's place, {k}", implies(phase & error, here))
    before = i.commands("ERRORS_START") | predict("FIRST") | i.train(
        "NORMALISE", "FORGOTTEN", "SQUARE", "GAIN", "GAIN_END", "NORMALISE_GAIN", "FINISH",
        "FINISHED", "ROOT_GAIN", "BETA_GAIN", "GAINS_END", "ROOT",
    )  # fmt: skip
    add("sums are counted from zero", implies(before, index == 0))
    more = (
        any_of([*(is_op(stage, Op.ERRORS) for stage in at[:9]), chain, predict("FIRST")])
        | (predict("NEXT") & (block + 1 < blocks))
        | (predict("LOSS", "TEACH") & (block + 2 < blocks))
    )
    add("sums are counted on", implies(phase & more, index == left))
    nothing = (taken == 0) & (placed == 0) & ~chain & ~any_of(errors) & (ready == 0)
    add("nothing before the first", implies(predict("FIRST"), nothing & (asked == 0)))
    add("one block is asked ahead", implies(predict("NEXT"), asked == block + 1))
    ahead = Mux(block + 1 == blocks, blocks, block + 2)
    add("two blocks are asked", implies(predict("LOSS", "TEACH"), asked == ahead))
    add("no more than there are", implies(phase, asked <= blocks))
    for k in range(9):
        here = phase & is_op(at[k], Op.ERRORS)
        older = taken + count(last(j) for j in range(k + 1, 9))
        add(f"a block of errors, {k}", implies(here, outer[k] == older))
        add(f"its last, {k}", implies(here, at[k].last == (inner[k] == c.hidden - 1)))
        for j in range(k + 1, 9):
            add(f"a block later, {k} {j}", implies(here & last(j), inner[k] < j - k))
        add(f"a chain before, {k}", implies(here & chain, inner[k] <= 8 + place - k))
    if U > 1:
        add("a place in the chain", place < U)

    def whole(n):
        return (placed >= n * U) & (placed < (n + 1) * U)

    add("ready", implies(predict("NEXT", "LOSS"), whole(block + ready)))
    add("ready but for one", implies(predict("TEACH"), whole(block + 1 + ready)))
    add("few are ready", implies(predict("NEXT", "LOSS", "TEACH"), ready <= 2))
    add("no pause before a block", implies(predict("NEXT"), at[0].valid))
    add("no pause before it is taught", implies(predict("TEACH"), is_op(at[0], Op.LOSS)))
    # When the last product of a block is in cycle 13, the block before it is in place.
    for k in range(8, min(14, len(at))):
        have = left + chain if k == 8 else placed + count(errors[k - 9 :])
        add(f"soon in place, {k}", implies(phase & last(k), have >= outer[k] * U))
    next_one = is_op(at[0], Op.ERRORS) & (outer[0] == block + 1)
    still = [last(k) & (outer[k] == block + 1) for k in range(1, min(14, len(at)))]
    waits = predict("LOSS") & (block + 1 < blocks)
    add("the lanes do not rest", implies(waits, any_of([next_one, *still])))
    add("the next block alone", implies(waits, ~at[0].valid | next_one))

    used, later = is_op(at[0], Op.LOSS, Op.TEACH), is_op(at[1], Op.LOSS, Op.TEACH)
    for k, when, ahead in ((0, used, issued), (1, later, taken)):
        known = (placed >= (outer[k] + 1) * U) & (ahead <= outer[k] + 2)
        add(f"errors are used when in place, {k}", implies(when, known))
        add(f"a slot, {k}", implies(when, at[k].vector == 2 * row + outer[k][0]))
    add("f is below", implies(is_op(at[1], Op.ROOT), at[1].vector < row))

"""The service and the command line read the same JSON by the same rules."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("orjson")
from onlad.serve import payload
from onlad.serve.tables import StreamTable
from onlad.streams.block import Choice, number
from onlad.streams.records import Records
from onlad.streams.times import seconds

STREAM = StreamTable(name="plant", time="t")


def by_service(samples, grows):
    """Return what the service takes of samples that come one by one, and what it says."""
    names, rows, late = (), [], set()
    for sample in samples:
        data = json.dumps(sample).encode()
        found = payload.read(STREAM, data, names, 0.0, grows=grows and bool(names))
        names = found.names
        late |= found.late
        rows.append(found.rows[0].tolist() if len(found.rows) else found.bad[0][1])
    return names, rows, late


def by_command(samples, grows):
    """Return the same of `onlad watch`."""
    said = []
    reader, rows = Records(Choice(time="t"), say=said.append, grows=grows), []
    for sample in samples:
        (found,) = reader.read(json.dumps(sample).encode())
        rows.append(found if isinstance(found, str) else found[0])
    return reader.roles.features, rows, {text.split("'")[1] for text in said}


@pytest.mark.parametrize(
    "second",
    [
        {"flow": 3, "power": 4.5, "t": 2},
        {"power": 4.5},  # a name is missing
        {"flow": None, "power": 4},
        {"flow": 3, "power": 4, "heat": 5},  # a name comes later
        {"heat": 5},  # only such names
        {"flow": 3, "heat": "warm"},  # or text,
        {"flow": 3, "heat": None},  # or nothing,
        {"flow": 3, "heat": 1e300},  # or what cannot be,
        {"flow": 3, "h" * 201: 5, "heat": 6},  # or a very long name
        {"flow": "3", "power": 4},  # a number as text
        {"flow": True, "power": 4},
        {"flow": [3], "power": 4},
        {"flow": 1e300, "power": 4},
        {"flow": math.nan, "power": 4},
        {"t": 5},  # no name at all
        [3, 4],
        3.5,
    ],
    ids=str,
)
@pytest.mark.parametrize("grows", [False, True])
def test_both_take_the_same_samples(second, grows):
    samples = [{"flow": 1.0, "power": 2.0, "t": 1}, second, {"power": 6, "flow": 5, "t": 3}]
    names, rows, late = by_service(samples, grows)
    other_names, other_rows, other_late = by_command(samples, grows)
    assert (names, late) == (other_names, {name[:200] for name in other_late})
    for row, other in zip(rows, other_rows, strict=True):
        np.testing.assert_array_equal(row, other)  # or the same words that refuse it


@pytest.mark.parametrize(
    ("time", "when"),
    [
        (1_700_000_000, 1.7e9),
        (1_700_000_000_123, 1_700_000_000.123),
        (1_700_000_000_000_000_000, 1.7e9),
        ("1700000000", 1.7e9),
        ("2023-11-14T22:13:20Z", 1.7e9),
        ("2023-11-14T23:13:20.250000000+01:00", 1_700_000_000.25),
        (0.5, 0.5),
    ],
)
def test_times_are_read_as_the_command_line_reads_them(time, when):
    found = payload.read(STREAM, json.dumps({"flow": 1, "t": time}).encode(), (), 9.0)
    assert found.times == [when] == [seconds(time)]


@pytest.mark.parametrize("time", ["noon", "", math.inf, 1e30])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(ValueError, match="give seconds since 1970, or ISO 8601"):
        seconds(time)


def plain(text):
    return payload.read(StreamTable(name="plant", payload="plain"), text.encode(), (), 0.0)


@pytest.mark.parametrize("text", ["1.5", " 2e3", "nan"])
def test_plain_numbers_are_read_as_cells_of_a_table(text):
    np.testing.assert_array_equal(plain(text).rows, [[number(text, 0)]])


@pytest.mark.parametrize("text", ["1_000", "x", "1e300", "inf"])
def test_what_is_no_number_in_a_table_is_none_in_a_plain_message(text):
    with pytest.raises(ValueError, match="column '0' holds") as refused:
        number(text, 0)
    assert plain(text).bad == [(0, str(refused.value))]


values = st.none() | st.booleans() | st.floats(-1e101, 1e101) | st.integers(-5, 5) | st.just("1")
a_sample = st.dictionaries(st.sampled_from(["a", "b", "c", "t", "time"]), values) | st.lists(
    values, max_size=3
)


@given(
    samples=st.lists(a_sample, min_size=1, max_size=4),
    names=st.sampled_from([("a", "b"), (0, 1), ("t", "a")]),
    time=st.sampled_from([None, "t"]),
    ignore=st.sampled_from([(), ("c",)]),
)
@example(samples=[{"t": 1, "a": 2}], names=("t", "a"), time="t", ignore=())
def test_a_block_is_what_its_samples_are_one_by_one(samples, names, time, ignore):
    stream = StreamTable(name="plant", time=time, ignore=ignore)
    block = payload._block(stream, copy.deepcopy(samples), names, 9.0)
    if block is not None:
        each = payload._each(stream, samples, names, 9.0)
        np.testing.assert_array_equal(block.rows, each.rows)
        assert block[1:] == each[1:]


def test_a_watched_name_that_is_called_like_a_time_stays_one():
    data = b'{"time": 5, "flow": 1}'
    assert payload.read(StreamTable(name="plant"), data, (), 9.0).names == ("flow",)
    known = payload.read(StreamTable(name="plant"), data, ("time", "flow"), 9.0)
    assert (known.rows.tolist(), known.times) == ([[5.0, 1.0]], [9.0])
    chosen = StreamTable(name="plant", columns=("flow", "time"))
    assert payload.read(chosen, data, (), 9.0).rows.tolist() == [[1.0, 5.0]]

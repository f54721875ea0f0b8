"""Line protocol: what is written is read back, any text is read or refused, series stay apart."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad.streams import influx
from onlad.streams.block import Choice
from onlad.streams.lines import LONGEST, Chunk
from onlad.streams.records import Records
from onlad.streams.times import nanoseconds

WORD = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)


def escaped(text, characters):
    text = text.replace("\\", "/")  # a backslash before a separator has no unambiguous form
    return re.sub(f"([{characters}])", r"\\\1", text)


@given(
    measurement=WORD.filter(lambda text: text[0] not in "#,"),
    tags=st.dictionaries(WORD, WORD, max_size=3),
    fields=st.dictionaries(
        WORD.map(lambda text: text.replace("\\", "/")),
        st.one_of(
            st.floats(-1e100, 1e100),
            st.integers(-(2**63), 2**63 - 1),
            st.booleans(),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=10),
        ),
        min_size=1,
        max_size=5,
    ),
    time=st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_a_line_is_read_as_it_was_written(measurement, tags, fields, time):
    series = escaped(measurement, ", ")
    for name, value in tags.items():
        series += f",{escaped(name, ',= ')}={escaped(value, ',= ')}"
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    parts = []
    for name, value in fields.items():
        if isinstance(value, int) and not isinstance(value, bool):
            parts.append(f"{escaped(name, ',= ')}={value}i")
        else:
            shown = influx.field_text({"x": value})[2:]
            parts.append(f"{escaped(name, ',= ')}={shown}")
    line = f"{series} {','.join(parts)}" + ("" if time is None else f" {time}")
    point = influx.parse(line)
    numbers = {name: float(value) for name, value in fields.items() if name not in texts}
    assert (point.series, point.fields, point.time) == (series, numbers, time)
    more = influx.parse(influx.with_fields(line, {"onlad_score": 1.5, "onlad_cause": 'a "b" \\'}))
    assert (more.series, more.time) == (series, time)
    assert more.fields == numbers | {"onlad_score": 1.5}


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        point = influx.parse(text)
    except ValueError:
        return
    assert text.startswith(point.series)
    assert all(math.isfinite(value) or value != value for value in point.fields.values())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (" a=1", "it has no measurement"),
        ("pump", "no field=value at character 5"),
        ("pump flow", "no field=value at character 6"),
        ("pump flow=", "field 'flow' has no value"),
        ("pump flow=high", "field 'flow' holds 'high', which is not a value"),
        ("pump flow=1 now", "'now' is not a time in nanoseconds"),
        ('pump flow="open', "field 'flow' holds '\"open', which is not a value"),
        ('pump flow="a"x', "'x' is not a time in nanoseconds"),
        ("pump flow=0x10", "field 'flow' holds '0x10', which is not a value"),
    ],
)
def test_a_line_that_is_none_is_refused_with_the_place(line, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        influx.parse(line)


def blocks(text, choice=None, known=lambda series: ()):
    said = []
    series = influx.Series(choice or Choice(), known, said.append)
    return list(influx.blocks([Chunk(text.encode(), 1, len(text))], series)), said


def test_each_series_has_its_own_fields():
    found, said = blocks(
        "cpu,host=a user=1,idle=9 10\ncpu,host=a user=2,idle=8 20\ncpu,host=b idle=5,user=5 20\n"
        'log,host=a text="x" 30\ncpu,host=a idle=7,nice=1 40\n'
    )
    assert [block.series for block in found] == [
        "cpu,host=a", "cpu,host=b", "log,host=a", "cpu,host=a",
    ]  # fmt: skip
    assert found[0].names == found[3].names == ("user", "idle")
    assert found[1].names == ("idle", "user")
    assert found[2].names == ()
    np.testing.assert_array_equal(found[0].values, [[1, 9], [2, 8]])
    np.testing.assert_array_equal(found[3].values, [[math.nan, 7]])
    assert [list(block.row) for block in found] == [[0, 1], [2], [3], [4]]
    assert said == ["cpu,host=a: field 'nice' came later and is not watched"]


def test_fields_that_come_later_are_added_where_a_series_grows():
    said = []
    lines = b"cpu user=1 10\ncpu user=2,idle=8 20\ncpu user=3 30\n"
    series = influx.Series(Choice(), lambda series: (), said.append, grows=True)
    found = list(influx.blocks([Chunk(lines, 1, 0)], series))
    assert [block.names for block in found] == [("user",), ("user", "idle")]
    np.testing.assert_array_equal(found[1].values, [[2, 8], [3, math.nan]])
    assert said == []


def test_fields_are_chosen_and_a_model_decides():
    found, _ = blocks("a x=1,y=2,z=3\n", Choice(columns=("x", "y"), ignore=("y",)))
    assert found[0].names == ("x",)
    found, _ = blocks("a x=1,y=2,z=3\n", known=lambda series: ("z", "y"))
    np.testing.assert_array_equal(found[0].values, [[3, 2]])


def test_bad_lines_are_named_and_good_ones_pass():
    found, _ = blocks("a x=1\nnonsense\n\n# a comment\na x=1e300\na x=2\n")
    assert [str(bad) for block in found for bad in block.bad] == [
        "line 2: no field=value at character 9",
        "line 5: column 'x' holds 1e+300, which cannot be a measurement",
    ]
    # What is well formed goes on, also where it is not watched.
    assert [line for block in found for line in block.lines or ()] == [
        "a x=1",
        "a x=1e300",
        "a x=2",
    ]
    series = influx.Series(Choice(), lambda series: (), print)
    long = list(influx.blocks([Chunk(b"", 7, 0, LONGEST + 1)], series))
    assert str(long[0].bad[0]).startswith("line 7: it has 1048577 bytes")
    bad = list(influx.blocks([Chunk(b"a\xff x=1\n", 1, 0)], series))
    assert str(bad[0].bad[0]) == "line 1: byte 2 is not UTF-8"


def test_series_beyond_the_limit_are_reported_not_watched(monkeypatch):
    monkeypatch.setattr(influx, "MOST", 2)
    found, _ = blocks("a x=1\nb x=1\nc x=1\na x=2\n")
    assert [bool(block.names) for block in found] == [True, True, False, True]
    assert found[2].lines == ["c x=1"]
    assert "'c' is one series too many: at most 2 are watched" in str(found[2].bad[0])


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        (1_700_000_000, 1_700_000_000 * 10**9),
        ("1700000000.25", 1_700_000_000_250_000_000),
        (1_700_000_000_123, 1_700_000_000_123 * 10**6),
        (1_700_000_000_123_456, 1_700_000_000_123_456 * 10**3),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20Z", 1_700_000_000 * 10**9),
        ("2023-11-14 23:13:20.5+01:00", 1_700_000_000_500_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
    ],
)
def test_times_become_nanoseconds(time, ns):
    assert nanoseconds(time) == ns


@pytest.mark.parametrize("time", ["noon", "nan", "inf", ""])
def test_what_is_no_time_is_refused(time):
    with pytest.raises((ValueError, OverflowError)):
        nanoseconds(time)


names = st.sets(st.sampled_from("bcdef"))


@given(st.lists(names, max_size=6), st.booleans(), st.sampled_from(["", "ab"]), names)
def test_names_that_come_later_are_treated_as_in_json(samples, grows, known, ignore):
    choice, told, said = Choice(ignore=tuple(ignore)), [], []
    records = Records(choice, tuple(known), told.append, grows=grows)
    series = influx.Series(choice, lambda series: tuple(known), said.append, grows=grows)
    for sample in samples:
        fields = {name: float(ord(name)) for name in ("a", *sorted(sample))}
        values, *_ = records.take(fields)
        names, found = series.sample(influx.Point("m", fields, None, 0))
        assert names == records.roles.features
        np.testing.assert_array_equal(found, values)
    assert said == [f"m: field {text}" for text in told]

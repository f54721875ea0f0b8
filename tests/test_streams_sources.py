"""JSON lines, Parquet, brokers, and what the first line tells."""

import json
import math
import re

import numpy as np
import pytest

from onlad.streams import records
from onlad.streams.block import Choice, StreamError
from onlad.streams.lines import Chunk
from onlad.streams.mqtt import parse_address
from onlad.streams.source import Reading
from onlad.streams.stop import Stop
from onlad.streams.times import moments, seconds


def opened(where, **options):
    with Stop() as stop:
        source = Reading(**options).open(str(where), lambda series: (), stop, print)
        return source, list(source.blocks)


def json_blocks(text, choice=None, known=()):
    return list(records.blocks([Chunk(text.encode(), 1, 0)], choice or Choice(), known))


def test_objects_and_arrays_are_samples():
    (block,) = json_blocks(
        '{"time": 5, "a": 1, "b": null, "label": true}\n'
        '{"label": false, "b": 2.5, "a": true, "time": "x"}\n\n{"a": NaN}\n',
        Choice(label="label"),
    )
    assert block.names == ("a", "b")
    np.testing.assert_array_equal(block.values, [[1, math.nan], [1, 2.5], [math.nan] * 2])
    assert list(block.times) == [5, "x", None]
    assert list(block.labels) == ["1", "0", ""]
    (block,) = json_blocks("[1, 2]\n[3, null]\n")
    assert block.names == (0, 1)
    np.testing.assert_array_equal(block.values, [[1, 2], [3, math.nan]])
    (block,) = json_blocks('{"c": 1, "a": 2, "x": "text"}\n', known=("a", "b"))
    np.testing.assert_array_equal(block.values, [[2, math.nan]])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "it is not JSON: Expecting property name"),
        ('"word"', "it is neither an object of names and numbers nor an array of numbers"),
        ("{}", "it is neither an object of names and numbers"),
        ('{"a": "1", "b": 2}', "column 'a' holds \"1\", which is not a number"),
        ('{"a": [1], "b": 2}', "column 'a' holds an array, which is not a number"),
        ('{"a": 1e999, "b": 2}', "column 'a' holds inf, which cannot be a measurement"),
        ('{"a": 1' + "0" * 400 + "}", "column 'a' holds a number that is too large"),
        ("[" * 100_000, "it is nested too deeply: "),
    ],
)
def test_a_bad_record_is_named_and_the_others_stay(line, why):
    (block,) = json_blocks(f'{{"a": 1, "b": 2}}\n{line}\n{{"a": 3, "b": 4}}\n')
    assert block.values.tolist() == [[1, 2], [3, 4]]
    assert block.row.tolist() == [0, 2]
    assert len(block.bad) == 1
    assert str(block.bad[0]).startswith(f"line 2: {why}")


@pytest.mark.parametrize("raw", ["5", "[1, null]", '[{"a": 1}, {"a": NaN}]', "[]", "nul", "\\xff"])
def test_json_is_read_alike_without_the_extra(monkeypatch, raw):
    def read():
        return [str(found) for found in records.Records(Choice()).read(raw.encode("latin-1"))]

    with_extra = read()
    monkeypatch.setattr(records, "loads", json.loads)
    assert read() == with_extra


def test_names_that_come_later_are_said_once_and_not_watched():
    said = []
    text = '{"a": 1}\n{"a": 2, "b": 5}\n{"b": 6, "a": 3}\n{"a": 4, "c": 1}\n'
    chunk = Chunk(text.encode(), 1, 0)
    (block,) = records.blocks([chunk], Choice(ignore=("a_*",)), (), said.append)
    assert block.values.tolist() == [[1], [2], [3], [4]]
    assert said == ["'b' came later and is not watched", "'c' came later and is not watched"]
    said.clear()
    text = '{"a": 1, "x": 2}\n{"a": 2, "x": 3, "y": 1}\n'  # a model that never knew x
    (block,) = records.blocks([Chunk(text.encode(), 1, 0)], Choice(), ("a",), said.append)
    assert (block.values.tolist(), said) == ([[1], [2]], ["'y' came later and is not watched"])


def test_names_that_come_later_are_added_where_a_series_grows():
    said = []
    text = '{"a": 1}\n{"a": 2, "b": null}\n{"a": 3, "b": 5, "c": "x"}\noops\n{"a": 4, "b": 1e200}\n'
    chunks = [Chunk(text.encode(), 1, 0), Chunk(b'{"a": 5, "b": 6}\n', 6, 0)]
    found = list(records.blocks(chunks, Choice(), (), said.append, grows=True))
    assert [block.names for block in found] == [("a",), ("a", "b"), (), ("a", "b")]
    assert [block.values.tolist() for block in found] == [[[1], [2]], [[3, 5]], [], [[5, 6]]]
    assert [block.row.tolist() for block in found] == [[0, 1], [2], [], [5]]
    assert [bad.where for block in found for bad in block.bad] == ["line 4", "line 5"]
    assert said == ["'c' came later and is not watched"]  # no number
    chosen = Choice(columns=("a",))
    (block, _) = records.blocks(chunks, chosen, (), said.append, grows=True)
    assert block.names == ("a",)


def test_a_first_record_that_is_bad_decides_nothing():
    (block,) = json_blocks('{"x": "text"}\n{"a": 1}\n')
    assert block.names == ("a",)
    assert len(block.bad) == 1
    (block,) = json_blocks(
        '{"state": 1}\n{"flow": 2, "at": "noon"}\n', Choice(columns=("flow",), time="at")
    )
    assert (block.names, block.values.tolist(), list(block.times)) == (("flow",), [[2]], ["noon"])
    assert str(block.bad[0]) == "line 1: no column matches 'flow'; there are 'state'"


@pytest.mark.parametrize(
    ("name", "text", "many"),
    [
        ("a.csv", "a,b\n1,2\n", False),
        ("a.tsv", "a\tb\n1\t2\n", False),
        ("a.jsonl", '{"a": 1, "b": 2}\n', False),
        ("a.lp", "m a=1,b=2\n", True),
        ("plain", "\n\na,b\n1,2\n", False),
        ("plain", ' {"a": 1, "b": 2}\n', False),
        ("plain", "[1, 2]", False),
        ("plain", "m,host=a\\ b a=1,b=2 5\n", True),
        ("plain", "flow rate,power = W\n1,2\n", False),
    ],
)
def test_the_format_is_found_by_suffix_or_first_line(tmp_path, name, text, many):
    (tmp_path / name).write_text(text)
    source, blocks = opened(tmp_path / name)
    assert source.many == many
    assert source.size == len(text)
    assert blocks[-1].values.tolist() == [[1, 2]]
    assert blocks[-1].position == len(text)


def test_an_empty_source_has_no_samples(tmp_path):
    (tmp_path / "empty").write_text("")
    assert opened(tmp_path / "empty")[1] == []


@pytest.mark.parametrize("name", ["nothing.csv", "."])
def test_what_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(StreamError, match="cannot read"):
        opened(tmp_path / name)


def test_parquet_is_read_by_batches(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=10_000), rng.integers(0, 9, 10_000)
    times = np.datetime64("2026-01-01") + np.arange(10_000).astype("timedelta64[s]")
    table = {
        "time": pa.array(times),
        "a": pa.array(a, mask=a > 3),
        "b": pa.array(b),
        "on": pa.array(b > 4),
        "label": pa.array(b == 7),
        "note": pa.array(["x"] * 10_000),
    }
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(table), path)
    _, blocks = opened(path, choice=Choice(label="label", ignore=("note",)))
    values = np.concatenate([block.values for block in blocks])
    np.testing.assert_array_equal(values, np.column_stack([np.where(a > 3, np.nan, a), b, b > 4]))
    assert blocks[0].names == ("a", "b", "on")
    assert blocks[0].times[1] == "2026-01-01T00:00:01"
    assert [label for block in blocks for label in block.labels] == [str(int(x == 7)) for x in b]
    assert [i for block in blocks for i in block.row] == list(range(10_000))
    with pytest.raises(StreamError, match="column 'note' holds string, not numbers"):
        opened(path)
    a[17] = math.inf
    parquet.write_table(pa.table({"a": a}), path)
    _, blocks = opened(path)
    assert [str(bad) for block in blocks for bad in block.bad] == [
        "row 17: column 'a' holds inf, which cannot be a measurement"
    ]
    assert sum(len(block.values) for block in blocks) == 9_999
    path.write_bytes(b"PAR1 and nothing")
    with pytest.raises(StreamError, match="cannot read"):
        opened(path)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("mqtt://h/a/+/b", ("h", 1883, None, None, "a/+/b", False)),
        ("mqtts://u:p%40@h:99/a/#", ("h", 99, "u", "p@", "a/#", True)),
    ],
)
def test_addresses_of_brokers(address, parts):
    assert parse_address(address) == parts


@pytest.mark.parametrize("address", ["mqtt://h", "mqtt:///topic", "mqtt://h:port/topic"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(StreamError, match=re.escape(address)):
        parse_address(address)


@pytest.mark.parametrize(
    "times",
    [
        [0, 0.5, 99_999_999_999, 100_000_000_000, 1_700_000_000_123, -1_700_000_000_123],
        [99_999_999_999_999, 100_000_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000],
        ["1700000000", "1700000000123", "-5"],
        ["2023-11-14 22:13:20", "2023-11-14T22:13:20"],
        ["2023-11-14T23:13:20+01:00", 1_700_000_000, "1700000000.25"],
    ],
    ids=str,
)
def test_many_times_are_read_by_the_rule_of_one(times):
    # Both divide the same number by the same unit; Decimal rounds once, float64 at most twice.
    one_by_one = np.array([seconds(time) for time in times])
    np.testing.assert_allclose(moments(times), one_by_one, rtol=2 * np.finfo(float).eps, atol=0)

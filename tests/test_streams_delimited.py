"""CSV, against Python's own csv and float: the same rows, the same bits, the same rows refused."""

import csv
import io
import math
import struct

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onlad.streams import delimited
from onlad.streams.block import Choice, StreamError
from onlad.streams.lines import LONGEST, Chunk, Lines

MISSING = {"", "nan", "na", "n/a", "null", "none"}


def read(data, sizes=(), choice=None, known=(), delimiter=None, decimal="."):
    """Return row indices, values, times, labels and bad rows of `data`, read in pieces."""
    lines, pieces, at = Lines(), [], 0
    for size in (*sizes, *[1 << 18] * (len(data) // (1 << 18) + 1)):
        pieces.append(data[at : at + size])
        at += size
    said = []

    def chunks():
        for piece in pieces:
            yield from lines.feed(piece)
        yield from lines.finish()

    dialect = delimited.Dialect(delimiter, decimal)
    found = list(delimited.blocks(chunks(), choice or Choice(), known, dialect, said.append))
    blocks = [block for block in found if block.names]
    return {
        "names": blocks[0].names if blocks else (),
        "row": [int(i) for block in blocks for i in block.row],
        "values": np.concatenate([block.values for block in blocks]) if blocks else None,
        "times": [t for block in blocks for t in (block.times or [])],
        "labels": [t for block in blocks for t in (block.labels or [])],
        "bad": [bad for block in found for bad in block.bad],
        "said": said,
    }


def expected(lines, n_fields, delimiter, decimal):
    """Return what Python makes of the lines after the header: good rows and bad ones."""
    good, bad, row = [], [], 0
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            fields = next(csv.reader([line], delimiter=delimiter, strict=True))
            if "\0" in line or len(fields) != n_fields:
                raise ValueError
            if decimal != "." and any("." in field for field in fields):
                raise ValueError
            values = [
                math.nan if field.strip().lower() in MISSING else float(field.replace(decimal, "."))
                for field in fields
            ]
            if any(abs(v) > 1e100 for v in values) or any("_" in field for field in fields):
                raise ValueError
            good.append((row, values))
        except (ValueError, csv.Error):
            bad.append((f"line {number}", row))
        row += 1
    return good, bad


def bits(value):
    return "nan" if value != value else struct.pack("<d", value)


NUMBERS = st.one_of(
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
CELLS = st.one_of(
    NUMBERS,
    NUMBERS.map(lambda text: f" {text} "),
    NUMBERS.map(lambda text: f'"{text}"'),
    st.sampled_from(["", " ", "nan", "-nan", "NaN", "nan(1)", "NA", "inf", "-Infinity", "1_0"]),
    st.sampled_from(
        ["0x1p3", "1e400", "1e-400", "5e-324", "1,5", "1;5", "٣", "é", '"', '""', "\0"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6),
)


@settings(max_examples=300)
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=12),
    delimiter=st.sampled_from(",;\t "),
    decimal=st.sampled_from(".,"),
    sizes=st.lists(st.integers(1, 40), max_size=30),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_rows_are_those_of_csv_and_float_to_the_bit(rows, delimiter, decimal, sizes, end):
    assume(delimiter != decimal)
    rows = [[cell.replace(".", decimal) for cell in row] for row in rows]
    lines = [delimiter.join(row) for row in rows]
    data = end.join([delimiter.join("abc"), *lines, ""]).encode()
    found = read(data, sizes, delimiter=delimiter, decimal=decimal)
    good, bad = expected(lines, 3, delimiter, decimal)
    assert found["row"] == [row for row, _ in good]
    if good:
        assert [[bits(v) for v in row] for row in found["values"].tolist()] == [
            [bits(v) for v in values] for _, values in good
        ]
    assert [(each.where, each.row) for each in found["bad"]] == bad


SPECIAL = [
    "nan(1)", "nan()", "-nan", "+nan", "NAN", "nano", "inf", "-inf", "Infinity", "1e100",
    "1.0000001e100", "-1e101", "1e400", "-1e-400", "5e-324", "2.4703282292062327e-324", "-0", "+1",
    " 1", "1 ", "1\t", ".5", "5.", ".", "-", "1e", "1e+", "0x10", "1d3", "1f", "1_0", "9" * 70,
    "0." + "0" * 70 + "1", "1" + "0" * 62 + ".5", "0.1e-7", "1..2", "1.2.3", "'1'", '"1"', '" 1 "',
]  # fmt: skip


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("cell", SPECIAL)
def test_a_cell_among_plain_ones_is_as_python_has_it(cell, decimal):
    line = ";".join(["1", cell.replace(".", decimal), "2"])
    found = read(f"a;b;c\n{line}\n".encode(), delimiter=";", decimal=decimal)
    good, bad = expected([line], 3, ";", decimal)
    assert [(each.where, each.row) for each in found["bad"]] == bad
    assert [bits(v) for row in found["values"] for v in row] == [
        bits(v) for _, values in good for v in values
    ]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_every_number_that_python_writes_is_read_back(values):
    data = ("x\n" + "\n".join(map(repr, values)) + "\n").encode()
    found = read(data)
    kept = [v for v in values if abs(v) <= 1e100]
    rows = [] if found["values"] is None else found["values"][:, 0].tolist()
    assert [bits(v) for v in rows] == [bits(v) for v in kept]
    assert len(found["bad"]) == len(values) - len(kept)


def test_columns_have_roles():
    data = b'time,a,note,b,label\n"10:00",1,"x, y",2,0\n10:01,3,z,4,1\n10:02,5,,6,"1"\n'
    found = read(data, choice=Choice(ignore=("note",), label="label"))
    assert found["names"] == ("a", "b")
    assert found["values"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found["times"] == ["10:00", "10:01", "10:02"]
    assert found["labels"] == ["0", "1", "1"]
    chosen = read(data, choice=Choice(columns=("b", "a*"), label="label", time="note"))
    assert chosen["names"] == ("a", "b")
    assert chosen["times"] == ["x, y", "z", ""]


def test_a_model_decides_which_columns_and_in_which_order():
    found = read(b"a,b,c\n1,2,3\n", known=("c", "a"))
    assert found["names"] == ("c", "a")
    assert found["values"].tolist() == [[3, 1]]
    with pytest.raises(StreamError, match="the model watches 'd', which the source does not have"):
        read(b"a,b,c\n1,2,3\n", known=("c", "d"))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(time="when"), "there is no column 'when'; there are 'a', 'b'"),
        (Choice(columns=("x*",)), r"no column matches 'x\*'; there are 'a', 'b'"),
        (Choice(ignore=("a", "b")), "no column is left to watch of 'a', 'b'"),
    ],
)
def test_a_choice_that_fits_no_column_is_refused(choice, words):
    with pytest.raises(StreamError, match=words):
        read(b"a,b\n1,2\n", choice=choice)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1", "it has 1 fields; the first line has 2"),
        (b"1,2,3", "it has 3 fields; the first line has 2"),
        (b"1,two", "column 'b' holds 'two', which is not a number"),
        (b"1," + b"x" * 50, "column 'b' holds '" + "x" * 37 + "...', which is not a number"),
        (b"1,inf", "column 'b' holds inf, which cannot be a measurement"),
        (b"1,\xff", "byte 3 is not UTF-8"),
        (b'1,"2', "it is not a line of CSV: unexpected end of data"),
        (b"1,\0", "it holds a zero byte"),
        (b"1,2" + b" " * LONGEST, f"it has {LONGEST + 3} bytes; a line may have {LONGEST}"),
    ],
)
def test_a_bad_row_is_named_and_the_others_stay(line, why):
    found = read(b"a,b\n1,2\n" + line + b"\n\n3,4\n")
    assert found["values"].tolist() == [[1, 2], [3, 4]]
    assert found["row"] == [0, 2]
    assert [(bad.where, bad.why, bad.row) for bad in found["bad"]] == [("line 3", why, 1)]


def test_a_source_without_names_is_reported_and_no_row_is_lost():
    found = read(b"1,2\n3,\n")
    assert found["names"] == (0, 1)
    np.testing.assert_array_equal(found["values"], [[1, 2], [3, math.nan]])
    assert str(found["bad"][0]).startswith("line 1: it holds numbers, not names")


def test_headers_in_all_their_forms():
    assert read(b"\xef\xbb\xbfa;b\r\n1;2\r\n")["values"].tolist() == [[1, 2]]
    unnamed = read(b",a\n0,5\n1,6\n")
    assert (unnamed["names"], unnamed["values"].tolist()) == (("a",), [[5], [6]])
    assert unnamed["said"] == ["column 1 has no name and is ignored"]
    again = read(b"a,b\n1,2\na,b\n3,4\n")  # a file that was begun anew
    assert (again["row"], again["bad"]) == ([0, 1], [])
    with pytest.raises(StreamError, match="line 1, the header, has 'a' twice"):
        read(b"a,a\n1,2\n")
    with pytest.raises(StreamError, match="the source is UTF-16"):
        read("a,b\n".encode("utf-16"))
    with pytest.raises(StreamError, match="line 1, the header: byte 2 is not UTF-8"):
        read(b"a\xb0,b\n1,2\n")
    with pytest.raises(StreamError, match="line 1, the header, has over"):
        read(b"a" * (LONGEST + 1))


def test_what_csv_wrote_is_read():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 5)) * 10.0 ** rng.integers(-30, 30, (10_000, 5))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow("abcde")
    writer.writerows(X.tolist())
    np.testing.assert_array_equal(read(text.getvalue().encode())["values"], X)


def test_a_chunk_holds_whole_lines_whatever_the_pieces():
    data = b"a\nbb\n\nccc" + b"x" * (LONGEST + 7) + b"\nlast"
    for size in (1 << 10, 1 << 16, 1 << 18):
        lines, found = Lines(), []
        for at in range(0, len(data), size):
            found += lines.feed(data[at : at + size])
        found += lines.finish()
        assert b"".join(chunk.data for chunk in found) == b"a\nbb\n\nlast"
        long = [chunk for chunk in found if chunk.too_long]
        assert long == [Chunk(b"", 4, long[0].position, LONGEST + 10)]
        assert found[-1].line == 5


def test_a_column_that_is_ignored_is_not_the_time_either():
    chunk = Chunk(b"time,flow\n1,2\n3,4\n", 1, 0)
    for ignore, times in ((("time",), None), ((), ["1", "3"])):
        (block,) = delimited.blocks([chunk], Choice(ignore=ignore))
        assert block.names == ("flow",)
        assert (None if block.times is None else list(block.times)) == times

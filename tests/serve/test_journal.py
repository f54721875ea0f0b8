"""The journal: what is written is read, a torn end is cut off, damage is refused and repaired."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlad.serve import decimals
from onlad.serve.frames import Fact, Mark, Rows, digest, framed, frames, records
from onlad.serve.journal import Journal, JournalError

RECORDS = [
    Fact("birth", {"number": 1, "stream": "pump", "device": "ü/..", "names": ["a", "b"]}),
    Rows(
        1, 0, False, 1.5, np.array([[1.0, np.nan], [3.0, 4.0]]), np.array([5.0, 6.0]), [Mark(9, 7)]
    ),
    Rows(1, 2, True, 2.5, np.array([[-1.0, 1e100]]), np.array([7.0]), []),
]


def same(a, b):
    if isinstance(a, Fact) or isinstance(b, Fact):
        return a == b
    arrays = np.array_equal(a.X, b.X, equal_nan=True) and np.array_equal(a.times, b.times)
    return arrays and a[:4] == b[:4] and a.marks == b.marks


def written(folder, batches):
    journal = Journal(folder)
    journal.open(1)
    for batch in batches:
        journal.append(batch)
    journal.sync()
    assert journal.synced == journal.written > 0
    journal.close()
    return journal


def read(data):
    return [record for *_, frame in frames(data) for record in records(frame)]


@pytest.mark.parametrize("record", RECORDS)
def test_a_frame_is_read_as_it_was_written(record):
    (found,) = read(framed([record]))
    assert same(found, record)


@st.composite
def batches(draw):
    """Rows of some devices as a step has them, with facts between them."""
    n, found = draw(st.integers(1, 4)), []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            found.append(Fact("silent", {"number": 3, "row": draw(st.integers(0, 9))}))
        rows = draw(st.integers(1, 4))
        whole = st.integers(-(10**6), 10**6).map(lambda w: w / 1000)
        value = whole if draw(st.booleans()) else st.floats()
        flat = draw(st.lists(value, min_size=rows * n, max_size=rows * n))
        marks = draw(st.lists(st.builds(Mark, st.integers(1, 65535), st.integers(0, 2**64 - 1))))
        X, times = np.array(flat).reshape(rows, n), np.array([float(len(found))] * rows)
        first = draw(st.integers(0, 2**40))
        found.append(
            Rows(draw(st.integers(1, 10**6)), first, draw(st.booleans()), 7.5, X, times, marks)
        )
    return found


@settings(max_examples=200)
@given(batches())
def test_a_batch_of_many_devices_is_read_as_it_was_written(batch):
    found = read(framed(batch))
    assert len(found) == len(batch)
    assert all(map(same, found, batch))


def test_rows_of_many_devices_take_few_bytes():
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(20, 3, (20, 8)), 3)
    batch = [
        Rows(
            i, 4000 + i, False, 1.5, X[i : i + 1], np.array([1.7e9 + i / 1000]), [Mark(i, i << 40)]
        )
        for i in range(20)
    ]
    alone = 85  # bytes of a row that is written alone
    assert len(framed(batch)) < 0.5 * alone * len(batch)


def test_what_was_written_is_read_in_order(tmp_path):
    written(tmp_path, [RECORDS[:2], RECORDS[2:]])
    found = list(Journal(tmp_path).replay(1))
    assert len(found) == 3
    assert all(map(same, found, RECORDS))


@settings(max_examples=200)
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_write_that_was_cut_anywhere_leaves_whole_batches(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("journal")
    written(folder, [[record] for record in RECORDS])
    path = folder / "0000000001.journal"
    data = path.read_bytes()
    path.write_bytes(data[: cut % len(data)])
    found = list(Journal(folder).replay(1))
    assert all(map(same, found, RECORDS))
    # What follows stands behind whole batches, not behind the torn one.
    journal = Journal(folder)
    journal.open(1)
    journal.append([RECORDS[0]])
    journal.close()
    again = list(Journal(folder).replay(1))
    assert len(again) == len(found) + 1
    assert same(again[-1], RECORDS[0])


def test_damage_before_the_end_is_refused(tmp_path):
    written(tmp_path, [RECORDS])
    journal = Journal(tmp_path)
    journal.open(1)
    journal.finish(journal.open(2))
    journal.append(RECORDS)
    journal.finish(journal.open(3))
    journal.close()
    assert len(list(journal.replay(1))) == 6
    path = tmp_path / "0000000001.journal"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged at byte 0, before whole frames\. Rest"):
        list(journal.replay(1))
    path.unlink()
    with pytest.raises(JournalError, match="lacks a segment"):
        list(journal.replay(1))
    assert len(list(journal.replay(2))) == 3
    (tmp_path / "0000000003.journal").unlink()  # the last, in which nothing stood
    with pytest.raises(JournalError, match="lacks segment 3, which was there"):
        list(journal.replay(2))
    for number in (1, 2):
        (tmp_path / f"000000000{number}.journal").unlink(missing_ok=True)
    with pytest.raises(JournalError, match="lacks a segment"):
        list(journal.replay(2, needed=True))


@settings(max_examples=300)
@given(where=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_never_drops_whole_frames_in_silence(tmp_path_factory, where, bit):
    folder = tmp_path_factory.mktemp("journal")
    written(folder, [[record] for record in RECORDS])
    path = folder / "0000000001.journal"
    data = bytearray(path.read_bytes())
    data[where % len(data)] ^= 1 << bit
    path.write_bytes(data)
    try:
        found = list(Journal(folder).replay(1))
    except JournalError:
        assert path.read_bytes() == data  # it is left as it is, for who repairs it
    else:  # in the last frame, where it looks like a write that was torn
        assert all(map(same, found, RECORDS))
        assert len(found) == len(RECORDS) - 1


def test_a_foreign_file_in_the_folder_is_left_alone(tmp_path):
    written(tmp_path, [RECORDS])
    (tmp_path / "copy of 0000000001.journal").write_text("a person was here")
    (tmp_path / "x.journal").write_text("")
    assert len(list(Journal(tmp_path).replay(1))) == 3


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    journal = Journal(tmp_path)
    journal.open(1)
    journal.append(RECORDS[:1])
    import os

    real = os.write

    def half(file, data):
        if len(data) < 60:
            raise OSError(28, "No space left on device")
        return real(file, data[:50])

    monkeypatch.setattr("onlad.serve.journal.os.write", half)
    with pytest.raises(OSError, match="No space"):
        journal.append(RECORDS)
    monkeypatch.undo()
    journal.append(RECORDS[1:2])
    journal.close()
    found = list(Journal(tmp_path).replay(1))
    assert [same(a, b) for a, b in zip(found, RECORDS[:2], strict=True)] == [True, True]


def test_covered_segments_are_forgotten(tmp_path):
    journal = written(tmp_path, [RECORDS])
    journal.finish(journal.open(2))
    journal.finish(journal.open(3))
    journal.forget(3)
    assert journal.segments() == [3]
    journal.close()


def test_a_digest_tells_messages_apart():
    assert digest(b"a", b"1") != digest(b"a", b"2")
    assert digest(b"a", b"1") != digest(b"b", b"1")


values = (
    st.integers(-(10**9), 10**9).map(float)
    | st.builds(
        lambda whole, places: whole / 10**places, st.integers(-(10**8), 10**8), st.integers(0, 7)
    )
    | st.floats()
    | st.just(-0.0)
)


@settings(max_examples=300)
@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_packed_measurements_come_back_to_the_last_bit(data, rows, features):
    flat = data.draw(st.lists(values, min_size=rows * features, max_size=rows * features))
    X = np.array(flat, float).reshape(rows, features)
    record = Rows(1, 0, False, 5.0, X, np.zeros(rows), [])
    (found,) = read(framed([record]))
    assert found.X.tobytes() == X.tobytes()


def test_measurements_with_few_decimal_places_take_few_bytes():
    rng = np.random.default_rng(0)
    for places in (0, 1, 3, 6):
        X = np.round(rng.normal(20, 3, (5, 8)), places)
        # Two bytes per value and four per column if they lie close together, else four per value.
        size = X.nbytes // 2 if places == 6 else X.nbytes // 4 + 4 * 8
        assert len(decimals.packed(X)) == 1 + size
        assert len(decimals.packed(X[:1])) == 1 + X[:1].nbytes // 2
    assert decimals.packed(rng.normal(20, 3, (5, 8))) is None

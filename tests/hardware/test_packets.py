import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlad.hardware import packets
from onlad.hardware.packets import CoreRefusedError, Mode, Packet, PacketError, Reason

INT32 = st.integers(-(2**31), 2**31 - 1)
PACKETS = st.builds(Packet, st.sampled_from(Mode), st.booleans(), st.integers(0, 2**28 - 1), INT32)


@given(PACKETS)
def test_decode_inverts_encode(packet):
    assert Packet.decode(packet.encode()) == packet


@given(st.integers(0, 2**64 - 1))
def test_every_word_is_a_packet(word):
    assert Packet.decode(word).encode() == word


def test_the_mode_is_the_first_three_bits():
    for mode in Mode:
        assert Packet(mode, False, 0, 0).encode() >> 61 == mode
    assert sorted(Mode) == list(range(8))


@given(st.sampled_from(Mode), st.lists(INT32, max_size=20), st.integers(0, 2**28 - 20))
def test_many_writes_are_the_packets_one_by_one(mode, values, start):
    words = packets.writes(mode, np.array(values, dtype=np.int64), start)
    assert words.dtype == np.uint64
    expected = [Packet(mode, False, start + k, value) for k, value in enumerate(values)]
    assert [Packet.decode(int(word)) for word in words] == expected


def test_matrices_are_flattened_row_by_row():
    words = packets.writes(Mode.BETA, [[1, 2, 3], [4, 5, 6]])
    assert Packet.decode(int(words[3])) == Packet(Mode.BETA, False, 3, 4)


@given(st.sampled_from(Mode), st.integers(0, 20), st.integers(0, 2**28 - 20))
def test_many_reads_are_the_packets_one_by_one(mode, count, start):
    expected = [Packet(mode, True, start + k, 0) for k in range(count)]
    found = [Packet.decode(int(word)) for word in packets.reads(mode, count, start)]
    assert found == expected


@given(st.lists(PACKETS, min_size=1, max_size=20))
def test_reads_trainings_and_predictions_are_answered(some):
    words = np.array([packet.encode() for packet in some], dtype=np.uint64)
    expected = [p.read or p.mode in (Mode.TRAIN, Mode.PREDICT) for p in some]
    assert packets.answered(words).tolist() == expected


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (Packet(Mode.X, False, 2**28, 0), "index must fit 28 bits, got 268435456"),
        (Packet(Mode.X, False, -1, 0), "index must fit 28 bits, got -1"),
        (Packet(Mode.X, False, 0, 2**31), "value must fit 32 signed bits, got 2147483648"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(packet, words):
    with pytest.raises(PacketError, match=re.escape(words)):
        packet.encode()


def test_many_fields_that_do_not_fit_are_refused():
    with pytest.raises(PacketError, match="values must fit 32 signed bits"):
        packets.writes(Mode.X, [0, 2**31])
    with pytest.raises(PacketError, match="whole numbers, got float64"):
        packets.writes(Mode.X, [0.5])
    with pytest.raises(PacketError, match="indices must fit 28 bits"):
        packets.reads(Mode.X, 2, 2**28 - 1)
    with pytest.raises(PacketError, match="64 bits"):
        Packet.decode(2**64)


def test_a_refusal_reads_as_words():
    refusal = CoreRefusedError(Reason.BAD_INDEX | Reason.NOT_READY)
    assert "an index was out of range; no forgetting factor" in str(refusal)

"""The bytes of a file: damage, noise, second spellings and huge sizes are all refused."""

import hashlib
import os
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_files import (
    canonical,
    described,
    names,
    numbers,
    put,
    refused,
    refused_in_little_memory,
    trained,
    written,
)
from onlad import persist
from onlad.errors import ModelFileError
from onlad.persist import load, save


@pytest.fixture
def saved(tmp_path):
    save(trained(n_hidden=2), tmp_path / "model.onlad")
    return (tmp_path / "model.onlad").read_bytes()


def test_any_flipped_byte_is_refused(tmp_path, saved):
    path = tmp_path / "flipped"
    rng = np.random.default_rng(0)
    for at in range(len(saved)):
        data = bytearray(saved)
        data[at] ^= rng.integers(1, 256)
        path.write_bytes(data)
        with pytest.raises(ModelFileError):
            load(path)


def test_any_truncation_is_refused(tmp_path, saved):
    path = tmp_path / "cut"
    for length in range(len(saved)):
        path.write_bytes(saved[:length])
        with pytest.raises(ModelFileError):
            load(path)


@given(more=st.binary(min_size=1, max_size=200))
def test_appended_bytes_are_refused(tmp_path_factory, more):
    path = tmp_path_factory.getbasetemp() / "longer"
    header, body = described(trained())
    for data in (written(header, body) + more, written(header, body + more)):
        path.write_bytes(data)
        with pytest.raises(ModelFileError):
            load(path)


@given(
    data=st.binary(max_size=300),
    signed=st.booleans(),
    prefix=st.sampled_from([b"", b"onlad\0\1\0"]),
)
def test_any_bytes_are_refused(tmp_path_factory, data, signed, prefix):
    path = tmp_path_factory.getbasetemp() / "noise"
    data = prefix + data
    path.write_bytes(data + hashlib.sha256(data).digest() if signed else data)
    with pytest.raises(ModelFileError):
        load(path)


trees = st.recursive(
    numbers.filter(lambda v: v == v and abs(v or 0) != np.inf)
    | names
    | st.sampled_from(["Detector", "Monitor", "Constant", "OnDrift", "inf", "float64"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["array", "dict", "tuple", "float", "type", "fields", "settings", "learned", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(
    model=trees,
    arrays=trees,
    at=st.sampled_from(["root", "settings", "learned", "S", "forgetting"]),
)
def test_any_signed_header_is_refused(tmp_path_factory, model, arrays, at):
    path = tmp_path_factory.getbasetemp() / "tree"
    header, body = described(trained())
    if at == "root":
        header = {"arrays": arrays, "model": model}
    elif at in ("settings", "learned"):
        header["model"][at] = model
    else:
        part = header["model"]["settings" if at == "forgetting" else "learned"]
        if part[at] == model:
            return
        part[at] = model
    path.write_bytes(written(header, body))
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(b'"seed":3', b'"seed":3,"seed":3'),
        lambda text: text.replace(b'"seed":3', b'"seed": 3'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":1e-2'),
        lambda text: text.replace(b'"type"', b'"\\u0074ype"'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":NaN'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":Infinity'),
        lambda text: text.replace(b'"ridge":0.01', b'"ridge":1e999'),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"9" * 10**6),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"[" * 10**5 + b"]" * 10**5),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b'{"a":' * 10**5 + b"0" + b"}" * 10**5),
        lambda text: text.replace(b'"seed":3', b'"seed":' + b"[" * 300 + b"]" * 300),
        lambda text: b"\xff\xfe" + text,
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.decode().encode("utf-16"),
        lambda text: text[:-1],
        lambda text: b"",
        lambda text: b"null",
        lambda text: b"[]",
    ],
)
def test_a_header_in_any_other_spelling_is_refused(tmp_path, edit):
    header, body = described(trained())
    text = canonical(header)
    assert edit(text) != text
    refused(tmp_path, written(None, body, raw=edit(text)))


@pytest.mark.parametrize("size", [2**64 - 1, 2**40, 2**20 + 1, 2**19])
def test_a_header_longer_than_the_file_is_refused(tmp_path, size):
    header, body = described(trained())
    refused(tmp_path, written(header, body, size=size), f"the header has {size} bytes")


def test_padding_holds_nothing(tmp_path):
    header, body = described(trained())
    good = written(header, body)
    start = good.index(body) if body in good else 0
    for at in (start - 1, start + 5 * 5 * 8):
        data = bytearray(good[:-32])
        data[at] = 1
        refused(tmp_path, bytes(data) + hashlib.sha256(data).digest(), "not the zeros")


def test_declared_sizes_allocate_nothing(tmp_path):
    header, body = described(trained())
    hostile = [
        put(header, "arrays.0.shape", [2**40]),
        put(header, "arrays.0.shape", [2**20, 2**20]),
        put(header, "arrays.0.shape", [0] + [2**31] * 7),
        put(header, "model.settings.n_hidden", 2**40),
        put(header, "arrays", [header["arrays"][0]] * 5000),
    ]
    # A model that is not started has no arrays that n_hidden could be compared with.
    empty = put(put(header, "model.learned", {}), "arrays", [])
    files = [written(h, body) for h in hostile] + [
        written(put(empty, "model.settings.n_hidden", 2**40)),
        written(header, body, size=2**40),
        written(put(empty, "model.settings.seed", [{"array": 0}] * 5000)),
    ]
    refused_in_little_memory(tmp_path, files)


def test_a_sparse_giant_is_not_read(tmp_path, saved):
    path = tmp_path / "giant"
    path.write_bytes(saved)
    os.truncate(path, 2**40)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="has 1099511627776 bytes; a model has at most"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_the_messages_say_what_to_do(tmp_path, saved):
    says = "is not an onlad model. Give a file that onlad.save wrote"
    for data in (b"", b"onl", b"\x80\x04pickle", b"PK\x03\x04", saved[1:]):
        assert refused(tmp_path, data).endswith(says)
    says = "is damaged: its checksum is not that of its bytes. Restore it from a copy, or save"
    for data in (saved[:-1], saved[:6], saved[:40], saved + b"\0", saved.replace(b"seed", b"sead")):
        assert says in refused(tmp_path, data)


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version_is_refused_by_its_number(tmp_path, version):
    message = refused(tmp_path, written(*described(trained()), version=version))
    says = f"has format {version}; this onlad reads 1. Load it with the onlad that wrote it, or a"
    assert says in message


def test_a_path_with_a_line_break_stays_in_one_line(tmp_path):
    path = tmp_path / "two\nlines"
    path.write_bytes(b"x")
    with pytest.raises(ModelFileError, match=re.escape("two\\nlines' is not an onlad")):
        load(path)


def test_a_device_is_no_model():
    with pytest.raises(ModelFileError, match="/dev/zero is not an onlad model"):
        load("/dev/zero")


def test_the_bytes_of_a_model_are_those_of_its_file(tmp_path):
    detector, path = trained(), tmp_path / "model.onlad"
    save(detector, path)
    assert persist.to_bytes(detector) == path.read_bytes()
    twin = persist.from_bytes(path.read_bytes())
    assert persist.to_bytes(twin) == path.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: b"", "the state of pump 7 is not an onlad model"),
        (lambda data: data[:-1], "the state of pump 7 is damaged"),
        (lambda data: data[:99] + b"\xff" + data[100:], "the state of pump 7 is damaged"),
        (
            lambda data: written({"arrays": [], "model": None}),
            "the state of pump 7 holds no valid model",
        ),
    ],
)
def test_bytes_that_are_no_model_are_refused_by_name(spoil, says):
    with pytest.raises(ModelFileError, match=f"^{says}"):
        persist.from_bytes(spoil(persist.to_bytes(trained())), "the state of pump 7")

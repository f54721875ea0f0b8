"""Model files made by hand, for the tests of `onlad.persist`.

`written` is a second writer of the format, by docs/reference/model-files.md and without a line of
`onlad.modelfile`: with it hostile headers carry a right checksum and reach the checks behind it.
"""

import copy
import hashlib
import json
import re
import struct
import tracemalloc
from dataclasses import is_dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.fields import values
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.persist import load

POLICIES = [Constant(0.97), Constant(1), Adaptive(), OnDrift(duration=7, limit=np.inf)]


ARRAYS = ["S", "alpha", "b", "beta", "memory"]

# Values of JSON, and names that could mean something else.
numbers = st.floats() | st.integers(-(10**39) + 1, 10**39) | st.booleans() | st.none()


names = st.text(max_size=5) | st.sampled_from(["array", "type", "../etc/passwd", "dict"])


def trained(dtype="float64", forgetting=POLICIES[2], start="stream", n_hidden=5, ridge=0.01):
    """Return a small detector that has seen something, or nothing."""
    rng = np.random.default_rng(0)
    detector = Detector(n_hidden=n_hidden, dtype=dtype, forgetting=forgetting, ridge=ridge, seed=3)
    if start == "fit":
        detector.fit(rng.uniform(size=(40, 3)))
    if start != "nothing":
        detector.learn_many(rng.uniform(size=(60, 3)))
    return detector


def written(header, body=b"", *, version=1, size=None, raw=None):
    """Return a file with this header, these array bytes and a right checksum."""
    text = raw if raw is not None else canonical(header)
    data = b"onlad\x00" + struct.pack("<HQ", version, len(text) if size is None else size) + text
    data += bytes(-len(data) % 64) + body
    return data + hashlib.sha256(data).digest()


def canonical(header):
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def described(model, **changed):
    """Return header and array bytes of a model, with some of what it learned changed."""
    learned = merged(values(model.learned()) or {}, changed)
    return spelled(type(model).__name__, values(model.settings()), learned)


def spelled(kind, settings, learned):
    """Return header and array bytes of a model of this kind."""
    table, body = [], bytearray()

    def node(value):
        if isinstance(value, np.ndarray):
            shape = list(value.shape)
            table.append({"dtype": str(value.dtype), "offset": len(body), "shape": shape})
            body.extend(value.tobytes() + bytes(-value.nbytes % 64))
            return {"array": len(table) - 1}
        if isinstance(value, dict):
            return {"dict": named(value)}
        if isinstance(value, list):
            return [node(item) for item in value]
        if is_dataclass(value):  # a policy
            return {"type": type(value).__name__, "fields": named(vars(value))}
        special = type(value) is float and not np.isfinite(value)
        return {"float": repr(value)} if special else value

    def named(parts):
        return {name: node(parts[name]) for name in sorted(parts)}

    tree = {"type": kind, "learned": named(learned), "settings": named(settings)}
    return {"arrays": table, "model": tree}, bytes(body)


def merged(old, changed):
    """Return the dict `old` with `changed` in it, also where a value is a dict."""
    inner = {k: merged(old[k], v) for k, v in changed.items() if isinstance(v, dict)}
    return old | changed | inner


def refused(tmp_path, data, says=" "):
    """Insist that a file with these bytes is refused in one line that begins with its name."""
    path = tmp_path / "hostile  file.onlad"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=re.escape(says)) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


def refused_in_little_memory(tmp_path, files):
    """Insist that each of the files is refused, and that this takes less than 10 MB."""
    tracemalloc.start()
    try:
        for data in files:
            refused(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def put(header, place, value):
    """Return a copy of `header` with `value` at a path of keys such as "model.settings.seed"."""
    header = copy.deepcopy(header)
    *way, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    node = header
    for key in way:
        node = node[key]
    node[last] = value
    return header


def same(a, b):
    """Whether two values are equal in type, order and bits; NaN equals NaN."""
    if isinstance(a, np.ndarray):
        native = a.dtype.newbyteorder("=")
        return (
            b.dtype == native and a.shape == b.shape and a.astype(native).tobytes() == b.tobytes()
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "check"):
        return type(a) is type(b) and same(values(a), values(b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and repr(a) == repr(b)


def stream(rows=1900, n=3, change=700):
    """Return samples in raw units with values missing; from `change` on another mode holds."""
    rng = np.random.default_rng(5)
    level = np.sin(np.arange(rows) / 9)[:, None]
    X = 50 + 9 * level * (1 + np.arange(n) % 5) + rng.normal(size=(rows, n))
    X[change:] += 80
    X[rng.random(X.shape) < 0.03] = np.nan
    return X

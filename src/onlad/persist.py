"""Models in files: `save` writes one, `load` reads one and trusts nothing in it.

A file is a prefix, a JSON header, plain little-endian arrays and a SHA-256 of all that;
``docs/model-files.md`` has the bytes. Each model has exactly one file, byte for byte, and
`save` reads what it is about to write, so `load` never refuses what `save` wrote.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import reprlib
import secrets
import struct
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np

from onlad.detector import Detector
from onlad.errors import ModelFileError
from onlad.forgetting import Adaptive, Constant, OnDrift
from onlad.reference import Array

Values: TypeAlias = dict[str, Any]

MAGIC = b"onlad\x00"
VERSION = 1
PREFIX = struct.Struct("<6sHQ")  # magic, version, bytes of header
LINE = 64  # arrays begin at multiples of this, so that a reader may map them
DTYPES = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "bool": "|u1"}

# A file is read whole and its header becomes Python objects, so both have a limit.
LARGEST_FILE = 2**32
LARGEST_HEADER = 2**20
LARGEST_HIDDEN = 2**14  # S alone is 2 GiB; an unstarted model has no arrays that would bound it
LONGEST_INT = 40  # digits: a seed has at most 128 bits, and int() of a million digits is slow

FAULTS = (ValueError, TypeError, RecursionError)  # what reading a hostile header may raise
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON has no names for these
# A field with one of these annotations holds just that; other fields are left to the class.
FIELDS: dict[Any, tuple[type, ...]] = {"float": (int, float), "int": (int,), "bool": (bool,)}

SETTINGS: dict[str, tuple[type, ...]] = {
    "n_hidden": (int,),
    "activation": (str,),
    "weights": (str,),
    "forgetting": (Constant, Adaptive, OnDrift),
    "score": (str,),
    "loss": (str,),
    "ridge": (float,),
    "dtype": (str,),
    "seed": (int,),
}
LEARNED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(["S", "alpha", "b", "beta", "memory"], (np.ndarray,)),
    **dict.fromkeys(["trace", "trace_start", "shrink"], (float,)),
    **dict.fromkeys(["seen", "skipped", "paused"], (int,)),
}


class Model(Protocol):
    """What a class must have to be saved; ``Model(**settings).resume(learned)`` is its inverse."""

    def settings(self) -> Values:
        """Return the arguments that make an equal model."""
        ...

    def learned(self) -> Values:
        """Return all that the model has beyond its settings."""
        ...


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write `model` to the file `path`, whole or not at all.

    A file that is there is replaced and its permissions are kept. After a crash at any moment
    `path` is the old file or the new one. When `save` returns, the new one is on the disk.

    Raises
    ------
    TypeError
        The model or a part of it has no form in a file.
    ModelFileError
        `load` would refuse the file, for example because the model holds NaN.

    Examples
    --------
    >>> import tempfile
    >>> detector = Detector(n_hidden=4)
    >>> detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(detector, f"{folder}/pump.onlad")
    ...     twin = load(f"{folder}/pump.onlad")
    >>> twin.update_one([0.5, 0.6]) == detector.update_one([0.5, 0.6])
    True
    """
    data = _encode(model)
    try:
        _decode(data)
    except FAULTS as error:
        raise _refusal(path, f"was not written: {error}. The file is as it was") from None
    _replace(os.path.realpath(path), data)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in the file `path`; it goes on to the last bit as the saved one would.

    No file makes `load` run code from it, look at another file, or take memory out of
    proportion to the file's size.

    Raises
    ------
    ModelFileError
        The file is not onlad's, is damaged, comes from a newer version, or describes a model
        that cannot be. The message says which.
    OSError
        The file cannot be read, for example because there is none.
    """
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _refusal(path, "is not an onlad model. Give a file that onlad.save wrote")
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            what = f"has {size} bytes; a model has at most {LARGEST_FILE}"
            raise _refusal(path, f"{what}. Give a file that onlad.save wrote")
        file.seek(0)
        data = file.read(size)
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        what = "is damaged: its checksum is not that of its bytes"
        raise _refusal(path, f"{what}. Restore it from a copy, or save the model again")
    version = int.from_bytes(data[6:8], "little")
    if version != VERSION:
        what = f"has format {version}; this onlad reads {VERSION}"
        raise _refusal(path, f"{what}. Load it with the onlad that wrote it, or a newer one")
    try:
        return _decode(data)
    except FAULTS as error:
        raise _refusal(path, f"holds no valid model: {error}. Save the model again") from None


def check_detector(settings: Values, learned: Values) -> None:
    """Refuse, with `ValueError`, what no `Detector` could have returned."""
    _need_types("settings", settings, SETTINGS)
    N, seed = settings["n_hidden"], settings["seed"]
    _need(1 <= N <= LARGEST_HIDDEN, f"n_hidden must be in [1, {LARGEST_HIDDEN}], got {N}")
    _need(seed >= 0, f"seed must not be negative, got {seed}")
    if not learned:
        return
    _need_types("learned", learned, LEARNED)
    n = learned["alpha"].size // N  # if it is not, the shape below says so
    _need(n >= 1, "alpha has no features")
    memory = (len(settings["forgetting"].start),)
    shapes = {"S": (N, N), "alpha": (n, N), "b": (N,), "beta": (N, n), "memory": memory}
    for name, shape in shapes.items():
        array, dtype = learned[name], "float64" if name == "memory" else settings["dtype"]
        _need(array.shape == shape, f"{name} must have shape {shape}, got {array.shape}")
        _need(array.dtype.name == dtype, f"{name} must be {dtype}, got {array.dtype}")
        _need(bool(np.isfinite(array).all()), f"{name} holds a number that is not finite")
    for name in ("seen", "skipped", "paused"):
        _need(0 <= learned[name] < 2**63, f"{name} must be in [0, 2^63), got {learned[name]}")
    trace, start, shrink = learned["trace"], learned["trace_start"], learned["shrink"]
    # The kernel follows the trace by differences, whose rounding may leave it just below zero.
    _need(math.isfinite(trace), f"trace must be finite, got {trace}")
    _need(0 < start < math.inf, f"trace_start must be finite and positive, got {start}")
    _need(0 <= shrink <= 1, f"shrink must be in [0, 1], got {shrink}")
    a = float(learned["memory"][0])
    _need(0 < a <= 1, f"the forgetting factor in memory must be in (0, 1], got {a}")
    with np.errstate(all="ignore"):
        volume = float(np.linalg.slogdet(learned["S"].astype("float64"))[1])
    _need(math.isfinite(volume), "S is singular, so P = S S' is not positive definite")


# A file can name these classes and no others. One with a check is a model, else a policy.
CLASSES: dict[str, type[Any]] = {
    "Detector": Detector,
    "Constant": Constant,
    "Adaptive": Adaptive,
    "OnDrift": OnDrift,
}
CHECKS: dict[str, Callable[[Values, Values], None]] = {"Detector": check_detector}


_SHORT = reprlib.Repr()
_SHORT.maxlevel = 1  # what a message shows of a value has its place in one line


def _need(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def _need_types(what: str, values: Values, types: dict[str, tuple[type, ...]]) -> None:
    names = _SHORT.repr(sorted(values.keys() ^ types.keys()))
    _need(values.keys() == types.keys(), f"missing in {what} or not known: {names}")
    for name, allowed in types.items():
        wanted, got = " or ".join(kind.__name__ for kind in allowed), _SHORT.repr(values[name])
        _need(type(values[name]) in allowed, f"{name} must be {wanted}, got {got}")


def _refusal(path: str | os.PathLike[str], what: str) -> ModelFileError:
    name = os.fsdecode(path)
    name = name if name.isprintable() else repr(name)
    return ModelFileError(f"{name} {' '.join(what.split())}")


# -- to bytes ---------------------------------------------------------------------------------


def _encode(model: Model) -> bytes:
    if type(model).__name__ not in CHECKS:
        raise TypeError(f"save takes a {' or a '.join(CHECKS)}, got {_SHORT.repr(model)}")
    arrays: list[Array] = []
    tree, table, body = _pack(model, arrays), [], b""
    for array in arrays:
        dtype = array.dtype.name
        if dtype not in DTYPES:
            raise TypeError(f"an array in a model must be {', '.join(DTYPES)}; got {dtype}")
        table.append({"dtype": dtype, "offset": len(body), "shape": array.shape})
        body += _padded(array.astype(DTYPES[dtype]).tobytes())
    header = _canonical({"arrays": table, "model": tree})
    data = _padded(PREFIX.pack(MAGIC, VERSION, len(header)) + header) + body
    return data + hashlib.sha256(data).digest()


def _pack(value: Any, arrays: list[Array]) -> Any:
    """Return `value` as JSON and append its arrays to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    kind, node = type(value), value
    if CLASSES.get(kind.__name__) is kind:
        node = {"type": kind.__name__}
        if kind.__name__ in CHECKS:
            node["learned"] = _pack_all(value.learned(), arrays)
            node["settings"] = _pack_all(value.settings(), arrays)
        else:
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
            node["fields"] = _pack_all(fields, arrays)
    elif kind is np.ndarray:
        node = {"array": len(arrays)}
        arrays.append(value)
    elif kind is dict:
        node = {"dict": _pack_all(value, arrays)}
    elif kind is tuple:
        node = {"tuple": [_pack(item, arrays) for item in value]}
    elif kind is list:
        node = [_pack(item, arrays) for item in value]
    elif kind is float and not math.isfinite(value):
        node = {"float": repr(value)}
    elif kind not in (type(None), bool, int, float, str):
        raise TypeError(f"a model with {_SHORT.repr(value)} in it cannot be saved")
    return node


def _pack_all(values: Values, arrays: list[Array]) -> Values:
    if not all(type(name) is str for name in values):
        raise TypeError(f"names in a model must be strings, got {_SHORT.repr(list(values))}")
    return {name: _pack(values[name], arrays) for name in sorted(values)}


def _canonical(tree: Any) -> bytes:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % LINE)


# -- from bytes -------------------------------------------------------------------------------


def _decode(data: bytes) -> Any:
    """Return the model in `data`, whose magic, version and checksum are right."""
    _need(len(data) <= LARGEST_FILE, f"a model has at most {LARGEST_FILE} bytes")
    view = memoryview(data)[:-32]
    _need(len(view) >= PREFIX.size, "the prefix is cut off")
    size = PREFIX.unpack_from(view)[2]
    _need(size <= LARGEST_HEADER, f"the header has {size} bytes; allowed are {LARGEST_HEADER}")
    start = PREFIX.size + size
    _need(start <= len(view), f"the header has {size} bytes, which are more than the file")
    text = bytes(view[PREFIX.size : start])
    tree = json.loads(text, parse_int=_int)
    # One rule against repeated keys, NaN, 1e999, spaces and every other second spelling.
    _need(_canonical(tree) == text, "the header is not in canonical form")
    known = isinstance(tree, dict) and tree.keys() == {"arrays", "model"}
    _need(known and isinstance(tree["arrays"], list), "the header is not that of a model")
    arrays = enumerate(_arrays(tree["arrays"], view, start))
    model = _unpack(tree["model"], arrays)
    _need(type(model).__name__ in CHECKS, f"it is {_SHORT.repr(model)}, which is no model")
    _need(next(arrays, None) is None, "there are arrays that belong to nothing")
    return model


def _int(digits: str) -> int:
    _need(len(digits) <= LONGEST_INT, f"a whole number has {len(digits)} digits")
    return int(digits)


def _arrays(table: list[Any], view: memoryview, end: int) -> list[Array]:
    """Return copies of the arrays, which lie in `view` one after the other from `end`."""
    arrays: list[Array] = []
    end = start = _skip(view, end)
    for k, entry in enumerate(table):
        known = isinstance(entry, dict) and entry.keys() == {"dtype", "offset", "shape"}
        _need(known, f"array {k} is not described by dtype, offset and shape")
        dtype, offset, shape = entry["dtype"], entry["offset"], entry["shape"]
        _need(type(dtype) is str and dtype in DTYPES, f"array {k} has dtype {_SHORT.repr(dtype)}")
        whole = type(shape) is list and all(type(d) is int and 0 <= d < 2**32 for d in shape)
        _need(whole and len(shape) <= 8, f"array {k} has shape {_SHORT.repr(shape)}")
        # Each array begins where the last one ended: no number here can ask for more memory
        # than the file has bytes.
        in_place = type(offset) is int and offset == end - start
        _need(in_place, f"array {k} has offset {_SHORT.repr(offset)}, not {end - start}")
        size, count = np.dtype(DTYPES[dtype]).itemsize, math.prod(shape)
        _need(end + size * count <= len(view), f"array {k} is larger than the file")
        raw = np.frombuffer(view, DTYPES[dtype], count, end).reshape(shape)
        _need(dtype != "bool" or bool((raw <= 1).all()), f"array {k} has a bool that is not 0 or 1")
        arrays.append(raw.astype(dtype))
        end = _skip(view, end + size * count)
    _need(end == len(view), f"{len(view) - end} bytes belong to no array")
    return arrays


def _skip(view: memoryview, end: int) -> int:
    """Return the multiple of LINE at or after `end`, and insist on zeros up to there."""
    line = end + -end % LINE
    zeros = line <= len(view) and not any(view[end:line])
    _need(zeros, f"bytes {end} to {line} are not the zeros that belong there")
    return line


def _unpack(node: Any, arrays: Iterator[tuple[int, Array]]) -> Any:
    """Return the value of a JSON node; each array is taken once, in the order of the table."""
    if isinstance(node, list):
        return [_unpack(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    value: Any
    match sorted(node), next(iter(node.values()), None), node.get("type"):
        case ["array"], int(k), _:
            index, value = next(arrays, (None, None))
            _need(type(k) is int and k == index, f"array {k} is out of turn")
        case ["dict"], dict(items), _:
            value = _unpack_all(items, arrays)
        case ["tuple"], list(items), _:
            value = tuple(_unpack(item, arrays) for item in items)
        case ["float"], str(text), _ if text in SPECIAL:
            value = SPECIAL[text]
        case ["fields", "type"], dict(items), str(name) if name in CLASSES and name not in CHECKS:
            value = _policy(CLASSES[name], _unpack_all(items, arrays))
        case ["learned", "settings", "type"], _, str(name) if name in CHECKS:
            learned = _unpack_all(node["learned"], arrays)
            settings = _unpack_all(node["settings"], arrays)
            CHECKS[name](settings, learned)
            value = CLASSES[name](**settings).resume(learned)
        case _:
            raise ValueError(f"{_SHORT.repr(node)} is not a known kind of value")
    return value


def _unpack_all(node: Any, arrays: Iterator[tuple[int, Array]]) -> Values:
    _need(isinstance(node, dict), f"{_SHORT.repr(node)} is not an object")
    return {name: _unpack(value, arrays) for name, value in node.items()}


def _policy(kind: type[Any], values: Values) -> Any:
    fields = dataclasses.fields(kind)
    wanted = {
        field.name: FIELDS.get(field.type, (type(values.get(field.name)),)) for field in fields
    }
    _need_types(kind.__name__, values, wanted)
    for name, value in values.items():
        _need(
            type(value) is not float or not math.isnan(value), f"{name} of {kind.__name__} is NaN"
        )
    return kind(**values)


# -- to the disk ------------------------------------------------------------------------------


def _replace(path: str, data: bytes) -> None:
    """Put `data` where `path` is in one step."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".onlad-{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    # Until the folder is on the disk too, a power cut could bring the old name back.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

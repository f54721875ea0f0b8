"""The bytes of a model file: a tree of values to bytes and back, without classes.

A tree is made of None, bool, int, float, str, lists, tuples, dicts with names as keys, arrays,
and a `Record` for each object. A file is a prefix, a JSON header, plain little-endian arrays and
a SHA-256 of it; ``docs/reference/model-files.md`` has the format. Equal trees give equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import reprlib
import secrets
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onlad.errors import ModelFileError
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
PIECE = 2**24  # bytes of an array that are written at a time
LONGEST_INT = 40  # digits: a seed has at most 128 bits, and int() of a million digits is slow

FAULTS = (ValueError, TypeError, RecursionError)  # what reading a hostile header may raise
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON has no names for these

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 1


class Record(NamedTuple):
    """An object in a tree: the name of its class, and its values in named parts."""

    type: str
    parts: dict[str, Values]


def need(holds: bool, rule: str) -> None:
    """Raise `ValueError` with the rule that does not hold."""
    if not holds:
        raise ValueError(rule)


def short(value: Any) -> str:
    """Return a value as an error message shows it, in one line."""
    return _SHORT.repr(value)


def refusal(path: str | os.PathLike[str], what: str) -> ModelFileError:
    """Return the error that says, in one line, what is wrong with the file."""
    name = os.fsdecode(path)
    name = name if name.isprintable() else repr(name)
    return ModelFileError(f"{name} {' '.join(what.split())}")


# -- to bytes ---------------------------------------------------------------------------------


def encode(tree: Any) -> bytes:
    """Return the bytes of a tree; `TypeError` for a value that cannot be in a file."""
    return b"".join(pieces(tree))


def pieces(tree: Any) -> Iterator[bytes]:
    """Yield the bytes of a tree, an array in parts: more than one part is never in memory."""
    arrays: list[Array] = []
    node, table, offset = _pack(tree, arrays), [], 0
    for array in arrays:
        dtype = array.dtype.name
        if dtype not in DTYPES:
            raise TypeError(f"an array in a model must be {', '.join(DTYPES)}; got {dtype}")
        table.append({"dtype": dtype, "offset": offset, "shape": array.shape})
        offset += array.nbytes + -array.nbytes % LINE
    header = _canonical({"arrays": table, "model": node})
    digest = hashlib.sha256()
    for piece in _body(_padded(PREFIX.pack(MAGIC, VERSION, len(header)) + header), arrays):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _body(start: bytes, arrays: list[Array]) -> Iterator[bytes]:
    yield start
    for array in arrays:
        rows = max(1, PIECE * len(array) // array.nbytes) if array.ndim and array.nbytes else 1
        for part in np.split(array, range(rows, len(array), rows)) if array.ndim else [array]:
            yield part.astype(DTYPES[array.dtype.name]).tobytes()
        yield bytes(-array.nbytes % LINE)


def _pack(value: Any, arrays: list[Array]) -> Any:
    """Return `value` as JSON and append its arrays to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    kind, node = type(value), value
    if kind is Record:
        parts = {name: _pack_all(value.parts[name], arrays) for name in sorted(value.parts)}
        node = {"type": value.type, **parts}
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
        raise TypeError(f"a model with {short(value)} in it cannot be saved")
    return node


def _pack_all(values: Values, arrays: list[Array]) -> Values:
    if not all(type(name) is str for name in values):
        raise TypeError(f"names in a model must be strings, got {short(list(values))}")
    return {name: _pack(values[name], arrays) for name in sorted(values)}


def _canonical(tree: Any) -> bytes:
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % LINE)


# -- from bytes -------------------------------------------------------------------------------


def decode(data: bytes, *, largest: int | None = None, copy: bool = True) -> Any:
    """Return the tree in `data`, whose magic, version and checksum are right.

    Anything else that is wrong raises one of FAULTS. No number in `data` asks for memory out of
    proportion to its length. Without `copy` the arrays are views of `data`.
    """
    largest = LARGEST_FILE if largest is None else largest
    need(len(data) <= largest, f"a model has at most {largest} bytes")
    view = memoryview(data)[:-32]
    need(len(view) >= PREFIX.size, "the prefix is cut off")
    size = PREFIX.unpack_from(view)[2]
    need(size <= LARGEST_HEADER, f"the header has {size} bytes; allowed are {LARGEST_HEADER}")
    start = PREFIX.size + size
    need(start <= len(view), f"the header has {size} bytes, which are more than the file")
    text = bytes(view[PREFIX.size : start])
    header = json.loads(text, parse_int=_int)
    # One rule against repeated keys, NaN, 1e999, spaces and every other second spelling.
    need(_canonical(header) == text, "the header is not in canonical form")
    known = isinstance(header, dict) and header.keys() == {"arrays", "model"}
    need(known and isinstance(header["arrays"], list), "the header is not that of a model")
    arrays = enumerate(_arrays(header["arrays"], view, start, copy))
    tree = _unpack(header["model"], arrays)
    need(next(arrays, None) is None, "there are arrays that belong to nothing")
    return tree


def _int(digits: str) -> int:
    need(len(digits) <= LONGEST_INT, f"a whole number has {len(digits)} digits")
    return int(digits)


def _arrays(table: list[Any], view: memoryview, end: int, copy: bool) -> list[Array]:
    """Return the arrays, which follow each other in `view` from `end`."""
    arrays: list[Array] = []
    end = start = _skip(view, end)
    for k, entry in enumerate(table):
        known = isinstance(entry, dict) and entry.keys() == {"dtype", "offset", "shape"}
        need(known, f"array {k} is not described by dtype, offset and shape")
        dtype, offset, shape = entry["dtype"], entry["offset"], entry["shape"]
        need(type(dtype) is str and dtype in DTYPES, f"array {k} has dtype {short(dtype)}")
        whole = type(shape) is list and all(type(d) is int and 0 <= d < 2**32 for d in shape)
        need(whole and len(shape) <= 8, f"array {k} has shape {short(shape)}")
        # Each array begins where the last one ended: no number here can ask for more memory
        # than the file has bytes.
        in_place = type(offset) is int and offset == end - start
        need(in_place, f"array {k} has offset {short(offset)}, not {end - start}")
        size, count = np.dtype(DTYPES[dtype]).itemsize, math.prod(shape)
        need(end + size * count <= len(view), f"array {k} is larger than the file")
        raw = np.frombuffer(view, DTYPES[dtype], count, end).reshape(shape)
        need(dtype != "bool" or bool((raw <= 1).all()), f"array {k} has a bool that is not 0 or 1")
        arrays.append(raw.astype(dtype, copy=copy))
        end = _skip(view, end + size * count)
    need(end == len(view), f"{len(view) - end} bytes belong to no array")
    return arrays


def _skip(view: memoryview, end: int) -> int:
    """Return the multiple of LINE at or after `end`, and insist on zeros up to there."""
    line = end + -end % LINE
    zeros = line <= len(view) and not any(view[end:line])
    need(zeros, f"bytes {end} to {line} are not the zeros that belong there")
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
            need(type(k) is int and k == index, f"array {k} is out of turn")
        case ["dict"], dict(items), _:
            value = _unpack_all(items, arrays)
        case ["tuple"], list(items), _:
            value = tuple(_unpack(item, arrays) for item in items)
        case ["float"], str(text), _ if text in SPECIAL:
            value = SPECIAL[text]
        case names, _, str(kind):
            parts = [name for name in names if name != "type"]
            value = Record(kind, {name: _unpack_all(node[name], arrays) for name in parts})
        case _:
            raise ValueError(f"{short(node)} is not a known kind of value")
    return value


def _unpack_all(node: Any, arrays: Iterator[tuple[int, Array]]) -> Values:
    need(isinstance(node, dict), f"{short(node)} is not an object")
    return {name: _unpack(value, arrays) for name, value in node.items()}


# -- from the disk and to it ------------------------------------------------------------------


def read(path: str | os.PathLike[str], largest: int | None = None) -> bytes:
    """Return the bytes of the file `path` if magic, checksum and version are right."""
    largest = LARGEST_FILE if largest is None else largest
    with open(path, "rb") as file:
        check(file.read(len(MAGIC)), path, whole=False)
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            what = f"has {size} bytes; a model has at most {largest}"
            raise refusal(path, f"{what}. Give a file that onlad.save wrote")
        file.seek(0)
        return check(file.read(size), path)


def check(data: bytes, path: str | os.PathLike[str], *, whole: bool = True) -> bytes:
    """Return `data` if its magic is right, and as a `whole` its checksum and version too."""
    if not data.startswith(MAGIC):
        raise refusal(path, "is not an onlad model. Give a file that onlad.save wrote")
    if not whole:
        return data
    if hashlib.sha256(memoryview(data)[:-32]).digest() != data[-32:]:
        what = "is damaged: its checksum is not that of its bytes"
        raise refusal(path, f"{what}. Restore it from a copy, or save the model again")
    version = int.from_bytes(data[6:8], "little")
    if version != VERSION:
        what = f"has format {version}; this onlad reads {VERSION}"
        raise refusal(path, f"{what}. Load it with the onlad that wrote it, or a newer one")
    return data


def replace(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Put `data` where `path` is in one step, and on the disk before this returns."""
    parts = [data] if isinstance(data, bytes) else data
    target = os.fspath(os.path.realpath(path))
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".onlad-{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
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

"""TOML with the line of each key, so that a mistake can be shown where it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, TypeAlias

from onlad.errors import OnladError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover  (the same parser under its older name)
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

#: Where a key stands: ("streams", 0, "topic").
Place: TypeAlias = tuple[str | int, ...]
Lines: TypeAlias = dict[Place, int]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*[=.]""")
_QUOTES = re.compile(r'"""|\'\'\'')


class ConfigError(OnladError):
    """The configuration has mistakes; the message lists all of them."""


def read(path: Path) -> tuple[dict[str, Any], Lines]:
    """Return the tables in the file and the line of each table and key."""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text), lines(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def lines(text: str) -> Lines:
    r"""Return where tables and keys stand in TOML that is known to be right.

    Examples
    --------
    >>> lines('[http]\nport = 1\n[[streams]]\n[[streams]]\nname = "a"')[("streams", 1, "name")]
    5
    """
    found: Lines = {}
    tables: dict[str, int] = {}
    here: Place = ()
    inside = False  # a string of several lines
    for number, line in enumerate(text.splitlines(), 1):
        ends = len(_QUOTES.findall(line)) % 2 == 1
        if not inside:
            if header := _HEADER.match(line):
                here = _place(header[1] == "[[", header[2], tables)
                found.setdefault(here, number)
            elif key := _KEY.match(line):
                found.setdefault((*here, key[1].strip("\"'")), number)
        inside ^= ends
    return found


def _place(is_list: bool, name: str, tables: dict[str, int]) -> Place:
    """Return the place of a header; below a list of tables it is in the newest of them."""
    place: Place = ()
    path = ""
    parts = [part.strip(" \"'") for part in name.split(".")]
    for depth, part in enumerate(parts):
        path = f"{path}.{part}"
        place = (*place, part)
        if is_list and depth == len(parts) - 1:
            tables[path] = tables.get(path, -1) + 1
        if path in tables:
            place = (*place, tables[path])
    return place

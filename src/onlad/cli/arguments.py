"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def at_least(least: int) -> Callable[[str], int]:
    """Return a type of argparse: a whole number that is not too small."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        return number

    return parse

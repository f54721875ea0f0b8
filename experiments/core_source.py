"""Of which gateware and model a record of the core is: digests that comments do not change."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from onlad.hardware import Config

HERE = Path(__file__).parent.parent / "src" / "onlad" / "hardware"
MODEL = ("config", "fixed", "model", "seeded", "sigmoid")  # the modules that define the core's bits
CORES = (  # small ones that have all parts of the gateware between them
    Config(5, 3, 2, activation="sigmoid"),
    Config(16, 8, 4, alpha="seeded"),
    Config(16, 8, 8, width=18, alpha="narrow"),
)


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@cache
def gateware() -> str:
    """Return a digest of what Amaranth makes of the gateware, without positions in the source."""
    from amaranth.back import rtlil  # noqa: PLC0415  (slow)

    from onlad.hardware.rtl.top import Top  # noqa: PLC0415

    return _digest([rtlil.convert(Top(core), emit_src=False) for core in CORES])


def _code(node: Any) -> Any:
    """Return a syntax tree as nested lists, without docstrings and without what is empty."""
    if isinstance(node, list):
        return [_code(part) for part in node if not _is_text(part)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *((name, _code(value)) for name, value in fields)]


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def model() -> str:
    """Return a digest of the code of the model on integers."""
    trees = [ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8")) for name in MODEL]
    return _digest([repr(_code(tree)) for tree in trees])

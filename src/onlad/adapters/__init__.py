"""`onlad` as a detector of other libraries, one module per host. Importing this imports no host.

The constructors are alike by design: each host wants its parameters written out.
"""

import inspect
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def needs(module: str, host: str, extra: str) -> Iterator[None]:
    """Say which extra installs a host that cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{module} needs {host}: pip install 'onlad[{extra}]'") from error


def keep(adapter: Any, arguments: Mapping[str, Any]) -> None:
    """Set the locals of a constructor as attributes: that is where a host looks for them."""
    hidden = ("self", "__class__")
    vars(adapter).update({name: arguments[name] for name in arguments if name not in hidden})


def made(kind: type[T], parameters: Mapping[str, Any], seed: int | None) -> T:
    """Return a `Detector` or an `OsElm` with the parameters of an adapter that it has too.

    Its `score` is the `score_type` of the adapter. Without a seed it draws its own.
    """
    own = {**parameters, "seed": secrets.randbelow(2**31) if seed is None else seed}
    if "score_type" in own:
        own["score"] = own["score_type"]
    return kind(**{name: own[name] for name in inspect.signature(kind).parameters if name in own})

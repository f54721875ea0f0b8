"""Logs for people or for machines: one line per event, as text or as JSON, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from datetime import datetime, timezone
from typing import Any

log = logging.getLogger("onlad.serve")

MOST = 20  # of one kind of event in a second
_LONGEST_EVENT = 1000  # letters of what a library says
_LONGEST = 300  # what a client sends may be in a value
_lately: dict[str, tuple[int, int]] = {}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_shown(value)}" for name, value in _facts(record).items())
        return f"{_when(record)} {record.levelname.lower()}: {_said(record)}{facts}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        head = {"time": _when(record), "level": level, "event": _said(record)}
        return json.dumps(head | _facts(record), default=str)


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, timezone.utc).isoformat("T", "milliseconds")


def _said(record: logging.LogRecord) -> str:
    """Return what happened in one printable line; libraries may use many."""
    text = record.getMessage()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:_LONGEST_EVENT])


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = getattr(record, "facts", {})
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        facts = facts | {"error": repr(error)}
        if error.__traceback__ is not None:  # the place is enough to find it, in one line
            frame = traceback.extract_tb(error.__traceback__)[-1]
            facts = facts | {"at": f"{frame.filename}:{frame.lineno}"}
    return {k: v[:_LONGEST] if isinstance(v, str) else v for k, v in facts.items()}


def _shown(value: Any) -> str:
    # Quoted, so that no line break of a client's makes a line of its own.
    text = str(value)
    return text if text.isalnum() else json.dumps(text)


def setup(kind: str, level: str) -> None:
    """Send the log to standard error: the service's, and warnings of the libraries below it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if kind == "json" else _Text())
    handler.addFilter(_few)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(level.upper())
    logging.captureWarnings(True)


def _few(record: logging.LogRecord) -> bool:
    """Return whether an event is written: a flood of one kind would fill the disk.

    All that a library says is one kind: a client needs no token to make it complain.
    """
    now, kind = int(time.time()), str(record.msg) if record.name == log.name else record.name
    second, count = _lately.get(kind, (now, 0))
    count = count + 1 if second == now else 1
    _lately[kind] = (now, count)
    if count == MOST:
        facts = getattr(record, "facts", {})
        record.__dict__["facts"] = facts | {"more": "not shown in this second"}
    return count <= MOST


def info(what: str, **facts: Any) -> None:
    """Write a normal event with its facts."""
    log.info(what, extra={"facts": facts})


def warning(what: str, **facts: Any) -> None:
    """Write an event that an operator should look at."""
    log.warning(what, extra={"facts": facts})


def error(what: str, error: Exception, **facts: Any) -> None:
    """Write an event that is a mistake in onlad, with its place."""
    log.error(what, exc_info=error, extra={"facts": facts})

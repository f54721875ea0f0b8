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


class _Line(logging.Formatter):
    """One line per event, as JSON or as text."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat("T", "milliseconds")
        level, said, facts = record.levelname.lower(), _said(record), _facts(record)
        if self._json:
            return json.dumps({"time": when, "level": level, "event": said} | facts, default=str)
        # Quoted, so that no line break of a client's makes a line of its own.
        texts = {name: str(value) for name, value in facts.items()}
        shown = (f" {n}={t if t.isalnum() else json.dumps(t)}" for n, t in texts.items())
        return f"{when} {level}: {said}{''.join(shown)}"


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


def setup(kind: str, level: str) -> None:
    """Send the log to standard error: the service's, and warnings of the libraries below it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(kind == "json"))
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

"""MQTT topics of a stream: which messages belong to it, and from which device they come."""

from __future__ import annotations

import re


class Pattern:
    """A topic filter with MQTT's wildcards, in which one level may be ``{device}``.

    Each value of that level gets a monitor of its own. Without it all messages go to one monitor,
    whose device is the empty text.

    Examples
    --------
    >>> pattern = Pattern("factory/{device}/+/sensors")
    >>> pattern.filter
    'factory/+/+/sensors'
    >>> pattern.device("factory/pump-3/b/sensors")
    'pump-3'
    >>> pattern.device("factory/pump-3/sensors") is None
    True
    """

    def __init__(self, text: str) -> None:
        levels = text.split("/")
        if not text or "\0" in text or len(text.encode()) > 65535:
            raise ValueError("must have 1 to 65535 bytes")
        for index, level in enumerate(levels):
            if level == "#" and index < len(levels) - 1:
                raise ValueError("# is allowed as the last level only")
            if level not in ("#", "+") and ("#" in level or "+" in level):
                raise ValueError(f"a wildcard takes a whole level, got {level!r}")
            if level != "{device}" and ("{" in level or "}" in level):
                raise ValueError(f"{{device}} takes a whole level, got {level!r}")
        if levels.count("{device}") > 1:
            raise ValueError("{device} may appear only once")
        self.filter = "/".join("+" if level == "{device}" else level for level in levels)
        parts = {"+": "[^/]*", "{device}": "([^/]*)"}
        body = "/".join(parts.get(level, re.escape(level)) for level in levels if level != "#")
        if levels[-1] == "#":  # the level above is meant too
            body = f"{body}(?:/.*)?" if body else ".*"
        # A wildcard at the start means none of the broker's own topics.
        guard = r"(?!\$)" if levels[0] in ("#", "+", "{device}") else ""
        self._match = re.compile(guard + body, re.DOTALL).fullmatch

    def device(self, topic: str) -> str | None:
        """Return the device that a topic names, or None if it is not of this stream."""
        found = self._match(topic)
        return None if found is None else (found.groups() or ("",))[0]

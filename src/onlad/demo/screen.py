"""The live view in a terminal: how far the stream is, and its scores against the threshold."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from onlad.verdict import Verdict

BARS = " ▁▂▃▄▅▆▇█"
COLUMN = 10  # samples per column, which shows their largest score
FRAMES = 12  # a second


class Screen(Progress):
    """Draws the last verdicts while it is entered; lines printed on `console` go above it."""

    def __init__(self, console: Console, n_samples: int) -> None:
        self._levels: deque[float] = deque([0.0], maxlen=max(10, console.width - 14))
        columns = BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("samples")
        state = TextColumn("[cyan]{task.fields[state]:<8}")
        super().__init__(state, *columns, console=console, expand=True, refresh_per_second=FRAMES)
        self._task = self.add_task("", total=n_samples, state="learning")

    def add(self, t: int, verdict: Verdict) -> None:
        """Take the verdict on sample `t`. Drawing is left to the clock, so this costs little."""
        if t % COLUMN == 0:
            self._levels.append(0.0)
            state = "watching" if verdict.ready else "learning"
            self.update(self._task, completed=t + COLUMN, state=state)
        if verdict.ready:
            self._levels[-1] = max(self._levels[-1], level(verdict))

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar, and the scores below it."""
        above, below = sparkline(list(self._levels))
        yield self.make_tasks_table(self.tasks)
        yield Text.assemble("      score ", (above, "bold red"))
        yield Text.assemble(("  threshold ", "yellow"), (below, "green on grey11"))


def level(verdict: Verdict) -> float:
    """Return the score in units of its threshold."""
    return verdict.score / verdict.threshold if 0 < verdict.threshold < math.inf else 0.0


def sparkline(levels: list[float]) -> tuple[str, str]:
    """Return two rows of bars: what is above the threshold, and what is below it.

    Examples
    --------
    >>> for row in sparkline([0.0, 0.5, 0.75, 1.0, 1.25, 3.0]):
    ...     print(repr(row))
    '    ▂█'
    ' ▄▆███'
    """

    def bars(zero: float) -> str:
        parts = (min(max(level - zero, 0.0), 1.0) for level in levels)
        return "".join(BARS[math.ceil(part * (len(BARS) - 1))] for part in parts)

    return bars(1.0), bars(0.0)

"""The charts of the page, as options of ECharts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onlad.reference import Array
from onlad.report.record import figures
from onlad.serve.alarm import Alarm, rounded
from onlad.serve.history import Point

DAY = 86_400  # seconds
POINTS = 500  # of a curve: more than a phone has columns
LINE = {"type": "line", "showSymbol": False}
GRID = {"left": 56, "right": 24, "top": 32}  # one sample is at one place in all charts
GREY, BLUE, AMBER, RED, VIOLET = "#8a8a8a", "#4c8dd6", "#e0a030", "#e04545", "#a066d3"
#: The text of a sensor under the pointer; low and high are stacked, so the band is a width.
TOLD = """parts => {
  const at = name => parts.find(part => part.seriesName == name)?.value;
  const number = x => x == null ? "-" : Number(x.toPrecision(4));
  const low = at("low"), high = low == null ? null : low + at("band");
  return `${parts[0].name}<br>value ${number(at("value"))}` +
    `<br>expected ${number(low)} to ${number(high)}`;
}"""


def thinned(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """Return at most about `most` points: of each stretch the highest score, and every new mode.

    Examples
    --------
    >>> points = [Point(i, float(i), 9.0 if i == 7 else 1.0, 5.0, i == 7, False) for i in range(10)]
    >>> [p.row for p in thinned(points, 5)]
    [0, 2, 4, 7, 8]
    """
    stretch = max(1, math.ceil(len(points) / most))
    kept: list[Point] = []
    for first in range(0, len(points), stretch):
        part = points[first : first + stretch]
        highest = max(part, key=lambda p: (p.is_anomaly, p.score))
        kept += [p for p in part if p.drift or p is highest]
    return kept


def spoken(text: str) -> dict[str, Any]:
    """Return what a screen reader says of a chart; by itself it would read out numbers."""
    return {"enabled": True, "label": {"description": text}}


def scores(points: Sequence[Point]) -> dict[str, Any]:
    """Return the options of the chart: score, threshold, anomalies and new modes."""
    points = thinned(points)
    score, threshold = ([_known(getattr(p, name), rounded) for p in points]
                        for name in ("score", "threshold"))  # fmt: skip
    drifts = {
        "symbol": "none",
        "label": {"formatter": "new mode", "color": VIOLET, "position": "insideEndTop"},
        "lineStyle": {"color": VIOLET},
        "data": [{"xAxis": i} for i, p in enumerate(points) if p.drift],
    }
    series = [
        LINE | {"name": "score", "color": BLUE, "data": score, "markLine": drifts},
        LINE | {"name": "threshold", "color": AMBER, "data": threshold},
        _anomalies(points, score),
    ]
    return _chart(points, series) | {
        "grid": GRID | {"bottom": 24},
        "aria": spoken("Score and threshold over time"),
    }


def bands(
    points: Sequence[Point], around: Array, index: int, alarms: Iterable[Alarm] = ()
) -> dict[str, Any]:
    """Return the options of the chart of one sensor: values, the band they are in, incidents."""
    known = dict(zip((p.row for p in points), (a[:, index].tolist() for a in around), strict=False))
    points = thinned(points)
    drawn = [known.get(p.row, (math.nan,) * 3) for p in points]
    stacked = LINE | {"stack": "band", "stackStrategy": "all", "lineStyle": {"opacity": 0}}
    stacked |= {"color": GREY}
    low = [_known(expected - reach, figures) for _, expected, reach in drawn]
    wide = [_known(2 * reach, figures) for _, _, reach in drawn]
    values = [_known(value, figures) for value, _, _ in drawn]
    areas = [
        [{"xAxis": max(0, here[0] - 1)}, {"xAxis": min(here[-1] + 1, len(points) - 1)}]
        for alarm in alarms
        if (here := [i for i, p in enumerate(points) if alarm.row <= p.row <= alarm.last])
    ]  # from the sample before to the one after: else one sample would have no width
    incidents = {"silent": True, "itemStyle": {"color": RED, "opacity": 0.15}, "data": areas}
    series = [
        stacked | {"name": "low", "data": low},
        stacked | {"name": "band", "data": wide, "areaStyle": {"color": GREY, "opacity": 0.3}},
        LINE | {"name": "value", "color": BLUE, "data": values, "markArea": incidents},
        _anomalies(points, values),
    ]
    chart = _chart(points, series)
    chart["legend"]["data"] = ["value", "band", "anomalies"]
    chart["yAxis"]["scale"] = True
    chart["tooltip"][":formatter"] = TOLD
    chart["dataZoom"].append({"type": "slider", "height": 14, "bottom": 2})
    return chart | {
        "grid": GRID | {"bottom": 44},
        "aria": spoken("A sensor over time"),
    }


def _known(value: float, digits: Callable[[float], float]) -> float | None:
    return digits(value) if math.isfinite(value) else None


def _anomalies(points: Sequence[Point], values: Sequence[float | None]) -> dict[str, Any]:
    """Return marks at the anomalies."""
    pairs = zip(points, values, strict=True)
    marks = {"type": "scatter", "name": "anomalies", "color": RED, "symbolSize": 6}
    return marks | {"data": [v if p.is_anomaly else None for p, v in pairs]}


def _chart(points: Sequence[Point], series: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all charts have in common."""
    words, times = {"color": GREY}, [p.time for p in points]
    # Of "19 Nov 23:23:21" the date, or the seconds, where they say little.
    part = "7" if times and times[-1] - times[0] < DAY else "0, -3"
    shorter = words | {":formatter": f"time => time.slice({part})", "alignMinLabel": "left"}
    return {
        "animation": False,
        "legend": {"top": 0, "textStyle": words},
        "tooltip": {"trigger": "axis"},
        "dataZoom": [{"type": "inside"}],
        "xAxis": {"type": "category", "axisLabel": shorter, "data": list(map(when, times))},
        "yAxis": {"axisLabel": words, "splitLine": {"lineStyle": {"opacity": 0.2}}},
        "series": series,
    }


def when(seconds: float) -> str:
    """Return a time for people, by the clock of the machine."""
    return time.strftime("%d %b %H:%M:%S", time.localtime(seconds))

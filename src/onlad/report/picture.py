"""The picture of a run: scores against their threshold, and the causes of alarms below."""

from __future__ import annotations

import html
import io
import json
import math
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from onlad.report.incidents import causes
from onlad.report.lines import readable
from onlad.report.track import Track

INK, LINE, ALARM, FAINT = "#222222", "#5b6b7b", "#D00000", "#eeeeee"
FEATURES = 12  # rows of causes: those with the largest shares
LEFT, RIGHT = 0.13, 0.95  # of the figure's width; the page needs them to find a bucket


def draw(path: Path, track: Track, title: str) -> None:
    """Write a PNG, an SVG or a page of HTML, by the suffix of `path`."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        path.write_text(page(track, title), encoding="utf-8")
    else:
        _saved(figure(track, title), path, suffix[1:])


def _saved(drawn: Figure, to: Any, form: str) -> None:
    metadata = {"Date": None, "Creator": None} if form == "svg" else None
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "onlad"}):  # text, not outlines
        drawn.savefig(to, format=form, metadata=metadata)


def figure(track: Track, title: str) -> Figure:
    """Return the figure."""
    shown = np.argsort(-track.shares.sum(axis=0), kind="stable")[:FEATURES]
    shown = shown[track.shares.sum(axis=0)[shown] > 0]
    height = 4.2 + 0.28 * max(len(shown), 1)
    drawn = Figure(figsize=(14, height), dpi=100, facecolor="white")
    grid = drawn.add_gridspec(
        2, 1, height_ratios=[3.2, 0.28 * max(len(shown), 1)],
        left=LEFT, right=RIGHT, top=1 - 0.5 / height, bottom=0.5 / height, hspace=0.3 / height,
    )  # fmt: skip
    drawn.suptitle(title, x=LEFT, y=1 - 0.12 / height, ha="left", va="top", fontsize=13, color=INK)
    top = drawn.add_subplot(grid[0])
    _scores(top, track)
    below = drawn.add_subplot(grid[1], sharex=top)
    _causes(below, track, shown)
    top.tick_params(labelbottom=False)
    return drawn


def _scores(ax: Any, track: Track) -> None:
    x = np.arange(len(track))
    ax.plot(x, track.score, color=LINE, linewidth=0.7, label="score")
    ax.plot(x, track.limit, color=ALARM, linewidth=1.4, label="threshold")
    at = np.flatnonzero(track.alarms)
    ax.plot(at, track.score[at], "v", color=ALARM, markersize=4, linestyle="", label="alarm")
    for k, b in enumerate(np.flatnonzero(track.drift).tolist()):
        ax.axvline(b, color=INK, linewidth=1.2, linestyle="--", label=None if k else "drift")
    learning = np.isnan(track.score)
    if learning.any():
        ax.fill_between(x, 0, 1, where=learning, transform=ax.get_xaxis_transform(),
                        color=FAINT, linewidth=0, label="learning")  # fmt: skip
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel("score", color=INK, fontsize=10)
    ax.set_yscale("symlog", linthresh=1)  # linear up to 1, logarithmic above
    ax.tick_params(colors=INK, labelsize=9)
    ax.set_xlim(-0.5, max(len(track), 1) - 0.5)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, fontsize=9)


def _causes(ax: Any, track: Track, shown: Any) -> None:
    share = track.shares[:, shown] / np.maximum(track.alarms, 1)[:, None]
    # Alarms are few and a picture has few columns: draw each one so wide that it is seen.
    wide = max(1, len(track) // 400)
    for k in range(len(shown)):
        at = np.flatnonzero(share[:, k])
        ax.bar(at, share[at, k] * 0.9, width=wide, bottom=len(shown) - 1 - k, color=ALARM,
               linewidth=0)  # fmt: skip
    ax.set_ylim(0, max(len(shown), 1))
    names = [str(track.names[j]) for j in shown] or ["no alarms"]
    ax.set_yticks(np.arange(len(names))[::-1] + 0.4, names)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel("cause", color=INK, fontsize=10)
    ax.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _when(track, round(x))))


def _when(track: Track, bucket: int) -> str:
    if not 0 <= bucket < len(track):
        return ""
    time = track.times[bucket]
    return f"row {track.row[bucket]:,}" if time is None else readable(time)[:19]


def page(track: Track, title: str) -> str:
    """Return one page that needs nothing else: the picture, values under the pointer, alarms."""
    picture = io.StringIO()
    _saved(figure(track, title), picture, "svg")
    svg = picture.getvalue()
    buckets = [
        [_when(track, b), _finite(track.score[b]), _finite(track.limit[b]), int(track.alarms[b]),
         str(track.names[int(np.argmax(track.shares[b]))]) if track.alarms[b] else ""]
        for b in range(len(track))
    ]  # fmt: skip
    listed = [
        (each.number, ", ".join(each.devices), each.begin, each.end,
         "" if each.times[0] is None else readable(each.times[0]),
         f"{each.severity:.0f}", causes(each), ", ".join(map(str, each.similar[:3])))
        for each in track.incidents
    ]  # fmt: skip
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in incident) + "</tr>"
        for incident in listed
    )
    total = int(track.alarms.sum())
    left_out = f", the {len(listed)} most severe" if track.n_incidents > len(listed) else ""
    return PAGE.substitute(
        title=html.escape(title),
        svg=svg[svg.index("<svg") :],
        data=json.dumps({"buckets": buckets, "left": LEFT, "right": RIGHT}).replace("</", "<\\/"),
        summary=f"{track.n_seen:,} samples, {total:,} alarms, {track.n_incidents:,} incidents"
        f"{left_out}",
        rows=rows,
    )


def _finite(value: float) -> float | None:
    return round(float(value), 3) if math.isfinite(value) else None


PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 90rem; margin: 0 auto; padding: 1rem; }
figure { margin: 0; position: relative; background: white; border-radius: 6px; overflow-x: auto; }
figure svg { width: 100%; min-width: 40rem; height: auto; display: block; }
output { position: absolute; pointer-events: none; background: #222; color: white; padding: 2px 8px;
  border-radius: 4px; font-size: 13px; white-space: nowrap; top: 4px; visibility: hidden; }
table { border-collapse: collapse; display: block; overflow-x: auto; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 2px 10px; border-bottom: 1px solid #8884; }
</style>
</head>
<body>
<figure id="figure">
$svg
<output id="under"></output>
</figure>
<p>$summary</p>
<table>
<thead><tr><th>incident</th><th>devices</th><th>from row</th><th>to row</th><th>time</th>
<th>severity</th><th>causes</th><th>like</th></tr></thead>
<tbody>
$rows
</tbody>
</table>
<script>
const data = $data;
const figure = document.getElementById("figure"), under = document.getElementById("under");
const svg = figure.querySelector("svg");
svg.addEventListener("pointermove", (event) => {
  const box = svg.getBoundingClientRect();
  const share = ((event.clientX - box.left) / box.width - data.left) / (data.right - data.left);
  const bucket = data.buckets[Math.floor(share * data.buckets.length)];
  under.style.visibility = bucket ? "visible" : "hidden";
  if (!bucket) return;
  const [when, score, limit, alarms, cause] = bucket;
  const level = score === null ? "learning" : `score $${score}, threshold $${limit}`;
  const counted = alarms === 1 ? "1 alarm" : `$${alarms} alarms`;
  under.textContent = `$${when}: $${level}` + (alarms ? `, $${counted}, $${cause}` : "");
  const x = event.clientX - figure.getBoundingClientRect().left;
  under.style.left = Math.min(x + 12, Math.max(0, box.width - under.offsetWidth)) + "px";
});
svg.addEventListener("pointerleave", () => { under.style.visibility = "hidden"; });
</script>
</body>
</html>
""")

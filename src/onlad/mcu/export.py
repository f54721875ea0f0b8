"""A monitor as C source: the files that a firmware is built with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onlad._kernel import VERSION
from onlad.errors import OnladError
from onlad.mcu.layout import following
from onlad.mcu.portable import PortableMonitor
from onlad.reference import Array

SELFTEST_ROWS = 512
STACK = 680  # bytes that a program takes at most on a 32-bit processor; measured: up to 620
FIXED_STACK = 740  # the same in fixed point; measured: up to 652


SMALLER = (  # what to do if a model does not fit: a fresh one, a fitted one
    "Fewer --hidden, --modes or a smaller --window take less",
    "Fewer --modes take less, down to one more than it knows; so does a model with "
    "fewer units: PortableMonitor(hidden=16).fit(history), saved with onlad.save",
)


class Chip(NamedTuple):
    """What a chip takes, from the records of `experiments.mcu`."""

    name: str
    code: int  # bytes with -Os, tables included
    costs: tuple[float, float, float]  # instructions: of any row, by inputs squared, by weight


# Code measured: 12,324 to 12,574 bytes; costs: least squares over six sizes, within 5 % of each.
FLOAT = Chip("Cortex-M4F", 12_450, (5_882.0, 18.37, 41.38))
# Code measured: 16,200 to 16,538 bytes; costs: from three sizes.
FIXED = Chip("Cortex-M0", 16_360, (84_780.0, 224.4, 249.1))
DRAWN = 29.0  # instructions for each weight that is drawn from a seed; measured: 27 to 30


class Figures(NamedTuple):
    """What a model needs."""

    ram: int  # bytes, without the stack
    stack: int
    chip: str  # of which flash and instructions are
    flash: int  # bytes of code and constants
    instructions: int  # of a row


def figures(monitor: PortableMonitor) -> Figures:
    """Return what the monitor needs on a chip."""
    sizes = monitor.sizes()
    image = sizes.dump if monitor.n_seen else 0
    weights, stored = sizes.hidden * (sizes.features + 1), monitor.drawn == "stored"
    constants = monitor.layer()[0].itemsize * weights * stored + image
    chip, stack = (FIXED, FIXED_STACK) if monitor.is_fixed else (FLOAT, STACK)
    usual = np.dot(chip.costs, (1, sizes.inputs**2, sizes.hidden * sizes.features))
    needed = round(float(usual) + DRAWN * weights * (not stored))
    ram = sizes.ram(monitor.is_fixed)
    return Figures(ram, stack, chip.name, chip.code + constants, needed)


def check_folder(folder: Path) -> None:
    """Refuse a folder with other files than those of an export: README.md would be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "onlad_model.h").is_file():
        raise OnladError(
            f"{folder} has files that are not of an export, and some might be replaced. "
            "Give a folder of its own, such as one in it"
        )


def write(monitor: PortableMonitor, folder: Path) -> list[str]:
    """Write the source with this model into a folder; return the names of the files."""
    files = {"onlad_model.h": model_header(monitor), "README.md": readme(monitor)}
    for base in (Path(__file__).parent / "c", Path(__file__).parent / "package"):
        for path in filter(Path.is_file, base.rglob("*")):
            text = path.read_text(encoding="utf-8").replace("@VERSION@", VERSION)
            files[path.relative_to(base).as_posix()] = text
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(files)


def model_header(monitor: PortableMonitor) -> str:
    """Return onlad_model.h: sizes, the random layer, and what was learned if there is something."""
    sizes = monitor.sizes()
    lines = [
        "/* A model, written by `onlad export`. */",
        "#ifndef ONLAD_MODEL_H",
        "#define ONLAD_MODEL_H",
        "",
        "#include <stdint.h>",
        "",
        *(f"#define ONLAD_{name.upper()} {size}" for name, size in sizes._asdict().items()),
        f"#define ONLAD_WARMUP {monitor.warmup}u",
        f"#define ONLAD_FALSE_ALARMS {_float(monitor.false_alarms)}",
        f"#define ONLAD_RAM {sizes.ram(monitor.is_fixed)} /* bytes of onlad_monitor; checked */",
        f"#define ONLAD_CHECKSUM 0x{checksum(monitor):08x}u /* of the self-test */",
        *(["#define ONLAD_FITTED"] if monitor.n_seen else []),
        *(["#define ONLAD_COUNTERS"] if monitor.counters else []),
        *(["#define ONLAD_FIXED /* matrices in fixed point */"] if monitor.is_fixed else []),
        *(_seed(monitor) if monitor.drawn == "seeded" else []),
        "",
        "/* Names of the features, for people. */",
        *(f"/* {j}: {_comment(str(name))} */" for j, name in enumerate(monitor.names)),
        "",
        "#ifdef ONLAD_IMPLEMENTATION /* in onlad.c alone: other files have no copy */",
        *(_layer(monitor) if monitor.drawn == "stored" else []),
    ]
    if monitor.counters and not monitor.n_seen:
        counters = (str(monitor.names.index(name)) for name in monitor.counters)
        lines += _array("static const uint16_t onlad_counters", counters)
    if monitor.n_seen:
        words = np.frombuffer(monitor.dump(), "<u4")
        lines += _array("static const uint32_t onlad_image", (f"0x{w:08x}u" for w in words))
    return "\n".join([*lines, "#endif", "", "#endif", ""])


def _seed(monitor: PortableMonitor) -> list[str]:
    spread, bias_spread = (_number(each, monitor) for each in monitor.spreads())
    return [
        f"#define ONLAD_SEED 0x{monitor.first_state():08x}u /* of the random layer */",
        f"#define ONLAD_SPREAD {spread}",
        f"#define ONLAD_BIAS_SPREAD {bias_spread}",
    ]


def _layer(monitor: PortableMonitor) -> list[str]:
    kind, (alpha, bias) = "int16_t" if monitor.is_fixed else "float", monitor.layer()
    return [
        *_array(f"static const {kind} onlad_alpha", (_number(w, monitor) for w in alpha.ravel())),
        *_array(f"static const {kind} onlad_bias", (_number(w, monitor) for w in bias)),
    ]


def _number(value: float, monitor: PortableMonitor) -> str:
    return str(int(value)) if monitor.is_fixed else _float(value)


def _array(name: str, values: Iterable[str]) -> list[str]:
    shown = list(values)
    rows = [", ".join(shown[i : i + 6]) for i in range(0, len(shown), 6)]
    return [f"{name}[{len(shown)}] = {{", *(f"    {row}," for row in rows), "};"]


def _float(value: float) -> str:
    """Return a float32 in as many digits as make it again."""
    return np.format_float_scientific(np.float32(value), unique=True, trim="0") + "f"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text).replace("*/", "* /")


def selftest_rows(features: int) -> Array:
    """Return the rows that onlad_selftest.c makes."""
    random, rows = 1, np.empty((SELFTEST_ROWS, features), "float32")
    for t in range(SELFTEST_ROWS):
        for j in range(features):
            wave = (t * (j + 3)) % 64
            random = following(random)
            rows[t, j] = (wave if wave < 32 else 64 - wave) + (random >> 24) * 0.125
    return rows


def checksum(monitor: PortableMonitor) -> int:
    """Return the checksum of all that was learned after the rows of the self-test."""
    twin = PortableMonitor.resumed(monitor.settings(), names=monitor.names)
    if monitor.n_seen:
        twin.restore(monitor.dump())
    twin.observe_many(selftest_rows(len(monitor.names)))
    return int.from_bytes(twin.dump()[-4:], "little")


def check_ram(monitor: PortableMonitor, ram: int | None) -> None:
    """Refuse a model that does not fit into so many bytes, stack included."""
    needed = figures(monitor)
    if ram is not None and needed.ram + needed.stack > ram:
        raise OnladError(
            f"the model needs {needed.ram:,} bytes of RAM and {needed.stack:,} of stack, which is "
            f"more than {ram:,}. {SMALLER[bool(monitor.n_seen)]}"
        )


def summary(monitor: PortableMonitor) -> str:
    """Return the figures in words, one per line."""
    sizes, found = monitor.sizes(), figures(monitor)
    return "\n".join(
        [
            f"features      {sizes.features}, window {sizes.window}, {sizes.hidden} tanh units, "
            f"{sizes.modes} places for modes",
            f"RAM           {found.ram:,} bytes, and a stack of less than {found.stack:,}",
            f"flash         about {found.flash:,} bytes on a {found.chip} (-Os)",
            f"instructions  about {found.instructions:,} per row on a {found.chip}",
        ]
    )


def readme(monitor: PortableMonitor) -> str:
    """Return the README of an export."""
    state = f"learned from {monitor.n_seen:,} rows" if monitor.n_seen else "nothing learned yet"
    return f"""# onlad: anomaly detection that learns on this chip

Written by `onlad export`, version {VERSION}; {state}.

```
{summary(monitor)}
```

RAM is exact for a 32-bit processor and is checked when `onlad.c` is compiled. Flash and
instructions are estimates from measurements of other sizes.

```c
#include "onlad.h"

static onlad_monitor monitor;

onlad_init(&monitor);
for (;;) {{
    float x[ONLAD_FEATURES]; /* NaN is a missing value */
    onlad_verdict v;
    read_sensors(x);
    onlad_observe(&monitor, x, &v);
    if (v.is_anomaly) alarm(v.score, v.causes[0].feature);
}}
```

`onlad_selftest(&monitor)` says whether processor, compiler and library give the bits of the PC.
`onlad_flash.h` keeps the model through a loss of power. `onlad.h` has the rest.

| for | what |
|---|---|
| Arduino | this folder is a library (`library.properties`, `examples/Watch`) |
| PlatformIO | this folder in `lib/` (`library.json`) |
| Zephyr | `west build -- -DZEPHYR_EXTRA_MODULES=/path/to/this/folder`, `CONFIG_ONLAD=y` |
| ESP-IDF | this folder in `components/` (`idf_component.yml`) |
| an emulator | `make -C qemu BOARD=m4f ROWS=rows.bin run` |
"""

"""The constants of the C source are those of the monitor.

python tests/mcu/test_mcu_constants.py writes them into src/onlad/mcu/c/onlad.c.
"""

import math
from pathlib import Path

import onlad.mcu
from onlad import anchor, counter, instance, judge, limit, mode, watching
from onlad.mcu import definition, layout

SOURCE = Path(onlad.mcu.__file__).parent / "c" / "onlad.c"
BEGIN, END = "/* constants: python tests/mcu/test_mcu_constants.py */\n", "/* end of constants */"
FIXED = SOURCE.with_name("onlad_fixed.h")
TABLE, TABLE_END = "/* table: python tests/mcu/test_mcu_constants.py */\n", "/* end of table */"
REAL = {
    "CLIP": mode.CLIP,
    "RANGE": mode.RANGE,
    "STILL": mode.STILL,
    "RIDGE": instance.RIDGE,
    "CONSTANT": instance.CONSTANT,
    "LAMBDA": definition.FORGETTING,
    "PRIOR": mode.PRIOR,
    "PRIOR_SQUARE": mode.PRIOR_SQUARE,
    "OFTEN": mode.OFTEN,
    "ACCEPTED": mode.ACCEPTED,
    "SMOOTHING": mode.SMOOTHING,
    "LEANING": mode.LEANING,
    "BEYOND": mode.BEYOND,
    "FEW": mode.FEW,
    "LEAST_REACH": mode.LEAST[0],
    "LEAST_MEAN_REACH": mode.LEAST[1],
    "WINSOR": mode.WINSOR,
    "CORRELATED": mode.CORRELATED,
    "KEEP": judge.KEEP,
    "FILLED": judge.FILLED,
    "RESET": counter.RESET,
    "HELD": watching.HELD,
    "REFUSED": watching.REFUSED,
    "YOUNG_GATE": watching.YOUNG,
    "SHELVED": watching.SHELVED,
    "SPARED": watching.SPARED,
    "CANDIDATE": watching.CANDIDATE,
    "PATIENCE": watching.PATIENCE,
    "SHORTEST": watching.SHORTEST,
    "LONGEST": watching.LONGEST,
    "FOREIGN": watching.FOREIGN,
    "LEAST": limit.LEAST,
    "TAIL": limit.TAIL,
    "FARTHEST": limit.FARTHEST,
    "STEP": limit.STEP,
    "STEP_FACTOR": math.exp(limit.STEP),
    "HIGHEST_FACTOR": math.exp(limit.HIGHEST),
    "WEAK": limit.WEAK,
    "STRONG": limit.STRONG,
    "SINGLE": limit.SINGLE,
    "YOUNG_LIMIT": limit.YOUNG,
    "MEAN": anchor.MEAN,
    "OUTSIDE": anchor.OUTSIDE,
    "SLACK": anchor.SLACK,
    "ANCHOR_CLIP": definition.ANCHOR_CLIP,
    "GROWS": anchor.GROWS,
}
WHOLE = {
    "EXPIRING": watching.EXPIRING,
    "MEMORY": mode.MEMORY,
    "RECENT": limit.RECENT,
    "LASTING": limit.LASTING,
    "TOLD": limit.TOLD,
    "GAP": limit.GAP,
    "SHORT_EPISODE": limit.SHORT,
    "SETTLED": anchor.SETTLED,
    "MEASURED": anchor.MEASURED,
}


def real(value):
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def lines():
    found = [f"#define {name} {real(value)}\n" for name, value in REAL.items()]
    return "".join([*found, *(f"#define {name} {value}u\n" for name, value in WHOLE.items())])


def table():
    """Return tanh in steps of 1/32 up to 5, where the next step changes the last bit."""
    values = [round(32767 * math.tanh(k / 32)) for k in range(161)]
    rows = [", ".join(map(str, values[k : k + 14])) for k in range(0, len(values), 14)]
    return "static const int16_t tanh_table[161] = {\n    " + ",\n    ".join(rows) + "};\n"


def test_the_table_of_the_fixed_point_is_tanh():
    between = FIXED.read_text().split(TABLE)[1].split(TABLE_END)[0]
    assert between.split() == table().split(), "run python tests/mcu/test_mcu_constants.py"


def test_the_constants_of_the_chip_are_those_of_the_monitor():
    between = SOURCE.read_text().split(BEGIN)[1].split(END)[0]
    assert between == lines(), "run python tests/mcu/test_mcu_constants.py"


def test_the_constants_of_the_structure_are_those_of_the_monitor():
    header = SOURCE.with_suffix(".h").read_text()
    assert f"#define ONLAD_DELAY {watching.TICK} " in header
    assert f"#define ONLAD_BINS {definition.BINS} " in header
    source = SOURCE.read_text()
    assert f"#define STEEP {real(definition.STEEP)} " in source
    assert f"#define WIDER {real(definition.WIDER)} " in source
    assert f"#define MOST {definition.LARGEST:.0e}f ".replace("e+", "e") in source
    assert f"#define SMALLEST {mode.SMALLEST_UNIT}f " in source
    assert f"#define STATISTICS {mode.STATISTICS}\n" in source
    least, most = layout.LEAST_WARMUP, layout.MOST_WARMUP
    assert f"rows % {layout.PARTS} || rows < {least} || rows > {most}" in source
    assert "* 1664525u + 1013904223u" in source
    assert layout.following(1) == 1664525 + 1013904223
    assert f"#define BLOCK {definition.BLOCK}u " in source
    assert f"#define OCTAVE {definition.OCTAVE} " in source
    assert f"#define LOWEST ({definition.LOWEST}) " in source
    assert f"beyond = n - (uint32_t)({real(limit.HIGH)} * (float)n);" in source
    assert f"if (wanted < {limit.FEWEST}) wanted = {limit.FEWEST};" in source
    assert f"shape > {real(limit.HEAVIEST)} ? {real(limit.HEAVIEST)} : shape;" in source


if __name__ == "__main__":
    for path, begin, made, end in (
        (SOURCE, BEGIN, lines(), END),
        (FIXED, TABLE, table(), TABLE_END),
    ):
        before, after = path.read_text().split(begin)
        old, after = after.split(end)
        if old.split() != made.split():  # or clang-format would have to follow
            path.write_text(before + begin + made + end + after)

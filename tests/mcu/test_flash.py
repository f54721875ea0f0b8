"""A model in flash: power is cut at every byte of a write, and a whole model is always there."""

import shutil
import subprocess

import pytest
from rough import machine
from test_export import build

from onlad.mcu import PortableMonitor, export

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onlad_flash.h"

static uint8_t memory[2][ONLAD_FLASH_BYTES];
static size_t power; /* bytes that can still be written */

static int erase(void *context, int slot) {
    (void)context;
    if (power < 1) return 1;
    power -= 1;
    memset(memory[slot], 0xff, sizeof memory[slot]);
    return 0;
}

static int program(void *context, int slot, size_t offset, const void *bytes, size_t size) {
    size_t i;
    (void)context;
    if (size != ONLAD_FLASH_UNIT || offset % size || (uintptr_t)bytes % 4) exit(7);
    if (offset + size > ONLAD_FLASH_BYTES || (power && memory[slot][offset] != 0xff)) exit(8);
    for (i = 0; i < size; ++i) {
        if (!power) return 1;
        --power;
        memory[slot][offset + i] &= ((const uint8_t *)bytes)[i]; /* flash only clears bits */
    }
    return 0;
}

static onlad_monitor old, fresh, found;

int main(void) {
    onlad_flash flash;
    float x[ONLAD_FEATURES];
    onlad_verdict v;
    size_t cut, rows = 0;
    flash.slot[0] = memory[0];
    flash.slot[1] = memory[1];
    flash.erase = erase;
    flash.program = program;
    flash.context = NULL;

    memset(memory, 0xff, sizeof memory);
    onlad_init(&found);
    if (onlad_load(&found, &flash) != ONLAD_BAD_DUMP) return 1; /* nothing there */
    onlad_init(&old);
    while (rows < 700 && fread(x, sizeof x, 1, stdin)) onlad_observe(&old, x, &v), ++rows;
    power = (size_t)-1;
    if (onlad_store(&old, &flash) || onlad_store(&old, &flash)) return 2;
    fresh = old;
    while (fread(x, sizeof x, 1, stdin)) onlad_observe(&fresh, x, &v);

    /* Each write of the newer model is cut off after another byte. */
    for (cut = 0; cut <= ONLAD_FLASH_BYTES + 1; ++cut) {
        static uint8_t before[2][ONLAD_FLASH_BYTES];
        int told = cut == ONLAD_FLASH_BYTES + 1, whole = cut > ONLAD_DUMP;
        memcpy(before, memory, sizeof memory);
        power = cut;
        if ((onlad_store(&fresh, &flash) == ONLAD_OK) != told) return 3;
        memset(&found, 0, sizeof found);
        if (onlad_load(&found, &flash) != ONLAD_OK) return 4;
        if (memcmp(found.memory, (whole ? &fresh : &old)->memory, sizeof found.memory)) return 5;
        if (memcmp(found.count, (whole ? &fresh : &old)->count, sizeof found.count)) return 6;
        if (!told) memcpy(memory, before, sizeof memory);
    }
    fwrite(memory[0], 1, ONLAD_DUMP, stdout);
    fwrite(memory[1], 1, ONLAD_DUMP, stdout);
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("unit", [4, 8, 32])
def test_a_write_that_is_cut_at_any_byte_leaves_the_model_before(unit, tmp_path):
    X = machine(4000, 2)[:900]
    monitor = PortableMonitor(hidden=4, modes=1)
    monitor.names = (0, 1)
    export.write(monitor, tmp_path)
    program = build(tmp_path, PROGRAM, f"-DONLAD_FLASH_UNIT={unit}")
    done = subprocess.run(
        [program], input=X.astype("float32").tobytes(), capture_output=True, timeout=300, check=True
    )
    slots = done.stdout[: len(done.stdout) // 2], done.stdout[len(done.stdout) // 2 :]
    monitor.observe_many(X)
    assert slots[0] == monitor.dump(sequence=3)  # Python reads what the flash holds
    assert PortableMonitor(hidden=4, modes=1).restore(slots[1]).n_seen == 700

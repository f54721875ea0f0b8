/* Like watch.c, with what a person or a firmware does between rows. Each row of rows.bin begins
 * with what is done before it. The stack is measured at the end, of all calls together. */
#include <string.h>

#include "onlad.h"
#include "semihosting.h"

enum { NOTHING, PAUSE, GO_ON, ACCEPT, ACCEPT_EARLIER, RESTART, MORE_ALARMS, BAD_BYTES };

extern uint32_t stack_low[], STACK[];
static onlad_monitor monitor;
static onlad_verdict v;
static struct {
    uint32_t what;
    float x[ONLAD_FEATURES];
} row;
static uint8_t bytes[ONLAD_DUMP];
static size_t filled;

static int keep(void* context, const void* from, size_t size) {
    (void)context;
    memcpy(bytes + filled, from, size);
    filled += size;
    return 0;
}

/* Return what the called function says. */
static onlad_status act(uint32_t what) {
    if (what == PAUSE || what == GO_ON) onlad_pause(&monitor, what == PAUSE);
    if (what == ACCEPT) return onlad_accept(&monitor, 0);
    if (what == ACCEPT_EARLIER) return onlad_accept(&monitor, 5);
    if (what == MORE_ALARMS) return onlad_set_false_alarms(&monitor, 0.01f);
    if (what == RESTART || what == BAD_BYTES) {
        filled = 0;
        onlad_dump(&monitor, 7, keep, NULL);
        if (what == RESTART) onlad_init(&monitor);
        if (what == BAD_BYTES) bytes[filled / 2] ^= 4;
        return onlad_restore(&monitor, bytes, filled);
    }
    return ONLAD_OK;
}

int main(void) {
    intptr_t rows = host_open("rows.bin", 1), verdicts = host_open("verdicts.bin", 5);
    intptr_t state = host_open("state.bin", 5), figures = host_open("figures.bin", 5);
    static uint32_t sizes[2];
    uint32_t* word;
    onlad_init(&monitor);
    while (host_move(SYS_READ, rows, &row, sizeof row) == 0) {
        const onlad_status done = act(row.what);
        const uint32_t status = 16 * (uint32_t)done + (uint32_t)onlad_observe(&monitor, row.x, &v);
        if (host_move(SYS_WRITE, verdicts, &v, sizeof v)) return 1;
        if (host_move(SYS_WRITE, verdicts, &status, sizeof status)) return 1;
    }
    filled = 0;
    onlad_dump(&monitor, 0, keep, NULL);
    for (word = stack_low; *word == PAINT; ++word) {
    }
    sizes[0] = sizeof monitor;
    sizes[1] = (uint32_t)(4 * (STACK - word));
    if (host_move(SYS_WRITE, figures, sizes, sizeof sizes)) return 1;
    return host_move(SYS_WRITE, state, bytes, filled) != 0;
}

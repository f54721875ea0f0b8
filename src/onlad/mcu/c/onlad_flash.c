#include "onlad_flash.h"

/* The newest whole slot, or -1; `sequence` is its number. Numbers may wrap around. */
static int newest(const onlad_monitor* m, const onlad_flash* flash, uint32_t* sequence) {
    uint32_t number[2] = {0, 0};
    int good[2], slot;
    for (slot = 0; slot < 2; ++slot)
        good[slot] =
            onlad_check(m, flash->slot[slot], (size_t)ONLAD_DUMP, &number[slot]) == ONLAD_OK;
    if (!good[0] && !good[1]) return -1;
    slot = !good[0] || (good[1] && (int32_t)(number[1] - number[0]) > 0);
    *sequence = number[slot];
    return slot;
}

typedef struct {
    const onlad_flash* flash;
    int slot;
    size_t offset;
} writing;

static int put(void* context, const void* bytes, size_t size) {
    writing* w = (writing*)context;
    int failed = w->flash->program(w->flash->context, w->slot, w->offset, bytes, size);
    w->offset += size;
    return failed;
}

onlad_status onlad_store(const onlad_monitor* m, const onlad_flash* flash) {
    uint32_t sequence = 0;
    writing w;
    w.flash = flash;
    w.slot = newest(m, flash, &sequence) == 0 ? 1 : 0;
    w.offset = 0;
    if (flash->erase(flash->context, w.slot)) return ONLAD_WRITE_FAILED;
    return onlad_dump(m, sequence + 1, put, &w);
}

onlad_status onlad_load(onlad_monitor* m, const onlad_flash* flash) {
    uint32_t sequence;
    const int slot = newest(m, flash, &sequence);
    if (slot < 0) return ONLAD_BAD_DUMP;
    return onlad_restore(m, flash->slot[slot], (size_t)ONLAD_DUMP);
}

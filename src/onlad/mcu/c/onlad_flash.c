#include "onlad_flash.h"

#include <string.h>

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

typedef char onlad_flash_unit_is_words[ONLAD_FLASH_UNIT % 4 == 0 ? 1 : -1];

typedef struct {
    const onlad_flash* flash;
    int slot;
    size_t offset;                       /* of the unit that is filled now */
    size_t filled;                       /* words of it */
    uint32_t unit[ONLAD_FLASH_UNIT / 4]; /* as the pieces of a dump have other sizes */
} writing;

/* All pieces of a dump are whole words. */
static int put(void* context, const void* bytes, size_t size) {
    writing* w = (writing*)context;
    const uint8_t* from = (const uint8_t*)bytes;
    for (; size; size -= 4, from += 4) {
        memcpy(&w->unit[w->filled++], from, 4);
        if (w->filled < ONLAD_FLASH_UNIT / 4) continue;
        if (w->flash->program(w->flash->context, w->slot, w->offset, w->unit, ONLAD_FLASH_UNIT))
            return 1;
        w->offset += ONLAD_FLASH_UNIT;
        w->filled = 0;
    }
    return 0;
}

onlad_status onlad_store(const onlad_monitor* m, const onlad_flash* flash) {
    const uint32_t empty = 0xffffffffu;
    uint32_t sequence = 0;
    onlad_status status;
    writing w;
    w.flash = flash;
    w.slot = newest(m, flash, &sequence) == 0 ? 1 : 0;
    w.offset = w.filled = 0;
    if (flash->erase(flash->context, w.slot)) return ONLAD_WRITE_FAILED;
    status = onlad_dump(m, sequence + 1, put, &w);
    while (status == ONLAD_OK && w.filled)
        if (put(&w, &empty, 4)) return ONLAD_WRITE_FAILED;
    return status;
}

onlad_status onlad_load(onlad_monitor* m, const onlad_flash* flash) {
    uint32_t sequence;
    const int slot = newest(m, flash, &sequence);
    if (slot < 0) return ONLAD_BAD_DUMP;
    return onlad_restore(m, flash->slot[slot], (size_t)ONLAD_DUMP);
}

/* A model in flash that survives the loss of power at any moment: two slots, written in turn. */
#ifndef ONLAD_FLASH_H
#define ONLAD_FLASH_H

#include "onlad.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that are programmed at a time, a multiple of 4: what your flash writes at once, or a
 * multiple of it. 32 is one for most chips. */
#ifndef ONLAD_FLASH_UNIT
#define ONLAD_FLASH_UNIT 32
#endif

/* Bytes of a slot that are used: a dump, and what fills its last unit. */
#define ONLAD_FLASH_BYTES \
    ((ONLAD_DUMP + ONLAD_FLASH_UNIT - 1) / ONLAD_FLASH_UNIT * ONLAD_FLASH_UNIT)

/* What the board can do. Both functions return 0 if they succeeded. `program` gets ONLAD_FLASH_UNIT
 * bytes at a time, in order, from an address that is a multiple of 4, and each place once after
 * `erase`. Both may be cut off at any byte. */
typedef struct {
    const uint8_t* slot[2]; /* where the slots can be read, ONLAD_FLASH_BYTES each */
    int (*erase)(void* context, int slot);
    int (*program)(void* context, int slot, size_t offset, const void* bytes, size_t size);
    void* context;
} onlad_flash;

/* Write the model over the older of the slots. The newer one stays as it is. */
onlad_status onlad_store(const onlad_monitor* m, const onlad_flash* flash);

/* Take over the newest whole model; ONLAD_BAD_DUMP if there is none. */
onlad_status onlad_load(onlad_monitor* m, const onlad_flash* flash);

#ifdef __cplusplus
}
#endif

#endif

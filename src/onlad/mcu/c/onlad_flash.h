/* A model in flash that survives the loss of power at any moment: two slots, written in turn. */
#ifndef ONLAD_FLASH_H
#define ONLAD_FLASH_H

#include "onlad.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the board can do. A slot has at least ONLAD_DUMP bytes; both functions return 0 if they
 * succeeded. `program` gets the bytes in order; its writes may be cut off at any byte. */
typedef struct {
    const uint8_t* slot[2]; /* where the slots can be read */
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

/* Whether this processor, compiler and library compute what the PC computed. */
#ifndef ONLAD_SELFTEST_H
#define ONLAD_SELFTEST_H

#include "onlad.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Watch 512 made-up rows with a fresh monitor and compare the checksum of all that was learned.
 * Return 1 if it is equal. `m` is as after onlad_init. */
int onlad_selftest(onlad_monitor* m);

#ifdef __cplusplus
}
#endif

#endif

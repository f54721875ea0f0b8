// The monitor of a microcontroller (src/onlad/mcu/c), with sizes that are known when one is made.
#pragma once

#define ONLAD_RUNTIME
#include "../src/onlad/mcu/c/onlad.h"

#ifdef __cplusplus
extern "C" {
#endif

// The share of each feature in the score of the row observed last.
const float* portable_shares(const onlad_monitor* m);

#ifdef __cplusplus
}
#endif

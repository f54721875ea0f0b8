// The very source that runs on a chip.
#include "portable.h"

#include "../src/onlad/mcu/c/onlad.c"

const float* portable_shares(const onlad_monitor* m) { return SHARES; }

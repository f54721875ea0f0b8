// The very source that runs on a chip without an FPU.
#include "portable_fixed.h"

#include "portable.c"

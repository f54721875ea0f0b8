// The binding of the monitor in fixed point: the one of floats, under other names.
#include "portable_fixed.h"

#define Portable PortableFixed
#define PORTABLE_NAME "PortableFixed"
#define bind_portable bind_portable_fixed
#include "portable.cpp"  // NOLINT(bugprone-suspicious-include): the very same binding

// The arithmetic at one instruction level; CMake compiles this file once for each.
#include "oselm.hpp"

#define ONLAD_NAME2(prefix, level) prefix##level
#define ONLAD_NAME(prefix, level) ONLAD_NAME2(prefix, level)

namespace onlad {
const Operations<float>& ONLAD_NAME(float_operations_, ONLAD_LEVEL)() {
    return ONLAD_LEVEL::operations<float>;
}
const Operations<double>& ONLAD_NAME(double_operations_, ONLAD_LEVEL)() {
    return ONLAD_LEVEL::operations<double>;
}
}  // namespace onlad

// The arithmetic at one instruction level; CMake compiles this file once for each.
#include "level.hpp"

#define ONLAD_NAME2(prefix, level) prefix##level
#define ONLAD_NAME(prefix, level) ONLAD_NAME2(prefix, level)

namespace onlad {
namespace ONLAD_LEVEL {
namespace {  // or the linker would merge the tables of all levels into one

template <class T>
constexpr Operations<T> operations = {
    score<T>,        update<T>,       learn_scored<T>, take_back<T>,        update_directional<T>,
    fp_elm_score<T>, fp_elm_learn<T>, measure<T>,      &monitor_operations, update_block<T>,
    bank_rows<T>};

}  // namespace
}  // namespace ONLAD_LEVEL

const Operations<float>& ONLAD_NAME(float_operations_, ONLAD_LEVEL)() {
    return ONLAD_LEVEL::operations<float>;
}
const Operations<double>& ONLAD_NAME(double_operations_, ONLAD_LEVEL)() {
    return ONLAD_LEVEL::operations<double>;
}

}  // namespace onlad

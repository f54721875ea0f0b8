// What the bindings share: arrays of Python, and the constants of reference.py.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "oselm.hpp"

namespace onlad {

namespace nb = nanobind;

template <class T, int dimensions>
using Out = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;
template <class T, int dimensions>
using In = Out<const T, dimensions>;

inline void require(bool holds, const char* what = "the arrays do not fit the monitor") {
    if (!holds) throw nb::value_error(what);
}

inline StepConstants step_constants(nb::handle reference) {
    auto number = [&](const char* name) { return nb::cast<double>(reference.attr(name)); };
    return {number("LEAST_LEVERAGE"), number("LARGEST_LEVERAGE"), number("WOUND_UP"),
            number("LEAST_GROWTH"), std::uint64_t(number("TRACE_INTERVAL"))};
}

}  // namespace onlad

// How severe a row is; severity.py has the definition.

#pragma once

#include <algorithm>
#include <cmath>

#include "constants.hpp"

namespace onlad {

// To a tenth, as Python's round does it: by the exact value, and a tie to the even one.
inline double to_tenth(double x) {
    const double tenths = x * 10.0, rest = std::fma(x, 10.0, -tenths);
    double whole = std::floor(tenths);
    const double part = tenths - whole;
    const bool odd = std::fmod(whole, 2.0) != 0.0;
    if (part > 0.5 || (part == 0.5 && (rest > 0.0 || (rest == 0.0 && odd)))) whole += 1.0;
    return whole / 10.0;
}

// `ratio` is score over threshold, `unusual` how many of the last rows were unusual if this one is.
inline double severity_of(double ratio, double p_value, double unusual, double rate,
                          const Constants& c) {
    const double decades =
        ratio > 1.0
            ? std::log10(ratio * std::sqrt(std::max(unusual, 1.0)) / rate)
            : std::log10(1.0 / std::max({p_value, rate, (unusual - 1.0) / c.severity_LATELY}));
    return to_tenth(std::min(c.severity_POINTS * decades, c.severity_HIGHEST));
}

}  // namespace onlad

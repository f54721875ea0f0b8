// A frozen copy of a mode, against which slow drift shows; anchor.py has the definition.

#pragma once

#include "start.hpp"

namespace onlad {

class Anchor {
public:
    std::vector<double> beta;                      // (M, s)
    std::vector<double> centre, scale, deviation;  // (s)
    std::vector<double> lean, halves;              // (s), (2, s)
    std::int64_t rows = 0;

    Anchor(const Layer& l, const ModeData& m)
        : beta(m.linear_beta, m.linear_beta + l.M * l.s),
          centre(m.centre, m.centre + l.s),
          scale(m.scale, m.scale + l.s),
          deviation(l.s),
          lean(l.s),
          halves(2 * l.s) {
        for (std::size_t j = 0; j < l.n; ++j) deviation[j] = 1.0 / m.inverse[l.s + j];
    }

    // The lean follows normal rows of the mode, by the error of their mean.
    void follow(const Layer& l, const Windows& w, const Workspace& scratch) {
        const Constants& c = *l.c;
        double *z = scratch.z, *v = scratch.v, *error = scratch.e;
        for (std::size_t lag = 0; lag < l.width; ++lag)
            for (std::size_t j = 0; j < l.n; ++j) {
                double mean = 0.0;
                for (std::size_t r = 0; r < w.count; ++r)
                    mean += w.at[r][std::ptrdiff_t(lag) * w.step[r] + std::ptrdiff_t(j)];
                mean /= double(w.count);
                const double value = scale[j] > 0.0 ? (mean - centre[j]) / scale[j] : 0.0;
                if (std::fabs(value) > c.anchor_FARTHEST) return;
                z[lag * l.n + j] = value == value ? value : 0.0;
            }
        if (l.projected) {
            const std::size_t columns = padded(l.M - 1);
            std::fill(v, v + l.stride, 0.0);
            for (std::size_t k = 0; k < l.d; ++k)
                for (std::size_t i = 0; i < columns; ++i)
                    v[i] += z[k] * l.projection[k * columns + i];
        }
        v[l.M - 1] = 1.0;
        std::copy(z, z + l.n, error);
        for (std::size_t i = 0; i < l.M; ++i)
            for (std::size_t j = 0; j < l.n; ++j) error[j] -= v[i] * beta[i * l.s + j];
        const double share = std::min(double(w.count) / c.anchor_MEAN, 1.0);
        for (std::size_t j = 0; j < l.n; ++j) lean[j] += share * (error[j] - lean[j]);
        if (double(rows) < c.anchor_MEASURED) {
            double* half = halves.data() + (2.0 * double(rows) >= c.anchor_MEASURED ? l.s : 0);
            for (std::size_t j = 0; j < l.n; ++j) half[j] = std::max(half[j], std::fabs(lean[j]));
        }
        rows += std::int64_t(w.count);
    }

    // The feature that leans farthest outside of what was measured, or -1.
    std::int64_t drifting(const Layer& l) const {
        const Constants& c = *l.c;
        if (double(rows) < c.anchor_MEASURED) return -1;
        double worst = 1.0;
        std::int64_t found = -1;
        for (std::size_t j = 0; j < l.n; ++j) {
            const double first = halves[j], second = halves[l.s + j];
            const double slack = c.anchor_SLACK * deviation[j];
            if (second > c.anchor_GROWS * first + slack || !(scale[j] > 0.0)) continue;
            const double outside =
                std::fabs(lean[j]) / (c.anchor_OUTSIDE * std::max(first, second) + slack);
            if (outside > worst) {
                worst = outside;
                found = std::int64_t(j);
            }
        }
        return found;
    }
};

}  // namespace onlad

// A mode with its memory, and its start from rows; mode.py has the definition.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "level.hpp"
#include "memory.hpp"

namespace onlad {

// A mode in memory of its own.
class Mode : public ModeData {
    static std::size_t size(const Layer& l) {
        const std::size_t rows = 2 * l.units + l.M * (l.projected ? 2 : 1) + 13;
        return rows * l.s + padded(l.half()) + padded(l.linear_half()) + padded(6 * statistics);
    }
    Memory<double> memory;

public:
    explicit Mode(const Layer& l) : ModeData{}, memory(size(l)) {
        auto take = [this](std::size_t count) { return memory.take(count); };
        centre = take(l.s);
        scale = take(l.s);
        usual = take(2 * l.s);
        largest = take(2 * l.s);
        leaning = take(2 * l.s);
        inverse = take(2 * l.s);
        lean_inverse = take(2 * l.s);
        beta = take(l.units * l.s);
        linear_beta = take(l.M * l.s);
        band = take(l.s);
        levels = take(6 * statistics);
        moment = take(l.units * l.s);
        gram = take(l.half());
        linear_gram = take(l.linear_half());
        linear_moment = l.projected ? take(l.M * l.s) : nullptr;
        still = true;
        std::fill(centre, centre + l.n, std::numeric_limits<double>::quiet_NaN());
        std::fill(largest, largest + 2 * l.s, 1.0);
        std::fill(leaning, leaning + 2 * l.s, 1.0);
        for (std::size_t k = 0; k < 6 * statistics; ++k) levels[k] = double(k / statistics % 2);
    }
};

// Scratch memory of one thread, for all monitors of one layer.
class Workspace : public ModeWorkspace, public JudgeWorkspace {
    Memory<double> memory;

public:
    explicit Workspace(const Layer& l)
        : memory(most_rows * (l.z_stride + 3 * l.s + l.N + (l.projected ? l.stride : 0)) +
                 std::max(l.M * l.stride, l.units * l.N) + 6 * l.s) {
        auto take = [this](std::size_t count) { return memory.take(count); };
        z = take(most_rows * l.z_stride);
        x = take(most_rows * l.s);
        h = take(most_rows * l.N);
        v = l.projected ? take(most_rows * l.stride) : z;
        e = take(2 * most_rows * l.s);
        root = take(std::max(l.M * l.stride, l.units * l.N));
        present = take(l.s);
        squares = take(l.s);
        new_leans = take(2 * l.s);
        best_leans = take(2 * l.s);
    }

    std::vector<ModeData*> views;
    std::vector<std::size_t> usual, unusual, own;  // rows, by their numbers
    std::vector<double> scores;
    std::vector<double> rates, base, gap;  // of rows with counters
    std::vector<const double*> at;
    std::vector<const std::uint8_t*> known;
    std::vector<std::ptrdiff_t> step;
};

inline double median_of(std::vector<double>& values) {
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2) return *middle;
    return (*std::max_element(values.begin(), middle) + *middle) / 2.0;
}

// As NumPy's quantile; `sorted` is.
inline double quantile(const std::vector<double>& sorted, double q) {
    const double place = q * double(sorted.size() - 1), low = std::floor(place);
    const std::size_t at = std::size_t(low);
    const double a = sorted[at], b = sorted[std::min(at + 1, sorted.size() - 1)];
    const double t = place - low;
    return t < 0.5 ? a + (b - a) * t : b - (b - a) * (1.0 - t);
}

// Centre and unit of each feature.
inline void unit(const Layer& l, ModeData& m, const Windows& w) {
    std::vector<double> values;
    for (std::size_t j = 0; j < l.n; ++j) {
        values.clear();
        for (std::size_t r = 0; r < w.count; ++r)
            if (w.present[r][j]) values.push_back(w.at[r][j]);
        m.scale[j] = 0.0;
        m.centre[j] = std::numeric_limits<double>::quiet_NaN();
        if (values.empty()) continue;
        const double count = double(values.size());
        double mean = 0.0, squares = 0.0, low = values[0], high = values[0];
        for (const double value : values) mean += value;
        mean /= count;
        for (const double value : values) {
            squares += (value - mean) * (value - mean);
            low = std::min(low, value);
            high = std::max(high, value);
        }
        m.centre[j] = median_of(values);
        const double deviation = std::sqrt(squares / count);
        const double scale = std::max(deviation, (high - low) / l.c->mode_RANGE);
        if (scale > l.c->mode_STILL * std::fabs(m.centre[j]) + l.c->mode_SMALLEST_UNIT)
            m.scale[j] = scale;
    }
}

// Median and reach of one statistic.
inline void level(const Constants& c, std::vector<double> found, double rows_in_mean, double least,
                  double* levels) {
    const double widened = c.mode_BEYOND * (1.0 + c.mode_FEW * rows_in_mean / double(found.size()));
    std::sort(found.begin(), found.end());
    const double median = quantile(found, 0.5);
    levels[0] = median;
    levels[statistics] = std::max(widened * (quantile(found, c.mode_QUANTILE) - median), least);
}

// The statistics of a row from its errors.
inline void statistics_of(const Layer& l, const ModeData& m, const double* e, std::size_t row,
                          std::size_t rows, const std::uint8_t* present, double* found) {
    double known = 0.0;
    for (std::size_t j = 0; j < l.n; ++j) known += present[j];
    for (std::size_t k = 0; k < 2; ++k) {
        const double* error = e + (k * rows + row) * l.s;
        double sum = 0.0, top = 0.0;
        for (std::size_t j = 0; j < l.n; ++j) {
            const double one = error[j] * m.inverse[k * l.s + j] * present[j];
            sum += one * one;
            top = std::max(top, one * one);
        }
        found[k] = sum / std::max(known, 1.0);
        found[2 + k] = top;
    }
}

// The usual squares of leans, and their levels; e are the errors of the start.
inline void lean(const Layer& l, Mode& m, std::vector<double>& e, const Windows& w) {
    const Constants& c = *l.c;
    const double smoothing = c.mode_LEANING, rows = double(w.count);
    for (std::size_t k = 0; k < 2; ++k) {
        double* usual = m.leaning + k * l.s;
        double mean = 0.0;
        for (std::size_t j = 0; j < l.n; ++j) {
            double lean = 0.0, square = 0.0;
            for (std::size_t r = 0; r < w.count; ++r) {
                double& error = e[(k * w.count + r) * l.s + j];
                const double one = error * m.inverse[k * l.s + j] * w.present[r][j];
                const double kept = std::min(std::max(one, -c.mode_WINSOR), c.mode_WINSOR);
                lean += smoothing * (kept - lean) * w.present[r][j];
                error = lean;
                square += lean * lean;
            }
            usual[j] = square / rows;
            mean += usual[j] / double(l.n);
        }
        const double least = c.mode_CORRELATED * smoothing / (2.0 - smoothing);
        for (std::size_t j = 0; j < l.n; ++j)
            usual[j] =
                std::max((rows * usual[j] + c.mode_PRIOR * mean) / (rows + c.mode_PRIOR), least);
        std::vector<double> means, tops;
        for (std::size_t r = 0; r < w.count; ++r) {
            double sum = 0.0, top = 0.0;
            for (std::size_t j = 0; j < l.n; ++j) {
                const double lean = e[(k * w.count + r) * l.s + j];
                sum += lean * lean / usual[j];
                top = std::max(top, lean * lean / usual[j]);
            }
            means.push_back(sum / double(l.n));
            tops.push_back(top);
        }
        double* levels = m.levels + 4 * statistics + k;
        const double rows_in_mean = c.mode_CORRELATED / smoothing;
        level(c, means, rows_in_mean, c.mode_LEAST_0, levels);
        level(c, tops, rows_in_mean, c.mode_LEAST_0, levels + 2);
    }
}

// The band of each feature follows errors of its prediction, e (count, s).
inline void widen(const Layer& l, ModeData& m, const double* e, const Windows& w) {
    const Constants& c = *l.c;
    for (std::size_t j = 0; j < l.n; ++j) {
        double outside = 0.0, known = 0.0;
        for (std::size_t r = 0; r < w.count; ++r) {
            known += w.present[r][j];
            outside += w.present[r][j] && std::fabs(e[r * l.s + j]) > m.band[j];
        }
        const double grown =
            m.band[j] * std::exp(c.mode_WIDENING * (outside - (1.0 - c.mode_COVERED) * known));
        const double least = c.mode_NARROWEST * std::sqrt(m.usual[l.s + j]);
        m.band[j] = std::min(std::max(grown, least), c.mode_CLIP);
    }
}

// The first bands: a quantile of the errors of the start, e (count, s).
inline void first_bands(const Layer& l, ModeData& m, const double* e, const Windows& w) {
    for (std::size_t j = 0; j < l.n; ++j) {
        std::vector<double> sizes;
        for (std::size_t r = 0; r < w.count; ++r)
            if (w.present[r][j]) sizes.push_back(std::fabs(e[r * l.s + j]));
        if (sizes.empty()) continue;
        std::sort(sizes.begin(), sizes.end());
        const double place = l.c->mode_COVERED * double(sizes.size() - 1);
        const std::size_t below = std::size_t(place), above = std::min(below + 1, sizes.size() - 1);
        m.band[j] = sizes[below] + (place - double(below)) * (sizes[above] - sizes[below]);
    }
}

// A fresh mode of a stream with an order learns its first rows. The levels come from errors of each
// half by a model of the other.
inline void start(const Layer& l, Mode& m, const Windows& w, const Workspace& scratch) {
    const MonitorOperations& ops = *operations<double>().monitor;
    const Constants& c = *l.c;
    unit(l, m, w);
    std::vector<double> e(2 * w.count * l.s), some(e.size());
    const std::size_t half = w.count / 2;
    auto between = [&](std::size_t first, std::size_t stop) {
        return Windows{w.at + first, w.step + first, w.present + first, stop - first};
    };
    for (const bool second : {false, true}) {
        const Windows part = second ? between(half, w.count) : between(0, half);
        const Windows rest = second ? between(0, half) : between(half, w.count);
        Mode other(l);
        std::copy(m.centre, m.centre + l.s, other.centre);
        std::copy(m.scale, m.scale + l.s, other.scale);
        ops.learn(l, other, rest, 1.0, scratch, some.data());
        ops.errors(l, other, part, scratch, some.data());
        for (std::size_t k = 0; k < 2; ++k) {
            const double* from = some.data() + k * part.count * l.s;
            std::copy(from, from + part.count * l.s,
                      e.data() + (k * w.count + (second ? half : 0)) * l.s);
        }
    }
    ops.take(l, m, e.data(), w);
    first_bands(l, m, e.data() + w.count * l.s, w);
    ops.learn(l, m, w, 1.0, scratch, some.data());
    m.count = std::int64_t(w.count);
    ops.invert(l, m);
    std::vector<double> found[statistics];
    for (std::size_t r = 0; r < w.count; ++r) {
        double one[statistics];
        statistics_of(l, m, e.data(), r, w.count, w.present[r], one);
        for (std::size_t k = 0; k < statistics; ++k) found[k].push_back(one[k]);
    }
    const double smoothing = c.mode_SMOOTHING;
    for (std::size_t k = 0; k < statistics; ++k) {
        level(c, found[k], 1.0, c.mode_LEAST_0, m.levels + k);
        std::vector<double>& standard = found[k];
        const double median = m.levels[k], reach = m.levels[statistics + k];
        for (double& value : standard) value = std::min((value - median) / reach, 1.0);
        std::vector<double> means = standard;
        double mean = median_of(means);
        for (std::size_t r = 0; r < w.count; ++r)
            means[r] = mean = mean + smoothing * (standard[r] - mean);
        level(c, means, 1.0 / smoothing, c.mode_LEAST_1, m.levels + 2 * statistics + k);
    }
    lean(l, m, e, w);
}

}  // namespace onlad

// What a monitor does once a tick, compiled: dozens of calls on short arrays cost more than the
// arithmetic in them. scaler.py, threshold.py and evidence.py say what it means.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;

namespace onlad {
namespace {

using In = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using VectorIn = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using VectorOut = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool fits) {
    if (!fits) throw std::invalid_argument("the arrays do not fit each other");
}

// Count, mean and variance of the numbers of one column, each held within [low, high].
struct Moments {
    double count, mean, variance;
};
Moments moments(const double* column, std::size_t rows, std::size_t stride, double low,
                double high) {
    double count = 0.0, sum = 0.0, squares = 0.0;
    auto held = [&](std::size_t i) { return std::min(std::max(column[i * stride], low), high); };
    auto known = [&](std::size_t i) { return column[i * stride] == column[i * stride]; };
    for (std::size_t i = 0; i < rows; ++i)
        if (known(i)) { count += 1.0; sum += held(i); }
    const double some = std::max(count, 1.0), mean = sum / some;
    for (std::size_t i = 0; i < rows; ++i)
        if (known(i)) { const double d = held(i) - mean; squares += d * d; }
    return {count, mean, squares / some};
}

// scale(): (X - zero) / one for each row, held within [-clip, clip]; NaN stays.
void scale_rows(In X, VectorIn zero, VectorIn one, double clip, Out Z) {
    const std::size_t n = X.shape(1), rows = X.shape(0);
    require(zero.shape(0) == n && one.shape(0) == n && Z.shape(0) == rows && Z.shape(1) == n);
    for (std::size_t i = 0; i < rows * n; i += n)
        for (std::size_t j = 0; j < n; ++j) {
            const double z = (X.data()[i + j] - zero.data()[j]) / one.data()[j];
            Z.data()[i + j] = z > clip ? clip : z < -clip ? -clip : z;
        }
}

// Standard.update: `memory` is (3, n), the count, mean and variance of each feature.
void standard_update(In memory, In X, double clip, double most, double at_rest, std::size_t few,
                     Out after) {
    const std::size_t n = X.shape(1), rows = X.shape(0);
    require(memory.shape(0) == 3 && memory.shape(1) == n && after.shape(0) == 3 &&
            after.shape(1) == n);
    const double *counts = memory.data(), *means = counts + n, *variances = means + n;
    for (std::size_t j = 0; j < n; ++j) {
        const double mean = means[j], deviation = std::sqrt(variances[j]);
        const bool moved = deviation > 1e-8 * std::abs(mean) + 1e-30;
        const double reach = moved ? clip * deviation : std::numeric_limits<double>::infinity();
        const double* column = X.data() + j;
        const Moments fresh = moments(column, rows, n, mean - reach, mean + reach);
        const double total = std::min(counts[j] + fresh.count, most);
        double weight = std::min(fresh.count / std::max(total, 1.0), 1.0);
        const double rest = at_rest * deviation;
        if (moved && rows >= few && fresh.count > 0.0 && fresh.variance <= rest * rest) {
            double low = std::numeric_limits<double>::infinity(), high = -low;
            for (std::size_t i = 0; i < rows; ++i) {
                low = std::fmin(low, column[i * n]);
                high = std::fmax(high, column[i * n]);
            }
            if (high - low <= rest) weight = 0.0;
        }
        const double shift = fresh.mean - mean;
        const double spread = fresh.variance + (1.0 - weight) * shift * shift;
        after.data()[j] = total;
        after.data()[n + j] = mean + weight * shift;
        after.data()[2 * n + j] = variances[j] + weight * (spread - variances[j]);
    }
}

// Yardstick.take: the sums of squares since the last tick (2, m) and their counts go into the
// usual squares, which weigh `weight` samples, and the sums start again. Returns the new weight.
double take_sums(Out usual, Out scales, Out sums, double weight, double most, double floor) {
    const std::size_t m = usual.shape(1);
    require(usual.shape(0) == 2 && scales.shape(0) == 2 && scales.shape(1) == m &&
            sums.shape(0) == 3 && sums.shape(1) == m);
    const double* count = sums.data() + 2 * m;
    const double fresh = m ? *std::max_element(count, count + m) : 0.0;
    if (!(fresh > 0.0)) return weight;
    weight = std::min(weight + fresh, most);
    for (std::size_t row = 0; row < 2; ++row)
        for (std::size_t j = 0; j < m; ++j) {
            double& square = usual.data()[row * m + j];
            if (count[j] > 0.0)
                square += fresh / weight * (sums.data()[row * m + j] / count[j] - square);
            scales.data()[row * m + j] = 1.0 / std::max(square, floor);
        }
    std::fill(sums.data(), sums.data() + 3 * m, 0.0);
    return weight;
}

constexpr double robust = 1.4826;  // as in threshold.py

// The median. It is looked for within `reach` of `guess`: where that is right few values are put
// in order, where it is wrong all are.
double median(const std::vector<double>& values, double guess, double reach,
              std::vector<double>& room) {
    const std::size_t count = values.size(), upper = count / 2, lower = (count - 1) / 2;
    const double low = guess - reach, high = guess + reach;
    std::size_t below = 0, inside = 0;
    for (const double value : values) {
        room[inside] = value;
        inside += (value >= low) & (value <= high);
        below += value < low;
    }
    if (lower < below || upper >= below + inside) {
        room = values;
        below = 0, inside = count;
    }
    const auto begin = room.begin(), middle = begin + (upper - below);
    std::nth_element(begin, middle, begin + inside);
    return lower == upper ? *middle : (*std::max_element(begin, middle) + *middle) / 2;
}

// Yardstick.refresh: centre and spread of each evidence (rows, k), and the highest of a row. A
// sixteenth of the rows is new, which moves a median by a hundredth of a deviation: so where it was
// before is a good guess.
void take_levels(In ring, In before, VectorIn least, Out after, VectorOut scores) {
    const std::size_t rows = ring.shape(0), k = ring.shape(1);
    require(rows > 0 && before.shape(0) == 2 && before.shape(1) == k && least.shape(0) == k &&
            after.shape(0) == 2 && after.shape(1) == k && scores.shape(0) == rows);
    std::vector<double> values(rows), distances(rows), room(rows);
    double* const highest = scores.data();
    std::fill(highest, highest + rows, -std::numeric_limits<double>::infinity());
    for (std::size_t j = 0; j < k; ++j) {
        const double* column = ring.data() + j;
        for (std::size_t i = 0; i < rows; ++i) values[i] = column[i * k];
        const double reach = 0.06, spread_before = before.data()[k + j];
        const double centre = median(values, before.data()[j], reach * spread_before, room);
        for (std::size_t i = 0; i < rows; ++i) distances[i] = std::abs(values[i] - centre);
        const double distance = spread_before / robust;
        const double spread = std::max(
            robust * median(distances, distance, reach * distance, room), least.data()[j]);
        for (std::size_t i = 0; i < rows; ++i)
            highest[i] = std::max(highest[i], (values[i] - centre) / spread);
        after.data()[j] = centre;
        after.data()[k + j] = spread;
    }
}

// Deviation.limit: the median distance of sorted values from `centre`. The nearest of them lie
// side by side, so a bisection finds where they begin.
double median_distance(VectorIn sorted, double centre) {
    const std::size_t count = sorted.shape(0);
    require(count > 0);
    const double* values = sorted.data();
    auto farthest = [&](std::size_t nearest) {  // of so many
        std::size_t first = 0, last = count - nearest;
        while (first < last) {
            const std::size_t middle = (first + last) / 2;
            if (centre - values[middle] > values[middle + nearest] - centre) first = middle + 1;
            else last = middle;
        }
        return std::max(std::abs(values[first] - centre),
                        std::abs(values[first + nearest - 1] - centre));
    };
    const double upper = farthest(count / 2 + 1);
    return count % 2 ? upper : (farthest(count / 2) + upper) / 2;
}

// Yardstick.p_values
void p_values(VectorIn sorted, VectorIn score, VectorOut p) {
    require(p.shape(0) == score.shape(0));
    const double *begin = sorted.data(), *end = begin + sorted.shape(0);
    for (std::size_t i = 0; i < score.shape(0); ++i) {
        const auto above = end - std::lower_bound(begin, end, score.data()[i]);
        p.data()[i] = double(1 + above) / double(1 + (end - begin));
    }
}

}  // namespace

void bind_tick(nb::module_& module) {
    module.def("standard_update", &standard_update, nb::arg().noconvert(), nb::arg().noconvert(),
               nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert());
    module.def("scale_rows", &scale_rows, nb::arg().noconvert(), nb::arg().noconvert(),
               nb::arg().noconvert(), nb::arg(), nb::arg().noconvert());
    module.def("take_sums", &take_sums, nb::arg().noconvert(), nb::arg().noconvert(),
               nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg());
    module.def("take_levels", &take_levels, nb::arg().noconvert(), nb::arg().noconvert(),
               nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert());
    module.def("median_distance", &median_distance);
    module.def("p_values", &p_values, nb::arg(), nb::arg(), nb::arg().noconvert());
}

}  // namespace onlad

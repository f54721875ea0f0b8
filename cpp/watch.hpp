// The monitor's step: score a sample, weigh the evidence, and learn it if the gate is open.
// evidence.py has the definition.

#pragma once

#include "oselm.hpp"

namespace onlad {

// What a monitor knows between two of its ticks: the yardsticks are fixed, the rest moves on.
// Arrays of 2n hold n for the errors e, then n for the gaps r.
constexpr std::size_t evidences = 5;
constexpr double tiny = 1e-3;  // what is below a thousandth of the usual is nothing

struct Watch {
    // yardsticks
    const double *now_scale, *lately_scale;  // (2n) 1 / usual square of a value, of its mean
    const double *centre, *spread;           // (evidences)
    double limit;                            // learn up to this score
    double smoothing;                        // of the running means
    double cap;                              // the most that one feature counts
    double trend_low, trend_high;            // what one sample may add to the trend
    double distance_power;
    // what moves on
    double *mean, *next_mean;                // (2n) running mean of each value, and room
    double *trend;                           // (1)
    double *now_sum, *lately_sum, *count;    // (2n) capped squares of what was learned
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// Fill what is missing in x with what the model expects there: first with 0, the middle of
// scaled data, then with the reconstruction of that. Returns how many are present.
template <class T>
ONLAD_INLINE std::size_t fill_missing(Model<T>& m, double* present) {
    std::size_t count = 0;
    for (std::size_t j = 0; j < m.n; ++j) {
        const bool known = m.x[j] == m.x[j];
        present[j] = known;
        count += known;
        if (!known) m.x[j] = T(0);
    }
    if (count < m.n) {
        hidden(m);
        reconstruct<false>(m);
        for (std::size_t j = 0; j < m.n; ++j)
            if (present[j] == 0.0) m.x[j] -= m.e[j];  // x - e is the reconstruction
    }
    return count;
}

// The gaps r: half the gradient of h P h' with respect to x, times the weight of all samples. For
// the identity it is K x with K the inverse covariance, whose entry j says how far feature j is
// from what the others make of it.
template <class T>
ONLAD_INLINE void find_gaps(Model<T>& m) {
    constexpr std::size_t L = Lanes<T>::size;
    const std::size_t stride = m.stride;
    for (std::size_t i = 0; i < m.padded_N; i += 4) {
        Vec<T> acc[4] = {};
        for (std::size_t c = 0; c < stride; c += L)
            for (std::size_t k = 0; k < 4; ++k)
                acc[k] += at(m.S + (i + k) * stride + c) * at(m.f + c);
        sums(acc, m.g + i);
    }
    for (std::size_t i = 0; i < m.N; ++i) {
        const T h = m.h[i];
        T slope = T(1);
        if (m.activation == Activation::sigmoid) slope = h * (T(1) - h);
        if (m.activation == Activation::tanh) slope = T(1) - h * h;
        if (m.activation == Activation::relu) slope = T(h > T(0));
        m.g[i] *= slope * T(m.weight);
    }
    for (std::size_t j = 0; j < m.n; ++j) m.r[j] = T(dot(m.alpha + j * stride, m.g, stride));
}

template <class T>
double watch(Model<T>& m, const Watch& w, double a, double* evidence, double* share,
             bool* learned) {
    const std::size_t n = m.n;
    double* const present = share;  // 1 or 0 until the shares are known
    const std::size_t count = fill_missing(m, present);
    score(m, a);
    find_gaps(m);
    const T* const values[2] = {m.e, m.r};
    auto capped = [&](double square) { return square < w.cap ? square : w.cap; };
    const double share_of_one = 1.0 / double(count ? count : 1);
    for (int k = 0; k < 2; ++k) {
        double now = 0.0, top = 0.0, lately = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
            const std::size_t i = k * n + j;
            const double v = double(values[k][j]);
            const double mean = w.mean[i] + present[j] * w.smoothing * (v - w.mean[i]);
            w.next_mean[i] = mean;
            const double square = present[j] * capped(v * v * w.now_scale[i]);
            now += square;
            top = std::fmax(top, square);
            lately += present[j] * capped(mean * mean * w.lately_scale[i]);
        }
        evidence[2 * k] = std::log((k == 0 ? now * share_of_one : top) + tiny);
        evidence[2 * k + 1] = std::log(lately * share_of_one + tiny);
    }
    const double distance = m.last_leverage * m.weight / double(m.N);
    evidence[0] += w.distance_power * std::log(distance + tiny);
    double z[evidences];
    for (std::size_t k = 0; k < 4; ++k)  // where nothing was seen, nothing is unusual
        z[k] = count ? (evidence[k] - w.centre[k]) / w.spread[k] : 0.0;
    const double step = std::fmin(std::fmax(z[0], w.trend_low), w.trend_high);
    evidence[4] = *w.trend + w.smoothing * (step - *w.trend);
    z[4] = (evidence[4] - w.centre[4]) / w.spread[4];
    double highest = z[0];
    for (std::size_t k = 1; k < evidences; ++k) highest = std::fmax(highest, z[k]);

    *learned = highest <= w.limit && 2 * count > n && learn_scored(m, a);
    *w.trend = evidence[4];
    const bool lately = z[3] > z[2];
    for (std::size_t j = 0; j < n; ++j) {
        const double known = present[j];
        for (int k = 0; k < 2; ++k) {
            const std::size_t i = k * n + j;
            const double v = double(values[k][j]), mean = w.next_mean[i];
            const double q = known * capped(v * v * w.now_scale[i]);
            const double p = known * capped(mean * mean * w.lately_scale[i]);
            w.mean[i] = mean;
            // The gaps name the feature best; but an error beyond all measure names it too.
            if (k == 0) share[j] = q < w.cap ? 0.0 : q;
            else share[j] += lately ? p : q;
            if (*learned) {
                w.now_sum[i] += q / w.now_scale[i];
                w.lately_sum[i] += p / w.lately_scale[i];
                w.count[i] += known;
            }
        }
    }
    return highest;
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

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
    const std::size_t stride = m.stride;
    for (std::size_t i = 0; i < m.padded_N; i += group)
        dot_rows(m.S + i * stride, m.f, stride, m.g + i);
    for (std::size_t i = 0; i < m.N; ++i) {
        const T h = m.h[i];
        T slope = T(1);
        if (m.activation == Activation::sigmoid) slope = h * (T(1) - h);
        if (m.activation == Activation::tanh) slope = T(1) - h * h;
        if (m.activation == Activation::relu) slope = T(h > T(0));
        m.v[i] = m.g[i] * slope * T(m.weight);
    }
    for (std::size_t j = 0; j < m.padded_n; j += group)
        dot_rows(m.alpha + j * stride, m.v, stride, m.r + j);
}

// Sums and largest of the squares of n values and of their running means, and the means moved on.
struct Squares {
    double now, top, lately;
};
template <class T>
ONLAD_INLINE Squares weigh(const T* values, const double* present, std::size_t n,
                           const Watch& w, std::size_t first) {
    constexpr std::size_t L = 8;  // partial sums, so that additions do not wait for each other
    double now[L] = {}, top[L] = {}, lately[L] = {};
    const double *mean = w.mean + first, *now_scale = w.now_scale + first,
                 *lately_scale = w.lately_scale + first;
    double* next = w.next_mean + first;
    const double cap = w.cap, smoothing = w.smoothing;
    auto add = [&](std::size_t j, std::size_t k) {
        const double v = double(values[j]);
        const double moved = mean[j] + present[j] * smoothing * (v - mean[j]);
        next[j] = moved;
        double square = v * v * now_scale[j];
        square = present[j] * (square < cap ? square : cap);
        double slow = moved * moved * lately_scale[j];
        slow = present[j] * (slow < cap ? slow : cap);
        now[k] += square;
        top[k] = top[k] < square ? square : top[k];
        lately[k] += slow;
    };
    std::size_t j = 0;
    for (; j + L <= n; j += L)
        for (std::size_t k = 0; k < L; ++k) add(j + k, k);
    for (std::size_t k = 0; j + k < n; ++k) add(j + k, k);
    Squares all{};
    for (std::size_t k = 0; k < L; ++k) {
        all.now += now[k];
        all.top = all.top < top[k] ? top[k] : all.top;
        all.lately += lately[k];
    }
    return all;
}

// What was learned goes into the sums of the usual squares, capped.
template <class T>
ONLAD_INLINE void take_squares(const T* __restrict values, const double* __restrict present,
                               std::size_t n, const Watch& w, std::size_t first) {
    const double *__restrict mean = w.next_mean + first,
                 *__restrict now_scale = w.now_scale + first,
                 *__restrict lately_scale = w.lately_scale + first;
    double *__restrict now_sum = w.now_sum + first, *__restrict lately_sum = w.lately_sum + first,
           *__restrict count = w.count + first;
    const double cap = w.cap;
    for (std::size_t j = 0; j < n; ++j) {
        const double v = double(values[j]);
        const double now = v * v, now_cap = cap / now_scale[j];
        const double lately = mean[j] * mean[j], lately_cap = cap / lately_scale[j];
        now_sum[j] += present[j] * (now < now_cap ? now : now_cap);
        lately_sum[j] += present[j] * (lately < lately_cap ? lately : lately_cap);
        count[j] += present[j];
    }
}

// The gaps name the feature best; but an error beyond all measure names it too. `share` holds
// which features are present, and then their shares.
template <class T, class G>
ONLAD_INLINE void share_out(const T* __restrict errors, const G* __restrict gaps,
                            const double* __restrict gap_scale, double* __restrict share,
                            std::size_t n, const Watch& w) {
    const double cap = w.cap, *__restrict error_scale = w.now_scale;
    for (std::size_t j = 0; j < n; ++j) {
        const double e = double(errors[j]), r = double(gaps[j]);
        const double error = e * e * error_scale[j], gap = r * r * gap_scale[j];
        share[j] *= (gap < cap ? gap : cap) + (error < cap ? 0.0 : cap);
    }
}

template <class T>
double watch(Model<T>& m, const Watch& w, double a, double* evidence, double* share,
             bool* learned) {
    const std::size_t n = m.n;
    double* const present = share;  // 1 or 0 until the shares are known
    const std::size_t count = fill_missing(m, present);
    score(m, a);
    find_gaps(m);
    const double share_of_one = 1.0 / double(count ? count : 1);
    const Squares errors = weigh(m.e, present, n, w, 0), gaps = weigh(m.r, present, n, w, n);
    evidence[0] = std::log(errors.now * share_of_one + tiny);
    evidence[1] = std::log(errors.lately * share_of_one + tiny);
    evidence[2] = std::log(gaps.top + tiny);
    evidence[3] = std::log(gaps.lately * share_of_one + tiny);
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

    *learned = highest <= w.limit && 2 * count > n && learn_scored<true>(m, a);
    *w.trend = evidence[4];
    if (*learned) {
        take_squares(m.e, present, n, w, 0);
        take_squares(m.r, present, n, w, n);
    }
    std::memcpy(w.mean, w.next_mean, 2 * n * sizeof(double));
    if (z[3] > z[2]) share_out(m.e, w.mean + n, w.lately_scale + n, share, n, w);
    else share_out(m.e, m.r, w.now_scale + n, share, n, w);
    return highest;
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

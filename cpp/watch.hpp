// The monitor's step: score a sample, weigh the evidence, and learn it if the gate is open.
// evidence.py has the definition.

#pragma once

#include <type_traits>

#include "oselm.hpp"

namespace onlad {

// What a monitor knows between two of its ticks: the yardsticks are fixed, the rest moves on.
// Arrays of 2n hold n for the errors e, then n for the gaps r.
constexpr std::size_t evidences = 5;
constexpr double tiny = 1e-3;  // what is below a thousandth of the usual is nothing

struct Watch {
    // yardsticks
    const double *now_scale, *lately_scale;  // (2n) 1 / usual square of a value, of its mean
    const double *now_cap, *lately_cap;      // (2n) the most that a square counts: cap / scale
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

// Rows in which NaN is a missing value, and what comes of them. The model's input is a row and the
// window - 1 before it, the newest first: so `rows` begins with window - 1 rows that were watched
// already, and the share of a feature is what it has in all of the window.
template <class T>
struct WatchRows {
    const T* rows;  // (window - 1 + count, features)
    std::size_t count, features;
    double a;
    double *score, *evidence, *share;  // (count), (count, evidences), (count, features)
    bool* learned;                     // (count)
    double* present;                   // (n) room
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// One number, or as many as a vector of doubles holds.
template <class V, class T>
ONLAD_INLINE V read(const T* p) {
    if constexpr (sizeof(V) == sizeof(double)) {
        return double(*p);
    } else {
        typename Pack<T, sizeof(V) / sizeof(double) * sizeof(T)>::type narrow;
        std::memcpy(&narrow, p, sizeof narrow);
        return __builtin_convertvector(narrow, V);
    }
}
template <class V>
ONLAD_INLINE void write(double* p, const V& value) {
    std::memcpy(p, &value, sizeof value);
}

// body(V, j) for all j < n, in vectors of doubles as far as they go.
template <class Body>
ONLAD_INLINE void each(std::size_t n, Body body) {
    std::size_t j = 0;
    for (; j + Lanes<double>::size <= n; j += Lanes<double>::size) body(Vec<double>{}, j);
    for (; j < n; ++j) body(0.0, j);
}

// Note what is present in x, as 1 or 0; returns how much is.
template <class T>
ONLAD_APART std::size_t find_present(const T* x, double* present, std::size_t n) {
    each(n, [&](auto V, std::size_t j) {
        const auto value = read<decltype(V)>(x + j);
        write(present + j, value == value ? V + 1.0 : V);
    });
    std::size_t count = 0;
    for (std::size_t j = 0; j < n; ++j) count += present[j] != 0.0;
    return count;
}

// Fill what is missing in x with what the model expects there: first with 0, the middle of
// scaled data, then with the reconstruction of that.
template <class T>
ONLAD_APART void fill_missing(Model<T>& m, const double* present) {
    for (std::size_t j = 0; j < m.n; ++j)
        if (present[j] == 0.0) m.x[j] = T(0);
    hidden(m);
    reconstruct<false>(m);
    for (std::size_t j = 0; j < m.n; ++j)
        if (present[j] == 0.0) m.x[j] -= m.e[j];  // x - e is the reconstruction
}

// The gaps r: half the gradient of h P h' with respect to x, times the weight of all samples. For
// the identity it is K x with K the inverse covariance, whose entry j says how far feature j is
// from what the others make of it.
template <class T>
ONLAD_APART void find_gaps(Model<T>& m) {
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
ONLAD_APART Squares weigh(const T* values, const double* present, std::size_t n,
                           const Watch& w, std::size_t first) {
    // Partial sums, so that additions do not wait for each other; eight at every vector width, so
    // that all sum alike.
    constexpr std::size_t sums = 8, L = Lanes<double>::size;
    double now[sums] = {}, top[sums] = {}, lately[sums] = {};
    const double *mean = w.mean + first, *now_scale = w.now_scale + first,
                 *lately_scale = w.lately_scale + first;
    double* next = w.next_mean + first;
    auto add = [&](auto& now_k, auto& top_k, auto& lately_k, std::size_t j) {
        using V = std::decay_t<decltype(now_k)>;
        const V cap = V{} + w.cap, v = read<V>(values + j), was = read<V>(mean + j);
        const V known = read<V>(present + j);
        const V moved = was + known * w.smoothing * (v - was);
        write(next + j, moved);
        V square = v * v * read<V>(now_scale + j);
        square = known * (square < cap ? square : cap);
        V slow = moved * moved * read<V>(lately_scale + j);
        slow = known * (slow < cap ? slow : cap);
        now_k += square;
        top_k = top_k < square ? square : top_k;
        lately_k += slow;
    };
    Vec<double> nows[sums / L] = {}, tops[sums / L] = {}, latelys[sums / L] = {};
    std::size_t j = 0;
    for (; j + sums <= n; j += sums)
        for (std::size_t k = 0; k < sums / L; ++k) add(nows[k], tops[k], latelys[k], j + k * L);
    std::memcpy(now, nows, sizeof now);
    std::memcpy(top, tops, sizeof top);
    std::memcpy(lately, latelys, sizeof lately);
    for (std::size_t k = 0; j + k < n; ++k) add(now[k], top[k], lately[k], j + k);
    Squares all{};
    for (std::size_t k = 0; k < sums; ++k) {
        all.now += now[k];
        all.top = all.top < top[k] ? top[k] : all.top;
        all.lately += lately[k];
    }
    return all;
}

// What was learned goes into the sums of the usual squares, capped.
template <class T>
ONLAD_APART void take_squares(const T* values, const double* present, std::size_t n,
                               const Watch& w, std::size_t first) {
    each(n, [&](auto V, std::size_t j) {
        using Number = decltype(V);
        const std::size_t at = first + j;
        const Number v = read<Number>(values + j), mean = read<Number>(w.next_mean + at);
        const Number now = v * v, now_cap = read<Number>(w.now_cap + at);
        const Number lately = mean * mean, lately_cap = read<Number>(w.lately_cap + at);
        const Number known = read<Number>(present + j);
        auto add = [&](double* sum, const Number& term) {
            write(sum + at, read<Number>(sum + at) + known * term);
        };
        add(w.now_sum, now < now_cap ? now : now_cap);
        add(w.lately_sum, lately < lately_cap ? lately : lately_cap);
        add(w.count, V + 1.0);
    });
}

// The gaps name the feature best; but an error beyond all measure names it too. `share` holds
// which features are present, and then their shares.
template <class T, class G>
ONLAD_APART void share_out(const T* errors, const G* gaps, const double* gap_scale, double* share,
                            std::size_t n, const Watch& w) {
    each(n, [&](auto V, std::size_t j) {
        using Number = decltype(V);
        const Number cap = V + w.cap, e = read<Number>(errors + j), r = read<Number>(gaps + j);
        const Number error = e * e * read<Number>(w.now_scale + j);
        const Number gap = r * r * read<Number>(gap_scale + j);
        write(share + j, read<Number>(share + j) *
                             ((gap < cap ? gap : cap) + (error < cap ? V : cap)));
    });
}

// One sample, which lies in x. `owed`: beta has yet to learn the one before, whose g and e are at
// hand; with that it waits for the next pass over beta.
template <class T>
ONLAD_INLINE double watch_one(Model<T>& m, const Watch& w, double a, double* evidence,
                              double* share, bool* learned, bool& owed) {
    const std::size_t n = m.n;
    double* const present = share;  // 1 or 0 until the shares are known
    const std::size_t count = find_present(m.x, present, n);
    if (count < n) {
        if (owed) teach_all(m);
        owed = false;
        fill_missing(m, present);
    }
    take_leverage(m, a);
    if (owed) teach_and_reconstruct(m);
    else reconstruct<false>(m);
    owed = false;
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

    *learned = owed = highest <= w.limit && 2 * count > n && learn_root<true>(m, a);
    *w.trend = evidence[4];
    if (*learned) {
        take_squares(m.e, present, n, w, 0);
        take_squares(m.r, present, n, w, n);
        if (m.trace > m.trace_limit) {
            teach_all(m);
            restore(m);
            owed = false;
        }
    }
    std::memcpy(w.mean, w.next_mean, 2 * n * sizeof(double));
    if (z[3] > z[2]) share_out(m.e, w.mean + n, w.lately_scale + n, share, n, w);
    else share_out(m.e, m.r, w.now_scale + n, share, n, w);
    return highest;
}

template <class T>
void watch(Model<T>& m, const Watch& w, const WatchRows<T>& call) {
    const std::size_t n = m.n, features = call.features, window = n / features;
    double* const shares = call.present;
    bool owed = false;
    for (std::size_t t = 0; t < call.count; ++t) {
        const T* newest = call.rows + (t + window - 1) * features;
        for (std::size_t lag = 0; lag < window; ++lag)
            std::memcpy(m.x + lag * features, newest - lag * features, features * sizeof(T));
        call.score[t] = watch_one(m, w, call.a, call.evidence + evidences * t, shares,
                                  call.learned + t, owed);
        double *mine = call.share + t * features, total = 0.0;
        for (std::size_t j = 0; j < features; ++j) {
            double all = 0.0;
            for (std::size_t i = j; i < n; i += features) all += shares[i];
            // What is missing now is no cause, whatever it was before.
            total += mine[j] = newest[j] == newest[j] ? all : 0.0;
        }
        if (total > 0.0)
            for (std::size_t j = 0; j < features; ++j) mine[j] /= total;
    }
    if (owed) teach_all(m);
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

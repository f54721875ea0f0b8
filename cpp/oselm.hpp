// One ONLAD step on plain memory: no Python, no allocation, no exceptions.
//
// The symbols are those of reference.py. The state carries a root S of P (P = S S'), so P is
// symmetric and positive definite whatever the rounding:
//
//   x (n)   h (N) = G(x alpha + b)   alpha (n, N)   beta' (n, N)   S (N, N)   e (n) = x - h beta
//   f = S'h    D = a^2 + w f.f    g = S f    S <- (S - g f' w/(D + a sqrt(D))) / a    (Potter)
//   beta <- beta + (w g/D) e'
//
// w is 1 to learn the sample and -1 to take it back; directional forgetting has other weights. For
// 1, D is a^2 d.
//
// Rows are padded with zeros to whole vectors, so no loop has a tail. This file is compiled once
// for each instruction level (ONLAD_LEVEL); all in it has internal linkage or a level's namespace,
// so that no function of a higher level can be linked into a lower one.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace onlad {

enum class Activation { sigmoid, identity, relu, tanh };
enum class Score { reconstruction, leverage, combined };
enum class Loss { squared, absolute };

constexpr std::size_t alignment = 64;  // bytes; a cache line, and the widest vector
constexpr std::size_t row_group = 8;   // rows that are worked on at once

// The constants of reference.py, which the bindings take from there.
struct StepConstants {
    double least_leverage, largest_leverage, wound_up, least_growth, oldest;
    std::int64_t trace_interval;
};

// What a model has learned beside its arrays.
struct Numbers {
    double trace, trace_start;  // of P: now, and at the start
    double shrink;              // product of a^2 since the start: what is left of the ridge
    double weight;              // of all samples learned, the newest counting 1
};
struct Counts {
    std::int64_t seen, skipped, paused;
};

template <class T>
struct Model : Numbers, Counts {
    std::size_t n, N;
    std::size_t stride;              // N rounded up to whole cache lines
    std::size_t padded_n, padded_N;  // n and N rounded up to whole groups of rows
    Activation activation;
    Score score;
    Loss loss;
    T *alpha, *b, *beta, *S;          // beta transposed: (n, stride); S: (N, stride)
    T *x, *h, *f, *g, *e;             // the last sample and what came of it,
    double last_loss, last_leverage;  // its loss, and d - 1
    double trace_limit;               // forgetting pauses while the trace is above it
    StepConstants c;
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

template <class T, std::size_t bytes>
struct Pack {
    typedef T type __attribute__((vector_size(bytes), may_alias));
};
template <class T>
struct InVector {
    static constexpr std::size_t size = ONLAD_VECTOR_BYTES / sizeof(T);
};
template <class T>
using Vec = typename Pack<T, ONLAD_VECTOR_BYTES>::type;

template <class T>
struct Lane;
template <>
struct Lane<float> {
    using integer = std::int32_t;
};
template <>
struct Lane<double> {
    using integer = std::int64_t;
};
#ifdef __clang__
#define ONLAD_SHUFFLE(T, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ONLAD_SHUFFLE(T, a, b, ...) \
    __builtin_shuffle(a, b, Pack<Lane<T>::integer, 16>::type{__VA_ARGS__})
#endif

#define ONLAD_INLINE inline __attribute__((always_inline))
// A part of a step that many kinds of step have is compiled once: a call costs little beside it.
#define ONLAD_APART __attribute__((noinline))

template <class T>
ONLAD_INLINE Vec<T>& at(T* p) {
    return *reinterpret_cast<Vec<T>*>(p);
}
template <class T>
ONLAD_INLINE const Vec<T>& at(const T* p) {
    return *reinterpret_cast<const Vec<T>*>(p);
}

// A vector's upper half added to its lower half, down to 16 bytes.
template <class T, std::size_t bytes>
ONLAD_INLINE auto fold(const typename Pack<T, bytes>::type& v) {
    if constexpr (bytes == 16) {
        return v;
    } else {
        using Half = typename Pack<T, bytes / 2>::type;
        Half halves[2];
        std::memcpy(halves, &v, bytes);
        return fold<T, bytes / 2>(halves[0] + halves[1]);
    }
}

// The sums of four vectors at once: a transposition instead of four chains of additions.
ONLAD_INLINE void sums(const Vec<float>* v, float* out) {
    auto v0 = fold<float, ONLAD_VECTOR_BYTES>(v[0]), v1 = fold<float, ONLAD_VECTOR_BYTES>(v[1]);
    auto v2 = fold<float, ONLAD_VECTOR_BYTES>(v[2]), v3 = fold<float, ONLAD_VECTOR_BYTES>(v[3]);
    auto s01 = ONLAD_SHUFFLE(float, v0, v1, 0, 4, 1, 5) + ONLAD_SHUFFLE(float, v0, v1, 2, 6, 3, 7);
    auto s23 = ONLAD_SHUFFLE(float, v2, v3, 0, 4, 1, 5) + ONLAD_SHUFFLE(float, v2, v3, 2, 6, 3, 7);
    auto all =
        ONLAD_SHUFFLE(float, s01, s23, 0, 1, 4, 5) + ONLAD_SHUFFLE(float, s01, s23, 2, 3, 6, 7);
    std::memcpy(out, &all, sizeof all);
}
ONLAD_INLINE void sums(const Vec<double>* v, double* out) {
    for (std::size_t k = 0; k < 4; k += 2) {
        auto v0 = fold<double, ONLAD_VECTOR_BYTES>(v[k]);
        auto v1 = fold<double, ONLAD_VECTOR_BYTES>(v[k + 1]);
        auto both = ONLAD_SHUFFLE(double, v0, v1, 0, 2) + ONLAD_SHUFFLE(double, v0, v1, 1, 3);
        std::memcpy(out + k, &both, sizeof both);
    }
}

template <class T>
ONLAD_INLINE T sum(const Vec<T>& v) {
    auto folded = fold<T, ONLAD_VECTOR_BYTES>(v);
    T total = folded[0];
    for (std::size_t i = 1; i < 16 / sizeof(T); ++i) total += folded[i];
    return total;
}

template <class T>
ONLAD_INLINE double dot(const T* p, const T* q, std::size_t stride) {
    Vec<T> s0{}, s1{};
    constexpr std::size_t L = InVector<T>::size;
    std::size_t i = 0;
    for (; i + 2 * L <= stride; i += 2 * L) {
        s0 += at(p + i) * at(q + i);
        s1 += at(p + i + L) * at(q + i + L);
    }
    for (; i < stride; i += L) s0 += at(p + i) * at(q + i);
    return double(sum<T>(s0 + s1));
}

// out <- start + weights' rows: the matrix-vector product that walks row-major memory forwards.
// Eight vectors of the result stay in registers while the rows go by.
template <class T>
ONLAD_INLINE void combine_rows(const T* rows, const T* weights, std::size_t count,
                               std::size_t stride, const T* start, T* out) {
    constexpr std::size_t L = InVector<T>::size, K = 8;
    std::size_t c = 0;
    for (; c + K * L <= stride; c += K * L) {
        Vec<T> acc[K];
        for (std::size_t k = 0; k < K; ++k) acc[k] = start ? at(start + c + k * L) : Vec<T>{};
        const T* row = rows + c;
        for (std::size_t j = 0; j < count; ++j, row += stride)
            for (std::size_t k = 0; k < K; ++k) acc[k] += weights[j] * at(row + k * L);
        for (std::size_t k = 0; k < K; ++k) at(out + c + k * L) = acc[k];
    }
    for (; c < stride; c += L) {
        Vec<T> acc = start ? at(start + c) : Vec<T>{};
        const T* row = rows + c;
        for (std::size_t j = 0; j < count; ++j, row += stride) acc += weights[j] * at(row);
        at(out + c) = acc;
    }
}

// exp by range reduction and Taylor series: within 2 units in the last place, and unlike the C
// library's it can be vectorised. Arguments are clamped where the result stays a normal number.
template <class T, class... Coefficients>
ONLAD_INLINE T polynomial(T v, T highest, Coefficients... others) {  // Horner's rule
    ((highest = highest * v + others), ...);
    return highest;
}

ONLAD_INLINE double exp_lane(double v) {
    v = v < -708.0 ? -708.0 : v > 708.0 ? 708.0 : v;
    const double shift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
    double shifted = v * 1.4426950408889634 + shift, k = shifted - shift;
    double rest = v - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10;
    double p = polynomial(rest, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
                          1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0,
                          1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0);
    std::int64_t bits, scale;
    std::memcpy(&bits, &shifted, sizeof bits);
    std::memcpy(&scale, &p, sizeof scale);
    scale += bits << 52;  // times 2^k; the bits of the shift itself fall off the top
    std::memcpy(&p, &scale, sizeof p);
    return p;
}

ONLAD_INLINE float exp_lane(float v) {
    v = v < -87.0f ? -87.0f : v > 87.0f ? 87.0f : v;
    const float shift = 12582912.0f;  // 1.5 * 2^23
    float shifted = v * 1.44269504f + shift, k = shifted - shift;
    float rest = v - k * 6.93359375e-01f + k * 2.12194440e-4f;
    float p = polynomial(rest, 1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f,
                         1.0f / 6.0f, 0.5f, 1.0f, 1.0f);
    std::int32_t bits, scale;
    std::memcpy(&bits, &shifted, sizeof bits);
    std::memcpy(&scale, &p, sizeof scale);
    scale = std::int32_t(std::uint32_t(scale) + (std::uint32_t(bits) << 23));
    std::memcpy(&p, &scale, sizeof p);
    return p;
}

template <class T>
ONLAD_APART void activate(Activation activation, T* h, std::size_t N) {
    switch (activation) {
        case Activation::sigmoid:
            for (std::size_t i = 0; i < N; ++i) h[i] = T(1) / (T(1) + exp_lane(-h[i]));
            break;
        case Activation::tanh:
            for (std::size_t i = 0; i < N; ++i) h[i] = T(1) - T(2) / (T(1) + exp_lane(T(2) * h[i]));
            break;
        case Activation::relu:
            for (std::size_t i = 0; i < N; ++i) h[i] = h[i] > T(0) ? h[i] : T(0);
            break;
        case Activation::identity:
            break;
    }
}

template <class T>
ONLAD_INLINE void finish_hidden(const Model<T>& m, T* h) {
    activate(m.activation, h, m.stride);
    for (std::size_t i = m.N; i < m.stride; ++i) h[i] = T(0);  // the padding stays zero
}

template <class T>
ONLAD_APART void hidden(Model<T>& m) {
    combine_rows(m.alpha, m.x, m.n, m.stride, m.b, m.h);
    finish_hidden(m, m.h);
}

template <class T>
double combine(const Model<T>& m) {
    switch (m.score) {
        case Score::reconstruction:
            return m.last_loss;
        case Score::leverage:
            return m.last_leverage;
        default:
            return m.last_loss * std::sqrt(m.last_leverage + m.c.least_leverage);
    }
}

// f and f.f of h; the forgetting factor is 1 while the guard holds.
template <class T>
ONLAD_APART double project(Model<T>& m, double& a) {
    if (m.trace > m.trace_limit) a = 1.0;
    combine_rows(m.S, m.h, m.N, m.stride, static_cast<const T*>(nullptr), m.f);
    return dot(m.f, m.f, m.stride);
}

// out (row_group) <- the products of some rows with v.
template <class T>
ONLAD_INLINE void dot_rows(const T* rows, const T* v, std::size_t stride, T* out) {
    constexpr std::size_t L = InVector<T>::size, R = row_group;
    Vec<T> acc[R] = {};
    for (std::size_t j = 0; j < stride; j += L) {
        const Vec<T> v_j = at(v + j);
        for (std::size_t k = 0; k < R; ++k) acc[k] += at(rows + k * stride + j) * v_j;
    }
    for (std::size_t k = 0; k < R; k += 4) sums(acc + k, out + k);
}

// One Potter step: S <- (S - g f' w/(D + a sqrt(D))) / a with g = S f, some rows at a time so
// that the sums of one overlap with the products of another.
template <class T>
ONLAD_APART void root_step(Model<T>& m, double a, double w, double D) {
    constexpr std::size_t L = InVector<T>::size, R = row_group;
    const std::size_t stride = m.stride, rows = m.padded_N;
    const T c = T(w / ((D + a * std::sqrt(D)) * a));
    const Vec<T> inverse_a = Vec<T>{} + T(1.0 / a);
    T* __restrict S = m.S;  // restrict: or each store would make the compiler load f again
    T* __restrict g = m.g;
    const T* __restrict f = m.f;
    for (std::size_t i = 0; i < rows; i += R) {  // rows beyond N are zero and stay so
        T* __restrict row = S + i * stride;
        dot_rows(row, f, stride, g + i);
        Vec<T> factor[R];
        for (std::size_t k = 0; k < R; ++k) factor[k] = Vec<T>{} + g[i + k] * c;
        for (std::size_t j = 0; j < stride; j += L) {
            const Vec<T> f_j = at(f + j);
            for (std::size_t k = 0; k < R; ++k)
                at(row + k * stride + j) = at(row + k * stride + j) * inverse_a - factor[k] * f_j;
        }
    }
}

// The gain: g times w / D.
template <class T>
ONLAD_INLINE void scale_gain(Model<T>& m, double factor) {
    for (std::size_t i = 0; i < m.N; ++i) m.g[i] *= T(factor);
}

template <class T>
ONLAD_APART void measure(Model<T>& m) {
    m.trace = 0.0;
    for (std::size_t i = 0; i < m.N; ++i)
        m.trace += dot(m.S + i * m.stride, m.S + i * m.stride, m.stride);
}

// The wind-up guard. Forgetting divides what the stream does not excite by a^2 at every step. While
// trace(P) is above the limit forgetting pauses, and the ridge that was forgotten is put back for
// the hidden unit where P is largest: as a sample of its own, h = e_k sqrt(N / trace at the start)
// with x = 0. Returns k and h_k, and leaves the gain in g; the caller teaches it to beta.
template <class T>
ONLAD_APART std::size_t restore_root(Model<T>& m, T& h_k) {
    double largest = -1.0;
    std::size_t worst = 0;
    for (std::size_t i = 0; i < m.N; ++i) {
        const double unit = dot(m.S + i * m.stride, m.S + i * m.stride, m.stride);
        if (unit > largest) largest = unit, worst = i;
    }
    h_k = T(std::sqrt(double(m.N) / m.trace_start));
    for (std::size_t i = 0; i < m.stride; ++i) m.f[i] = h_k * m.S[worst * m.stride + i];
    const double D = 1.0 + dot(m.f, m.f, m.stride);
    root_step(m, 1.0, 1.0, D);
    scale_gain(m, 1.0 / D);
    measure(m);
    return worst;
}

template <class T>
ONLAD_INLINE void teach(Model<T>& m, std::size_t feature, T error) {
    T* row = m.beta + feature * m.stride;
    for (std::size_t c = 0; c < m.stride; c += InVector<T>::size)
        at(row + c) += error * at(m.g + c);
}

// beta <- beta + g e' for all features; e is zero beyond n.
template <class T>
ONLAD_APART void teach_all(Model<T>& m) {
    constexpr std::size_t L = InVector<T>::size, R = row_group;
    const std::size_t stride = m.stride, rows = m.padded_n;
    T* __restrict beta = m.beta;
    const T* __restrict g = m.g, * __restrict e = m.e;
    for (std::size_t j = 0; j < rows; j += R)
        for (std::size_t c = 0; c < stride; c += L) {
            const Vec<T> g_c = at(g + c);
            for (std::size_t k = 0; k < R; ++k) at(beta + (j + k) * stride + c) += e[j + k] * g_c;
        }
}

template <class T>
ONLAD_APART void restore(Model<T>& m) {
    T h_k;
    const std::size_t k = restore_root(m, h_k);
    for (std::size_t j = 0; j < m.n; ++j) teach(m, j, -h_k * m.beta[j * m.stride + k]);
}

// S learns h; f is known. Leaves the gain in g. False: the step was not finite and is skipped.
template <class T>
ONLAD_INLINE bool learn_hidden(Model<T>& m, double a, double squared) {
    // Also catches NaN; the paper's epsilon guard cannot act on a root.
    if (!(squared < m.c.largest_leverage)) {
        ++m.skipped;
        return false;
    }
    const double D = a * a + squared;
    root_step(m, a, 1.0, D);
    // P <- (P - g g'/D) / a^2 says what becomes of the trace. Its rounding grows as 1/a^2 with
    // each step, so now and then it is measured.
    m.trace = (m.trace - dot(m.g, m.g, m.stride) / D) / (a * a);
    if (++m.seen % m.c.trace_interval == 0) measure(m);
    scale_gain(m, 1.0 / D);
    m.shrink *= a * a;
    m.weight = m.weight * a * a + 1.0;
    return true;
}

template <class T>
ONLAD_INLINE void guard(Model<T>& m, bool paused) {
    if (paused) ++m.paused;
    if (m.trace > m.trace_limit) restore(m);
}

template <class T>
ONLAD_APART double loss_sum(Loss loss, const T* e, std::size_t n) {
    constexpr std::size_t L = 8;  // partial sums, so that additions do not wait for each other
    double part[L] = {};
    auto term = [loss](double v) { return loss == Loss::squared ? v * v : std::fabs(v); };
    std::size_t j = 0;
    for (; j + L <= n; j += L)
        for (std::size_t k = 0; k < L; ++k) part[k] += term(double(e[j + k]));
    for (; j < n; ++j) part[0] += term(double(e[j]));
    return (((part[0] + part[1]) + (part[2] + part[3])) +
            ((part[4] + part[5]) + (part[6] + part[7])));
}

// One pass over beta: e = x - h beta and, when learning, beta <- beta + g e' while the rows are
// at hand. Returns the loss. Rows beyond n are zero, and so are their x and e.
template <bool learning, class T>
ONLAD_APART double reconstruct(Model<T>& m) {
    constexpr std::size_t L = InVector<T>::size, R = row_group;
    const std::size_t stride = m.stride, rows = m.padded_n;
    T* __restrict beta = m.beta;
    T* __restrict e = m.e;
    const T* __restrict h = m.h, * __restrict g = m.g, * __restrict x = m.x;
    for (std::size_t j = 0; j < rows; j += R) {
        T* __restrict row = beta + j * stride;
        T predicted[R];
        dot_rows(row, h, stride, predicted);
        Vec<T> error[R];
        for (std::size_t k = 0; k < R; ++k) {
            e[j + k] = x[j + k] - predicted[k];
            error[k] = Vec<T>{} + e[j + k];
        }
        if constexpr (learning)
            for (std::size_t c = 0; c < stride; c += L) {
                const Vec<T> g_c = at(g + c);
                for (std::size_t k = 0; k < R; ++k) at(row + k * stride + c) += error[k] * g_c;
            }
    }
    return loss_sum(m.loss, e, m.n) / double(m.n);
}

// h, f and the leverage of x. Returns f.f, and the forgetting factor as `project` has it in a.
template <class T>
ONLAD_INLINE double take_leverage(Model<T>& m, double& a) {
    hidden(m);
    const double squared = project(m, a);
    m.last_leverage = squared / (a * a);
    return squared;
}

template <class T>
double score(Model<T>& m, double a) {
    take_leverage(m, a);
    m.last_loss = reconstruct<false>(m);
    return combine(m);
}

template <class T>
double update(Model<T>& m, double a) {
    bool paused = m.trace > m.trace_limit;
    double squared = take_leverage(m, a);
    if (learn_hidden(m, a, squared)) {
        m.last_loss = reconstruct<true>(m);
        guard(m, paused);
    } else {
        m.last_loss = reconstruct<false>(m);
    }
    return combine(m);
}

// The same score, then a step of directional forgetting with the factor phi: h is learned with the
// weight by which D is phi (1 + f.f), and beta as if the weight were 1 (variants.dff_update).
template <class T>
double update_directional(Model<T>& m, double phi) {
    double a = 1.0;
    const double squared = take_leverage(m, a);
    if (squared > 0.0 && squared < m.c.largest_leverage) {
        root_step(m, a, phi - (1.0 - phi) / squared, phi * (1.0 + squared));
        scale_gain(m, 1.0 / (1.0 + squared));
        ++m.seen;
        m.last_loss = reconstruct<true>(m);
    } else {
        ++m.skipped;
        m.last_loss = reconstruct<false>(m);
    }
    return m.last_loss;
}

// Learn the sample whose score was just taken: h, f and e are still at hand.
template <class T>
bool learn_scored(Model<T>& m, double a) {
    const bool paused = m.trace > m.trace_limit;
    if (!learn_hidden(m, paused ? 1.0 : a, dot(m.f, m.f, m.stride))) return false;
    teach_all(m);
    guard(m, paused);
    return true;
}

template <class T>
bool take_back(Model<T>& m) {
    double a = 1.0;
    hidden(m);
    const double left = 1.0 - project(m, a);
    // 1 - h P h' is what the other samples know in this direction. Within rounding of 0 they know
    // nothing, so the sample is not one of them.
    if (!(left > 64 * (sizeof(T) == 4 ? 1.2e-7 : 2.3e-16)) || m.seen == 0) return false;
    reconstruct<false>(m);
    root_step(m, a, -1.0, left);
    scale_gain(m, -1.0 / left);
    teach_all(m);
    --m.seen;
    m.weight = std::fmax(0.0, m.weight - 1.0);
    return true;
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

// A mode of a monitor: its two instances, and what is usual in it. instance.py and mode.py have the
// definition, under the same names.
//
// The groups of tanh units are lanes: number 4 i + k belongs to unit i of group k, and column j of
// a matrix to group j mod 4. So all groups are computed together. Fewer groups than four repeat.
//
// Columns are padded with zeros to whole cache lines. Of a gram matrix the upper half is kept: row
// i from the beginning of the cache line in which its diagonal lies.

#pragma once

#include "constants.hpp"
#include "oselm.hpp"

namespace onlad {

constexpr std::size_t lanes = 4;                          // groups of tanh units
constexpr std::size_t line = alignment / sizeof(double);  // numbers of a cache line
constexpr std::size_t statistics = 4;
constexpr std::size_t most_rows = 64;  // that are worked on together

constexpr std::size_t padded(std::size_t count) { return (count + line - 1) / line * line; }

// Where row i of a kept half begins, and its first column. A row has `stride` columns, and
// `across` of them for each unit.
constexpr std::size_t first_column(std::size_t i, std::size_t across) {
    return i * across / line * line;
}
constexpr std::size_t row_begin(std::size_t i, std::size_t across, std::size_t stride) {
    const std::size_t together = line / across;  // rows with the same first column
    const std::size_t q = i / together;
    return together * (q * stride - line * q * (q - (q > 0)) / 2) +
           i % together * (stride - line * q);
}

// What all modes of one shape and seed share.
struct Layer {
    std::size_t n, width, d;  // features, rows of a window, n * width
    std::size_t s;            // n, padded: the columns of whatever has one number for each feature
    std::size_t groups, units, N;  // tanh units: N = units * lanes
    std::size_t M, stride;         // linear units with the constant, and padded
    bool projected;                // else the linear units are the window itself
    std::size_t z_stride;          // of scaled windows
    const double *alpha, *b;       // (n, N), (N)
    const double* projection;      // (d, padded M - 1)
    const Constants* c;

    std::size_t half() const { return row_begin(units, lanes, N); }
    std::size_t linear_half() const {
        return row_begin(M - 1, 1, stride) + stride - first_column(M - 1, 1);
    }
};

struct ModeData {
    double *centre, *scale;        // (s)
    double *gram, *moment, *beta;  // (half), (units, s), (units, s)
    double *linear_gram, *linear_moment,
        *linear_beta;                   // (linear_half), (M, s) if projected, (M, s)
    double *usual, *largest, *leaning;  // (2, s)
    double *inverse, *lean_inverse;     // (2, s) one over usual deviations, and squares of leans
    double* band;                       // (s) half widths, in units of the mode
    double* levels;                     // (6, statistics): medians and reaches, see Levels
    double weight;
    std::int64_t count;
    bool still;  // some feature has never moved
};

// What is usual for the statistics: of rows, of running means, of leans.
struct Levels {
    const double *median, *reach, *mean_median, *mean_reach, *lean_median, *lean_reach;
    explicit Levels(const ModeData& m)
        : median(m.levels),
          reach(median + statistics),
          mean_median(reach + statistics),
          mean_reach(mean_median + statistics),
          lean_median(mean_reach + statistics),
          lean_reach(lean_median + statistics) {}
};

// Raw windows: row r has its newest values at at[r], and those before it step[r] further each. That
// is 0 if the row stands in for those before it.
struct Windows {
    const double* const* at;
    const std::ptrdiff_t* step;
    const std::uint8_t* const* present;  // (s) each: whether a value was there
    std::size_t count;
};

// Scratch memory of one thread.
struct ModeWorkspace {
    double *z, *x, *h, *v;  // (most_rows, z_stride), (.., s), (.., N), (.., stride)
    double* e;              // (2, most_rows, s)
    double* root;           // (M, stride) or (units, N)
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

#if ONLAD_VECTOR_BYTES == 64
#include <immintrin.h>
#endif

namespace onlad::ONLAD_LEVEL {
namespace {

using Doubles = Vec<double>;
constexpr std::size_t L = InVector<double>::size;
static_assert(L <= 2 * lanes);

ONLAD_INLINE Doubles load(const double* p) {
    Doubles v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
ONLAD_INLINE void store(double* p, const Doubles& v) { std::memcpy(p, &v, sizeof v); }

// The factor of columns c ... c + L - 1: one number, or one for each group.
template <bool grouped>
ONLAD_INLINE Doubles factor(const double* p, std::size_t c) {
    if constexpr (!grouped) {
        (void)c;
        return Doubles{} + *p;
    } else if constexpr (L < lanes) {
        return load(p + c % lanes);
    } else {
#if ONLAD_VECTOR_BYTES == 64  // through memory it would take ten times as long
        return Doubles(_mm512_maskz_broadcast_f64x4(0xff, _mm256_loadu_pd(p)));
#else
        return load(p);
#endif
    }
}

// Some rows and vectors of what `accumulate` does.
template <int sign, bool grouped, std::size_t R, std::size_t K>
ONLAD_INLINE void tile(double* out, std::size_t out_stride, const double* w, std::size_t across,
                       std::size_t along, const double* B, std::size_t stride, std::size_t count,
                       std::size_t c) {
    Doubles acc[R][K];
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < K; ++v) acc[r][v] = load(out + r * out_stride + v * L);
    for (std::size_t k = 0; k < count; ++k, w += along, B += stride) {
        Doubles b[K];
        for (std::size_t v = 0; v < K; ++v) b[v] = load(B + v * L);
        for (std::size_t r = 0; r < R; ++r)
            for (std::size_t v = 0; v < K; ++v) {
                const Doubles a = factor<grouped>(w + r * across, c + v * L);
                if constexpr (sign > 0)
                    acc[r][v] += a * b[v];
                else
                    acc[r][v] -= a * b[v];
            }
    }
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < K; ++v) store(out + r * out_stride + v * L, acc[r][v]);
}

template <int sign, bool grouped, std::size_t R, std::size_t K>
ONLAD_INLINE void strip(double* out, std::size_t out_stride, std::size_t rows, const double* w,
                        std::size_t across, std::size_t along, const double* B, std::size_t stride,
                        std::size_t count, std::size_t c) {
    std::size_t r = 0;
    for (; r + R <= rows; r += R)
        tile<sign, grouped, R, K>(out + r * out_stride, out_stride, w + r * across, across, along,
                                  B, stride, count, c);
    for (; r + 2 <= rows; r += 2)
        tile<sign, grouped, 2, K>(out + r * out_stride, out_stride, w + r * across, across, along,
                                  B, stride, count, c);
    for (; r < rows; ++r)
        tile<sign, grouped, 1, K>(out + r * out_stride, out_stride, w + r * across, across, along,
                                  B, stride, count, c);
}

// out (rows, columns) += or -= W B with W (rows, count) and B (count, columns). W(r, k) stands at
// w[r * across + k * along], for each group if `grouped`. Each number of `out` takes its products
// one after the other, so that it does not depend on how many rows there are.
template <int sign, bool grouped>
ONLAD_APART void accumulate(double* out, std::size_t out_stride, std::size_t rows, const double* w,
                            std::size_t across, std::size_t along, const double* B,
                            std::size_t stride, std::size_t count, std::size_t columns) {
    constexpr std::size_t wide = 8, tall = L == 8 ? 4 : 2;  // what the registers hold
    std::size_t c = 0;
    if (rows == 1) {
        for (; c + wide * L <= columns; c += wide * L)
            tile<sign, grouped, 1, wide>(out + c, out_stride, w, across, along, B + c, stride,
                                         count, c);
    }
    for (; c + tall * L <= columns; c += tall * L)
        strip<sign, grouped, 4, tall>(out + c, out_stride, rows, w, across, along, B + c, stride,
                                      count, c);
    for (; c < columns; c += L)
        strip<sign, grouped, 4, 1>(out + c, out_stride, rows, w, across, along, B + c, stride,
                                   count, c);
}

// z <- the window in units of the mode; what is not known, or never moved, is 0.
ONLAD_APART void scaled(const Layer& l, const ModeData& m, const double* row, std::ptrdiff_t step,
                        double* z, double* x) {
    const double clip = l.c->mode_CLIP;
    double* out = z;
    for (std::size_t lag = 0; lag < l.width; ++lag, row += step, out += l.n)
        for (std::size_t j = 0; j < l.n; ++j) {
            double value = m.scale[j] > 0.0 ? (row[j] - m.centre[j]) / m.scale[j] : 0.0;
            value = value > clip ? clip : value < -clip ? -clip : value;
            out[j] = value == value ? value : 0.0;
        }
    if (!l.projected) z[l.d] = 1.0;
    std::memcpy(x, z, l.n * sizeof(double));
}

// h and v of scaled windows, and their errors.
ONLAD_APART void predict(const Layer& l, const ModeData& m, std::size_t rows,
                         const ModeWorkspace& scratch, double* e, double* linear_e) {
    for (std::size_t r = 0; r < rows; ++r)
        std::memcpy(scratch.h + r * l.N, l.b, l.N * sizeof(double));
    accumulate<1, false>(scratch.h, l.N, rows, scratch.x, l.s, 1, l.alpha, l.N, l.n, l.N);
    activate(Activation::tanh, scratch.h, rows * l.N);
    std::memcpy(e, scratch.x, rows * l.s * sizeof(double));
    accumulate<-1, true>(e, l.s, rows, scratch.h, l.N, lanes, m.beta, l.s, l.units, l.s);
    if (l.projected) {
        for (std::size_t r = 0; r < rows; ++r) {
            std::memset(scratch.v + r * l.stride, 0, l.stride * sizeof(double));
            scratch.v[r * l.stride + l.M - 1] = 1.0;
        }
        const std::size_t columns = padded(l.M - 1);
        accumulate<1, false>(scratch.v, l.stride, rows, scratch.z, l.z_stride, 1, l.projection,
                             columns, l.d, columns);
        for (std::size_t r = 0; r < rows; ++r) scratch.v[r * l.stride + l.M - 1] = 1.0;
    }
    std::memcpy(linear_e, scratch.x, rows * l.s * sizeof(double));
    accumulate<-1, false>(linear_e, l.s, rows, scratch.v, l.stride, 1, m.linear_beta, l.s, l.M,
                          l.s);
}

ONLAD_INLINE void predict_some(const Layer& l, const ModeData& m, const Windows& w,
                               std::size_t first, std::size_t count, const ModeWorkspace& scratch,
                               double* e) {
    for (std::size_t r = 0; r < count; ++r)
        scaled(l, m, w.at[first + r], w.step[first + r], scratch.z + r * l.z_stride,
               scratch.x + r * l.s);
    predict(l, m, count, scratch, e + first * l.s, e + (w.count + first) * l.s);
}

void errors(const Layer& l, const ModeData& m, const Windows& w, const ModeWorkspace& scratch,
            double* e) {
    for (std::size_t first = 0; first < w.count; first += most_rows) {
        const std::size_t left = w.count - first;
        predict_some(l, m, w, first, left < most_rows ? left : most_rows, scratch, e);
    }
}

// A kept half of a gram matrix += A'A; A (rows, stride) has `units` units of `across` columns.
template <bool grouped>
ONLAD_APART void add_gram(double* gram, const double* A, std::size_t stride, std::size_t units,
                          std::size_t rows) {
    constexpr std::size_t across = grouped ? lanes : 1, together = line / across;
    for (std::size_t i = 0; i < units; i += together) {
        const std::size_t first = first_column(i, across), columns = stride - first;
        const std::size_t some = units - i < together ? units - i : together;
        accumulate<1, grouped>(gram, columns, some, A + i * across, across, stride, A + first,
                               stride, rows, columns);
        gram += some * columns;
    }
}

ONLAD_INLINE void scale_all(double* values, double factor, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
}

// root <- U with U'U = gram + ridge, row by row; the diagonal is inverted.
template <bool grouped>
ONLAD_APART void cholesky(double* root, const double* gram, std::size_t stride, std::size_t units,
                          double ridge, double last) {
    constexpr std::size_t across = grouped ? lanes : 1;
    for (std::size_t k = 0; k < units; ++k) {
        const std::size_t first = first_column(k, across);
        double* row = root + k * stride;
        std::memcpy(row + first, gram, (stride - first) * sizeof(double));
        gram += stride - first;
        const double least = k + 1 < units ? ridge : last;
        for (std::size_t g = 0; g < across; ++g) row[k * across + g] += least;
        accumulate<-1, grouped>(row + first, stride, 1, root + k * across, 0, stride, root + first,
                                stride, k, stride - first);
        double inverse[across];
        for (std::size_t g = 0; g < across; ++g) {
            const double pivot = row[k * across + g];
            // Whatever was summed, it is at least the ridge; rounding must not say otherwise.
            inverse[g] = 1.0 / std::sqrt(pivot > least ? pivot : least);
        }
        for (std::size_t c = first; c < stride; c += across)
            for (std::size_t g = 0; g < across; ++g) row[c + g] *= inverse[g];
        for (std::size_t g = 0; g < across; ++g) row[k * across + g] = inverse[g];
    }
}

// beta (units, s) <- the solution of U'U beta = beta.
template <bool grouped>
ONLAD_APART void substitute(const double* root, std::size_t stride, std::size_t units, double* beta,
                            std::size_t s) {
    constexpr std::size_t across = grouped ? lanes : 1;
    auto divide = [&](std::size_t i) {
        double* row = beta + i * s;
        const double* inverse = root + i * stride + i * across;
        for (std::size_t c = 0; c < s; c += L)
            store(row + c, load(row + c) * factor<grouped>(inverse, c));
    };
    for (std::size_t i = 0; i < units; ++i) {
        accumulate<-1, grouped>(beta + i * s, s, 1, root + i * across, 0, stride, beta, s, i, s);
        divide(i);
    }
    for (std::size_t i = units; i-- > 0;) {
        accumulate<-1, grouped>(beta + i * s, s, 1, root + i * stride + (i + 1) * across, 0, across,
                                beta + (i + 1) * s, s, units - i - 1, s);
        divide(i);
    }
}

// beta (M, s) <- the first n columns of the gram matrix: those of the row itself.
ONLAD_APART void moment_of_gram(const Layer& l, ModeData& m) {
    const double* row = m.linear_gram;
    for (std::size_t i = 0; i < l.M; ++i) {
        const std::size_t first = first_column(i, 1);
        for (std::size_t j = i; j < l.M; ++j) {
            const double value = row[j - first];
            if (j < l.n) m.linear_beta[i * l.s + j] = value;
            if (i < l.n) m.linear_beta[j * l.s + i] = value;
        }
        row += l.stride - first;
    }
}

// Each feature from all others: its own coefficient is taken out. Until all are divided, the
// diagonal holds what is left of 1.
ONLAD_APART void take_out(const Layer& l, double* beta) {
    for (std::size_t j = 0; j < l.n; ++j) {
        const double rest = 1.0 - beta[j * l.s + j];
        beta[j * l.s + j] = std::max(rest, l.c->instance_LEAST_REST);
    }
    for (std::size_t i = 0; i < l.M; ++i)
        for (std::size_t j = 0; j < l.n; ++j)
            if (i != j) beta[i * l.s + j] /= beta[j * l.s + j];
    for (std::size_t j = 0; j < l.n; ++j) beta[j * l.s + j] = 0.0;
}

void solve(const Layer& l, ModeData& m, const ModeWorkspace& scratch) {
    const double ridge = l.c->instance_RIDGE;
    cholesky<true>(scratch.root, m.gram, l.N, l.units, ridge, ridge);
    std::memcpy(m.beta, m.moment, l.units * l.s * sizeof(double));
    substitute<true>(scratch.root, l.N, l.units, m.beta, l.s);
    cholesky<false>(scratch.root, m.linear_gram, l.stride, l.M, ridge, l.c->instance_CONSTANT);
    if (l.projected)
        std::memcpy(m.linear_beta, m.linear_moment, l.M * l.s * sizeof(double));
    else
        moment_of_gram(l, m);
    substitute<false>(scratch.root, l.stride, l.M, m.linear_beta, l.s);
    if (!l.projected) take_out(l, m.linear_beta);
}

void learn(const Layer& l, ModeData& m, const Windows& w, double forgotten,
           const ModeWorkspace& scratch, double* e) {
    scale_all(m.gram, forgotten, l.half());
    scale_all(m.moment, forgotten, l.units * l.s);
    scale_all(m.linear_gram, forgotten, l.linear_half());
    if (l.projected) scale_all(m.linear_moment, forgotten, l.M * l.s);
    for (std::size_t first = 0; first < w.count; first += most_rows) {
        const std::size_t left = w.count - first, count = left < most_rows ? left : most_rows;
        predict_some(l, m, w, first, count, scratch, e);
        add_gram<true>(m.gram, scratch.h, l.N, l.units, count);
        accumulate<1, true>(m.moment, l.s, l.units, scratch.h, lanes, l.N, scratch.x, l.s, count,
                            l.s);
        add_gram<false>(m.linear_gram, scratch.v, l.stride, l.M, count);
        if (l.projected)
            accumulate<1, false>(m.linear_moment, l.s, l.M, scratch.v, 1, l.stride, scratch.x, l.s,
                                 count, l.s);
    }
    solve(l, m, scratch);
}

// Let the usual squares follow errors.
void take(const Layer& l, ModeData& m, const double* e, const Windows& w) {
    for (std::size_t k = 0; k < 2; ++k)
        for (std::size_t c = 0; c < l.s; c += line) {
            double known[line] = {}, sum[line] = {}, top[line] = {};
            for (std::size_t r = 0; r < w.count; ++r) {
                const double* error = e + (k * w.count + r) * l.s + c;
                const std::uint8_t* present = w.present[r] + c;
                for (std::size_t j = 0; j < line; ++j) {
                    const double square = error[j] * error[j] * present[j];
                    known[j] += present[j];
                    sum[j] += square;
                    top[j] = square > top[j] ? square : top[j];
                }
            }
            double *usual = m.usual + k * l.s + c, *largest = m.largest + k * l.s + c;
            for (std::size_t j = 0; j < line; ++j) {
                const double asleep = m.scale[c + j] > 0.0 ? 0.0 : 1.0;
                const double before = m.weight > 0.0 ? largest[j] : asleep;
                largest[j] = top[j] > before ? top[j] : before;
                const double total = m.weight + known[j];
                if (known[j] > 0.0)
                    usual[j] = (m.weight * usual[j] + sum[j]) / (total > 1.0 ? total : 1.0);
            }
        }
    const double weight = m.weight + double(w.count);
    m.weight = weight < l.c->mode_MEMORY ? weight : l.c->mode_MEMORY;
}

void invert(const Layer& l, ModeData& m) {
    const double prior = l.c->mode_PRIOR, floor = l.c->mode_PRIOR_SQUARE;
    for (std::size_t k = 0; k < 2; ++k) {
        const double *usual = m.usual + k * l.s, *largest = m.largest + k * l.s;
        double sum = 0.0;
        for (std::size_t j = 0; j < l.n; ++j) sum += usual[j];
        const double mean = sum / double(l.n), least = mean > floor ? mean : floor;
        for (std::size_t j = 0; j < l.n; ++j) {
            const double mixed = (m.weight * usual[j] + prior * least) / (m.weight + prior);
            const double bound = largest[j] / l.c->mode_OFTEN;
            m.inverse[k * l.s + j] = std::sqrt(1.0 / (mixed > bound ? mixed : bound));
            m.lean_inverse[k * l.s + j] = 1.0 / m.leaning[k * l.s + j];
        }
    }
    m.still = false;
    for (std::size_t j = 0; j < l.n; ++j) m.still |= !(m.scale[j] > 0.0);
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

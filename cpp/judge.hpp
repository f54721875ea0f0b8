// Rows in, scores out: what a monitor does with each row. judge.py and mode.py have the definition.

#pragma once

#include <limits>

#include "oselm.hpp"

namespace onlad {

constexpr std::size_t statistics = 4;

struct JudgeConstants {
    double clip, smoothing, still, keep, filled, winsor;
};

// A mode as the judge needs it. n features, d inputs (the row and those before it), N units.
struct JudgeMode {
    std::size_t groups, units, linear_N;       // N = groups * units
    const double *alpha, *b, *beta;            // (n, N), (N), (units, n): tanh units on the row
    const double *linear_alpha, *linear_beta;  // (d, linear_N) or null, (linear_N + 1, n)
    const double* inverse;                     // (2, n) one over the usual deviations
    const double* leaning;                     // (2, n) one over the usual squares of leans
    const double *median, *reach, *mean_median, *mean_reach, *lean_median,
        *lean_reach;         // (statistics)
    double *centre, *scale;  // (n)
};

struct JudgeState {
    std::size_t n, width, modes;
    bool ordered;
    JudgeConstants constants;
    JudgeMode* mode;
    double *held, *age, *patience, *past, *means;  // (n), (n), (n), (width - 1, n), (statistics)
    double* leans;                                 // (2, n)
    std::size_t current;
    // room
    double *z, *h, *e;                                    // (d), (largest N, linear_N), (2, n)
    double *present, *squares, *best_squares, *expected;  // (n)
    double *new_leans, *best_leans;                       // (2, n)
};

struct JudgeRows {
    const double* X;  // (count, n), NaN where a value is missing
    std::size_t count;
    double* score;
    std::int64_t* mode;
    double *shares, *held, *expected;  // (count, n)
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// out -= weight * row
ONLAD_INLINE void subtract(double* __restrict out, const double* __restrict row, double weight,
                           std::size_t n) {
    for (std::size_t j = 0; j < n; ++j) out[j] -= weight * row[j];
}

// The errors of both instances of a mode for the window that is at hand.
ONLAD_APART void judge_errors(JudgeState& s, const JudgeMode& m) {
    const std::size_t n = s.n, d = n * s.width;
    const double clip = s.constants.clip;
    for (std::size_t lag = 0; lag < s.width; ++lag) {
        const double* row = lag ? s.past + (lag - 1) * n : s.held;
        for (std::size_t j = 0; j < n; ++j) {
            double z = m.scale[j] > 0.0 ? (row[j] - m.centre[j]) / m.scale[j] : 0.0;
            z = z > clip ? clip : z < -clip ? -clip : z;
            s.z[lag * n + j] = z == z ? z : 0.0;
        }
    }
    double *e = s.e, *linear_e = s.e + n, *h = s.h;
    std::memcpy(e, s.z, n * sizeof(double));
    const std::size_t N = m.groups * m.units;
    std::memcpy(h, m.b, N * sizeof(double));
    for (std::size_t j = 0; j < n; ++j) subtract(h, m.alpha + j * N, -s.z[j], N);
    activate(Activation::tanh, h, N);
    for (std::size_t i = 0; i < m.units; ++i) {
        // Feature j is predicted by the units of group j mod groups.
        const double* row = m.beta + i * n;
        std::size_t j = 0;
        if (m.groups == 4) {
            const double h0 = h[i], h1 = h[m.units + i];
            const double h2 = h[2 * m.units + i], h3 = h[3 * m.units + i];
            for (; j + 4 <= n; j += 4) {
                e[j] -= h0 * row[j];
                e[j + 1] -= h1 * row[j + 1];
                e[j + 2] -= h2 * row[j + 2];
                e[j + 3] -= h3 * row[j + 3];
            }
        }
        for (; j < n; ++j) e[j] -= h[j % m.groups * m.units + i] * row[j];
    }

    std::memcpy(linear_e, s.z, n * sizeof(double));
    const double* v = s.z;
    std::size_t inputs = d;
    if (m.linear_alpha) {
        inputs = m.linear_N;
        std::memset(h, 0, inputs * sizeof(double));
        for (std::size_t k = 0; k < d; ++k)
            subtract(h, m.linear_alpha + k * inputs, -s.z[k], inputs);
        v = h;
    }
    for (std::size_t k = 0; k < inputs; ++k) subtract(linear_e, m.linear_beta + k * n, v[k], n);
    subtract(linear_e, m.linear_beta + inputs * n, 1.0, n);
}

// The score of the window for one mode, running means and leans after it, and squares by feature.
ONLAD_APART double judge_mode(JudgeState& s, const JudgeMode& m, double known, double* means) {
    const bool stays = &m == s.mode + s.current;  // else leans are of errors of another mode
    judge_errors(s, m);
    const std::size_t n = s.n;
    const double smoothing = s.constants.smoothing, most = s.constants.winsor;
    double found[statistics] = {}, leaning[statistics] = {};
    for (std::size_t j = 0; j < n; ++j) s.squares[j] = 0.0;
    for (std::size_t k = 0; k < 2; ++k) {
        double sum = 0.0, top = 0.0, lean_sum = 0.0, lean_top = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
            const double e = s.e[k * n + j] * m.inverse[k * n + j] * s.present[j], square = e * e;
            s.squares[j] += square;
            sum += square;
            top = square > top ? square : top;
            if (s.ordered) {
                const double held = e > most ? most : e < -most ? -most : e;
                double lean = stays ? s.leans[k * n + j] : 0.0;
                lean += smoothing * (held - lean) * s.present[j];
                s.new_leans[k * n + j] = lean;
                const double usual = lean * lean * m.leaning[k * n + j];
                lean_sum += usual;
                lean_top = usual > lean_top ? usual : lean_top;
            }
        }
        found[k] = sum / known;
        found[2 + k] = top;
        leaning[k] = lean_sum / double(n);
        leaning[2 + k] = lean_top;
    }
    double total = 0.0;
    for (std::size_t k = 0; k < statistics; ++k) {
        double standard = (found[k] - m.median[k]) / m.reach[k];
        if (s.ordered) {
            const double held = standard < 1.0 ? standard : 1.0;
            means[k] = s.means[k] + smoothing * (held - s.means[k]);
            const double slow = (means[k] - m.mean_median[k]) / m.mean_reach[k];
            const double lean = (leaning[k] - m.lean_median[k]) / m.lean_reach[k];
            standard = slow > standard ? slow : standard;
            standard = lean > standard ? lean : standard;
        }
        total += standard > 0.0 ? standard : 0.0;
    }
    return total / double(statistics);
}

// A feature that never moved gets its unit at its first move.
ONLAD_APART void wake(JudgeState& s, const double* x) {
    for (std::size_t i = 0; i < s.modes; ++i) {
        JudgeMode& m = s.mode[i];
        for (std::size_t j = 0; j < s.n; ++j) {
            if (m.scale[j] > 0.0 || x[j] != x[j]) continue;
            if (m.centre[j] != m.centre[j]) m.centre[j] = x[j];
            const double moved = std::fabs(x[j] - m.centre[j]);
            if (moved > s.constants.still * std::fabs(m.centre[j]) + 1e-30) m.scale[j] = moved;
        }
    }
}

void judge(JudgeState& s, const JudgeRows& call) {
    const std::size_t n = s.n;
    for (std::size_t t = 0; t < call.count; ++t) {
        const double* x = call.X + t * n;
        std::size_t known = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const bool is = x[j] == x[j];
            known += is;
            s.present[j] = is ? 1.0 : 0.0;
            s.age[j] = is ? 0.0 : s.age[j] + 1.0;
            if (is) s.held[j] = x[j];
        }
        wake(s, x);
        double best = 0.0;
        if (known == 0) {
            for (std::size_t j = 0; j < n; ++j) {
                s.best_squares[j] = 0.0;
                s.expected[j] = std::numeric_limits<double>::quiet_NaN();
            }
        } else {
            const std::size_t before = s.current;
            double means[statistics], best_means[statistics] = {};
            auto take = [&](std::size_t i, double score) {
                best = score;
                s.current = i;
                std::memcpy(best_means, means, sizeof means);
                std::memcpy(s.best_squares, s.squares, n * sizeof(double));
                const JudgeMode& m = s.mode[i];
                for (std::size_t j = 0; j < n; ++j)
                    s.expected[j] = m.centre[j] + (s.z[j] - s.e[n + j]) * m.scale[j];
                std::swap(s.best_leans, s.new_leans);
            };
            take(before, judge_mode(s, s.mode[before], double(known), means));
            if (!(best <= s.constants.keep))
                for (std::size_t i = 0; i < s.modes; ++i) {
                    if (i == before) continue;
                    const double score = judge_mode(s, s.mode[i], double(known), means);
                    if (score < best) take(i, score);
                }
            if (s.ordered) {
                std::memcpy(s.means, best_means, sizeof best_means);
                std::memcpy(s.leans, s.best_leans, 2 * n * sizeof(double));
            }
        }
        if (known < n) {
            const JudgeMode& m = s.mode[s.current];
            bool old = false;
            for (std::size_t j = 0; j < n; ++j)
                old |= s.present[j] == 0.0 && s.age[j] > s.patience[j] && m.scale[j] > 0.0;
            if (old) {
                judge_errors(s, m);
                const double most = s.constants.filled;
                for (std::size_t j = 0; j < n; ++j) {
                    if (s.present[j] != 0.0 || !(s.age[j] > s.patience[j]) || !(m.scale[j] > 0.0))
                        continue;
                    double made = s.z[j] - s.e[n + j];
                    made = made > most ? most : made < -most ? -most : made;
                    s.held[j] = m.centre[j] + made * m.scale[j];
                }
            }
        }
        call.score[t] = best;
        call.mode[t] = std::int64_t(s.current);
        std::memcpy(call.shares + t * n, s.best_squares, n * sizeof(double));
        std::memcpy(call.expected + t * n, s.expected, n * sizeof(double));
        std::memcpy(call.held + t * n, s.held, n * sizeof(double));
        if (s.width > 1) {
            std::memmove(s.past + n, s.past, (s.width - 2) * n * sizeof(double));
            std::memcpy(s.past, s.held, n * sizeof(double));
        }
    }
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

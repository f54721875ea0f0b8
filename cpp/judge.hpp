// Rows in, scores out: what a monitor does with each row. judge.py and mode.py have the definition.

#pragma once

#include <limits>

#include "mode.hpp"

namespace onlad {

struct JudgeState {
    const Layer* layer;
    bool ordered;
    ModeData* const* mode;
    std::size_t modes;
    double *held, *age, *patience;  // (n)
    double *means, *leans;          // (statistics), (2, s)
    std::size_t current;            // mode of the last row
    std::size_t run;                // rows that the window of the next one may hold
    std::size_t first_modes;  // those of the start, between which a machine changes at any row
};

struct JudgeWorkspace {
    double *present, *squares;       // (s)
    double *new_leans, *best_leans;  // (2, s)
};

struct JudgeRows {
    const double* X;  // (count, n), NaN where a value is missing
    std::size_t count;
    double* held;           // (count, n), with the width - 1 rows before the first before it
    std::uint8_t* present;  // (count, s)
    double* score;
    std::int64_t *mode, *run;
    double* shares;    // (count, n)
    double* expected;  // (n) of each row, `stride` further each
    std::size_t stride;
};

// What the arithmetic offers to a monitor.
struct MonitorOperations {
    // e (2, count, s) <- the errors of both instances
    void (*errors)(const Layer&, const ModeData&, const Windows&, const ModeWorkspace&, double* e);
    // learn windows after the past was multiplied by `forgotten`; e as above, before it
    void (*learn)(const Layer&, ModeData&, const Windows&, double forgotten, const ModeWorkspace&,
                  double* e);
    void (*solve)(const Layer&, ModeData&, const ModeWorkspace&);  // beta from the sums
    void (*take)(const Layer&, ModeData&, const double* e, const Windows&);
    void (*invert)(const Layer&, ModeData&);  // one over the usual squares
    void (*wake)(const Layer&, ModeData&, const double* x);
    void (*judge)(JudgeState&, const JudgeRows&, const ModeWorkspace&, const JudgeWorkspace&);
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// Of a row in one mode: with running means and leans, and of the row by itself.
struct Scores {
    double whole, alone;
};

// The scores of errors for one mode, running means and leans after it, and squares by feature.
// Leans of errors of another mode do not count: `stays` is 0.
ONLAD_APART Scores judge_errors(const JudgeState& s, const ModeData& m, const double* e,
                                double known, double stays, double* means,
                                const JudgeWorkspace& scratch) {
    const Layer& l = *s.layer;
    const Levels levels(m);
    const double smoothing = l.c->mode_SMOOTHING, leaning_rate = l.c->mode_LEANING,
                 most = l.c->mode_WINSOR;
    double found[statistics] = {}, leaning[statistics] = {};
    for (std::size_t k = 0; k < 2; ++k) {
        double sums[line] = {}, tops[line] = {}, lean_sums[line] = {}, lean_tops[line] = {};
        for (std::size_t c = 0; c < l.s; c += line) {
            const std::size_t first = k * l.s + c;
            const double *error = e + first, *inverse = m.inverse + first;
            const double *lean = s.leans + first, *lean_inverse = m.lean_inverse + first;
            double *squares = scratch.squares + c, *next = scratch.new_leans + first;
            const double* present = scratch.present + c;
            for (std::size_t i = 0; i < line; ++i) {
                const double one = error[i] * inverse[i] * present[i], square = one * one;
                squares[i] = k ? squares[i] + square : square;
                sums[i] += square;
                tops[i] = square > tops[i] ? square : tops[i];
                const double kept = one > most ? most : one < -most ? -most : one;
                const double before = stays * lean[i];
                next[i] = before + leaning_rate * (kept - before) * present[i];
                const double usual = next[i] * next[i] * lean_inverse[i];
                lean_sums[i] += usual;
                lean_tops[i] = usual > lean_tops[i] ? usual : lean_tops[i];
            }
        }
        for (std::size_t i = 0; i < line; ++i) {
            found[k] += sums[i];
            found[2 + k] = tops[i] > found[2 + k] ? tops[i] : found[2 + k];
            leaning[k] += lean_sums[i];
            leaning[2 + k] = lean_tops[i] > leaning[2 + k] ? lean_tops[i] : leaning[2 + k];
        }
        found[k] /= known;
        leaning[k] /= double(l.n);
    }
    double total = 0.0, alone = 0.0;
    for (std::size_t k = 0; k < statistics; ++k) {
        double standard = (found[k] - levels.median[k]) / levels.reach[k];
        alone += standard > 0.0 ? standard : 0.0;
        if (s.ordered) {
            const double kept = standard < 1.0 ? standard : 1.0;
            means[k] = s.means[k] + smoothing * (kept - s.means[k]);
            const double slow = (means[k] - levels.mean_median[k]) / levels.mean_reach[k];
            const double lean = (leaning[k] - levels.lean_median[k]) / levels.lean_reach[k];
            standard = slow > standard ? slow : standard;
            standard = lean > standard ? lean : standard;
        }
        total += standard > 0.0 ? standard : 0.0;
    }
    return {total / double(statistics), alone / double(statistics)};
}

// A feature that never moved gets its unit at its first move.
void wake(const Layer& l, ModeData& m, const double* x) {
    if (!m.still) return;
    m.still = false;
    for (std::size_t j = 0; j < l.n; ++j) {
        if (m.scale[j] > 0.0) continue;
        if (x[j] == x[j]) {
            if (m.centre[j] != m.centre[j]) m.centre[j] = x[j];
            const double moved = std::fabs(x[j] - m.centre[j]);
            const double still = l.c->mode_STILL * std::fabs(m.centre[j]) + l.c->mode_SMALLEST_UNIT;
            if (moved > still) m.scale[j] = moved;
        }
        m.still |= !(m.scale[j] > 0.0);
    }
}

// How far apart the rows of a window lie that may hold `run` rows before its own.
ONLAD_INLINE std::ptrdiff_t step(const Layer& l, std::size_t run) {
    return run + 1 < l.width ? 0 : -std::ptrdiff_t(l.n);
}

// What is missing for much longer than usual is estimated from the other features.
ONLAD_APART void fill(JudgeState& s, double* held, const ModeWorkspace& scratch,
                      const JudgeWorkspace& own) {
    const Layer& l = *s.layer;
    const ModeData& m = *s.mode[s.current];
    auto is_old = [&](std::size_t j) {
        return own.present[j] == 0.0 && s.age[j] > s.patience[j] && m.scale[j] > 0.0;
    };
    bool old = false;
    for (std::size_t j = 0; j < l.n; ++j) old |= is_old(j);
    if (!old) return;
    scaled(l, m, held, step(l, s.run), scratch.z, scratch.x);
    predict(l, m, 1, scratch, scratch.e, scratch.e + l.s);
    const double most = l.c->judge_FILLED;
    for (std::size_t j = 0; j < l.n; ++j) {
        if (!is_old(j)) continue;
        double made = scratch.x[j] - scratch.e[l.s + j];
        made = made > most ? most : made < -most ? -most : made;
        s.held[j] = held[j] = m.centre[j] + made * m.scale[j];
    }
}

void judge(JudgeState& s, const JudgeRows& call, const ModeWorkspace& scratch,
           const JudgeWorkspace& space) {
    const Layer& l = *s.layer;
    JudgeWorkspace own = space;
    const std::size_t n = l.n;
    for (std::size_t t = 0; t < call.count; ++t) {
        const double* x = call.X + t * n;
        double* held = call.held + t * n;
        std::uint8_t* present = call.present + t * l.s;
        std::size_t known = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const bool is = x[j] == x[j];
            known += is;
            present[j] = is;
            own.present[j] = is ? 1.0 : 0.0;
            s.age[j] = is ? 0.0 : s.age[j] + 1.0;
            held[j] = s.held[j] = is ? x[j] : s.held[j];
        }
        for (std::size_t i = 0; i < s.modes; ++i) wake(l, *s.mode[i], x);
        if (known < n) fill(s, held, scratch, own);
        double best = 0.0, least = 0.0, means[statistics], best_means[statistics];
        double *shares = call.shares + t * n, *expected = call.expected + t * call.stride;
        const std::size_t before = s.current;
        auto run_of = [&](std::size_t i) {
            const bool changes = i != before && i < s.first_modes && before < s.first_modes;
            return changes ? 0 : s.run;
        };
        if (known == 0) {
            std::memset(shares, 0, n * sizeof(double));
            for (std::size_t j = 0; j < n; ++j)
                expected[j] = std::numeric_limits<double>::quiet_NaN();
        } else {
            auto score = [&](std::size_t i) {
                const ModeData& m = *s.mode[i];
                scaled(l, m, held, step(l, run_of(i)), scratch.z, scratch.x);
                predict(l, m, 1, scratch, scratch.e, scratch.e + l.s);
                return judge_errors(s, m, scratch.e, double(known), i == before ? 1.0 : 0.0, means,
                                    own);
            };
            auto take = [&](std::size_t i, Scores found) {
                best = found.whole;
                least = found.alone;
                s.current = i;
                std::memcpy(best_means, means, sizeof means);
                std::memcpy(shares, own.squares, n * sizeof(double));
                const ModeData& m = *s.mode[i];
                for (std::size_t j = 0; j < n; ++j)
                    expected[j] = m.centre[j] + (scratch.x[j] - scratch.e[l.s + j]) * m.scale[j];
                double* const leans = own.best_leans;
                own.best_leans = own.new_leans;
                own.new_leans = leans;
            };
            take(before, score(before));
            if (!(best <= l.c->judge_KEEP))
                for (std::size_t i = 0; i < s.modes; ++i) {
                    if (i == before) continue;
                    const Scores found = score(i);
                    if (found.alone < least) take(i, found);
                }
            if (s.ordered) {
                std::memcpy(s.means, best_means, sizeof best_means);
                std::memcpy(s.leans, own.best_leans, 2 * l.s * sizeof(double));
            }
        }
        const std::size_t run = run_of(s.current);
        call.score[t] = best;
        call.mode[t] = std::int64_t(s.current);
        call.run[t] = std::int64_t(run);
        s.run = run + 1 < l.width ? run + 1 : l.width - 1;
    }
}

constexpr MonitorOperations monitor_operations = {errors, learn, solve, take, invert, wake, judge};

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

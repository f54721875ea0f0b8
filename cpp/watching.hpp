// A monitor after its start, row by row and tick by tick; watching.py has the definition.

#pragma once

#include "anchor.hpp"
#include "limit.hpp"

namespace onlad {

// What is said of rows, one entry for each.
struct Columns {
    double *score, *threshold, *p_value;
    bool *ready, *is_anomaly, *learned, *drift;
    std::int64_t* drifting;
    double* shares;  // (rows, n)
    double* around;  // (rows, 2 n + 1): expected, half widths of bands, unusual rows lately

    // The same from a later row on.
    Columns from(std::size_t row, std::size_t n) const {
        return {score + row,      threshold + row,
                p_value + row,    ready + row,
                is_anomaly + row, learned + row,
                drift + row,      drifting + row,
                shares + row * n, around + row * (2 * n + 1)};
    }
};

class Watching {
public:
    std::shared_ptr<const Layer> layer;
    const std::size_t tick_rows;
    bool ordered;
    std::vector<std::unique_ptr<Mode>> modes;
    std::vector<std::unique_ptr<Anchor>> anchors;
    Limit limit;
    std::size_t first_modes = 0;  // that are of the start; they come first
    std::int64_t begun = 0, explained = 0, foreign = 0, drifting = -1;
    std::unique_ptr<Mode> candidate;
    std::vector<double> quarantine;  // raw windows, (.., d)
    // Of the tick before and of this one.
    std::vector<double> kept;           // (width - 1 + 2 TICK, n)
    std::vector<std::uint8_t> present;  // (2 TICK, s)
    std::vector<double> score;
    std::vector<std::int64_t> mode, run;
    std::unique_ptr<bool[]> refused, open;
    std::size_t at = 0;  // rows of this tick
    // What changes with each row.
    std::vector<double> held, age, patience, leans;  // leans: (2, s)
    std::vector<double> counted;  // (2, n): of counters the last value, else NaN; rows since then
    double means[statistics] = {};
    std::size_t current = 0;

    Watching(std::shared_ptr<const Layer> shared, bool ordered)
        : layer(std::move(shared)),
          tick_rows(std::size_t(layer->c->watching_TICK)),
          ordered(ordered),
          limit(*layer->c),
          kept((layer->width - 1 + 2 * tick_rows) * layer->n),
          present(2 * tick_rows * layer->s),
          score(2 * tick_rows),
          mode(2 * tick_rows),
          run(2 * tick_rows),
          refused(new bool[2 * tick_rows]()),
          open(new bool[2 * tick_rows]()),
          held(layer->n),
          age(layer->n),
          patience(layer->n),
          leans(2 * layer->s),
          counted(2 * layer->n) {}

    double threshold() const { return now / doubt; }

    std::int64_t learned_rows() const {
        std::int64_t sum = 0;
        for (const auto& each : modes) sum += each->count;
        return sum;
    }

    bool counts() const {
        return std::any_of(counted.begin(), counted.begin() + std::ptrdiff_t(layer->n),
                           [](double last) { return last == last; });
    }

    // Modes have changed: settle what the rows of the next tick are judged by.
    void inform() {
        for (const auto& each : modes) ops.invert(*layer, *each);
        const Constants& c = *layer->c;
        const double learned = double(learned_rows());
        reach.clear();
        for (const auto& each : modes)
            for (std::size_t j = 0; j < layer->n; ++j)
                reach.push_back(each->band[j] * each->scale[j]);
        doubt = limit.doubt(learned);
        now = limit.value(learned);
        if (ordered && limit.shelved()) {
            const double top = *std::max_element(score.begin(), score.begin() + tick_begin());
            now = std::max(now, c.watching_SHELVED * top);
        }
        const double trust = ordered ? 1.0 + c.watching_YOUNG / learned : 1.0;
        gate = c.watching_REFUSED * std::max(1.0, limit.edge) * trust;
    }

    // Judge rows, and update the model at each tick.
    void watch(const double* X, std::size_t count, bool paused, const Columns& out,
               Workspace& scratch) {
        const std::size_t n = layer->n;
        for (std::size_t first = 0; first < count;) {
            const std::size_t some = std::min(count - first, tick_rows - at);
            const std::size_t begin = tick_rows + at;
            const std::size_t wide = 2 * n + 1;
            rows(X + first * n, some, paused, out.shares + first * n, out.around + first * wide,
                 scratch);
            for (std::size_t t = 0; t < some; ++t) {
                const double found = score[begin + t];
                const std::size_t i = first + t;
                out.ready[i] = true;
                out.score[i] = found / doubt;
                out.threshold[i] = limit_of(begin + t) / doubt;
                out.p_value[i] = limit.p_value(found);
                out.is_anomaly[i] = out.score[i] > out.threshold[i];
                out.learned[i] = !refused[begin + t] && !paused;
                out.drift[i] = false;
                out.drifting[i] = drifting;
                share_out(out.shares + i * n, n);
                double* around = out.around + i * wide;
                std::copy_n(reach.data() + std::size_t(mode[begin + t]) * n, n, around + n);
                around[2 * n] = 1.0;
                if (refused[begin + t] || out.is_anomaly[i]) {
                    const bool* last = refused.get() + begin + t + 1;
                    around[2 * n] = double(std::count(last - tick_rows, last, true));
                }
            }
            first += some;
            if (at == tick_rows) out.drift[first - 1] = tick(scratch);
        }
    }

private:
    const MonitorOperations& ops = *operations<double>().monitor;
    double now = 0.0, gate = 0.0, doubt = 1.0;
    std::vector<double> reach;  // (modes, n) half widths of the bands

    std::ptrdiff_t tick_begin() const { return std::ptrdiff_t(tick_rows); }

    // From which score a row of this tick is an anomaly.
    double limit_of(std::size_t row) const {
        const bool single = ordered && score[row - 1] <= now;
        return single ? layer->c->limit_SINGLE * now : now;
    }

    // Squares by feature become shares.
    static void share_out(double* shares, std::size_t n) {
        double total = 0.0;
        for (std::size_t j = 0; j < n; ++j) total += shares[j];
        if (total > 0.0)
            for (std::size_t j = 0; j < n; ++j) shares[j] /= total;
    }

    void rows(const double* X, std::size_t count, bool paused, double* shares, double* around,
              Workspace& scratch) {
        const Layer& l = *layer;
        const std::size_t begin = tick_rows + at;
        const bool counting = counts();
        if (counting) X = rates(X, count, scratch);
        scratch.views.clear();
        for (const auto& each : modes) scratch.views.push_back(each.get());
        JudgeState state{&l,           ordered,    scratch.views.data(), modes.size(),
                         held.data(),  age.data(), patience.data(),      means,
                         leans.data(), current,    next_run(),           first_modes};
        ops.judge(state,
                  {X, count, kept.data() + (begin + l.width - 1) * l.n,
                   present.data() + begin * l.s, score.data() + begin, mode.data() + begin,
                   run.data() + begin, shares, around, 2 * l.n + 1},
                  scratch, scratch);
        current = state.current;
        if (counting)
            for (std::size_t i = 0; i < count * l.n; ++i) {
                double& expected = around[i / l.n * (2 * l.n + 1) + i % l.n];
                expected = scratch.base[i] + scratch.gap[i] * expected;
            }
        for (std::size_t t = begin; t < begin + count; ++t) {
            refused[t] = score[t] > gate;
            open[t] = !paused;
        }
        at += count;
    }

    // Rows that the window of the next one may hold if the mode does not change.
    std::size_t next_run() const {
        return std::min(std::size_t(run[tick_rows + at - 1]) + 1, layer->width - 1);
    }

    // Rows with the rates of counters; counter.py has the definition.
    const double* rates(const double* X, std::size_t count, Workspace& scratch) {
        const std::size_t n = layer->n;
        scratch.rates.assign(X, X + count * n);
        scratch.base.assign(count * n, 0.0);
        scratch.gap.assign(count * n, 1.0);
        for (std::size_t i = 0; i < count * n; ++i) {
            double &last = counted[i % n], &since = counted[n + i % n], &value = scratch.rates[i];
            if (last != last) continue;
            scratch.base[i] = last;
            scratch.gap[i] = since += 1.0;
            if (value != value) continue;
            const double now = value;
            const bool reset =
                now < last && std::fabs(now) <= layer->c->counter_RESET * std::fabs(last);
            value = reset ? std::numeric_limits<double>::quiet_NaN() : (now - last) / since;
            last = now;
            since = 0.0;
        }
        return scratch.rates.data();
    }

    // Rows of the two ticks at hand, by their numbers.
    Windows windows(const std::vector<std::size_t>& rows, Workspace& scratch) const {
        const Layer& l = *layer;
        scratch.at.clear();
        scratch.known.clear();
        scratch.step.clear();
        for (const std::size_t i : rows) {
            const bool whole = std::size_t(run[i]) + 1 >= l.width;
            scratch.step.push_back(whole ? -std::ptrdiff_t(l.n) : 0);
            scratch.at.push_back(kept.data() + (i + l.width - 1) * l.n);
            scratch.known.push_back(present.data() + i * l.s);
        }
        return {scratch.at.data(), scratch.step.data(), scratch.known.data(), rows.size()};
    }

    bool tick(Workspace& scratch) {
        const std::size_t T = tick_rows;
        follow(scratch);
        if (ordered && limit.lasts()) follow_refused(scratch);
        bool confirmed = false;
        if (decide(scratch)) {
            learn(scratch);
            limit.take(scratch.scores.data(), scratch.scores.size(), gate);
            if (ordered) confirmed = seclude(scratch);
        }
        look_for_drift(scratch);
        if (confirmed) current = std::min(current, modes.size() - 1);
        std::copy(kept.begin() + std::ptrdiff_t(T * layer->n), kept.end(), kept.begin());
        std::copy(present.begin() + std::ptrdiff_t(T * layer->s), present.end(), present.begin());
        std::copy(score.begin() + tick_begin(), score.end(), score.begin());
        std::copy(mode.begin() + tick_begin(), mode.end(), mode.begin());
        std::copy(run.begin() + tick_begin(), run.end(), run.begin());
        for (std::size_t t = 0; t < T; ++t) {
            refused[t] = refused[T + t];
            open[t] = open[T + t];
            open[T + t] = false;
        }
        at = 0;
        inform();
        return confirmed;
    }

    // The limit follows the rows that were judged while not paused.
    void follow(Workspace& scratch) {
        scratch.scores.clear();
        bool unusual[most_rows];
        for (std::size_t t = tick_rows; t < 2 * tick_rows; ++t)
            if (open[t]) {
                unusual[scratch.scores.size()] = refused[t];
                scratch.scores.push_back(score[t] / limit_of(t));
            }
        limit.follow(scratch.scores.data(), unusual, scratch.scores.size());
    }

    // Which rows are learned, which are refused, and the scores of those that are normal. False:
    // there are none to decide.
    bool decide(Workspace& scratch) {
        const std::size_t T = tick_rows, first = ordered ? 0 : T, stop = first + T;  // no delay
        scratch.usual.clear();
        scratch.unusual.clear();
        scratch.scores.clear();
        bool any = false;
        for (std::size_t i = first; i < stop; ++i) {
            if (!open[i]) continue;
            any = true;
            bool spared = true;
            if (ordered) {
                const std::size_t end = std::min(i + T + 1, 2 * T);
                double sum = 0.0;
                for (std::size_t k = i; k < end; ++k) sum += refused[k];
                spared = sum / double(end - i) < layer->c->watching_SPARED;
            }
            if (spared) scratch.scores.push_back(score[i]);
            if (spared && !refused[i]) scratch.usual.push_back(i);
            if (!spared) scratch.unusual.push_back(i);
        }
        return any;
    }

    void learn(Workspace& scratch) {
        for (std::size_t i = 0; i < modes.size(); ++i) {
            scratch.own.clear();
            for (const std::size_t row : scratch.usual)
                if (mode[row] == std::int64_t(i)) scratch.own.push_back(row);
            if (!scratch.own.empty()) learn(*modes[i], windows(scratch.own, scratch), scratch);
        }
    }

    // Bands follow what is refused for long too, or a machine that changed has none.
    void follow_refused(Workspace& scratch) {
        for (std::size_t i = 0; i < modes.size(); ++i) {
            scratch.own.clear();
            for (std::size_t t = tick_rows; t < 2 * tick_rows; ++t)
                if (mode[t] == std::int64_t(i) && open[t] && refused[t]) scratch.own.push_back(t);
            if (scratch.own.empty()) continue;
            const Windows w = windows(scratch.own, scratch);
            ops.errors(*layer, *modes[i], w, scratch, scratch.e);
            widen(*layer, *modes[i], scratch.e + w.count * layer->s, w);
        }
    }

    void learn(Mode& m, const Windows& w, Workspace& scratch) {
        const double forgotten = std::pow(layer->c->mode_FORGETTING, 2.0 * double(w.count));
        ops.learn(*layer, m, w, forgotten, scratch, scratch.e);
        ops.take(*layer, m, scratch.e, w);
        widen(*layer, m, scratch.e + w.count * layer->s, w);
        m.count += std::int64_t(w.count);
    }

    // Anchors follow the rows of this tick, and new ones are settled.
    void look_for_drift(Workspace& scratch) {
        drifting = -1;
        if (!ordered) return;
        for (std::size_t i = 0; i < modes.size(); ++i) {
            if (!anchors[i]) {
                if (double(modes[i]->count) < layer->c->anchor_SETTLED) continue;
                ops.invert(*layer, *modes[i]);
                anchors[i] = std::make_unique<Anchor>(*layer, *modes[i]);
                continue;
            }
            scratch.own.clear();
            for (std::size_t t = tick_rows; t < 2 * tick_rows; ++t)
                if (mode[t] == std::int64_t(i) && open[t] && score[t] <= now)
                    scratch.own.push_back(t);
            if (scratch.own.empty()) continue;
            anchors[i]->follow(*layer, windows(scratch.own, scratch), scratch);
            if (drifting < 0) drifting = anchors[i]->drifting(*layer);
        }
    }

    // Refused rows go into quarantine, or old ones leave it; return whether a mode is new.
    bool seclude(Workspace& scratch) {
        const Layer& l = *layer;
        const Constants& c = *l.c;
        if (scratch.unusual.empty()) {
            const std::size_t gone =
                std::min(quarantine.size(), std::size_t(c.watching_EXPIRING) * l.d);
            quarantine.erase(quarantine.begin(), quarantine.begin() + std::ptrdiff_t(gone));
            return false;
        }
        const Windows w = windows(scratch.unusual, scratch);
        if (!candidate) {
            for (std::size_t r = 0; r < w.count; ++r)
                for (std::size_t lag = 0; lag < l.width; ++lag) {
                    const double* row = w.at[r] + std::ptrdiff_t(lag) * w.step[r];
                    quarantine.insert(quarantine.end(), row, row + l.n);
                }
            if (quarantine.size() >= std::size_t(c.watching_CANDIDATE) * l.d)
                make_candidate(scratch);
            return false;
        }
        explain(w, scratch);
        if (double(foreign) > c.watching_FOREIGN * (double(explained) + c.watching_CANDIDATE)) {
            candidate.reset();
            return false;
        }
        const double enough =
            std::min(std::max(c.watching_PATIENCE * double(learned_rows()), c.watching_SHORTEST),
                     c.watching_LONGEST);
        if (double(explained) < enough) return false;
        confirm();
        return true;
    }

    void make_candidate(Workspace& scratch) {
        const Layer& l = *layer;
        const std::size_t count = quarantine.size() / l.d;
        std::vector<std::uint8_t> known(count * l.s);
        std::vector<const double*> rows(count);
        std::vector<const std::uint8_t*> knowns(count);
        for (std::size_t r = 0; r < count; ++r) {
            rows[r] = quarantine.data() + r * l.d;
            knowns[r] = known.data() + r * l.s;
            for (std::size_t j = 0; j < l.n; ++j) known[r * l.s + j] = rows[r][j] == rows[r][j];
        }
        candidate = std::make_unique<Mode>(l);
        const std::vector<std::ptrdiff_t> step(count, std::ptrdiff_t(l.n));
        start(l, *candidate, {rows.data(), step.data(), knowns.data(), count}, scratch);
        quarantine.clear();
        quarantine.shrink_to_fit();
        explained = foreign = 0;
    }

    // The candidate learns refused rows that it explains.
    void explain(const Windows& w, Workspace& scratch) {
        const Layer& l = *layer;
        Mode& m = *candidate;
        for (std::size_t r = 0; r < w.count; ++r) ops.wake(l, m, w.at[r]);
        ops.invert(l, m);
        ops.errors(l, m, w, scratch, scratch.e);
        scratch.own.clear();
        const Levels levels(m);
        for (std::size_t r = 0; r < w.count; ++r) {
            double found[statistics], total = 0.0;
            statistics_of(l, m, scratch.e, r, w.count, w.present[r], found);
            for (std::size_t k = 0; k < statistics; ++k)
                total += std::max((found[k] - levels.median[k]) / levels.reach[k], 0.0);
            if (total / double(statistics) <= 1.0) scratch.own.push_back(scratch.unusual[r]);
        }
        explained += std::int64_t(scratch.own.size());
        foreign += std::int64_t(w.count - scratch.own.size());
        if (!scratch.own.empty()) learn(m, windows(scratch.own, scratch), scratch);
    }

    void confirm() {
        if (double(modes.size()) == layer->c->watching_MODES) {
            const auto fewer = [](const auto& a, const auto& b) { return a->count < b->count; };
            const auto least = std::min_element(modes.begin(), modes.end(), fewer) - modes.begin();
            modes.erase(modes.begin() + least);
            anchors.erase(anchors.begin() + least);
            first_modes -= std::size_t(least) < first_modes;
            for (std::int64_t& each : mode) each = each == least ? 0 : each - (each > least);
        }
        modes.push_back(std::move(candidate));
        anchors.push_back(nullptr);
    }
};

}  // namespace onlad

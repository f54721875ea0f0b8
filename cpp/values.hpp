// The values of a monitor that Python sees: states in, states out. One description of each state
// does both. The classes of Python are in mode.py, anchor.py, limit.py and watching.py.

#pragma once

#include <memory>
#include <vector>

#include "packed.hpp"
#include "python.hpp"

namespace onlad {

inline void pass(Values& v, const Layer& l, Mode& m) {
    v.pass("centre", m.centre, {l.n});
    v.pass("scale", m.scale, {l.n});
    v.pass("moment", m.moment, {l.units, l.n}, l.s);
    v.pass("usual", m.usual, {2, l.n}, l.s);
    v.pass("largest", m.largest, {2, l.n}, l.s);
    v.pass("leaning", m.leaning, {2, l.n}, l.s);
    v.pass("band", m.band, {l.n});
    v.pass("levels", m.levels, {6, statistics});
    v.pass("weight", m.weight);
    v.pass("count", m.count);
    if (l.projected)
        v.pass("linear_moment", m.linear_moment, {l.M, l.n}, l.s);
    else
        v.pass("linear_moment", m.moment, {0});
    const std::size_t half = l.units * (l.units + 1) / 2;
    std::vector<double> grams(l.groups * half), linear(l.M * (l.M + 1) / 2);
    const auto move = [](bool out, double& own, double& theirs) {
        if (out)
            theirs = own;
        else
            own = theirs;
    };
    const auto move_all = [&] {
        each_pair(l.units, lanes, [&](std::size_t p, std::size_t i, std::size_t j) {
            for (std::size_t k = 0; k < (v.writes ? l.groups : lanes); ++k)
                move(v.writes, m.gram[place(i, j, lanes, l.N) + k], grams[k % l.groups * half + p]);
        });
        each_pair(l.M, 1, [&](std::size_t p, std::size_t i, std::size_t j) {
            move(v.writes, m.linear_gram[place(i, j, 1, l.stride)], linear[p]);
        });
    };
    if (v.writes) move_all();
    v.pass("gram", grams.data(), {l.groups, half});
    v.pass("linear_gram", linear.data(), {linear.size()});
    if (!v.writes) move_all();
}

inline void pass(Values& v, const Layer& l, Anchor& a) {
    v.pass("beta", a.beta.data(), {l.M, l.n}, l.s);
    v.pass("rows", a.rows);
    const auto together = [&](const char* name, std::initializer_list<double*> parts) {
        std::vector<double> all;
        for (const double* part : parts) all.insert(all.end(), part, part + l.n);
        v.pass(name, all.data(), {parts.size(), l.n});
        const double* from = all.data();
        for (double* part : parts) std::copy_n(from, l.n, part), from += l.n;
    };
    together("unit", {a.centre.data(), a.scale.data(), a.deviation.data()});
    together("lean", {a.lean.data(), a.halves.data(), a.halves.data() + l.s});
}

inline void pass(Values& v, Limit& limit) {
    v.pass_all("recent", limit.recent);
    v.pass_all("fresh", limit.fresh);
    v.pass("factor", limit.factor);
    double episode[] = {limit.since, limit.rows, limit.peak, limit.alarms};
    v.pass("episode", episode, {4});
    limit.since = episode[0];
    limit.rows = episode[1];
    limit.peak = episode[2];
    limit.alarms = episode[3];
}

inline std::unique_ptr<Mode> mode_from(const Layer& l, nb::handle state, const Workspace& scratch) {
    auto m = std::make_unique<Mode>(l);
    Values v(state);
    pass(v, l, *m);
    const MonitorOperations& ops = *operations<double>().monitor;
    ops.solve(l, *m, scratch);
    ops.invert(l, *m);
    return m;
}

template <class... Parts>
nb::dict values_of(Parts&... parts) {
    Values v;
    pass(v, parts...);
    return v.found;
}

// All but modes, anchors and limit.
inline void pass(Values& v, const Layer& l, Watching& w) {
    const std::size_t T = w.tick_rows;
    v.pass("ordered", w.ordered);
    v.pass("begun", w.begun);
    v.pass("first_modes", w.first_modes);
    v.pass("explained", w.explained);
    v.pass("foreign", w.foreign);
    v.pass("drifting", w.drifting);
    v.pass("at", w.at);
    v.pass("current", w.current);
    v.pass("kept", w.kept.data(), {l.width - 1 + 2 * T, l.n});
    v.pass("score", w.score.data(), {2 * T});
    v.pass("mode", w.mode.data(), {2 * T});
    v.pass("run", w.run.data(), {2 * T});
    v.pass("refused", w.refused.get(), {2 * T});
    v.pass("open", w.open.get(), {2 * T});
    v.pass("held", w.held.data(), {l.n});
    v.pass("age", w.age.data(), {l.n});
    v.pass("patience", w.patience.data(), {l.n});
    v.pass("counted", w.counted.data(), {2, l.n});
    v.pass("means", w.means, {statistics});
    v.pass("leans", w.leans.data(), {2, l.n}, l.s);
    if (!v.writes) w.quarantine.resize(nb::len(v.part("quarantine")) * l.d);
    v.pass("quarantine", w.quarantine.data(), {w.quarantine.size() / l.d, l.d});
    std::unique_ptr<bool[]> present(new bool[2 * T * l.n]);
    const auto each = [&](auto work) {
        for (std::size_t r = 0; r < 2 * T; ++r)
            for (std::size_t j = 0; j < l.n; ++j)
                work(present[r * l.n + j], w.present[r * l.s + j]);
    };
    if (v.writes) each([](bool& to, std::uint8_t from) { to = from; });
    v.pass("present", present.get(), {2 * T, l.n});
    if (!v.writes) each([](bool from, std::uint8_t& to) { to = from; });
}

}  // namespace onlad

// The binding of started monitors, alone and many at once.
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <memory>

#include "own.hpp"
#include "severity.hpp"
#include "threads.hpp"

namespace onlad {

using namespace nb::literals;

namespace {

template <class Work>
void awake(OwnWatching& monitor, std::size_t, Work work) {
    work(monitor);
}
template <class Work>
void awake(OwnPacked& monitor, std::size_t rows, Work work) {
    monitor.watch(rows, work);
}

// Rows of many monitors, each of which is there once: monitor k has rows first_row[k] to
// first_row[k + 1], and its numbers begin at first_value[k].
template <class Monitor>
struct Crowd {
    std::vector<Monitor*> monitors;
    const std::int64_t *first_row, *first_value;

    Crowd(nb::list given, const std::int64_t* rows, const std::int64_t* values,
          std::size_t all_rows, std::size_t all_values)
        : monitors(nb::len(given)), first_row(rows), first_value(values) {
        const std::size_t count = monitors.size();
        require(first_row[0] == 0 && first_value[0] == 0 &&
                first_row[count] == std::int64_t(all_rows) &&
                first_value[count] == std::int64_t(all_values));
        for (std::size_t k = 0; k < count; ++k) {
            monitors[k] = nb::cast<Monitor*>(given[k]);
            const std::int64_t own = first_row[k + 1] - first_row[k];
            require(monitors[k] && own >= 0 &&
                    first_value[k + 1] - first_value[k] ==
                        own * std::int64_t(monitors[k]->layer->n));
        }
    }

    // Threads share the monitors out: work(thread, monitor k, its scratch).
    template <class Work>
    void each(std::size_t threads, Work work) const {
        const std::size_t count = monitors.size();
        const std::size_t share = std::max<std::size_t>(count / (threads * 32), 1);
        std::atomic<std::size_t> next{0};
        std::atomic<bool> memory{true};
        nb::gil_scoped_release unlocked;
        beside(threads, [&](std::size_t thread) {
            try {
                std::unique_ptr<Borrowed> scratch;
                const OwnLayer* layer = nullptr;
                for (std::size_t first; (first = next.fetch_add(share)) < count;)
                    for (std::size_t k = first; k < std::min(first + share, count); ++k) {
                        OwnLayer& own = *monitors[k]->own;
                        if (layer != &own) {  // most monitors of a fleet are alike
                            layer = &own;
                            scratch = std::make_unique<Borrowed>(own);
                        }
                        work(thread, k, **scratch);
                    }
            } catch (const std::bad_alloc&) {  // a thread must not throw
                memory = false;
            }
        });
        if (!memory) throw std::bad_alloc();
    }
};

// Verdicts with all that there is to say of each row.
void watch_all(nb::list monitors, In<std::int64_t, 1> first_row, In<double, 2> X,
               In<bool, 1> paused, nb::handle verdicts, std::size_t threads) {
    const std::size_t rows = X.shape(0), n = X.shape(1), count = nb::len(monitors);
    require(first_row.shape(0) == count + 1 && paused.shape(0) == count);
    const Columns out = columns(verdicts, 0, rows, n);
    std::vector<std::int64_t> first_value(first_row.data(), first_row.data() + count + 1);
    for (std::int64_t& each : first_value) each *= std::int64_t(n);
    const Crowd<OwnWatching> crowd(monitors, first_row.data(), first_value.data(), rows, rows * n);
    threads = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(count, 1));
    crowd.each(threads, [&](std::size_t, std::size_t k, Workspace& scratch) {
        const std::size_t own = std::size_t(crowd.first_row[k]);
        crowd.monitors[k]->watch(X.data() + own * n, std::size_t(crowd.first_row[k + 1]) - own,
                                 paused.data()[k], out.from(own, n), scratch);
    });
}

// Rows about which more is said than fits into narrow columns.
struct Details {
    std::vector<std::int64_t> rows;
    std::vector<double> wide;  // (rows, 3, widest): shares, expected, half widths of bands
    std::vector<double> tick;  // what is said of the rows of a tick, before it is known which
};

enum class Detailed { none, alarms, all };

// Narrow columns, and of some rows the rest: their numbers and (rows, 3, widest), in their order.
template <class Monitor>
nb::tuple watch_some(nb::list monitors, In<std::int64_t, 1> first_row,
                     In<std::int64_t, 1> first_value, In<double, 1> X, In<bool, 1> paused,
                     nb::handle verdicts, int detailed, std::size_t widest, std::size_t threads) {
    const std::size_t rows = nb::len(verdicts), count = nb::len(monitors);
    require(first_row.shape(0) == count + 1 && first_value.shape(0) == count + 1);
    require(paused.shape(0) == count);
    const Crowd<Monitor> crowd(monitors, first_row.data(), first_value.data(), rows, X.shape(0));
    const Columns out = narrow_columns(verdicts, rows);
    double *severity = nullptr, *unusual = nullptr;
    column(verdicts, "severity", severity, rows, 1);
    column(verdicts, "unusual", unusual, rows, 1);
    for (const Monitor* each : crowd.monitors) require(each->layer->n <= widest);
    threads = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(nb::len(monitors), 1));
    std::vector<Details> found(threads);
    const Detailed which = Detailed(detailed);
    const auto judge = [&](std::size_t thread, std::size_t k, Watching& one, Workspace& scratch) {
        const std::size_t n = one.layer->n, around = 2 * n + 1, T = one.tick_rows;
        Details& details = found[thread];
        details.tick.resize(T * (n + around));
        double *shares = details.tick.data(), *rest = shares + T * n;
        const std::size_t end = std::size_t(crowd.first_row[k + 1]);
        const double* x = X.data() + crowd.first_value[k];
        for (std::size_t r = std::size_t(crowd.first_row[k]); r < end;) {
            const std::size_t count = std::min(end - r, T);
            one.watch(x, count, paused.data()[k],
                      {out.score + r, out.threshold + r, out.p_value + r, out.ready + r,
                       out.is_anomaly + r, out.learned + r, out.drift + r, out.drifting + r, shares,
                       rest},
                      scratch);
            for (std::size_t t = 0; t < count; ++t) {
                const double lately = rest[t * around + 2 * n];
                unusual[r + t] = lately;
                severity[r + t] =
                    severity_of(out.score[r + t] / out.threshold[r + t], out.p_value[r + t], lately,
                                one.limit.rate, *one.layer->c);
                const bool told = which == Detailed::alarms && out.is_anomaly[r + t];
                if (!told && which != Detailed::all) continue;
                details.rows.push_back(std::int64_t(r + t));
                for (const double* part :
                     {shares + t * n, rest + t * around, rest + t * around + n}) {
                    details.wide.insert(details.wide.end(), part, part + n);
                    details.wide.insert(details.wide.end(), widest - n,
                                        std::numeric_limits<double>::quiet_NaN());
                }
            }
            x += count * n;
            r += count;
        }
    };
    crowd.each(threads, [&](std::size_t thread, std::size_t k, Workspace& scratch) {
        const std::size_t own = std::size_t(crowd.first_row[k + 1] - crowd.first_row[k]);
        awake(*crowd.monitors[k], own, [&](Watching& one) { judge(thread, k, one, scratch); });
    });
    std::vector<std::pair<std::int64_t, const double*>> order;
    for (const Details& part : found)
        for (std::size_t i = 0; i < part.rows.size(); ++i)
            order.emplace_back(part.rows[i], part.wide.data() + 3 * widest * i);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> numbers;
    std::vector<double> wide;
    numbers.reserve(order.size());
    wide.reserve(3 * widest * order.size());
    for (const auto& [row, part] : order) {
        numbers.push_back(row);
        wide.insert(wide.end(), part, part + 3 * widest);
    }
    return nb::make_tuple(array(numbers.data(), {numbers.size()}, 0),
                          array(wide.data(), {numbers.size(), 3, widest}, widest));
}

nb::tuple watch_fleet(nb::list monitors, In<std::int64_t, 1> first_row,
                      In<std::int64_t, 1> first_value, In<double, 1> X, In<bool, 1> paused,
                      nb::handle verdicts, int detailed, std::size_t widest, std::size_t threads) {
    const bool packed = nb::len(monitors) > 0 && nb::isinstance<OwnPacked>(monitors[0]);
    return (packed ? watch_some<OwnPacked>
                   : watch_some<OwnWatching>)(monitors, first_row, first_value, X, paused, verdicts,
                                              detailed, widest, threads);
}

// Severities of rows; `constants` is severity.py.
void severities(In<double, 1> ratio, In<double, 1> p_value, In<double, 1> unusual,
                In<double, 1> rate, nb::handle constants, Out<double, 1> out) {
    const std::size_t rows = out.shape(0);
    require(ratio.shape(0) == rows && p_value.shape(0) == rows && unusual.shape(0) == rows &&
            rate.shape(0) == rows);
    const auto number = [&](const char* name) { return nb::cast<double>(constants.attr(name)); };
    Constants c{};
    c.severity_POINTS = number("POINTS");
    c.severity_LATELY = number("LATELY");
    c.severity_HIGHEST = number("HIGHEST");
    for (std::size_t i = 0; i < rows; ++i)
        out.data()[i] =
            severity_of(ratio.data()[i], p_value.data()[i], unusual.data()[i], rate.data()[i], c);
}

}  // namespace

void bind_watching(nb::module_& module) {
    nb::class_<OwnLayer>(module, "Layer")
        .def(nb::init<std::size_t, std::size_t, In<double, 2>, In<double, 1>, std::size_t,
                      In<double, 2>, nb::dict>(),
             nb::kw_only(), "features"_a, "width"_a, "alpha"_a, "b"_a, "groups"_a, "projection"_a,
             "constants"_a);
    nb::class_<OwnWatching>(module, "Watching")
        .def(nb::init<std::shared_ptr<OwnLayer>, double, nb::handle, nb::tuple, nb::object>(),
             nb::kw_only(), "layer"_a, "rate"_a, "state"_a, "names"_a, "verdict"_a)
        .def("values", &OwnWatching::values)
        .def("allow", &OwnWatching::allow)
        .def("observe", &OwnWatching::observe)
        .def("observe_row", &OwnWatching::observe_row)
        .def("watch", &OwnWatching::watch_rows, "X"_a.noconvert(), nb::kw_only(), "paused"_a,
             "verdicts"_a, "first"_a)
        .def_ro("ordered", &OwnWatching::ordered)
        .def_prop_ro("rate", [](const OwnWatching& own) { return own.limit.rate; })
        .def_prop_ro("threshold", &OwnWatching::threshold)
        .def_prop_ro("learned_rows", &OwnWatching::learned_rows);
    module.def("watch_all", &watch_all, "monitors"_a, nb::kw_only(), "first_row"_a,
               "X"_a.noconvert(), "paused"_a, "verdicts"_a, "threads"_a);
    nb::class_<OwnPacked>(module, "Packed")
        .def(nb::init<OwnWatching&>())
        .def("watching", &OwnPacked::unpacked_as, nb::rv_policy::take_ownership)
        .def_prop_ro("nbytes", &OwnPacked::nbytes);
    module.def("watch_fleet", &watch_fleet, "monitors"_a, nb::kw_only(), "first_row"_a,
               "first_value"_a, "X"_a.noconvert(), "paused"_a, "verdicts"_a, "detailed"_a,
               "widest"_a, "threads"_a);
    module.def("severities", &severities, nb::kw_only(), "ratio"_a, "p_value"_a, "unusual"_a,
               "rate"_a, "constants"_a, "out"_a.noconvert());
}

}  // namespace onlad

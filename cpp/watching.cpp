// The binding of a started monitor: values in, verdicts out, values back.
#include "watching.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>

#include "dicts.hpp"
#include "packed.hpp"
#include "python.hpp"
#include "severity.hpp"
#include "threads.hpp"

namespace onlad {

using namespace nb::literals;

namespace {

// -- values of Python ------------------------------------------------------------------------

nb::object part(nb::handle values, const char* name) { return nb::getattr(values, name); }

template <class T>
T number(nb::handle values, const char* name) {
    return nb::cast<T>(part(values, name));
}

// Whether an array of Python has numbers of type T.
template <class T>
bool has(const Py_buffer& buffer) {
    const char* kinds = std::is_same_v<T, double>  ? "d"
                        : std::is_same_v<T, float> ? "f"
                        : std::is_same_v<T, bool>  ? "?"
                                                   : "lq";
    return std::strchr(kinds, buffer.format[0]) && buffer.itemsize == sizeof(T);
}

// Copy an array of Python, with `rows` rows, to memory whose rows are `stride` long.
template <class T>
void copy_in(nb::handle values, const char* name, T* to, std::size_t rows, std::size_t columns,
             std::size_t stride) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(part(values, name).ptr(), &buffer, PyBUF_FULL_RO) != 0)
        throw nb::python_error();
    const std::size_t count = rows * columns;
    const bool fits = has<T>(buffer) && std::size_t(buffer.len) == count * sizeof(T);
    const std::unique_ptr<T[]> from(new T[count]);
    const bool read = fits && PyBuffer_ToContiguous(from.get(), &buffer, buffer.len, 'C') == 0;
    PyBuffer_Release(&buffer);
    require(read);
    for (std::size_t r = 0; r < rows; ++r)
        std::copy_n(from.get() + r * columns, columns, to + r * stride);
}
template <class T>
void copy_in(nb::handle values, const char* name, T* to, std::size_t count) {
    copy_in(values, name, to, 1, count, count);
}

// An array of its own for Python, from memory whose rows are `stride` long.
template <class T>
nb::object array(const T* from, std::size_t stride, std::initializer_list<std::size_t> shape) {
    std::size_t columns = 1, rows = 1;
    for (const std::size_t size : shape) rows *= columns, columns = size;
    T* values = new T[rows * columns + 1];
    nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    for (std::size_t r = 0; r < rows; ++r)
        if (columns > 0) std::copy_n(from + r * stride, columns, values + r * columns);
    return nb::cast(nb::ndarray<nb::numpy, T>(values, shape.size(), shape.begin(), owner));
}
template <class T>
nb::object array(const T* from, std::size_t count) {
    return array(from, count, {count});
}

// -- layers ----------------------------------------------------------------------------------

struct OwnLayer : Layer {
    Constants constants;
    std::vector<double> memory;
    std::mutex lock;
    std::vector<std::unique_ptr<Workspace>> spare;  // memory that no thread uses now

    OwnLayer(std::size_t features, std::size_t rows, In<double, 2> tanh_alpha, In<double, 1> tanh_b,
             std::size_t tanh_groups, In<double, 2> linear, nb::dict values) {
        n = features;
        width = rows;
        groups = tanh_groups;
        projected = linear.shape(0) > 0;
        require(n > 0 && width > 0 && groups > 0 && groups <= lanes &&
                (lanes % groups == 0 || n < lanes) && tanh_b.shape(0) % groups == 0 &&
                tanh_alpha.shape(0) == n && tanh_alpha.shape(1) == tanh_b.shape(0) &&
                (!projected || linear.shape(0) == n * width));
        d = n * width;
        s = padded(n);
        units = tanh_b.shape(0) / groups;
        require(units % (line / lanes) == 0);
        N = units * lanes;
        M = (projected ? linear.shape(1) : d) + 1;
        stride = padded(M);
        z_stride = projected ? padded(d) : stride;
        const std::size_t columns = padded(M - 1);
        memory.resize((n + 1) * N + (projected ? d * columns : 0));
        double *next_alpha = memory.data(), *next_b = next_alpha + n * N, *next = next_b + N;
        const std::size_t all = groups * units;
        for (std::size_t i = 0; i < units; ++i)
            for (std::size_t k = 0; k < lanes; ++k) {
                const std::size_t from = k % groups * units + i, to = i * lanes + k;
                next_b[to] = tanh_b.data()[from];
                for (std::size_t j = 0; j < n; ++j)
                    next_alpha[j * N + to] = tanh_alpha.data()[j * all + from];
            }
        if (projected)
            for (std::size_t k = 0; k < d; ++k)
                std::copy(linear.data() + k * (M - 1), linear.data() + (k + 1) * (M - 1),
                          next + k * columns);
        alpha = next_alpha;
        b = next_b;
        projection = projected ? next : nullptr;
#define ONLAD_CONSTANT(module, NAME) \
    constants.module##_##NAME = nb::cast<double>(values[#module "." #NAME]);
        ONLAD_CONSTANTS(ONLAD_CONSTANT)
#undef ONLAD_CONSTANT
        c = &constants;
        require(constants.watching_TICK <= double(most_rows));
    }
};

// Scratch memory of a layer, for one thread at a time. It comes with the layer: a monitor of its
// own would have to keep one, which is larger than what it has learned.
class Borrowed {
    OwnLayer& layer;
    std::unique_ptr<Workspace> scratch;

public:
    explicit Borrowed(OwnLayer& from) : layer(from) {
        {
            const std::lock_guard<std::mutex> guard(layer.lock);
            if (!layer.spare.empty()) {
                scratch = std::move(layer.spare.back());
                layer.spare.pop_back();
            }
        }
        if (!scratch) scratch = std::make_unique<Workspace>(layer);
    }
    ~Borrowed() {
        const std::lock_guard<std::mutex> guard(layer.lock);
        layer.spare.push_back(std::move(scratch));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    Workspace& operator*() { return *scratch; }
};

// -- modes, anchors, limit -------------------------------------------------------------------

std::unique_ptr<Mode> mode_from(const Layer& l, nb::handle values, const Workspace& scratch) {
    auto m = std::make_unique<Mode>(l);
    copy_in(values, "centre", m->centre, l.n);
    copy_in(values, "scale", m->scale, l.n);
    copy_in(values, "moment", m->moment, l.units, l.n, l.s);
    copy_in(values, "usual", m->usual, 2, l.n, l.s);
    copy_in(values, "largest", m->largest, 2, l.n, l.s);
    copy_in(values, "leaning", m->leaning, 2, l.n, l.s);
    copy_in(values, "band", m->band, l.n);
    copy_in(values, "levels", m->levels, 6 * statistics);
    if (l.projected) copy_in(values, "linear_moment", m->linear_moment, l.M, l.n, l.s);
    m->weight = number<double>(values, "weight");
    m->count = number<std::int64_t>(values, "count");
    const std::size_t half = l.units * (l.units + 1) / 2;
    std::vector<double> grams(l.groups * half), linear(l.M * (l.M + 1) / 2);
    copy_in(values, "gram", grams.data(), grams.size());
    copy_in(values, "linear_gram", linear.data(), linear.size());
    each_pair(l.units, lanes, [&](std::size_t p, std::size_t i, std::size_t j) {
        for (std::size_t k = 0; k < lanes; ++k)
            m->gram[place(i, j, lanes, l.N) + k] = grams[k % l.groups * half + p];
    });
    each_pair(l.M, 1, [&](std::size_t p, std::size_t i, std::size_t j) {
        m->linear_gram[place(i, j, 1, l.stride)] = linear[p];
    });
    const MonitorOperations& ops = *operations<double>().monitor;
    ops.solve(l, *m, scratch);
    ops.invert(l, *m);
    return m;
}

nb::dict mode_values(const Layer& l, const Mode& m) {
    nb::dict values;
    values["centre"] = array(m.centre, l.n);
    values["scale"] = array(m.scale, l.n);
    const std::size_t half = l.units * (l.units + 1) / 2;
    std::vector<double> grams(l.groups * half), linear(l.M * (l.M + 1) / 2);
    each_pair(l.units, lanes, [&](std::size_t p, std::size_t i, std::size_t j) {
        for (std::size_t k = 0; k < l.groups; ++k)
            grams[k * half + p] = m.gram[place(i, j, lanes, l.N) + k];
    });
    each_pair(l.M, 1, [&](std::size_t p, std::size_t i, std::size_t j) {
        linear[p] = m.linear_gram[place(i, j, 1, l.stride)];
    });
    values["gram"] = array(grams.data(), half, {l.groups, half});
    values["moment"] = array(m.moment, l.s, {l.units, l.n});
    values["linear_gram"] = array(linear.data(), linear.size());
    values["linear_moment"] =
        l.projected ? array(m.linear_moment, l.s, {l.M, l.n}) : array(m.moment, 0);
    values["usual"] = array(m.usual, l.s, {2, l.n});
    values["largest"] = array(m.largest, l.s, {2, l.n});
    values["weight"] = m.weight;
    values["count"] = m.count;
    values["leaning"] = array(m.leaning, l.s, {2, l.n});
    values["band"] = array(m.band, l.n);
    values["levels"] = array(m.levels, statistics, {6, statistics});
    return values;
}

std::unique_ptr<Anchor> anchor_from(const Layer& l, const Mode& m, nb::handle values) {
    auto a = std::make_unique<Anchor>(l, m);
    copy_in(values, "beta", a->beta.data(), l.M, l.n, l.s);
    std::vector<double> unit(3 * l.n), lean(3 * l.n);
    copy_in(values, "unit", unit.data(), unit.size());
    copy_in(values, "lean", lean.data(), lean.size());
    for (std::size_t j = 0; j < l.n; ++j) {
        a->centre[j] = unit[j];
        a->scale[j] = unit[l.n + j];
        a->deviation[j] = unit[2 * l.n + j];
        a->lean[j] = lean[j];
        a->halves[j] = lean[l.n + j];
        a->halves[l.s + j] = lean[2 * l.n + j];
    }
    a->rows = number<std::int64_t>(values, "rows");
    return a;
}

nb::dict anchor_values(const Layer& l, const Anchor& a) {
    nb::dict values;
    values["beta"] = array(a.beta.data(), l.s, {l.M, l.n});
    std::vector<double> unit, lean;
    for (const double* row : {a.centre.data(), a.scale.data(), a.deviation.data()})
        unit.insert(unit.end(), row, row + l.n);
    for (const double* row : {a.lean.data(), a.halves.data(), a.halves.data() + l.s})
        lean.insert(lean.end(), row, row + l.n);
    values["unit"] = array(unit.data(), l.n, {3, l.n});
    values["lean"] = array(lean.data(), l.n, {3, l.n});
    values["rows"] = a.rows;
    return values;
}

void limit_from(Limit& limit, double rate, nb::handle values) {
    for (auto [name, to] : {std::pair{"recent", &limit.recent}, std::pair{"fresh", &limit.fresh}}) {
        to->resize(nb::len(part(values, name)));
        copy_in(values, name, to->data(), to->size());
    }
    double episode[4];
    copy_in(values, "episode", episode, 4);
    limit.since = episode[0];
    limit.rows = episode[1];
    limit.peak = episode[2];
    limit.alarms = episode[3];
    limit.factor = number<double>(values, "factor");
    limit.rate = rate;
    require(!limit.recent.empty());
    limit.refresh();
}

nb::dict limit_values(const Limit& limit) {
    nb::dict values;
    values["recent"] = array(limit.recent.data(), limit.recent.size());
    values["fresh"] = array(limit.fresh.data(), limit.fresh.size());
    values["factor"] = limit.factor;
    const double episode[] = {limit.since, limit.rows, limit.peak, limit.alarms};
    values["episode"] = array(episode, 4);
    return values;
}

// to <- a column of verdicts, (rows, across) at least; they keep its memory.
template <class T>
void column(nb::handle verdicts, const char* name, T*& to, std::size_t rows, std::size_t across) {
    Py_buffer buffer;
    constexpr int kind = PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT;
    if (PyObject_GetBuffer(part(verdicts, name).ptr(), &buffer, kind) != 0)
        throw nb::python_error();
    const bool fits = has<T>(buffer) && buffer.ndim > 0 && std::size_t(buffer.shape[0]) >= rows &&
                      std::size_t(buffer.len) == buffer.shape[0] * across * sizeof(T);
    to = static_cast<T*>(buffer.buf);
    PyBuffer_Release(&buffer);
    require(fits);
}

// The columns with one entry per row that a monitor fills in.
Columns narrow_columns(nb::handle verdicts, std::size_t rows) {
    Columns out{};
    column(verdicts, "score", out.score, rows, 1);
    column(verdicts, "threshold", out.threshold, rows, 1);
    column(verdicts, "p_value", out.p_value, rows, 1);
    column(verdicts, "ready", out.ready, rows, 1);
    column(verdicts, "is_anomaly", out.is_anomaly, rows, 1);
    column(verdicts, "learned", out.learned, rows, 1);
    column(verdicts, "drift", out.drift, rows, 1);
    column(verdicts, "drifting", out.drifting, rows, 1);
    return out;
}

// All columns of `Verdicts` that a monitor fills in, from row `first` on.
Columns columns(nb::handle verdicts, std::size_t first, std::size_t rows, std::size_t n) {
    Columns out = narrow_columns(verdicts, rows);
    column(verdicts, "shares", out.shares, rows, n);
    column(verdicts, "around", out.around, rows, 2 * n + 1);
    return out.from(first, n);
}

struct Said {
    double score = 0.0, threshold = 0.0, p_value = 1.0;
    bool ready = false, is_anomaly = false, learned = false, drift = false;
    std::int64_t drifting = -1;
};

// Makes a `Verdict` without its constructor, which takes longer than the row itself. Its causes are
// left for when they are asked for.
class VerdictMaker {
    nb::object type;
    nb::object ready, score, threshold, p_value, is_anomaly, learned, drift, drifting, names,
        shares, around, rate;

    static void set(nb::object& verdict, const nb::object& name, nb::object value) {
        // As object.__setattr__ does it: a verdict is frozen for everybody else.
        if (PyObject_GenericSetAttr(verdict.ptr(), name.ptr(), value.ptr()) != 0)
            throw nb::python_error();
    }

public:
    explicit VerdictMaker(nb::object verdict) : type(verdict) {
        for (auto [name, to] : {std::pair{"ready", &ready},
                                {"score", &score},
                                {"threshold", &threshold},
                                {"p_value", &p_value},
                                {"is_anomaly", &is_anomaly},
                                {"learned", &learned},
                                {"drift", &drift},
                                {"drifting", &drifting},
                                {"_names", &names},
                                {"_shares", &shares},
                                {"_around", &around},
                                {"_rate", &rate}})
            *to = nb::steal(PyUnicode_InternFromString(name));
    }

    nb::object of(const Said& one, const nb::tuple& its_names,
                  const std::vector<double>& its_shares, const std::vector<double>& its_around,
                  double its_rate) const {
        auto* made = reinterpret_cast<PyTypeObject*>(type.ptr());
        nb::object verdict = nb::steal(made->tp_alloc(made, 0));
        if (!verdict.is_valid()) throw nb::python_error();
        set(verdict, ready, nb::bool_(true));
        set(verdict, score, nb::float_(one.score));
        set(verdict, threshold, nb::float_(one.threshold));
        set(verdict, p_value, nb::float_(one.p_value));
        set(verdict, is_anomaly, nb::bool_(one.is_anomaly));
        set(verdict, learned, nb::bool_(one.learned));
        set(verdict, drift, nb::bool_(one.drift));
        set(verdict, drifting,
            one.drifting < 0 ? nb::none() : nb::object(its_names[std::size_t(one.drifting)]));
        set(verdict, names, its_names);
        set(verdict, shares,
            nb::bytes(reinterpret_cast<const char*>(its_shares.data()),
                      its_shares.size() * sizeof(double)));
        set(verdict, around,
            nb::bytes(reinterpret_cast<const char*>(its_around.data()),
                      its_around.size() * sizeof(double)));
        set(verdict, rate, nb::float_(its_rate));
        return verdict;
    }
};

// -- the monitor -----------------------------------------------------------------------------

class OwnWatching : public Watching {
public:
    OwnWatching(std::shared_ptr<OwnLayer> own, double rate, nb::handle values, nb::tuple names,
                nb::object verdict)
        : Watching(own, number<bool>(values, "ordered")),
          names(names),
          own(own),
          verdict(verdict),
          row(own->n),
          shares(own->n),
          around(3 * own->n + 1) {
        const Layer& l = *layer;
        Borrowed borrowed(*own);
        const Workspace& scratch = *borrowed;
        const std::size_t T = tick_rows;
        require(number<std::size_t>(values, "width") == l.width && nb::len(names) == l.n);
        for (nb::handle each : part(values, "modes")) modes.push_back(mode_from(l, each, scratch));
        std::size_t i = 0;
        for (nb::handle each : part(values, "anchors")) {
            require(i < modes.size());
            anchors.push_back(each.is_none() ? nullptr : anchor_from(l, *modes[i], each));
            ++i;
        }
        limit_from(limit, rate, part(values, "limit"));
        const nb::object other = part(values, "candidate");
        if (!other.is_none()) candidate = mode_from(l, other, scratch);
        first_modes = number<std::size_t>(values, "first_modes");
        begun = number<std::int64_t>(values, "begun");
        explained = number<std::int64_t>(values, "explained");
        foreign = number<std::int64_t>(values, "foreign");
        drifting = number<std::int64_t>(values, "drifting");
        quarantine.resize(nb::len(part(values, "quarantine")) * l.d);
        copy_in(values, "quarantine", quarantine.data(), quarantine.size());
        copy_in(values, "kept", kept.data(), kept.size());
        std::unique_ptr<bool[]> flags(new bool[2 * T * l.n]);
        copy_in(values, "present", flags.get(), 2 * T * l.n);
        for (std::size_t r = 0; r < 2 * T; ++r)
            for (std::size_t j = 0; j < l.n; ++j) present[r * l.s + j] = flags[r * l.n + j];
        copy_in(values, "score", score.data(), 2 * T);
        copy_in(values, "mode", mode.data(), 2 * T);
        copy_in(values, "run", run.data(), 2 * T);
        copy_in(values, "refused", refused.get(), 2 * T);
        copy_in(values, "open", open.get(), 2 * T);
        at = number<std::size_t>(values, "at");
        copy_in(values, "held", held.data(), l.n);
        copy_in(values, "age", age.data(), l.n);
        copy_in(values, "patience", patience.data(), l.n);
        copy_in(values, "counted", counted.data(), counted.size());
        copy_in(values, "means", means, statistics);
        copy_in(values, "leans", leans.data(), 2, l.n, l.s);
        current = number<std::size_t>(values, "current");
        require(first_modes <= modes.size());
        require(!modes.empty() && anchors.size() == modes.size() && at < T &&
                current < modes.size() && drifting >= -1 && drifting < std::int64_t(l.n));
        for (const std::int64_t each : mode) require(each >= 0 && std::size_t(each) < modes.size());
        for (const std::int64_t each : run) require(each >= 0 && std::size_t(each) < l.width);
        inform();
    }

    OwnWatching(std::shared_ptr<OwnLayer> own, Watching&& state, nb::tuple names,
                nb::object verdict)
        : Watching(std::move(state)),
          names(names),
          own(own),
          verdict(verdict),
          row(own->n),
          shares(own->n),
          around(3 * own->n + 1) {}

    nb::dict values() const {
        const Layer& l = *layer;
        const std::size_t T = tick_rows;
        nb::dict values;
        values["width"] = l.width;
        values["ordered"] = ordered;
        values["begun"] = begun;
        values["first_modes"] = first_modes;
        nb::list own, theirs;
        for (const auto& each : modes) own.append(mode_values(l, *each));
        for (const auto& each : anchors) {
            if (each)
                theirs.append(anchor_values(l, *each));
            else
                theirs.append(nb::none());
        }
        values["modes"] = own;
        values["anchors"] = theirs;
        values["limit"] = limit_values(limit);
        if (candidate)
            values["candidate"] = mode_values(l, *candidate);
        else
            values["candidate"] = nb::none();
        values["explained"] = explained;
        values["foreign"] = foreign;
        values["quarantine"] = array(quarantine.data(), l.d, {quarantine.size() / l.d, l.d});
        values["drifting"] = drifting;
        values["kept"] = array(kept.data(), l.n, {l.width - 1 + 2 * T, l.n});
        std::unique_ptr<bool[]> flags(new bool[2 * T * l.n]);
        for (std::size_t r = 0; r < 2 * T; ++r)
            for (std::size_t j = 0; j < l.n; ++j) flags[r * l.n + j] = present[r * l.s + j];
        values["present"] = array(flags.get(), l.n, {2 * T, l.n});
        values["score"] = array(score.data(), 2 * T);
        values["mode"] = array(mode.data(), 2 * T);
        values["run"] = array(run.data(), 2 * T);
        values["refused"] = array(refused.get(), 2 * T);
        values["open"] = array(open.get(), 2 * T);
        values["at"] = at;
        values["held"] = array(held.data(), l.n);
        values["age"] = array(age.data(), l.n);
        values["patience"] = array(patience.data(), l.n);
        // The rows before the next one, the newest first.
        std::vector<double> past;
        for (std::size_t lag = 0; lag + 1 < l.width; ++lag) {
            const double* before = kept.data() + (T + at + l.width - 2 - lag) * l.n;
            past.insert(past.end(), before, before + l.n);
        }
        values["past"] = array(past.data(), l.n, {l.width - 1, l.n});
        values["counted"] = array(counted.data(), l.n, {2, l.n});
        values["means"] = array(means, statistics);
        values["leans"] = array(leans.data(), l.s, {2, l.n});
        values["current"] = current;
        return values;
    }

    void allow(double rate) {
        limit.rate = rate;
        limit.refresh();
        inform();
    }

    // The verdict on a dict of numbers, or None where the caller must look closer.
    nb::object observe(nb::handle x, bool paused, double largest) {
        if (!PyDict_CheckExact(x.ptr()) ||
            !read_dict(x.ptr(), names.ptr(), row.data(), row.size(), largest))
            return nb::none();
        return said(paused);
    }

    nb::object observe_row(In<double, 1> x, bool paused) {
        require(x.shape(0) == layer->n);
        std::copy(x.data(), x.data() + layer->n, row.data());
        return said(paused);
    }

    // The rows of X, into the verdicts from `first` on.
    void watch_rows(In<double, 2> X, bool paused, nb::handle verdicts, std::size_t first) {
        require(X.shape(1) == layer->n);
        const Columns out = columns(verdicts, first, first + X.shape(0), layer->n);
        nb::gil_scoped_release unlocked;
        Borrowed scratch(*own);
        watch(X.data(), X.shape(0), paused, out, *scratch);
    }

    nb::tuple names;
    std::shared_ptr<OwnLayer> own;

private:
    VerdictMaker verdict;
    std::vector<double> row, shares, around;

    nb::object said(bool paused) {
        Said one;
        Borrowed scratch(*own);
        watch(row.data(), 1, paused,
              {&one.score, &one.threshold, &one.p_value, &one.ready, &one.is_anomaly, &one.learned,
               &one.drift, &one.drifting, shares.data(), around.data() + row.size()},
              *scratch);
        std::copy(row.begin(), row.end(), around.begin());
        return verdict.of(one, names, shares, around, limit.rate);
    }
};

// A monitor of a bank that keeps its monitors packed.
class OwnPacked : public Packed {
public:
    explicit OwnPacked(OwnWatching& from) : Packed(from), own(from.own) {}

    OwnWatching* unpacked_as(nb::tuple names, nb::object verdict) {
        return new OwnWatching(own, unpacked(), names, verdict);
    }

    std::shared_ptr<OwnLayer> own;
};

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
    return nb::make_tuple(array(numbers.data(), numbers.size()),
                          array(wide.data(), widest, {numbers.size(), 3, widest}));
}

nb::tuple watch_fleet(nb::list monitors, In<std::int64_t, 1> first_row,
                      In<std::int64_t, 1> first_value, In<double, 1> X, In<bool, 1> paused,
                      nb::handle verdicts, int detailed, std::size_t widest, std::size_t threads) {
    const bool packed = nb::len(monitors) > 0 && nb::isinstance<OwnPacked>(monitors[0]);
    return (packed ? watch_some<OwnPacked>
                   : watch_some<OwnWatching>)(monitors, first_row, first_value, X, paused, verdicts,
                                              detailed, widest, threads);
}

// Severities of rows.
void severities(In<double, 1> ratio, In<double, 1> p_value, In<double, 1> unusual,
                In<double, 1> rate, double points, double tail, double lately, Out<double, 1> out) {
    const std::size_t rows = out.shape(0);
    require(ratio.shape(0) == rows && p_value.shape(0) == rows && unusual.shape(0) == rows &&
            rate.shape(0) == rows);
    Constants c{};
    c.severity_POINTS = points;
    c.severity_TAIL = tail;
    c.severity_LATELY = lately;
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
        .def(nb::init<std::shared_ptr<OwnLayer>, double, nb::handle, nb::tuple, nb::object>())
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
               "rate"_a, "points"_a, "tail"_a, "lately"_a, "out"_a.noconvert());
}

}  // namespace onlad

// A started monitor with what it shares and says in Python: its layer, scratch memory, verdicts.

#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "dicts.hpp"
#include "values.hpp"

namespace onlad {

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

// to <- a column of verdicts, (rows, across) at least; they keep its memory.
template <class T>
void column(nb::handle verdicts, const char* name, T*& to, std::size_t rows, std::size_t across) {
    Py_buffer buffer;
    constexpr int kind = PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT;
    if (PyObject_GetBuffer(nb::getattr(verdicts, name).ptr(), &buffer, kind) != 0)
        throw nb::python_error();
    const bool fits = has<T>(buffer) && buffer.ndim > 0 && std::size_t(buffer.shape[0]) >= rows &&
                      std::size_t(buffer.len) == buffer.shape[0] * across * sizeof(T);
    to = static_cast<T*>(buffer.buf);
    PyBuffer_Release(&buffer);
    require(fits);
}

// The columns with one entry per row that a monitor fills in.
inline Columns narrow_columns(nb::handle verdicts, std::size_t rows) {
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
inline Columns columns(nb::handle verdicts, std::size_t first, std::size_t rows, std::size_t n) {
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
    static constexpr const char* fields[] = {"ready",      "score",   "threshold", "p_value",
                                             "is_anomaly", "learned", "drift",     "drifting",
                                             "_names",     "_shares", "_around",   "_rate"};
    nb::object type;
    std::array<nb::object, std::size(fields)> names;

    static nb::object bytes(const std::vector<double>& numbers) {
        return nb::bytes(reinterpret_cast<const char*>(numbers.data()),
                         numbers.size() * sizeof(double));
    }

public:
    explicit VerdictMaker(nb::object verdict) : type(verdict) {
        for (std::size_t i = 0; i < names.size(); ++i)
            names[i] = nb::steal(PyUnicode_InternFromString(fields[i]));
    }

    nb::object of(const Said& one, const nb::tuple& its_names, const std::vector<double>& shares,
                  const std::vector<double>& around, double rate) const {
        auto* made = reinterpret_cast<PyTypeObject*>(type.ptr());
        nb::object verdict = nb::steal(made->tp_alloc(made, 0));
        if (!verdict.is_valid()) throw nb::python_error();
        const nb::object values[] = {
            nb::bool_(true),
            nb::float_(one.score),
            nb::float_(one.threshold),
            nb::float_(one.p_value),
            nb::bool_(one.is_anomaly),
            nb::bool_(one.learned),
            nb::bool_(one.drift),
            one.drifting < 0 ? nb::none() : nb::object(its_names[std::size_t(one.drifting)]),
            its_names,
            bytes(shares),
            bytes(around),
            nb::float_(rate)};
        static_assert(std::size(values) == std::size(fields));
        // As object.__setattr__ does it: a verdict is frozen for everybody else.
        for (std::size_t i = 0; i < names.size(); ++i)
            if (PyObject_GenericSetAttr(verdict.ptr(), names[i].ptr(), values[i].ptr()) != 0)
                throw nb::python_error();
        return verdict;
    }
};

// -- the monitor -----------------------------------------------------------------------------

class OwnWatching : public Watching {
public:
    OwnWatching(std::shared_ptr<OwnLayer> own, double rate, nb::handle values, nb::tuple names,
                nb::object verdict)
        : OwnWatching(own, Watching(own, nb::cast<bool>(nb::getattr(values, "ordered"))), names,
                      verdict) {
        const Layer& l = *layer;
        Borrowed borrowed(*own);
        Values v(values);
        require(nb::cast<std::size_t>(v.part("width")) == l.width && nb::len(names) == l.n);
        for (nb::handle each : v.part("modes")) modes.push_back(mode_from(l, each, *borrowed));
        for (nb::handle each : v.part("anchors")) {
            const std::size_t i = anchors.size();
            require(i < modes.size());
            anchors.push_back(each.is_none() ? nullptr : std::make_unique<Anchor>(l, *modes[i]));
            Values of_anchor(each);
            if (anchors[i]) pass(of_anchor, l, *anchors[i]);
        }
        Values of_limit(v.part("limit"));
        pass(of_limit, limit);
        limit.rate = rate;
        require(!limit.recent.empty());
        limit.refresh();
        const nb::object other = v.part("candidate");
        if (!other.is_none()) candidate = mode_from(l, other, *borrowed);
        pass(v, l, *this);
        require(first_modes <= modes.size());
        require(!modes.empty() && anchors.size() == modes.size() && at < tick_rows &&
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

    nb::dict values() {
        const Layer& l = *layer;
        Values v;
        pass(v, l, static_cast<Watching&>(*this));
        v.found["width"] = l.width;
        nb::list own, theirs;
        for (const auto& each : modes) own.append(values_of(l, *each));
        for (const auto& each : anchors)
            theirs.append(each ? nb::object(values_of(l, *each)) : nb::none());
        v.found["modes"] = own;
        v.found["anchors"] = theirs;
        v.found["limit"] = values_of(limit);
        v.found["candidate"] = candidate ? nb::object(values_of(l, *candidate)) : nb::none();
        // The rows before the next one, the newest first.
        std::vector<double> past;
        for (std::size_t lag = 0; lag + 1 < l.width; ++lag) {
            const double* before = kept.data() + (tick_rows + at + l.width - 2 - lag) * l.n;
            past.insert(past.end(), before, before + l.n);
        }
        v.found["past"] = array(past.data(), {l.width - 1, l.n}, l.n);
        return v.found;
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

}  // namespace onlad

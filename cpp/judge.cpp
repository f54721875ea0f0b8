// The binding of the judge: it owns copies of the modes and what moves on with each row.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "level.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace onlad {
namespace {

using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MatrixOut = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using VectorOut = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FlagsMatrix = nb::ndarray<bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool fits) {
    if (!fits) throw std::invalid_argument("the arrays do not fit the judge");
}

template <class Array>
std::vector<double> copied(const Array& array) {
    return {array.data(), array.data() + array.size()};
}

class Judge {
    struct Mode {
        std::vector<double> alpha, b, beta, linear_alpha, linear_beta, inverse, levels, centre,
            scale, leaning;
    };

public:
    Judge(std::size_t width, bool ordered, Vector constants, Vector held, Vector age,
          Vector patience, Matrix past, Vector means, Matrix leans, std::size_t mode)
        : held_(copied(held)),
          age_(copied(age)),
          patience_(copied(patience)),
          past_(copied(past)),
          means_(copied(means)),
          leans_(copied(leans)) {
        const std::size_t n = held.shape(0);
        require(constants.shape(0) == 6 && n > 0 && width > 0 && age.shape(0) == n &&
                patience.shape(0) == n && past.shape(0) == width - 1 && past.shape(1) == n &&
                means.shape(0) == statistics && leans.shape(0) == 2 && leans.shape(1) == n);
        const double* c = constants.data();
        s.n = n;
        s.width = width;
        s.ordered = ordered;
        s.constants = {c[0], c[1], c[2], c[3], c[4], c[5]};
        s.current = mode;
        room_.resize(n * width + 10 * n);
    }

    // All modes, in place of those before. What a mode woke up stays with the caller's arrays only
    // if the caller takes it from `unit` first.
    void clear() {
        modes_.clear();
        views_.clear();
    }

    void add(Vector centre, Vector scale, Matrix alpha, Vector b, Matrix beta, Matrix linear_alpha,
             Matrix linear_beta, Matrix inverse, Matrix levels, Matrix leaning) {
        const std::size_t n = s.n, d = n * s.width, N = b.shape(0), M = linear_beta.shape(0) - 1;
        auto is = [](const Matrix& a, std::size_t rows, std::size_t columns) {
            return a.shape(0) == rows && a.shape(1) == columns;
        };
        const bool projected = linear_alpha.size() > 0;
        require(centre.shape(0) == n && scale.shape(0) == n && is(alpha, n, N) &&
                beta.shape(0) > 0 && N % beta.shape(0) == 0 && beta.shape(1) == n &&
                linear_beta.shape(0) > 0 && linear_beta.shape(1) == n &&
                (projected ? is(linear_alpha, d, M) : M == d) && is(inverse, 2, n) &&
                is(levels, 6, statistics) && is(leaning, 2, n));
        modes_.push_back({copied(alpha), copied(b), copied(beta), copied(linear_alpha),
                          copied(linear_beta), copied(inverse), copied(levels), copied(centre),
                          copied(scale), copied(leaning)});
        for (double& each : modes_.back().inverse) each = std::sqrt(each);
    }

    // Where to write what is said of rows, one entry for each; `held` begins `width` - 1 rows
    // earlier.
    void attach(VectorOut score, Integers mode, Flags refused, FlagsMatrix present, MatrixOut held,
                MatrixOut expected) {
        const std::size_t n = s.n, room = score.shape(0);
        require(mode.shape(0) == room && refused.shape(0) == room && present.shape(0) == room &&
                present.shape(1) == n && held.shape(0) == room + s.width - 1 &&
                held.shape(1) == n && expected.shape(0) == room && expected.shape(1) == n);
        score_ = score;
        mode_ = mode;
        refused_ = refused;
        present_ = present;
        said_ = held;
        expected_ = expected;
    }

    // Judge rows, and write what is said of them from entry `at` on. Scores above `gate` are
    // refused.
    void rows(Matrix X, std::size_t at, double gate, MatrixOut shares) {
        const std::size_t n = s.n, count = X.shape(0);
        require(score_.is_valid() && X.shape(1) == n && at + count <= score_.shape(0) &&
                shares.shape(0) == count && shares.shape(1) == n && s.current < modes_.size());
        prepare();
        const JudgeRows call{X.data(),
                             count,
                             score_.data() + at,
                             mode_.data() + at,
                             shares.data(),
                             said_.data() + (at + s.width - 1) * n,
                             expected_.data() + at * n};
        if (count == 1) {  // letting go of the interpreter's lock costs more than a row
            operations<double>().judge(s, call);
        } else {
            nb::gil_scoped_release unlocked;
            operations<double>().judge(s, call);
        }
        for (std::size_t t = 0; t < count; ++t) refused_.data()[at + t] = call.score[t] > gate;
        for (std::size_t i = 0; i < count * n; ++i)
            present_.data()[at * n + i] = X.data()[i] == X.data()[i];
    }

    nb::tuple unit(std::size_t i) const {
        require(i < modes_.size());
        return nb::make_tuple(array(modes_[i].centre), array(modes_[i].scale));
    }
    nb::tuple moving() const {
        return nb::make_tuple(array(held_), array(age_), array(patience_), array(past_),
                              array(means_), array(leans_), s.current);
    }

private:
    static nb::object array(const std::vector<double>& values) {
        auto* copy = new std::vector<double>(values);
        nb::capsule owner(copy,
                          [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
        return nb::cast(
            nb::ndarray<nb::numpy, double, nb::ndim<1>>(copy->data(), {copy->size()}, owner));
    }

    void prepare() {
        if (!views_.empty()) return;
        const std::size_t n = s.n;
        std::size_t most = 0;
        for (Mode& m : modes_) {
            const std::size_t N = m.b.size(), M = m.linear_beta.size() / n - 1;
            most = std::max({most, N, M});
            const double* levels = m.levels.data();
            const std::size_t units = m.beta.size() / n;
            views_.push_back({N / units, units, M, m.alpha.data(), m.b.data(), m.beta.data(),
                              m.linear_alpha.empty() ? nullptr : m.linear_alpha.data(),
                              m.linear_beta.data(), m.inverse.data(), m.leaning.data(), levels,
                              levels + statistics, levels + 2 * statistics, levels + 3 * statistics,
                              levels + 4 * statistics, levels + 5 * statistics, m.centre.data(),
                              m.scale.data()});
        }
        hidden_.resize(most);
        double* room = room_.data();
        s.modes = views_.size();
        s.mode = views_.data();
        s.held = held_.data();
        s.age = age_.data();
        s.patience = patience_.data();
        s.past = past_.data();
        s.means = means_.data();
        s.leans = leans_.data();
        s.h = hidden_.data();
        s.z = room;
        s.e = room + n * s.width;
        s.present = s.e + 2 * n;
        s.squares = s.present + n;
        s.best_squares = s.squares + n;
        s.new_leans = s.best_squares + n;
        s.best_leans = s.new_leans + 2 * n;
        s.expected = s.best_leans + 2 * n;
    }

    JudgeState s{};
    VectorOut score_;
    Integers mode_;
    Flags refused_;
    FlagsMatrix present_;
    MatrixOut said_, expected_;
    std::vector<Mode> modes_;
    std::vector<JudgeMode> views_;
    std::vector<double> held_, age_, patience_, past_, means_, leans_, room_, hidden_;
};

// The share of sorted values that are at least as high as each score, with the score itself.
void p_values(Vector sorted, Vector score, VectorOut p) {
    require(p.shape(0) == score.shape(0));
    const double *begin = sorted.data(), *end = begin + sorted.shape(0);
    for (std::size_t i = 0; i < score.shape(0); ++i) {
        const auto above = end - std::lower_bound(begin, end, score.data()[i]);
        p.data()[i] = double(1 + above) / double(1 + (end - begin));
    }
}

}  // namespace

void bind_judge(nb::module_& module) {
    auto strict = [] { return nb::arg().noconvert(); };
    nb::class_<Judge>(module, "Judge")
        .def(nb::init<std::size_t, bool, Vector, Vector, Vector, Vector, Matrix, Vector, Matrix,
                      std::size_t>())
        .def("clear", &Judge::clear)
        .def("add", &Judge::add)
        .def("attach", &Judge::attach, strict(), strict(), strict(), strict(), strict(), strict())
        .def("rows", &Judge::rows, strict(), nb::arg(), nb::arg(), strict())
        .def("unit", &Judge::unit)
        .def("moving", &Judge::moving);
    module.def("p_values", &p_values, nb::arg(), nb::arg(), strict());
}

}  // namespace onlad

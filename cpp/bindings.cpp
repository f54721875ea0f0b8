// The binding: owns the memory of a model, checks shapes, lets go of the interpreter lock, calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "level.hpp"
#include "memory.hpp"
#include "python.hpp"

namespace onlad {

using namespace nb::literals;

#ifdef ONLAD_X86_LEVELS
#define ONLAD_DECLARE(level)                             \
    const Operations<float>& float_operations_##level(); \
    const Operations<double>& double_operations_##level();
ONLAD_DECLARE(v2)
ONLAD_DECLARE(v3)
ONLAD_DECLARE(v4)

// The highest level that this processor has; ONLAD_LEVEL lowers it, for tests and for comparing.
const char* chosen_level() {
    __builtin_cpu_init();
    const char* wanted = std::getenv("ONLAD_LEVEL");
    std::string ceiling = wanted ? wanted : "x86-64-v4";
    if (ceiling != "x86-64-v2" && ceiling != "x86-64-v3" && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "x86-64-v4";
    if (ceiling != "x86-64-v2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        return "x86-64-v3";
    return "x86-64-v2";
}
#else
const Operations<float>& float_operations_plain();
const Operations<double>& double_operations_plain();
const char* chosen_level() { return "plain"; }
#endif

const std::string level = chosen_level();

template <class T>
const Operations<T>& operations() {
    constexpr bool single = sizeof(T) == sizeof(float);
#ifdef ONLAD_X86_LEVELS
#define ONLAD_PICK(name)                  \
    if constexpr (single)                 \
        return float_operations_##name(); \
    else                                  \
        return double_operations_##name();
    if (level == "x86-64-v4") {
        ONLAD_PICK(v4)
    }
    if (level == "x86-64-v3") {
        ONLAD_PICK(v3)
    }
    ONLAD_PICK(v2)
#else
    if constexpr (single)
        return float_operations_plain();
    else
        return double_operations_plain();
#endif
}

template const Operations<float>& operations<float>();
template const Operations<double>& operations<double>();
void bind_bank(nb::module_& module);  // bank.cpp

// Beyond this a square would leave the range of the type.
template <class T>
constexpr double magnitude_limit = sizeof(T) == sizeof(float) ? 1e12 : 1e100;

template <class T>
class Kernel {
public:
    // The arrays of the state come with their type, to which they are converted.
    Kernel(nb::handle state, In<T, 2> alpha, In<T, 1> b, In<T, 2> beta, In<T, 2> S, int activation,
           int score, int loss, double trace_limit, nb::handle constants) {
        Values v(state);
        m.n = alpha.shape(0);
        m.N = alpha.shape(1);
        require(m.n > 0 && m.N > 0, "alpha is empty");
        require(b.shape(0) == m.N && beta.shape(0) == m.N && beta.shape(1) == m.n &&
                    S.shape(0) == m.N && S.shape(1) == m.N,
                "alpha, b, beta and S do not fit each other");
        m.stride = whole_lines<T>(m.N);
        m.padded_n = (m.n + row_group - 1) / row_group * row_group;
        m.padded_N = (m.N + row_group - 1) / row_group * row_group;
        memory = Memory<T>((2 * m.padded_n + m.padded_N + 4) * m.stride +
                           2 * whole_lines<T>(m.padded_n));
        m.alpha = memory.take(m.padded_n * m.stride);
        m.beta = memory.take(m.padded_n * m.stride);
        m.S = memory.take(m.padded_N * m.stride);
        for (T** row : {&m.b, &m.h, &m.f, &m.g}) *row = memory.take(m.stride);
        for (T** row : {&m.x, &m.e}) *row = memory.take(m.padded_n);
        for (std::size_t j = 0; j < m.n; ++j)
            for (std::size_t i = 0; i < m.N; ++i) {
                m.alpha[j * m.stride + i] = alpha.data()[j * m.N + i];
                m.beta[j * m.stride + i] = beta.data()[i * m.n + j];
            }
        for (std::size_t i = 0; i < m.N; ++i) {
            m.b[i] = b.data()[i];
            std::memcpy(m.S + i * m.stride, S.data() + i * m.N, m.N * sizeof(T));
        }
        m.activation = Activation(activation);
        m.score = Score(score);
        m.loss = Loss(loss);
        m.trace_limit = trace_limit;
        m.c = step_constants(constants);
        numbers(v);
        if (std::isnan(m.trace)) ops.measure(m);
    }

    // All of the state but the memory of the forgetting policy.
    nb::dict values() {
        Values v;
        numbers(v);
        v.found["alpha"] = array(m.alpha, {m.n, m.N}, m.stride);
        v.found["b"] = array(m.b, {m.N}, 0);
        v.found["S"] = array(m.S, {m.N, m.N}, m.stride);
        std::vector<T> beta(m.N * m.n);
        for (std::size_t j = 0; j < m.n; ++j)
            for (std::size_t i = 0; i < m.N; ++i) beta[i * m.n + j] = m.beta[j * m.stride + i];
        v.found["beta"] = array(beta.data(), {m.N, m.n}, m.n);
        return v.found;
    }

    // Nothing comes back for what is not a finite float vector of the model's length: the caller
    // then says what is wrong, or makes such a vector of it.
    std::optional<double> score(nb::handle x, double a) {
        if (!read(x)) return std::nullopt;
        last_score = ops.score(m, a);
        scored_with = a;
        return last_score;
    }

    // Streams are often scored and then learned with two calls. What the score left behind is
    // used again if it is for the very same numbers.
    std::optional<double> update(nb::handle x, double a) {
        if (!read(x)) return std::nullopt;
        bool again = same_as_before && scored_with == a;
        scored_with = 0.0;
        if (!again) return ops.update(m, a);
        ops.learn_scored(m, a);
        return last_score;
    }

    bool take_back(nb::handle x) {
        require(read(x), "x is not a finite float vector of the model's length");
        scored_with = 0.0;
        return ops.take_back(m);
    }

    std::optional<double> update_directional(nb::handle x, double phi) {
        if (!read(x)) return std::nullopt;
        scored_with = 0.0;
        return ops.update_directional(m, phi);
    }

    // A model of FP-ELM has its own two steps and takes no others (fpelm.hpp).
    std::optional<double> fp_elm_score(nb::handle x, double ridge) {
        if (!read(x)) return std::nullopt;
        if (!U) U = (factor = Memory<T>(m.N * m.stride)).take(m.N * m.stride);
        return ops.fp_elm_score(m, ridge, U);
    }

    void fp_elm_learn(double a) { ops.fp_elm_learn(m, a); }

    void score_many(In<T, 2> X, double a, Out<double, 1> loss, Out<double, 1> leverage) {
        run(X, loss, leverage, [&](std::size_t) { ops.score(m, a); });
    }

    void update_many(In<T, 2> X, In<double, 1> a, Out<double, 1> loss, Out<double, 1> leverage) {
        require(a.shape(0) == X.shape(0), "one forgetting factor per row is needed");
        run(X, loss, leverage, [&](std::size_t t) { ops.update(m, a.data()[t]); });
    }

    // XA is X alpha; beta, (N, n), is the caller's copy of the model's.
    void update_blocks(In<T, 2> X, In<T, 2> XA, In<double, 1> a, Out<T, 2> beta,
                       std::size_t block_rows, Out<double, 1> loss, Out<double, 1> leverage) {
        std::size_t rows = X.shape(0);
        require(X.shape(1) == m.n && XA.shape(0) == rows && XA.shape(1) == m.N &&
                    beta.shape(0) == m.N && beta.shape(1) == m.n && a.shape(0) == rows &&
                    loss.shape(0) == rows && leverage.shape(0) == rows,
                "X, XA, a, beta, loss and leverage do not fit the model");
        scored_with = 0.0;
        require(block_rows >= 1 && block_rows <= max_block_samples, "too many rows per block");
        std::size_t padded = (2 * block_rows + 3) / 4 * 4;
        std::size_t strip = strip_vectors * alignment / sizeof(T);
        Memory<T> scratch(padded * (2 * m.stride + strip) + whole_lines<T>(padded * padded) +
                          m.padded_N * strip);
        BlockMemory<T> memory;
        memory.H = scratch.take(padded * m.stride);
        memory.gain = scratch.take(padded * m.stride);
        memory.A = scratch.take(padded * padded);
        memory.E = scratch.take(padded * strip);
        memory.B = scratch.take(m.padded_N * strip);
        nb::gil_scoped_release unlocked;
        for (std::size_t first = 0; first < rows; first += block_rows) {
            std::size_t count = rows - first < block_rows ? rows - first : block_rows;
            ops.update_block(m, X.data() + first * m.n, XA.data() + first * m.N, count,
                             a.data() + first, beta.data(), memory, loss.data() + first,
                             leverage.data() + first);
        }
    }

    // x <- a float vector of the right length, finite and in range; returns whether it is one.
    bool read(nb::handle x) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(x.ptr(), &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            return false;
        }
        bool taken = buffer.ndim == 1 && std::size_t(buffer.shape[0]) == m.n && buffer.format &&
                     buffer.format[0] != 0 && buffer.format[1] == 0;
        if (taken && buffer.format[0] == 'd')
            taken = copy(static_cast<const double*>(buffer.buf));
        else if (taken && buffer.format[0] == 'f')
            taken = copy(static_cast<const float*>(buffer.buf));
        else
            taken = false;
        PyBuffer_Release(&buffer);
        if (!taken) scored_with = 0.0;
        return taken;
    }

    Model<T> m{};
    const Operations<T>& ops = operations<T>();

private:
    void numbers(Values& v) {
        v.pass("trace", m.trace);
        v.pass("trace_start", m.trace_start);
        v.pass("shrink", m.shrink);
        v.pass("weight", m.weight);
        v.pass("seen", m.seen);
        v.pass("skipped", m.skipped);
        v.pass("paused", m.paused);
    }

    template <class U>
    bool copy(const U* from) {
        bool fine = true, equal = true;
        for (std::size_t j = 0; j < m.n; ++j) {
            fine &= std::fabs(double(from[j])) <= magnitude_limit<T>;
            equal &= m.x[j] == T(from[j]);
            m.x[j] = T(from[j]);
        }
        same_as_before = equal;
        return fine;
    }

    template <class Step>
    void run(const In<T, 2>& X, Out<double, 1>& loss, Out<double, 1>& leverage, Step step) {
        std::size_t rows = X.shape(0);
        require(X.shape(1) == m.n && loss.shape(0) == rows && leverage.shape(0) == rows,
                "X, loss and leverage do not fit the model");
        scored_with = 0.0;
        nb::gil_scoped_release unlocked;
        for (std::size_t t = 0; t < rows; ++t) {
            std::memcpy(m.x, X.data() + t * m.n, m.n * sizeof(T));
            step(t);
            loss.data()[t] = m.last_loss;
            leverage.data()[t] = m.last_leverage;
        }
    }

    Memory<T> memory, factor;
    T* U = nullptr;                              // the Cholesky factor of FP-ELM
    double last_score = 0.0, scored_with = 0.0;  // 0 is no forgetting factor: nothing was scored
    bool same_as_before = false;                 // whether the last x is the one before
};

template <class T>
void bind(nb::module_& module, const char* name) {
    using K = Kernel<T>;
    // Rows of memory that Python may look at: data, rows, columns, and how far rows are apart.
    using View = std::tuple<T*, std::size_t, std::size_t, std::size_t>;
    auto view = [](auto pick) {
        return [pick](nb::handle self) {
            const auto [data, rows, columns, stride] = pick(nb::cast<K&>(self).m);
            const std::size_t shape[] = {rows, columns};
            const std::int64_t strides[] = {std::int64_t(stride), 1};
            return nb::cast(nb::ndarray<nb::numpy, T>(data, 2, shape, self, strides));
        };
    };
    nb::class_<K>(module, name)
        .def(nb::init<nb::handle, In<T, 2>, In<T, 1>, In<T, 2>, In<T, 2>, int, int, int, double,
                      nb::handle>(),
             "state"_a, nb::kw_only(), "alpha"_a, "b"_a, "beta"_a, "S"_a, "activation"_a, "score"_a,
             "loss"_a, "trace_limit"_a, "constants"_a)
        .def("values", &K::values)
        .def("score", &K::score, nb::arg().none(), nb::arg())
        .def("update", &K::update, nb::arg().none(), nb::arg())
        .def("take_back", &K::take_back)
        .def("update_directional", &K::update_directional, nb::arg().none(), nb::arg())
        .def("fp_elm_score", &K::fp_elm_score, nb::arg().none(), nb::arg())
        .def("fp_elm_learn", &K::fp_elm_learn)
        // noconvert: a converted output would be a copy, and the result would be lost.
        .def("score_many", &K::score_many, nb::kw_only(), "X"_a.noconvert(), "a"_a,
             "loss"_a.noconvert(), "leverage"_a.noconvert())
        .def("update_many", &K::update_many, nb::kw_only(), "X"_a.noconvert(), "a"_a.noconvert(),
             "loss"_a.noconvert(), "leverage"_a.noconvert())
        .def("update_blocks", &K::update_blocks, nb::kw_only(), "X"_a.noconvert(),
             "XA"_a.noconvert(), "a"_a.noconvert(), "beta"_a.noconvert(), "block_rows"_a,
             "loss"_a.noconvert(), "leverage"_a.noconvert())
        .def_prop_ro("alpha", view([](auto& m) { return View{m.alpha, m.n, m.N, m.stride}; }))
        .def_prop_ro("b", view([](auto& m) { return View{m.b, 1, m.N, m.stride}; }))
        .def_prop_ro("beta_t", view([](auto& m) { return View{m.beta, m.n, m.N, m.stride}; }))
        .def_prop_ro("S", view([](auto& m) { return View{m.S, m.N, m.N, m.stride}; }))
        .def_prop_ro("error", view([](auto& m) { return View{m.e, 1, m.n, m.n}; }))
        .def_prop_ro("leverage", [](K& k) { return k.m.last_leverage; })
        .def_prop_ro("trace", [](K& k) { return k.m.trace; })
        .def_prop_ro("trace_limit", [](K& k) { return k.m.trace_limit; })
        .def_prop_ro("shrink", [](K& k) { return k.m.shrink; })
        .def_prop_ro("seen", [](K& k) { return k.m.seen; })
        .def_prop_ro("skipped", [](K& k) { return k.m.skipped; })
        .def_prop_ro("paused", [](K& k) { return k.m.paused; });
}

void bind_csv(nb::module_& module);             // csv.cpp
void bind_dicts(nb::module_& module);           // dicts.cpp
void bind_portable(nb::module_& module);        // portable.cpp
void bind_portable_fixed(nb::module_& module);  // portable_fixed.cpp
void bind_watching(nb::module_& module);        // watching.cpp

}  // namespace onlad

NB_MODULE(_kernel, module) {
    // A monitor that a thread or a global still holds when Python ends is no leak of ours.
    nanobind::set_leak_warnings(false);
    module.attr("LEVEL") = onlad::level;
    module.attr("VERSION") = ONLAD_VERSION;
    module.attr("LINE") = onlad::alignment;
    module.attr("ROW_GROUP") = onlad::row_group;
    module.attr("BLOCK_ROWS") = onlad::bank_block;
    module.attr("LARGEST32") = onlad::magnitude_limit<float>;
    module.attr("LARGEST64") = onlad::magnitude_limit<double>;
    onlad::bind<float>(module, "Kernel32");
    onlad::bind<double>(module, "Kernel64");
    onlad::bind_bank(module);
    onlad::bind_csv(module);
    onlad::bind_dicts(module);
    onlad::bind_portable(module);
    onlad::bind_portable_fixed(module);
    onlad::bind_watching(module);
}

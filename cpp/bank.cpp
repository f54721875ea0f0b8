// A bank of models on the processor: shares them out among threads. Python owns the memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "level.hpp"
#include "threads.hpp"

namespace nb = nanobind;

namespace onlad {
namespace {

template <class T, std::size_t dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t columns = 5;  // of the numbers: trace, trace_start, shrink, weight, a

// Above which multiple of its start trace(P) is wound up: trace_limit of reference.py.
double wind_up(Activation activation, std::size_t N, double a) {
    const bool bends = activation == Activation::sigmoid || activation == Activation::tanh;
    return 1e4 / std::max(bends ? std::pow(a, 3.0 * double(N)) : 1.0, 1e-4);
}

// What a thread writes to, between two models.
template <class T>
class Scratch {
    struct Free {
        void operator()(T* p) const { ::operator delete(p, std::align_val_t(alignment)); }
    };
    std::unique_ptr<T, Free> memory;

public:
    Scratch(const Model<T>& shape, bool blocks) : m(shape) {
        constexpr std::size_t line = alignment / sizeof(T), strip = strip_vectors * line;
        auto padded = [](std::size_t count) { return (count + line - 1) / line * line; };
        const std::size_t rows = 2 * bank_block, x = padded(m.padded_n);
        const std::size_t sizes[] = {m.stride,
                                     m.stride,
                                     m.stride,
                                     x,
                                     x,
                                     x,
                                     m.N * m.n,
                                     bank_block * m.n,
                                     bank_block * m.N,
                                     rows * m.stride,
                                     rows * m.stride,
                                     rows * rows,
                                     rows * strip,
                                     m.padded_N * strip};
        T** const places[] = {&m.h,          &m.f,       &m.g,       &m.x,      &m.e,
                              &m.r,          &b.beta,    &b.X,       &b.XA,     &b.block.H,
                              &b.block.gain, &b.block.A, &b.block.E, &b.block.B};
        const std::size_t used = blocks ? std::size(sizes) : 6;
        std::size_t total = 0;
        for (std::size_t k = 0; k < used; ++k) total += padded(sizes[k]);
        memory.reset(
            static_cast<T*>(::operator new(total * sizeof(T), std::align_val_t(alignment))));
        std::memset(memory.get(), 0, total * sizeof(T));
        T* next = memory.get();
        for (std::size_t k = 0; k < used; ++k) *places[k] = next, next += padded(sizes[k]);
    }

    Model<T> m;
    BankMemory<T> b{};
};

// Threads look at all samples before any of them learns one.
template <class T>
class Look {
    static constexpr std::size_t share = 1 << 15;  // numbers that a thread takes at a time
    const T* X;
    const std::uint8_t* mask;
    std::size_t n, rows, at_once, shares;
    T largest;
    std::atomic<std::size_t> next{0}, done{0};
    std::atomic<bool> good{true};

    bool beyond(const T* values, std::size_t count) const {
        unsigned found = 0;  // not a bool: this can be vectorised
        for (std::size_t i = 0; i < count; ++i) found += !(std::fabs(values[i]) <= largest);
        return found != 0;
    }

public:
    Look(const T* X, const std::uint8_t* mask, std::size_t rows, std::size_t n, double largest)
        : X(X),
          mask(mask),
          n(n),
          rows(rows),
          at_once(std::max<std::size_t>(share / n, 1)),
          shares((rows + at_once - 1) / at_once),
          largest(T(largest)) {}

    // Whether all samples that are there are finite and no larger than that. Each thread takes a
    // part and then waits for the others, which are at their last one.
    bool all_good() {
        for (std::size_t k; (k = next.fetch_add(1)) < shares; ++done) {
            const std::size_t first = k * at_once, end = std::min(first + at_once, rows);
            if (!beyond(X + first * n, (end - first) * n)) continue;
            for (std::size_t t = first; t < end; ++t)
                if (mask[t] && beyond(X + t * n, n)) good = false;
        }
        while (done < shares) std::this_thread::yield();
        return good;
    }
};

void require(bool holds, const char* what) {
    if (!holds) throw nb::value_error(what);
}

// False: a number is not finite, or larger than `largest`, and no model has changed.
template <class T>
bool bank_update(Array<T, 2> alpha, Array<T, 1> b, Array<T, 3> beta, Array<T, 3> S,
                 Array<double, 2> numbers, Array<std::int64_t, 2> counts, Array<const T, 3> X,
                 Array<const std::uint8_t, 2> mask, Array<double, 2> losses,
                 Array<double, 2> leverages, std::size_t hidden, int activation, int loss,
                 bool learn, bool blocks, double largest, std::size_t threads) {
    const std::size_t models = X.shape(0), rows = X.shape(1);
    Model<T> m{};
    m.n = X.shape(2);
    m.N = hidden;
    m.stride = alpha.shape(1);
    m.padded_n = beta.shape(1);
    m.padded_N = S.shape(1);
    m.alpha = alpha.data();
    m.b = b.data();
    m.activation = Activation(activation);
    m.score = Score::reconstruction;
    m.loss = Loss(loss);
    auto is = [](const auto& array, std::size_t first, std::size_t second) {
        return array.shape(0) == first && array.shape(1) == second;
    };
    auto lies_well = [](const auto& array) {
        return reinterpret_cast<std::uintptr_t>(array.data()) % alignment == 0;
    };
    require(m.n > 0 && m.N > 0 && m.stride * sizeof(T) % alignment == 0 && m.stride >= m.N &&
                m.padded_n % group == 0 && m.padded_n >= m.n && m.padded_N % group == 0 &&
                m.padded_N >= m.N && lies_well(alpha) && lies_well(b) && lies_well(beta) &&
                lies_well(S),
            "the models are not padded to whole cache lines");
    require(alpha.shape(0) == m.n && b.shape(0) == m.stride && beta.shape(0) == models &&
                beta.shape(2) == m.stride && S.shape(0) == models && S.shape(2) == m.stride &&
                is(numbers, models, columns) && is(counts, models, 3) && is(mask, models, rows) &&
                is(losses, models, rows) && is(leverages, models, rows),
            "the arrays do not fit the models");

    threads = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(models, 1));
    // Models that a thread takes at a time: a small part, so that all threads end at about the same
    // time, but as many as that allows. Beyond its last one a core fetches ahead what another
    // writes.
    const std::size_t share = std::max<std::size_t>(models / (threads * 32), 1);
    const Operations<T>& ops = operations<T>();
    std::atomic<std::size_t> next{0};
    std::vector<Scratch<T>> scratch;  // all memory is taken before anything is learned
    scratch.reserve(threads);
    for (std::size_t k = 0; k < threads; ++k) scratch.emplace_back(m, blocks);
    Look<T> look(X.data(), mask.data(), models * rows, m.n, largest);
    nb::gil_scoped_release unlocked;
    beside(threads, [&](std::size_t k) {
        if (!look.all_good()) return;
        for (;;) {
            const std::size_t first = next.fetch_add(share);
            for (std::size_t i = first; i < first + share && i < models; ++i) {
                Model<T>& one = scratch[k].m;
                double* number = numbers.data() + i * columns;
                std::int64_t* count = counts.data() + i * 3;
                one.beta = beta.data() + i * m.padded_n * m.stride;
                one.S = S.data() + i * m.padded_N * m.stride;
                one.trace = number[0];
                one.trace_start = number[1];
                one.trace_limit = wind_up(m.activation, m.N, number[4]) * number[1];
                one.shrink = number[2];
                one.weight = number[3];
                one.seen = std::uint64_t(count[0]);
                one.skipped = std::uint64_t(count[1]);
                one.paused = std::uint64_t(count[2]);
                ops.bank_rows(
                    one,
                    {X.data() + i * rows * m.n, mask.data() + i * rows, rows, number[4], learn,
                     blocks, losses.data() + i * rows, leverages.data() + i * rows},
                    scratch[k].b);
                number[0] = one.trace;
                number[2] = one.shrink;
                number[3] = one.weight;
                count[0] = std::int64_t(one.seen);
                count[1] = std::int64_t(one.skipped);
                count[2] = std::int64_t(one.paused);
            }
            if (first + share >= models) return;
        }
    });
    return look.all_good();
}

template <class T>
void bind(nb::module_& module, const char* name) {
    auto whole = nb::arg().noconvert();  // a converted output would be a copy, and be lost
    module.def(name, &bank_update<T>, whole, whole, whole, whole, whole, whole, whole, whole, whole,
               whole, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace

void bind_bank(nb::module_& module) {
    bind<float>(module, "bank_update32");
    bind<double>(module, "bank_update64");
}

}  // namespace onlad

// A bank of models on the processor: shares them out among threads. Python owns the memory.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "level.hpp"
#include "memory.hpp"
#include "python.hpp"
#include "threads.hpp"

namespace onlad {

using namespace nb::literals;

namespace {

// A row of the array `numbers`; one of `counts` has Counts.
struct Row {
    Numbers learned;
    double a;
};

// Above which multiple of its start trace(P) is wound up: trace_limit of reference.py.
template <class T>
double wind_up(const Model<T>& m, double a) {
    const bool bends = m.activation == Activation::sigmoid || m.activation == Activation::tanh;
    return m.c.wound_up /
           std::max(bends ? std::pow(a, m.c.oldest * double(m.N)) : 1.0, m.c.least_growth);
}

// What a thread writes to, between two models.
template <class T>
class Scratch {
    Memory<T> memory;

public:
    Scratch(const Model<T>& shape, bool blocks) : m(shape) {
        constexpr std::size_t strip = strip_vectors * alignment / sizeof(T);
        const std::size_t rows = 2 * bank_block;
        std::vector<std::pair<T**, std::size_t>> parts = {{&m.h, m.stride},
                                                          {&m.f, m.stride},
                                                          {&m.g, m.stride},
                                                          {&m.x, m.padded_n},
                                                          {&m.e, m.padded_n}};
        if (blocks)
            parts.insert(parts.end(), {{&b.beta, m.N * m.n},
                                       {&b.X, bank_block * m.n},
                                       {&b.XA, bank_block * m.N},
                                       {&b.block.H, rows * m.stride},
                                       {&b.block.gain, rows * m.stride},
                                       {&b.block.A, rows * rows},
                                       {&b.block.E, rows * strip},
                                       {&b.block.B, m.padded_N * strip}});
        std::size_t total = 0;
        for (const auto& [place, count] : parts) total += whole_lines<T>(count);
        memory = Memory<T>(total);
        for (const auto& [place, count] : parts) *place = memory.take(count);
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

// False: a number is not finite, or larger than `largest`, and no model has changed.
template <class T>
bool bank_update(Out<T, 2> alpha, Out<T, 1> b, Out<T, 3> beta, Out<T, 3> S, Out<double, 2> numbers,
                 Out<std::int64_t, 2> counts, In<T, 3> X, In<std::uint8_t, 2> mask,
                 Out<double, 2> losses, Out<double, 2> leverages, std::size_t hidden,
                 int activation, int loss, bool learn, bool blocks, double largest,
                 std::size_t threads, nb::handle constants) {
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
    m.c = step_constants(constants);
    auto is = [](const auto& array, std::size_t first, std::size_t second) {
        return array.shape(0) == first && array.shape(1) == second;
    };
    auto lies_well = [](const auto& array) {
        return reinterpret_cast<std::uintptr_t>(array.data()) % alignment == 0;
    };
    require(m.n > 0 && m.N > 0 && m.stride * sizeof(T) % alignment == 0 && m.stride >= m.N &&
                m.padded_n % row_group == 0 && m.padded_n >= m.n && m.padded_N % row_group == 0 &&
                m.padded_N >= m.N && lies_well(alpha) && lies_well(b) && lies_well(beta) &&
                lies_well(S),
            "the models are not padded to whole cache lines");
    require(alpha.shape(0) == m.n && b.shape(0) == m.stride && beta.shape(0) == models &&
                beta.shape(2) == m.stride && S.shape(0) == models && S.shape(2) == m.stride &&
                is(numbers, models, 5) && is(counts, models, 3) && is(mask, models, rows) &&
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
                Row& row = reinterpret_cast<Row*>(numbers.data())[i];
                Counts& count = reinterpret_cast<Counts*>(counts.data())[i];
                one.beta = beta.data() + i * m.padded_n * m.stride;
                one.S = S.data() + i * m.padded_N * m.stride;
                static_cast<Numbers&>(one) = row.learned;
                static_cast<Counts&>(one) = count;
                one.trace_limit = wind_up(m, row.a) * one.trace_start;
                ops.bank_rows(
                    one,
                    {X.data() + i * rows * m.n, mask.data() + i * rows, rows, row.a, learn, blocks,
                     losses.data() + i * rows, leverages.data() + i * rows},
                    scratch[k].b);
                row.learned = one;
                count = one;
            }
            if (first + share >= models) return;
        }
    });
    return look.all_good();
}

template <class T>
void bind(nb::module_& module, const char* name) {
    // noconvert: a converted output would be a copy, and be lost.
    module.def(name, &bank_update<T>, nb::kw_only(), "alpha"_a.noconvert(), "b"_a.noconvert(),
               "beta"_a.noconvert(), "S"_a.noconvert(), "numbers"_a.noconvert(),
               "counts"_a.noconvert(), "X"_a.noconvert(), "mask"_a.noconvert(),
               "losses"_a.noconvert(), "leverages"_a.noconvert(), "hidden"_a, "activation"_a,
               "loss"_a, "learn"_a, "blocks"_a, "largest"_a, "threads"_a, "constants"_a);
}

}  // namespace

void bind_bank(nb::module_& module) {
    bind<float>(module, "bank_update32");
    bind<double>(module, "bank_update64");
}

}  // namespace onlad

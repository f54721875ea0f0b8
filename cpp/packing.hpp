// Numbers in few bytes: rows and roots of sums in three bytes each, recent scores in twelve bits
// but for the highest, the rest in single precision. packed.hpp keeps a monitor so.

#pragma once

#include <cstdint>
#include <vector>

#include "watching.hpp"

namespace onlad {

// Element (i, j) of a kept half of a gram matrix.
inline std::size_t place(std::size_t i, std::size_t j, std::size_t across, std::size_t stride) {
    return row_begin(i, across, stride) + j * across - first_column(i, across);
}

// All pairs i <= j in the order of a packed half, with those below the diagonal that are kept too.
template <class Work>
void each_pair(std::size_t units, std::size_t across, Work work) {
    std::size_t p = 0;
    for (std::size_t i = 0; i < units; ++i)
        for (std::size_t j = i; j < units; ++j, ++p) {
            work(p, i, j);
            if (j > i && i * across >= first_column(j, across)) work(p, j, i);
        }
}

// A number in half precision, rounded to nearest, none of them infinite.
class Half {
    static constexpr float down = 0x1p-112f,
                           up = 0x1p112f;  // the exponents of both lie so far apart
    std::uint16_t bits;

public:
    Half() = default;
    explicit Half(double value) {
        const float bounded = float(std::min(std::max(value, -65504.0), 65504.0)) * down;
        std::uint32_t wide;
        std::memcpy(&wide, &bounded, sizeof wide);
        const std::uint32_t size = wide & 0x7fffffffu;
        bits = std::uint16_t((wide >> 16 & 0x8000u) | (size + 0xfffu + (size >> 13 & 1u)) >> 13);
        if (value != value) bits = 0x7e00u;
    }
    explicit operator double() const {
        if ((bits & 0x7c00u) == 0x7c00u) return std::numeric_limits<double>::quiet_NaN();
        const std::uint32_t wide = std::uint32_t(bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13;
        float value;
        std::memcpy(&value, &wide, sizeof value);
        return double(value * up);
    }
};

// A number in the upper three bytes of a float, none of them infinite.
class Short {
    std::uint8_t bytes[3];

public:
    Short() = default;
    explicit Short(double value) {
        const float bounded = float(std::min(std::max(value, -1e38), 1e38));
        std::uint32_t wide;
        std::memcpy(&wide, &bounded, sizeof wide);
        wide = value != value ? 0x7fc00000u : wide + 0x80u;
        for (int k = 0; k < 3; ++k) bytes[k] = std::uint8_t(wide >> (8 * k + 8));
    }
    operator double() const {
        const std::uint32_t wide = std::uint32_t(bytes[0]) << 8 | std::uint32_t(bytes[1]) << 16 |
                                   std::uint32_t(bytes[2]) << 24;
        float value;
        std::memcpy(&value, &wide, sizeof value);
        return double(value);
    }
};

// Puts numbers into bytes one after the other, or takes them out: one description does both.
class Bytes {
    std::vector<std::uint8_t>& bytes;
    std::size_t at = 0;

public:
    const bool writes;

    Bytes(std::vector<std::uint8_t>& bytes, bool writes) : bytes(bytes), writes(writes) {
        if (writes) bytes.clear();
    }

    std::uint8_t* next(std::size_t count) {
        if (writes) bytes.resize(at + count);
        return bytes.data() + (at += count) - count;
    }

    // Numbers as those of another type.
    template <class As, class T>
    void pass(T* values, std::size_t count) {
        std::uint8_t* p = next(count * sizeof(As));
        for (std::size_t i = 0; i < count; ++i, p += sizeof(As)) {
            As kept;
            if (writes) {
                kept = As(values[i]);
                std::memcpy(p, &kept, sizeof kept);
            } else {
                std::memcpy(&kept, p, sizeof kept);
                values[i] = T(kept);
            }
        }
    }
    template <class As, class T>
    void pass(T& value) {
        pass<As>(&value, 1);
    }
    // The first columns of rows.
    template <class As, class T>
    void pass(T* values, std::size_t rows, std::size_t columns, std::size_t stride) {
        for (std::size_t r = 0; r < rows; ++r) pass<As>(values + r * stride, columns);
    }
    // Numbers and how many there are.
    template <class As, class T>
    void pass_all(std::vector<T>& values) {
        std::uint32_t count = std::uint32_t(values.size());
        pass<std::uint32_t>(count);
        values.resize(count);
        pass<As>(values.data(), count);
    }
};

// -- modes -----------------------------------------------------------------------------------

// `across` symmetric matrices as roots U with U'U = A + ridge, row by row from the diagonal on.
template <std::size_t across>
class Roots {
    static constexpr double steps = 8388607.0;  // of a number in three bytes
    const std::size_t units;
    std::vector<double> U;

    double* row(std::size_t i) { return U.data() + i * units * across; }
    // Row i -= or += its products with row k of the root.
    void add(const double* from, std::size_t i, double sign) {
        double* to = row(i);
        for (std::size_t j = i; j < units; ++j)
            for (std::size_t g = 0; g < across; ++g)
                to[j * across + g] += sign * from[i * across + g] * from[j * across + g];
    }
    double ridge(const Constants& c, std::size_t i) const {
        return across == 1 && i + 1 == units ? c.instance_CONSTANT : c.instance_RIDGE;
    }

public:
    explicit Roots(std::size_t units) : units(units), U(units * units * across) {}

    void root(const Constants& c, const double* gram, std::size_t stride) {
        for (std::size_t i = 0; i < units; ++i)
            std::copy_n(gram + place(i, i, across, stride), (units - i) * across,
                        row(i) + i * across);
        for (std::size_t k = 0; k < units; ++k) {
            double* own = row(k);
            for (std::size_t g = 0; g < across; ++g) {
                const double least = ridge(c, k);
                const double pivot = std::sqrt(std::max(own[k * across + g] + least, least));
                own[k * across + g] = pivot;
                for (std::size_t j = k + 1; j < units; ++j) own[j * across + g] /= pivot;
            }
            for (std::size_t i = k + 1; i < units; ++i) add(own, i, -1.0);
        }
    }

    // In three bytes a number, in units of a power of 2 for each matrix; the first `groups` differ.
    void pass(Bytes& bytes, std::size_t groups) {
        for (std::size_t g = 0; g < groups; ++g) {
            double longest = 0.0;
            for (std::size_t i = 0; bytes.writes && i < units; ++i)
                for (std::size_t j = i; j < units; ++j)
                    longest = std::max(longest, std::fabs(row(i)[j * across + g]));
            float size = longest > 0.0 ? float(std::exp2(std::ceil(std::log2(longest)))) : 1.0f;
            bytes.pass<float>(size);
            std::uint8_t* p = bytes.next(units * (units + 1) / 2 * 3);
            for (std::size_t i = 0; i < units; ++i)
                for (std::size_t j = i; j < units; ++j, p += 3) {
                    double& value = row(i)[j * across + g];
                    if (bytes.writes) {
                        const auto whole = std::int32_t(std::lrint(value / size * steps));
                        for (int k = 0; k < 3; ++k) p[k] = std::uint8_t(whole >> 8 * k);
                    } else {
                        const std::uint32_t wide = std::uint32_t(p[0]) << 8 |
                                                   std::uint32_t(p[1]) << 16 |
                                                   std::uint32_t(p[2]) << 24;
                        value = double(std::int32_t(wide)) / 256.0 / steps * size;
                    }
                }
        }
        for (std::size_t i = groups; i < across; ++i)
            for (std::size_t k = i; k < U.size(); k += across) U[k] = U[k - i + i % groups];
    }

    // moment <- U'U beta, then gram <- U'U - ridge.
    void sums(const Constants& c, double* gram, std::size_t stride, const double* beta,
              double* moment, std::size_t s) {
        std::vector<double> root(units * units * across);
        root.swap(U);
        for (std::size_t k = 0; k < units; ++k)
            for (std::size_t i = k; i < units; ++i) add(root.data() + k * units * across, i, 1.0);
        for (std::size_t i = 0; moment && i < units; ++i) {
            std::fill_n(moment + i * s, s, 0.0);
            for (std::size_t j = 0; j < units; ++j)
                for (std::size_t f = 0; f < s; ++f)
                    moment[i * s + f] +=
                        row(std::min(i, j))[std::max(i, j) * across + f % across] * beta[j * s + f];
        }
        for (std::size_t i = 0; i < units; ++i)
            for (std::size_t g = 0; g < across; ++g) row(i)[i * across + g] -= ridge(c, i);
        each_pair(units, across, [&](std::size_t, std::size_t i, std::size_t j) {
            std::copy_n(row(std::min(i, j)) + std::max(i, j) * across, across,
                        gram + place(i, j, across, stride));
        });
    }
};

// What rows are judged by.
inline void pass_mode(Bytes& bytes, const Layer& l, Mode& m) {
    bytes.pass<float>(m.beta, l.units, l.n, l.s);
    bytes.pass<float>(m.linear_beta, l.M, l.n, l.s);
    for (double* each : {m.usual, m.largest, m.leaning}) bytes.pass<float>(each, 2, l.n, l.s);
    bytes.pass<float>(m.band, l.n);
    bytes.pass<float>(m.levels, 6 * statistics);
    bytes.pass<double>(m.weight);
    bytes.pass<std::int64_t>(m.count);
}

template <std::size_t across>
void pass_roots(Bytes& bytes, const Constants& c, std::size_t units, std::size_t groups,
                double* gram, std::size_t stride, const double* beta, double* moment,
                std::size_t s) {
    Roots<across> roots(units);
    if (bytes.writes) roots.root(c, gram, stride);
    roots.pass(bytes, groups);
    if (!bytes.writes) roots.sums(c, gram, stride, beta, moment, s);
}

inline void pass_sums(Bytes& bytes, const Layer& l, Mode& m) {
    pass_roots<lanes>(bytes, *l.c, l.units, l.groups, m.gram, l.N, m.beta, m.moment, l.s);
    pass_roots<1>(bytes, *l.c, l.M, 1, m.linear_gram, l.stride, m.linear_beta, m.linear_moment,
                  l.s);
}

inline void pass_units(Bytes& bytes, const Layer& l, Mode& m) {
    bytes.pass<double>(m.centre, l.n);
    bytes.pass<double>(m.scale, l.n);
}

inline void pass_anchor(Bytes& bytes, const Layer& l, Anchor& a) {
    bytes.pass<Half>(a.beta.data(), l.M, l.n, l.s);
    bytes.pass<double>(a.centre.data(), l.n);
    bytes.pass<double>(a.scale.data(), l.n);
    bytes.pass<float>(a.deviation.data(), l.n);
    bytes.pass<float>(a.lean.data(), l.n);
    bytes.pass<float>(a.halves.data(), 2, l.n, l.s);
    bytes.pass<std::int64_t>(a.rows);
}

// -- the limit -------------------------------------------------------------------------------

// Roots of scores. The limit follows from the highest, which are kept as they are; of the others
// the rank counts, and twelve bits hold them. They are read in their order, and sorted.
inline void pass_scores(Bytes& bytes, std::vector<float>& values, std::vector<float>* sorted) {
    constexpr std::uint16_t most = 4094, is_high = 4095;
    static thread_local std::vector<std::uint16_t> steps;
    static thread_local std::vector<float> high;
    std::uint32_t count = std::uint32_t(values.size());
    bytes.pass<std::uint32_t>(count);
    steps.assign(count + count % 2, 0);
    float step = 0.0f;
    if (bytes.writes) {
        high = values;
        float cut = -1.0f;  // above it they are high: thrice as many as the tail has
        const std::size_t few = count / 16 + 24;
        if (count > few) {
            const auto last = high.end() - std::ptrdiff_t(few) - 1;
            std::nth_element(high.begin(), last, high.end());
            cut = *last;
        }
        high.clear();
        step = std::max(cut / most, std::numeric_limits<float>::min());
        for (std::size_t i = 0; i < count; ++i) {
            if (values[i] > cut) high.push_back(values[i]);
            steps[i] = values[i] > cut ? is_high : std::uint16_t(std::lround(values[i] / step));
        }
    }
    bytes.pass<float>(step);
    bytes.pass_all<float>(high);
    // The low bytes of all, and then two high halves to a byte: loops that compilers unroll.
    const std::size_t half = steps.size() / 2;
    std::uint8_t *low = bytes.next(3 * half), *rest = low + 2 * half;
    std::uint16_t *one = steps.data(), *other = one + half;
    if (bytes.writes) {
        for (std::size_t i = 0; i < 2 * half; ++i) low[i] = std::uint8_t(one[i]);
        for (std::size_t i = 0; i < half; ++i)
            rest[i] = std::uint8_t(one[i] >> 8 | (other[i] >> 8) << 4);
        return;
    }
    for (std::size_t i = 0; i < half; ++i) one[i] = std::uint16_t(low[i] | (rest[i] & 15) << 8);
    for (std::size_t i = 0; i < half; ++i)
        other[i] = std::uint16_t(low[i + half] | (rest[i] >> 4) << 8);
    values.resize(count);
    float* value = values.data();
    for (std::size_t i = 0; i < count; ++i) value[i] = float(one[i]) * step;
    const float* next = high.data();
    for (std::size_t i = 0; i < count; ++i)
        if (one[i] == is_high) value[i] = *next++;
    if (!sorted) return;
    std::uint32_t found[is_high + 1] = {};
    for (std::size_t i = 0; i < count; ++i) ++found[steps[i]];
    sorted->clear();
    for (std::size_t k = 0; k <= most; ++k)
        sorted->insert(sorted->end(), found[k], float(k) * step);
    std::sort(high.begin(), high.end());
    sorted->insert(sorted->end(), high.begin(), high.end());
}

}  // namespace onlad

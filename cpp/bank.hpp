// The samples of one model of a bank: the same steps and the same blocks as a model of its own.

#pragma once

#include "block.hpp"

namespace onlad {

// Rows per block: enough for the products, few enough for the triangular solve.
constexpr std::size_t bank_block = 32;

// What a call asks of one model.
template <class T>
struct BankRows {
    const T* X;                // (rows, n)
    const std::uint8_t* mask;  // (rows) 0: no sample
    std::size_t rows;
    double a;
    bool learn, blocks;
    double *losses, *leverages;  // (rows), left as they are where there is no sample
};

// Scratch memory of one thread.
template <class T>
struct BankMemory {
    T* beta;    // (N, n)
    T *X, *XA;  // (bank_block, n), (bank_block, N)
    BlockMemory<T> block;
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// The columns of a square of 16 bytes a side become its rows.
ONLAD_INLINE void turn(const Pack<float, 16>::type* v, Pack<float, 16>::type* out) {
    auto a = ONLAD_SHUFFLE(float, v[0], v[1], 0, 4, 1, 5),
         b = ONLAD_SHUFFLE(float, v[2], v[3], 0, 4, 1, 5);
    auto c = ONLAD_SHUFFLE(float, v[0], v[1], 2, 6, 3, 7),
         d = ONLAD_SHUFFLE(float, v[2], v[3], 2, 6, 3, 7);
    out[0] = ONLAD_SHUFFLE(float, a, b, 0, 1, 4, 5);
    out[1] = ONLAD_SHUFFLE(float, a, b, 2, 3, 6, 7);
    out[2] = ONLAD_SHUFFLE(float, c, d, 0, 1, 4, 5);
    out[3] = ONLAD_SHUFFLE(float, c, d, 2, 3, 6, 7);
}
ONLAD_INLINE void turn(const Pack<double, 16>::type* v, Pack<double, 16>::type* out) {
    out[0] = ONLAD_SHUFFLE(double, v[0], v[1], 0, 2);
    out[1] = ONLAD_SHUFFLE(double, v[0], v[1], 1, 3);
}

// to (columns, rows) <- from (rows, columns): a line of `to` at a time, in small squares.
template <class T>
void transpose(T* __restrict to, std::size_t to_stride, const T* __restrict from,
               std::size_t from_stride, std::size_t rows, std::size_t columns) {
    constexpr std::size_t side = 16 / sizeof(T), line = alignment / sizeof(T);
    for (std::size_t r = 0; r < rows; r += line)
        for (std::size_t c = 0; c < columns; c += side) {
            const std::size_t end = r + line < rows ? r + line : rows;
            std::size_t j = r;
            for (; j + side <= end && c + side <= columns; j += side) {
                typename Pack<T, 16>::type in[side], out[side];
                for (std::size_t k = 0; k < side; ++k)
                    std::memcpy(in + k, from + (j + k) * from_stride + c, 16);
                turn(in, out);
                for (std::size_t k = 0; k < side; ++k)
                    std::memcpy(to + (c + k) * to_stride + j, out + k, 16);
            }
            const std::size_t c_end = c + side < columns ? c + side : columns;
            for (std::size_t i = c; i < c_end; ++i)
                for (std::size_t k = j; k < end; ++k)
                    to[i * to_stride + k] = from[k * from_stride + i];
        }
}

// Some rows of X alpha, `vectors` vectors of columns from c on.
template <std::size_t rows, std::size_t vectors, class T>
ONLAD_INLINE void project_tile(const Model<T>& m, const T* X, T* XA, std::size_t c) {
    constexpr std::size_t L = InVector<T>::size;
    Vec<T> acc[rows][vectors] = {};
    const T* alpha = m.alpha + c;
    for (std::size_t j = 0; j < m.n; ++j, alpha += m.stride) {
        Vec<T> w[vectors];
        for (std::size_t v = 0; v < vectors; ++v) w[v] = at(alpha + v * L);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t v = 0; v < vectors; ++v) acc[r][v] += X[r * m.n + j] * w[v];
    }
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t v = 0; v < vectors && c + v * L < m.N; ++v) {
            const std::size_t left = m.N - c - v * L;
            std::memcpy(XA + r * m.N + c + v * L, &acc[r][v], (left < L ? left : L) * sizeof(T));
        }
}

// XA <- X alpha; X and XA hold a whole number of fours of rows.
template <class T>
void project_rows(const Model<T>& m, const T* X, T* XA, std::size_t rows) {
    constexpr std::size_t L = InVector<T>::size;
    for (std::size_t t = 0; t < rows; t += 4) {
        std::size_t c = 0;
        for (; c + 2 * L <= m.stride; c += 2 * L)
            project_tile<4, 2>(m, X + t * m.n, XA + t * m.N, c);
        for (; c < m.stride; c += L) project_tile<4, 1>(m, X + t * m.n, XA + t * m.N, c);
    }
}

template <class T>
void bank_rows(Model<T>& m, const BankRows<T>& call, const BankMemory<T>& memory) {
    const std::size_t n = m.n;
    if (!call.blocks) {
        for (std::size_t t = 0; t < call.rows; ++t) {
            if (!call.mask[t]) continue;
            std::memcpy(m.x, call.X + t * n, n * sizeof(T));
            call.learn ? update(m, call.a) : score(m, call.a);
            call.losses[t] = m.last_loss;
            call.leverages[t] = m.last_leverage;
        }
        return;
    }
    std::size_t place[bank_block], count = 0;
    double a[bank_block], losses[bank_block], leverages[bank_block];
    for (double& factor : a) factor = call.a;
    transpose(memory.beta, n, m.beta, m.stride, n, m.N);
    auto learn = [&] {
        project_rows(m, memory.X, memory.XA, count);
        update_block(m, memory.X, memory.XA, count, a, memory.beta, memory.block, losses,
                     leverages);
        for (std::size_t s = 0; s < count; ++s) {
            call.losses[place[s]] = losses[s];
            call.leverages[place[s]] = leverages[s];
        }
        count = 0;
    };
    for (std::size_t t = 0; t < call.rows; ++t) {
        if (!call.mask[t]) continue;
        std::memcpy(memory.X + count * n, call.X + t * n, n * sizeof(T));
        place[count++] = t;
        if (count == bank_block) learn();
    }
    if (count) learn();
    transpose(m.beta, m.stride, memory.beta, n, m.N, n);
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

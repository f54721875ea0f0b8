// A block of samples as matrix products, exactly as one by one; block.py has the derivation.

#pragma once

#include "oselm.hpp"

namespace onlad {

constexpr std::size_t strip_vectors = 8;  // vectors of columns that are worked on together
constexpr std::size_t max_block_samples = 64;

// Memory for a block of at most max_block_samples samples, and a restored ridge after each.
template <class T>
struct BlockMemory {
    T *H, *gain;  // (rows, stride)
    T* A;         // (rows, rows)
    T *E, *B;     // a strip of columns of the errors and of beta
};

}  // namespace onlad

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// Rows of a strip, to and from memory of any alignment.
template <class T>
ONLAD_INLINE void copy_strip(T* to, std::size_t to_stride, const T* from, std::size_t from_stride,
                             std::size_t rows, std::size_t width) {
    typedef T Loose __attribute__((vector_size(ONLAD_VECTOR_BYTES), may_alias, aligned(sizeof(T))));
    constexpr std::size_t L = InVector<T>::size;
    for (std::size_t i = 0; i < rows; ++i, to += to_stride, from += from_stride) {
        std::size_t j = 0;
        for (; j + L <= width; j += L)
            *reinterpret_cast<Loose*>(to + j) = *reinterpret_cast<const Loose*>(from + j);
        for (; j < width; ++j) to[j] = from[j];
    }
}

// out (count x 8 vectors) plus or minus factors times rows (depth x 8 vectors): the inner kernel
// of a matrix product, four rows and two vectors of the result in registers at a time.
// factor(i, k) is the factor of row k in result row i.
template <bool add, class T, class Factor>
ONLAD_INLINE void multiply_strip(T* out, std::size_t count, const T* rows, std::size_t depth,
                                 Factor factor) {
    constexpr std::size_t L = InVector<T>::size, W = strip_vectors * L;
    for (std::size_t i = 0; i < count; i += 4)
        for (std::size_t c = 0; c < W; c += 2 * L) {
            Vec<T> acc[4][2];
            for (std::size_t r = 0; r < 4; ++r)
                for (std::size_t v = 0; v < 2; ++v) acc[r][v] = at(out + (i + r) * W + c + v * L);
            for (std::size_t k = 0; k < depth; ++k) {
                const Vec<T> low = at(rows + k * W + c), high = at(rows + k * W + c + L);
                for (std::size_t r = 0; r < 4; ++r) {
                    const T w = factor(i + r, k);
                    acc[r][0] = add ? acc[r][0] + w * low : acc[r][0] - w * low;
                    acc[r][1] = add ? acc[r][1] + w * high : acc[r][1] - w * high;
                }
            }
            for (std::size_t r = 0; r < 4; ++r)
                for (std::size_t v = 0; v < 2; ++v) at(out + (i + r) * W + c + v * L) = acc[r][v];
        }
}

// A block of samples, exactly as one by one (block.py has the derivation). Only S must go sample
// by sample. A restored ridge is a sample too: the block then has a row more. XA is X alpha, beta
// here is (N, n). The columns go in strips that stay in the first caches for all three products.
template <class T>
void update_block(Model<T>& m, const T* X, const T* XA, std::size_t samples, const double* a,
                  T* beta, const BlockMemory<T>& memory, double* losses, double* leverages) {
    constexpr std::size_t L = InVector<T>::size, W = strip_vectors * L;
    const std::size_t stride = m.stride, n = m.n, N = m.N;
    T *H = memory.H, *gain = memory.gain, *A = memory.A, *E = memory.E, *B = memory.B;
    std::size_t sample_of[2 * max_block_samples];  // of each row; `samples` for a restored ridge
    std::size_t rows = 0;
    auto zero = [](T* p, std::size_t count) { std::memset(p, 0, count * sizeof(T)); };

    for (std::size_t t = 0; t < samples; ++t) {
        double a_t = a[t];
        const bool paused = m.trace > m.trace_limit;
        T *h = H + rows * stride, *g = gain + rows * stride;
        for (std::size_t i = 0; i < N; ++i) h[i] = XA[t * N + i] + m.b[i];
        finish_hidden(m, h);
        copy_strip(m.h, stride, h, stride, 1, stride);
        const double squared = project(m, a_t);
        leverages[t] = squared / (a_t * a_t);
        if (learn_hidden(m, a_t, squared))
            copy_strip(g, stride, m.g, stride, 1, stride);
        else
            zero(g, stride);
        sample_of[rows++] = t;
        m.paused += paused;
        if (m.trace > m.trace_limit) {
            T h_k;
            const std::size_t k = restore_root(m, h_k);
            zero(H + rows * stride, stride);
            H[rows * stride + k] = h_k;
            copy_strip(gain + rows * stride, stride, m.g, stride, 1, stride);
            sample_of[rows++] = samples;
        }
    }
    const std::size_t padded_rows = (rows + 3) / 4 * 4;
    zero(H + rows * stride, (padded_rows - rows) * stride);
    zero(gain + rows * stride, (padded_rows - rows) * stride);

    // A = H gain', the part below the diagonal: what row t meets of what row s taught.
    for (std::size_t t = 1; t < rows; ++t)
        for (std::size_t s = 0; s < t; s += 4) {
            Vec<T> acc[4] = {};
            for (std::size_t c = 0; c < stride; c += L)
                for (std::size_t k = 0; k < 4; ++k)
                    acc[k] += at(H + t * stride + c) * at(gain + (s + k) * stride + c);
            sums(acc, A + t * padded_rows + s);
        }

    for (std::size_t t = 0; t < samples; ++t) losses[t] = 0.0;
    for (std::size_t j = 0; j < n; j += W) {
        const std::size_t width = n - j < W ? n - j : W;
        // What lies beyond the last column, and the x of a restored ridge, must be zero.
        if (width < W) zero(B, m.padded_N * W);
        if (width < W || rows > samples || padded_rows > rows) zero(E, padded_rows * W);
        for (std::size_t t = 0; t < rows; ++t)
            if (sample_of[t] < samples)
                copy_strip(E + t * W, W, X + sample_of[t] * n + j, n, 1, width);
        copy_strip(B, W, beta + j, n, N, width);

        // E = X - H beta
        multiply_strip<false>(E, padded_rows, B, N,
                              [=](std::size_t t, std::size_t k) { return H[t * stride + k]; });
        // E = (I + A)^-1 E
        for (std::size_t t = 1; t < rows; ++t) {
            Vec<T> acc[strip_vectors];
            for (std::size_t v = 0; v < strip_vectors; ++v) acc[v] = at(E + t * W + v * L);
            for (std::size_t s = 0; s < t; ++s) {
                const T w = A[t * padded_rows + s];
                for (std::size_t v = 0; v < strip_vectors; ++v) acc[v] -= w * at(E + s * W + v * L);
            }
            for (std::size_t v = 0; v < strip_vectors; ++v) at(E + t * W + v * L) = acc[v];
        }
        for (std::size_t t = 0; t < rows; ++t)
            if (sample_of[t] < samples) losses[sample_of[t]] += loss_sum(m.loss, E + t * W, width);
        // beta = beta + gain' E
        multiply_strip<true>(B, m.padded_N, E, rows,
                             [=](std::size_t i, std::size_t t) { return gain[t * stride + i]; });
        copy_strip(beta + j, n, B, W, N, width);
    }
    for (std::size_t t = 0; t < samples; ++t) losses[t] /= double(n);
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

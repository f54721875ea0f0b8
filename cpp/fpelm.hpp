// FP-ELM (eq:fp_elm_train) in the memory of a model: S holds K, and beta' holds V' with
// V = (r I + K) beta, which learns without a solve. A sample is predicted with one:
//
//   w = (r I + K)^-1 h   e = x - w V      K <- a^2 K + h'h   V <- a^2 V + h'x

#pragma once

#include <utility>

#include "oselm.hpp"

#ifdef ONLAD_LEVEL

namespace onlad::ONLAD_LEVEL {
namespace {

// f <- w, by Cholesky: r I + K = U'U, and y below is U'^-1 h. `U` is memory of the size of S.
// False: rounding has made it indefinite.
template <class T>
ONLAD_APART void solve_regular(Model<T>& m, double ridge, T* U) {
    constexpr std::size_t L = InVector<T>::size;
    const std::size_t N = m.N, stride = m.stride;
    T* y = m.f;
    std::memcpy(U, m.S, N * stride * sizeof(T));
    std::memcpy(y, m.h, stride * sizeof(T));
    for (std::size_t k = 0; k < N; ++k) {
        T* row = U + k * stride;
        const std::size_t first = k / L * L;  // vectors begin here: zeros left of the diagonal
        for (std::size_t c = first; c < k; ++c) row[c] = T(0);
        row[k] += T(ridge);
        const T scale = T(1) / std::sqrt(row[k]), y_k = y[k] * scale;
        for (std::size_t c = first; c < stride; c += L) {
            at(row + c) *= scale;
            at(y + c) -= y_k * at(row + c);
        }
        y[k] = y_k;
        for (std::size_t i = k + 1; i < N; ++i) {
            const T factor = row[i];
            for (std::size_t c = i / L * L; c < stride; c += L)
                at(U + i * stride + c) -= factor * at(row + c);
        }
    }
    for (std::size_t k = N; k-- > 0;) {  // U w = y
        const T *row = U + k * stride, y_k = y[k];
        const std::size_t first = k / L * L;
        y[k] = T(0);
        y[k] = (y_k - T(dot(row + first, y + first, stride - first))) / row[k];
    }
}

template <class T>
double fp_elm_score(Model<T>& m, double ridge, T* U) {
    hidden(m);
    solve_regular(m, ridge, U);
    std::swap(m.h, m.f);
    m.last_loss = reconstruct<false>(m);
    std::swap(m.h, m.f);
    return m.last_loss;
}

// rows <- a^2 rows + weights' h
template <class T>
ONLAD_INLINE void fade(const Model<T>& m, double a, const T* weights, std::size_t count, T* rows) {
    const Vec<T> a2 = Vec<T>{} + T(a * a);
    for (std::size_t i = 0; i < count; ++i, rows += m.stride)
        for (std::size_t c = 0; c < m.stride; c += InVector<T>::size)
            at(rows + c) = a2 * at(rows + c) + weights[i] * at(m.h + c);
}

// Learn the sample whose score was just taken.
template <class T>
void fp_elm_learn(Model<T>& m, double a) {
    fade(m, a, m.h, m.N, m.S);
    fade(m, a, m.x, m.n, m.beta);
    ++m.seen;
}

}  // namespace
}  // namespace onlad::ONLAD_LEVEL

#endif

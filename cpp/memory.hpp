// Zeros that begin at a cache line, handed out part by part.

#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "oselm.hpp"

namespace onlad {

// `count` rounded up to whole cache lines.
template <class T>
constexpr std::size_t whole_lines(std::size_t count) {
    constexpr std::size_t line = alignment / sizeof(T);
    return (count + line - 1) / line * line;
}

template <class T>
class Memory {
    struct Free {
        void operator()(T* p) const { ::operator delete(p, std::align_val_t(alignment)); }
    };
    std::unique_ptr<T, Free> begin;
    T* next = nullptr;

public:
    Memory() = default;
    explicit Memory(std::size_t count)
        : begin(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(alignment)))),
          next(begin.get()) {
        std::memset(begin.get(), 0, count * sizeof(T));
    }

    T* take(std::size_t count) {
        T* at = next;
        next += whole_lines<T>(count);
        return at;
    }
};

}  // namespace onlad

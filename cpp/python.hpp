// What the bindings share: numbers and arrays of Python, and the constants of reference.py.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "oselm.hpp"

namespace onlad {

namespace nb = nanobind;

template <class T, int dimensions>
using Out = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;
template <class T, int dimensions>
using In = Out<const T, dimensions>;

inline void require(bool holds, const char* what = "the arrays do not fit the monitor") {
    if (!holds) throw nb::value_error(what);
}

inline StepConstants step_constants(nb::handle reference) {
    auto number = [&](const char* name) { return nb::cast<double>(reference.attr(name)); };
    return {number("LEAST_LEVERAGE"), number("LARGEST_LEVERAGE"),
            number("WOUND_UP"),       number("LEAST_GROWTH"),
            number("OLDEST"),         std::int64_t(number("TRACE_INTERVAL"))};
}

// Whether an array of Python has numbers of type T.
template <class T>
bool has(const Py_buffer& buffer) {
    const char* kinds = std::is_same_v<T, double>  ? "d"
                        : std::is_same_v<T, float> ? "f"
                        : std::is_same_v<T, bool>  ? "?"
                                                   : "lq";
    return std::strchr(kinds, buffer.format[0]) && buffer.itemsize == sizeof(T);
}

// An array of its own for Python, from memory whose rows are `stride` long.
template <class T>
nb::object array(const T* from, std::initializer_list<std::size_t> shape, std::size_t stride) {
    std::size_t columns = 1, rows = 1;
    for (const std::size_t size : shape) rows *= columns, columns = size;
    T* values = new T[rows * columns + 1];
    nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    for (std::size_t r = 0; r < rows; ++r)
        if (columns > 0) std::copy_n(from + r * stride, columns, values + r * columns);
    return nb::cast(nb::ndarray<nb::numpy, T>(values, shape.size(), shape.begin(), owner));
}

// Takes numbers out of the attributes of a state, or puts them into a dict with their names.
class Values {
    nb::handle state;

public:
    const bool writes;
    nb::dict found;

    Values() : writes(true) {}
    explicit Values(nb::handle state) : state(state), writes(false) {}

    nb::object part(const char* name) const { return nb::getattr(state, name); }

    template <class T>
    void pass(const char* name, T& value) {
        if (writes)
            found[name] = value;
        else
            value = nb::cast<T>(part(name));
    }

    // An array, in memory whose rows are `stride` long; by default one follows the other.
    template <class T>
    void pass(const char* name, T* values, std::initializer_list<std::size_t> shape,
              std::size_t stride = 0) {
        const std::size_t columns = shape.end()[-1];
        if (stride == 0) stride = columns;
        if (writes) {
            found[name] = array(values, shape, stride);
            return;
        }
        std::size_t count = 1;
        for (const std::size_t size : shape) count *= size;
        Py_buffer buffer;
        if (PyObject_GetBuffer(part(name).ptr(), &buffer, PyBUF_FULL_RO) != 0)
            throw nb::python_error();
        const bool fits = has<T>(buffer) && std::size_t(buffer.len) == count * sizeof(T);
        const std::unique_ptr<T[]> from(new T[count]);
        const bool read = fits && PyBuffer_ToContiguous(from.get(), &buffer, buffer.len, 'C') == 0;
        PyBuffer_Release(&buffer);
        require(read);
        for (std::size_t first = 0; first < count; first += columns, values += stride)
            std::copy_n(from.get() + first, columns, values);
    }

    // Rows of `columns` numbers, however many there are.
    template <class T>
    void pass_all(const char* name, std::vector<T>& values) {
        if (!writes) values.resize(nb::len(part(name)));
        pass(name, values.data(), {values.size()});
    }
};

}  // namespace onlad

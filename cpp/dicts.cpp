// Numbers out of dicts. What is not plain is left to the caller.
#include "dicts.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "python.hpp"

namespace onlad {
namespace {

bool number(PyObject* value, double& result) {
    if (PyFloat_Check(value))
        result = PyFloat_AS_DOUBLE(value);
    else if (PyLong_Check(value))
        result = PyLong_AsDouble(value);
    else
        return false;
    if (result == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return true;
}

// out[place(i)] <- the number that a dict has for names[i]. False: the keys are others, or a value
// is not a plain number.
template <class Place>
bool read(PyObject* x, PyObject* names, double* out, Place place) {
    std::size_t count = std::size_t(PyTuple_GET_SIZE(names));
    if (std::size_t(PyDict_Size(x)) != count) return false;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    std::size_t i = 0;
    // Nearly always the very same key objects in the same order: then nothing is hashed.
    for (; i < count && PyDict_Next(x, &position, &key, &value); ++i) {
        if (key != PyTuple_GET_ITEM(names, i)) break;
        if (!number(value, out[place(i)])) return false;
    }
    for (; i < count; ++i) {
        value = PyDict_GetItemWithError(x, PyTuple_GET_ITEM(names, i));
        if (!value) {
            PyErr_Clear();
            return false;
        }
        if (!number(value, out[place(i)])) return false;
    }
    return true;
}

bool read_row(nb::dict x, nb::tuple names, Out<double, 1> out, double largest) {
    return out.shape(0) == nb::len(names) &&
           read_dict(x.ptr(), names.ptr(), out.data(), out.shape(0), largest);
}

// Reads dicts into a row of its own, in an order of its own.
class DictReader {
public:
    DictReader(nb::tuple names, In<std::int64_t, 1> order) : names(names), order(nb::find(order)) {
        if (order.shape(0) != nb::len(names)) throw nb::value_error("one place a name is needed");
        for (std::size_t i = 0; i < order.shape(0); ++i) {
            if (std::uint64_t(order.data()[i]) >= order.shape(0))
                throw nb::value_error("a place lies outside");
            places.push_back(std::size_t(order.data()[i]));
        }
        std::size_t bytes = sizeof(double) * (places.size() + 1);  // never none: it has an owner
        double* values = static_cast<double*>(PyMem_Calloc(1, bytes));
        if (!values) throw std::bad_alloc();
        nb::capsule owner(values, [](void* p) noexcept { PyMem_Free(p); });
        data = values;
        row = nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(values, {places.size()}, owner));
    }

    // What a copy is made from; it has read nothing yet.
    nb::tuple arguments() const { return nb::make_tuple(names, order); }

    // The row, or None where the caller must look closer.
    nb::object operator()(nb::dict x) {
        const auto place = [this](std::size_t i) { return places[i]; };
        return read(x.ptr(), names.ptr(), data, place) ? row : nb::none();
    }

private:
    nb::tuple names;
    nb::object order;
    std::vector<std::size_t> places;
    double* data;
    nb::object row;
};

}  // namespace

bool read_dict(PyObject* x, PyObject* names, double* out, std::size_t count, double largest) {
    if (!read(x, names, out, [](std::size_t i) { return i; })) return false;
    for (std::size_t i = 0; i < count; ++i)
        if (std::fabs(out[i]) > largest) return false;  // never true of NaN
    return true;
}

void bind_dicts(nb::module_& module) {
    // noconvert: a converted output would be a copy, and the result would be lost.
    module.def("read_dict", &read_row, nb::arg(), nb::arg(), nb::arg().noconvert(), nb::arg());
    nb::class_<DictReader>(module, "DictReader")
        .def(nb::init<nb::tuple, In<std::int64_t, 1>>())
        .def("__call__", &DictReader::operator())
        .def("__reduce__", [](nb::handle self) {
            return nb::make_tuple(self.type(), nb::cast<DictReader&>(self).arguments());
        });
}

}  // namespace onlad

// Numbers out of dicts.

#pragma once

#include <Python.h>

#include <cstddef>

namespace onlad {

// out[i] <- the number that a dict has for names[i]. False: the keys are others, or a value is not
// a plain number of at most `largest`.
bool read_dict(PyObject* x, PyObject* names, double* out, std::size_t count, double largest);

}  // namespace onlad

// The binding of the monitor of a microcontroller: it owns its memory and hands rows over.
#include "portable.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

#ifndef PORTABLE_NAME
#define PORTABLE_NAME "Portable"
#endif

namespace onlad {
namespace {

using Weights = nb::ndarray<const onlad_weight, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowsOut = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool fits) {
    if (!fits) throw std::invalid_argument("the arrays do not fit the monitor");
}

int append(void* context, const void* bytes, std::size_t size) {
    static_cast<std::string*>(context)->append(static_cast<const char*>(bytes), size);
    return 0;
}

class Portable {
public:
    Portable(int features, int window, int groups, int units, int modes, Weights alpha,
             Weights bias)
        : alpha_(alpha.data(), alpha.data() + alpha.size()),
          bias_(bias.data(), bias.data() + bias.size()) {
        require(features > 0 && window > 0 && groups > 0 && units > 0 && modes > 0 && modes < 256);
        require(alpha.size() == std::size_t(groups) * units * features &&
                bias.size() == std::size_t(groups) * units);
        state_.features = features;
        state_.window = window;
        state_.groups = groups;
        state_.units = units;
        state_.modes = modes;
        onlad_monitor* m = &state_;
        count_.resize(std::size_t(ONLAD_COUNTS));
        memory_.resize(std::size_t(ONLAD_FLOATS));
        scratch_.resize(std::size_t(ONLAD_SCRATCH));
        state_.alpha = alpha_.data();
        state_.bias = bias_.data();
        state_.count = count_.data();
        state_.memory = memory_.data();
        state_.scratch = scratch_.data();
#ifdef ONLAD_FIXED
        small_.resize(std::size_t(ONLAD_SMALL));
        state_.small = small_.data();
#endif
        onlad_init(m);
    }
    Portable(const Portable&) = delete;
    Portable& operator=(const Portable&) = delete;

    // Fills in the bytes of the verdict on each row, and its shares.
    void rows(Rows X, Bytes verdicts, RowsOut shares) {
        onlad_monitor* m = &state_;
        const std::size_t n = X.shape(1), count = X.shape(0);
        require(n == std::size_t(ONLAD_FEATURES) && verdicts.shape(0) == count &&
                verdicts.shape(1) == sizeof(onlad_verdict) && shares.shape(0) == count &&
                shares.shape(1) == n);
        nb::gil_scoped_release unlocked;
        for (std::size_t t = 0; t < count; ++t) {
            onlad_verdict said;
            onlad_observe(m, X.data() + t * n, &said);
            std::memcpy(verdicts.data() + t * sizeof said, &said, sizeof said);
            std::copy_n(portable_shares(m), n, shares.data() + t * n);
        }
    }

    int accept(int ago) { return onlad_accept(&state_, ago); }
    void pause(bool paused) { onlad_pause(&state_, paused); }
    int false_alarms(float rate) { return onlad_set_false_alarms(&state_, rate); }
    int warmup(std::uint32_t rows) { return onlad_set_warmup(&state_, rows); }
    int counter(int feature) { return onlad_set_counter(&state_, feature); }

    nb::bytes dump(std::uint32_t sequence) const {
        std::string bytes;
        onlad_dump(&state_, sequence, append, &bytes);
        return nb::bytes(bytes.data(), bytes.size());
    }
    int restore(nb::bytes bytes) { return onlad_restore(&state_, bytes.c_str(), bytes.size()); }

private:
    std::vector<onlad_weight> alpha_, bias_;
    std::vector<float> memory_, scratch_;
#ifdef ONLAD_FIXED
    std::vector<std::int16_t> small_;
#endif
    std::vector<std::uint32_t> count_;
    onlad_monitor state_{};
};

}  // namespace

void bind_portable(nb::module_& module) {
    nb::class_<Portable>(module, PORTABLE_NAME)
        .def(nb::init<int, int, int, int, int, Weights, Weights>(), nb::kw_only(), "features"_a,
             "window"_a, "groups"_a, "units"_a, "modes"_a, "alpha"_a, "bias"_a)
        .def("rows", &Portable::rows, "X"_a.noconvert(), nb::kw_only(), "verdicts"_a.noconvert(),
             "shares"_a.noconvert())
        .def("accept", &Portable::accept)
        .def("pause", &Portable::pause)
        .def("false_alarms", &Portable::false_alarms)
        .def("warmup", &Portable::warmup)
        .def("counter", &Portable::counter)
        .def("dump", &Portable::dump)
        .def("restore", &Portable::restore);
}

}  // namespace onlad

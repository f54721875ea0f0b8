// Numbers out of lines of delimited text. What is not plain is left to the caller, line by line.
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "python.hpp"

namespace onlad {

using namespace nb::literals;

namespace {

enum Slot : std::int32_t { ignored = -1, text = -2 };  // text - k is text column k
enum Kind : std::uint8_t { plain = 0, odd = 1, blank = 2 };

// As from_chars, with another sign than the point before the decimals; a point is then none.
std::from_chars_result read_decimal(const char* p, const char* end, char decimal, double& value) {
    if (decimal == '.') return std::from_chars(p, end, value);
    char digits[64];
    const char* const stop = p + std::min<std::ptrdiff_t>(end - p, sizeof digits);
    std::transform(p, stop, digits, [decimal](char c) {
        return c == decimal ? '.' : c == '.' ? decimal : c;
    });
    const auto [next, error] = std::from_chars(digits, digits + (stop - p), value);
    // A number that fills the buffer may go on behind it: leave it to the caller.
    if (next == digits + sizeof digits) return {p, std::errc::invalid_argument};
    return {p + (next - digits), error};
}

// One number, or nothing (a missing value), up to the delimiter or the end of the line. Spaces
// around it are as Python's float has them. Returns null where that is not what is there.
const char* read_number(const char* p, const char* end, char delimiter, char decimal,
                        double largest, double& value) {
    if (delimiter != ' ')
        while (p < end && *p == ' ') ++p;
    if (p == end || *p == delimiter) {
        value = std::numeric_limits<double>::quiet_NaN();
        return p;
    }
    const auto [next, error] = read_decimal(p, end, decimal, value);
    if (error != std::errc()) return nullptr;
    if (std::isnan(value)) {
        if (next - p > 4) return nullptr;  // nan(...), which is C's alone
        value = std::numeric_limits<double>::quiet_NaN();
    } else if (std::fabs(value) > largest) {
        return nullptr;
    }
    p = next;
    if (delimiter != ' ')
        while (p < end && *p == ' ') ++p;
    return p;
}

// To the end of a field that is not read as a number; null if it is quoted or not ASCII.
const char* skip_field(const char* p, const char* end, char delimiter) {
    for (; p < end && *p != delimiter; ++p)
        if (*p == '"' || static_cast<unsigned char>(*p) >= 0x80) return nullptr;
    return p;
}

}  // namespace

// Reads lines of data from `start` until the arrays are full, each into one row: `slots` says what
// becomes of each field, `lines` gets begin and end of each line, `texts` those of its text fields,
// `kinds` whether it was plain. Returns the number of rows and where the next line begins.
std::pair<std::size_t, std::size_t> read_csv(nb::bytes data, std::size_t start, char delimiter,
                                             char decimal, double largest,
                                             In<std::int32_t, 1> slots, Out<double, 2> values,
                                             Out<std::int64_t, 3> texts, Out<std::int64_t, 2> lines,
                                             Out<std::uint8_t, 1> kinds) {
    const std::size_t capacity = kinds.shape(0), width = values.shape(1), n_texts = texts.shape(1);
    const std::size_t fields = slots.shape(0);
    require(values.shape(0) == capacity && texts.shape(0) == capacity && texts.shape(2) == 2 &&
                lines.shape(0) == capacity && lines.shape(1) == 2 && fields > 0 &&
                start <= data.size(),
            "read_csv: the shapes do not fit");
    for (std::size_t f = 0; f < fields; ++f) {
        const std::int32_t slot = slots.data()[f];
        require(slot >= 0 ? std::size_t(slot) < width
                          : slot > text || std::size_t(text - slot) < n_texts,
                "read_csv: a slot is out of range");
    }
    const char* const base = data.c_str();
    const char* const stop = base + data.size();
    const char* p = base + start;
    std::size_t row = 0;
    for (; row < capacity && p < stop; ++row) {
        const char* const newline = static_cast<const char*>(std::memchr(p, '\n', stop - p));
        const char* end = newline ? newline : stop;
        const char* const next_line = newline ? newline + 1 : stop;
        if (end > p && end[-1] == '\r') --end;
        lines.data()[2 * row] = p - base;
        lines.data()[2 * row + 1] = end - base;
        Kind kind = end == p ? blank : plain;
        for (std::size_t f = 0; kind == plain && f < fields; ++f) {
            const std::int32_t slot = slots.data()[f];
            const char* const begin = p;
            p = slot >= 0 ? read_number(p, end, delimiter, decimal, largest,
                                        values.data()[row * width + slot])
                          : skip_field(p, end, delimiter);
            const bool last = f + 1 == fields;
            if (!p || (last ? p != end : p == end || *p != delimiter)) {
                kind = odd;
                break;
            }
            if (slot <= text) {
                std::int64_t* const span = texts.data() + 2 * (row * n_texts + (text - slot));
                span[0] = begin - base;
                span[1] = p - base;
            }
            if (!last) ++p;
        }
        kinds.data()[row] = kind;
        p = next_line;
    }
    return {row, std::size_t(p - base)};
}

void bind_csv(nb::module_& module) {
    module.def("read_csv", &read_csv, nb::kw_only(), "data"_a, "start"_a, "delimiter"_a,
               "decimal"_a, "largest"_a, "slots"_a.noconvert(), "values"_a.noconvert(),
               "texts"_a.noconvert(), "lines"_a.noconvert(), "kinds"_a.noconvert());
}

}  // namespace onlad

// A monitor between two calls, in a third of the bytes: sums as roots and rows in three bytes a
// number, recent scores in twelve bits but for the highest, the rest in single precision.
// Where a number is not rounded, that is because it does not lie near 0.
//
// Between ticks a row needs no sums, so these are not unpacked for it, and not packed after it.

#pragma once

#include "packing.hpp"

namespace onlad {

class Packed {
public:
    explicit Packed(Watching& w) : layer(w.layer), ordered(w.ordered), rate(w.limit.rate) {
        pack(w);
    }

    std::shared_ptr<const Layer> layer;
    const bool ordered;
    const double rate;

    std::size_t nbytes() const {
        return sizeof *this + moving.size() + judged.size() + summed.size() +
               kept.size() * sizeof(Short);
    }

    // Give rows to the monitor, which is unpacked for as long.
    template <class Work>
    void watch(std::size_t rows, Work work) {
        Watching w(layer, ordered);
        Bytes bytes(moving, false);
        pass_moving(bytes, w);
        const bool whole = w.at + rows >= w.tick_rows;  // a tick needs the sums
        unpack(w, whole, whole || rows > few);
        const std::size_t before = w.at;
        work(w);
        if (whole)
            pack(w);
        else {
            write(moving, [&](Bytes& bytes) { pass_moving(bytes, w); });
            const std::size_t first = layer->width - 1 + w.tick_rows;
            keep(w, first + before, first + w.at);
        }
    }

    Watching unpacked() {
        Watching w(layer, ordered);
        Bytes bytes(moving, false);
        pass_moving(bytes, w);
        unpack(w, true, true);
        return w;
    }

private:
    static constexpr std::size_t few = 4;  // rows whose place among recent scores is counted

    std::vector<std::uint8_t> moving;  // what each row changes
    std::vector<std::uint8_t> judged;  // what rows are judged by
    std::vector<std::uint8_t> summed;  // what a tick needs besides
    std::vector<Short> kept;           // rows of two ticks, and those before
    std::vector<double> origin;        // (2, n) rows of both ticks are differences from these

    // Bytes in as much memory as they need.
    template <class Work>
    static void write(std::vector<std::uint8_t>& to, Work work) {
        static thread_local std::vector<std::uint8_t> scratch;
        Bytes bytes(scratch, true);
        work(bytes);
        if (to.size() == scratch.size())
            std::copy(scratch.begin(), scratch.end(), to.begin());
        else
            std::vector<std::uint8_t>(scratch).swap(to);
    }

    void pass_moving(Bytes& bytes, Watching& w) {
        const Layer& l = *layer;
        const std::size_t T = w.tick_rows;
        std::uint8_t count = std::uint8_t(w.modes.size());
        bytes.pass<std::uint8_t>(count);
        while (w.modes.size() < count) w.modes.push_back(std::make_unique<Mode>(l));
        for (const auto& each : w.modes) pass_units(bytes, l, *each);
        bytes.pass<std::uint8_t>(w.at);
        bytes.pass<std::uint8_t>(w.current);
        bytes.pass<std::uint8_t>(w.first_modes);
        bytes.pass<std::int32_t>(w.drifting);
        // The rows that the window of the next one has.
        bytes.pass<double>(w.kept.data() + (T + w.at) * l.n, (l.width - 1) * l.n);
        bytes.pass<double>(w.held.data(), l.n);
        bytes.pass<float>(w.age.data(), l.n);
        bytes.pass<float>(w.patience.data(), l.n);
        bool counts = w.counts();
        bytes.pass<bool>(counts);
        if (counts)
            bytes.pass<double>(w.counted.data(), 2 * l.n);
        else if (!bytes.writes)
            std::fill_n(w.counted.begin(), l.n, std::numeric_limits<double>::quiet_NaN());
        bytes.pass<float>(w.means, statistics);
        bytes.pass<float>(w.leans.data(), 2, l.n, l.s);
        bytes.pass<Short>(w.score.data(), 2 * T);
        if (l.width <= 256)
            bytes.pass<std::uint8_t>(w.run.data(), 2 * T);
        else
            bytes.pass<std::uint16_t>(w.run.data(), 2 * T);
        for (std::size_t t = 0; t < 2 * T; ++t) {
            int flags = int(w.mode[t]) << 2 | int(w.open[t]) << 1 | int(w.refused[t]);
            bytes.pass<std::uint8_t>(flags);
            w.mode[t] = flags >> 2, w.open[t] = flags >> 1 & 1, w.refused[t] = flags & 1;
            std::uint8_t* there = bytes.next((l.n + 7) / 8);
            for (std::size_t j = 0; j < l.n; ++j) {
                std::uint8_t& known = w.present[t * l.s + j];
                if (!bytes.writes)
                    known = there[j / 8] >> j % 8 & 1;
                else if (j % 8 == 0)
                    there[j / 8] = known;
                else
                    there[j / 8] = std::uint8_t(there[j / 8] | known << j % 8);
            }
        }
    }

    void pass_judged(Bytes& bytes, Watching& w, bool sorts) {
        for (const auto& each : w.modes) pass_mode(bytes, *layer, *each);
        Limit& limit = w.limit;
        limit.rate = rate;
        for (double* each : {&limit.edge, &limit.base, &limit.factor, &limit.since, &limit.rows,
                             &limit.peak, &limit.alarms})
            bytes.pass<double>(*each);
        pass_scores(bytes, limit.recent, sorts ? &limit.sorted : nullptr);
    }

    void pass_summed(Bytes& bytes, Watching& w) {
        const Layer& l = *layer;
        pass_scores(bytes, w.limit.fresh, nullptr);
        for (const auto& each : w.modes) pass_sums(bytes, l, *each);
        if (!bytes.writes) w.anchors.resize(w.modes.size());
        for (std::size_t i = 0; i < w.modes.size(); ++i) {
            bool there = w.anchors[i] != nullptr;
            bytes.pass<bool>(there);
            if (there && !bytes.writes) w.anchors[i] = std::make_unique<Anchor>(l, *w.modes[i]);
            if (there) pass_anchor(bytes, l, *w.anchors[i]);
        }
        bool there = w.candidate != nullptr;
        bytes.pass<bool>(there);
        if (there && !bytes.writes) w.candidate = std::make_unique<Mode>(l);
        if (there) {
            pass_units(bytes, l, *w.candidate);
            pass_mode(bytes, l, *w.candidate);
            pass_sums(bytes, l, *w.candidate);
        }
        for (std::int64_t* each : {&w.begun, &w.explained, &w.foreign})
            bytes.pass<std::int64_t>(*each);
        bytes.pass_all<double>(w.quarantine);
    }

    // From which rows of a tick are differences, of the row at a place among those that are kept.
    const double* origin_of(const Watching& w, std::size_t row) const {
        return origin.data() + (row < layer->width - 1 + w.tick_rows ? 0 : layer->n);
    }

    void unpack(Watching& w, bool whole, bool sorts) {
        Bytes bytes(judged, false);
        pass_judged(bytes, w, sorts);
        if (whole) {
            const std::size_t n = layer->n, window = w.tick_rows + w.at;
            for (std::size_t r = 0; r < kept.size() / n; ++r) {
                if (r >= window && r < window + layer->width - 1) continue;  // they are there
                for (std::size_t j = 0; j < n; ++j)
                    w.kept[r * n + j] = origin_of(w, r)[j] + kept[r * n + j];
            }
            Bytes rest(summed, false);
            pass_summed(rest, w);
        }
        w.inform();
    }

    void pack(Watching& w) {
        const std::size_t n = layer->n, before = layer->width - 1;
        write(moving, [&](Bytes& bytes) { pass_moving(bytes, w); });
        write(judged, [&](Bytes& bytes) { pass_judged(bytes, w, false); });
        write(summed, [&](Bytes& bytes) { pass_summed(bytes, w); });
        // Differences from a row of their tick: it does not matter where a stream has gone.
        origin.resize(2 * n);
        for (std::size_t j = 0; j < n; ++j)
            for (const std::size_t tick : {0, 1}) {
                const double value = w.kept[(before + tick * (w.tick_rows - 1)) * n + j];
                const double centre = w.modes[0]->centre[j];
                origin[tick * n + j] = value == value ? value : centre == centre ? centre : 0.0;
            }
        kept.resize(w.kept.size());
        keep(w, 0, w.kept.size() / n);
    }

    // Keep rows, by their places.
    void keep(const Watching& w, std::size_t first, std::size_t stop) {
        const std::size_t n = layer->n;
        for (std::size_t r = first; r < stop; ++r)
            for (std::size_t j = 0; j < n; ++j)
                kept[r * n + j] = Short(w.kept[r * n + j] - origin_of(w, r)[j]);
    }
};

}  // namespace onlad

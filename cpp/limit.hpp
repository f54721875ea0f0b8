// The threshold of a stream; limit.py has the definition.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "constants.hpp"

namespace onlad {

class Limit {
public:
    double rate = 0.0, edge = 0.0, base = 0.0, factor = 0.0;    // factor: its logarithm
    double since = -1.0, rows = 0.0, peak = 0.0, alarms = 0.0;  // of the episode
    std::vector<float> recent, fresh;  // roots of normal scores, the newest last

    explicit Limit(const Constants& c) : c(c) {}

    // After `recent` or `rate` was set.
    void refresh() {
        const std::size_t most = std::size_t(c.limit_RECENT), taken = std::size_t(c.watching_TICK);
        recent.reserve(most);
        fresh.reserve(most / std::size_t(c.limit_FRESH) + taken);
        sorted.reserve(most);
        sorted = recent;
        std::sort(sorted.begin(), sorted.end());
        settle();
    }

    double value(double learned) const { return base * std::exp(factor) * doubt(learned); }

    // By what scores are divided when they are reported.
    double doubt(double learned) const { return 1.0 + c.limit_YOUNG / std::max(learned, 1.0); }

    bool lasts() const { return since >= 0.0 && rows >= c.limit_LASTING; }
    bool shelved() const { return lasts() && alarms >= c.limit_TOLD; }

    // Scores of normal rows go among the recent ones; none counts for more than `most`.
    void take(const double* scores, std::size_t count, double most) {
        for (std::size_t i = 0; i < count; ++i)
            fresh.push_back(float(std::sqrt(std::min(scores[i], most))));
        if (c.limit_FRESH * double(fresh.size()) < double(recent.size())) return;
        const std::size_t kept = std::size_t(c.limit_RECENT);
        if (fresh.size() > kept) fresh.erase(fresh.begin(), fresh.end() - std::ptrdiff_t(kept));
        const std::size_t both = recent.size() + fresh.size(), gone = both > kept ? both - kept : 0;
        replace(gone);
        recent.erase(recent.begin(), recent.begin() + std::ptrdiff_t(gone));
        recent.insert(recent.end(), fresh.begin(), fresh.end());
        fresh.clear();
        settle();
    }

    // The factor follows rows with these scores, in units of the limit.
    void follow(const double* ratio, const bool* refused, std::size_t count) {
        factor = std::max(0.0, factor - c.limit_STEP * rate * double(count));
        for (std::size_t i = 0; i < count; ++i) {
            if (refused[i]) {
                since = 0.0;
                rows += 1.0;
                peak = std::max(peak, ratio[i]);
                alarms += ratio[i] > 1.0 ? 1.0 : 0.0;
            } else if (since >= 0.0) {
                since += 1.0;
                if (since > c.limit_GAP) {
                    const double weak = rows < c.limit_SHORT ? c.limit_STRONG : c.limit_WEAK;
                    if (1.0 < peak && peak < weak)
                        factor = std::min(factor + c.limit_STEP, c.limit_HIGHEST);
                    since = -1.0;
                    rows = peak = alarms = 0.0;
                }
            }
        }
    }

    // The share of recent normal rows that score as high, with the row itself.
    double p_value(double score) const {
        const double root = std::sqrt(score);
        auto above = sorted.end() - std::lower_bound(sorted.begin(), sorted.end(), root);
        if (sorted.empty())  // a packed monitor with few rows: to sort would take longer
            above = std::count_if(recent.begin(), recent.end(),
                                  [root](float each) { return double(each) >= root; });
        return double(1 + above) / double(1 + recent.size());
    }

private:
    friend class Packed;
    const Constants& c;
    std::vector<float> sorted;

    void settle() {
        const double row = tail(false), alarm = tail(true);
        edge = std::max(c.limit_LEAST, row * row);
        base = std::max(c.limit_LEAST, alarm * alarm);
    }

    // `sorted` without the oldest `gone` of `recent`, and with `fresh`: one pass instead of a sort.
    void replace(std::size_t gone) {
        static thread_local std::vector<float> out, in, merged;
        out.assign(recent.begin(), recent.begin() + std::ptrdiff_t(gone));
        in.assign(fresh.begin(), fresh.end());
        std::sort(out.begin(), out.end());
        std::sort(in.begin(), in.end());
        merged.clear();
        auto leaves = out.begin();
        auto comes = in.begin();
        for (const float value : sorted) {
            if (leaves != out.end() && *leaves == value) {
                ++leaves;
                continue;
            }
            for (; comes != in.end() && *comes < value; ++comes) merged.push_back(*comes);
            merged.push_back(value);
        }
        merged.insert(merged.end(), comes, in.end());
        sorted.assign(merged.begin(), merged.end());
    }

    // Clusters of recent roots above u: they are more than `GAP` rows apart.
    double clusters(double u) const {
        double found = 0.0, gap = c.limit_GAP + 1.0;
        for (const float root : recent) {
            const bool high = double(root) > u;
            found += high && gap > c.limit_GAP;
            gap = high ? 0.0 : gap + 1.0;
        }
        return std::max(found, 1.0);
    }

    // The root that normal rows exceed with probability `rate`; if `clustered`, their clusters.
    double tail(bool clustered) const {
        const std::size_t n = sorted.size();
        const std::size_t k = std::min(
            std::size_t(std::max(std::floor(double(n) * c.limit_TAIL), c.limit_FEWEST)), n - 1);
        if (k < 2) return sorted.back();
        const double u = sorted[n - k - 1];
        double b0 = 0.0, b1 = 0.0;
        for (std::size_t i = 0; i < k; ++i) {
            const double excess = double(sorted[n - k + i]) - u;
            b0 += excess;
            b1 += excess * double(k - 1 - i);
        }
        b0 /= double(k);
        b1 /= double(k) * double(k - 1);
        const double ratio = rate * double(n) / (clustered ? clusters(u) : double(k));
        if (b0 <= 0.0 || ratio >= 1.0) return u;
        const double shape =
            std::min(std::max(2.0 - b0 / std::max(b0 - 2.0 * b1, c.limit_LEAST_SPREAD * b0), 0.0),
                     c.limit_HEAVIEST);
        const double scale = b0 * (1.0 - shape);
        const double far = shape < c.limit_EXPONENTIAL ? -std::log(ratio)
                                                       : (std::pow(ratio, -shape) - 1.0) / shape;
        const std::size_t high = std::min(n - 1, std::size_t(c.limit_HIGH * double(n)));
        return std::min(u + scale * far, c.limit_FARTHEST * double(sorted[high]));
    }
};

}  // namespace onlad

// Work on several threads.

#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace onlad {

// Run work(0) here and work(1) .. work(threads - 1) beside it. If no thread can be started, those
// that are there do it all.
template <class Work>
void beside(std::size_t threads, Work work) {
    std::vector<std::thread> others;
    others.reserve(threads);
    for (std::size_t k = 1; k < threads; ++k) {
        try {
            others.emplace_back(work, k);
        } catch (const std::system_error&) {
            break;
        }
    }
    work(0);
    for (std::thread& other : others) other.join();
}

}  // namespace onlad

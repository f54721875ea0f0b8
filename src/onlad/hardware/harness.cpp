// The clock and the two streams around a Verilated core, behind a C interface for ctypes.
//
// Each cycle: drive the inputs, let the clock fall and the logic settle, look at both handshakes,
// then the clock's rising edge. The clock falls together with the inputs: that is one evaluation
// less. A word that is offered stays offered until it is taken (AXI4-Stream), pauses come between
// words.
#include <cstdint>
#include <memory>

#include "Vtop.h"
#include "verilated.h"

namespace {

struct Core {
    std::unique_ptr<VerilatedContext> context = std::make_unique<VerilatedContext>();
    std::unique_ptr<Vtop> top = std::make_unique<Vtop>(context.get(), "top");
    std::uint64_t cycle = 0;
    std::uint64_t random = 1;
    bool offered = false;  // an answer was offered in the last cycle and not taken
    std::uint32_t offered_data = 0;
    bool offered_last = false;

    bool pause(std::uint32_t of_256) {  // xorshift64*: enough for pauses
        if (of_256 == 0) return false;
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return ((random * 0x2545F4914F6CDD1DULL) >> 56) < of_256;
    }

    void settle() {
        top->clk = 0;
        top->eval();
    }

    void rise() {
        top->clk = 1;
        top->eval();
        ++cycle;
    }
};

}  // namespace

extern "C" {

void* core_new() { return new Core; }  // to be reset before its first word

void core_free(void* handle) {
    auto* core = static_cast<Core*>(handle);
    core->top->final();
    delete core;
}

// Let `cycles` pass in which no word is offered and no answer is taken.
void core_wait(void* handle, std::uint64_t cycles) {
    auto* core = static_cast<Core*>(handle);
    core->top->s_axis_tvalid = 0;
    core->top->m_axis_tready = 0;
    for (; cycles > 0; --cycles) {
        core->settle();
        core->rise();
    }
}

void core_reset(void* handle) {
    auto* core = static_cast<Core*>(handle);
    core->top->rst = 1;
    core_wait(handle, 2);
    core->top->rst = 0;
    core->settle();
    core->offered = false;
}

std::uint64_t core_cycle(void* handle) { return static_cast<Core*>(handle)->cycle; }

// Offer `n_words` and take `n_answers`, in any interleaving. `taken` and `given` get the cycle in
// which each word was taken and each answer was first offered. Stops after `patience` cycles in
// which nothing moved. Returns the number of answers, or -1 when an offered answer was changed or
// withdrawn.
std::int64_t core_stream(void* handle, const std::uint64_t* words, const std::uint8_t* lasts,
                         std::uint64_t n_words, std::uint32_t* answers, std::uint8_t* answer_lasts,
                         std::uint64_t n_answers, std::uint64_t* taken, std::uint64_t* given,
                         std::uint32_t pauses, std::uint64_t seed, std::uint64_t patience) {
    auto* core = static_cast<Core*>(handle);
    auto& top = *core->top;
    core->random = seed * 2 + 1;
    std::uint64_t sent = 0, received = 0, idle = 0;
    bool held = false;
    while ((sent < n_words || received < n_answers) && idle < patience) {
        if (!held) {
            held = sent < n_words && !core->pause(pauses);
            top.s_axis_tvalid = held;
            if (held) {
                top.s_axis_tdata = words[sent];
                top.s_axis_tlast = lasts[sent];
            }
        }
        top.m_axis_tready = received < n_answers && !core->pause(pauses);
        core->settle();
        const bool valid = top.m_axis_tvalid;
        const std::uint32_t data = top.m_axis_tdata;
        const bool last = top.m_axis_tlast;
        if (core->offered && (!valid || data != core->offered_data || last != core->offered_last)) {
            return -1;
        }
        if (valid && !core->offered && received < n_answers) given[received] = core->cycle;
        const bool take = valid && top.m_axis_tready;
        const bool give = held && top.s_axis_tready;
        core->offered = valid && !take;
        core->offered_data = data;
        core->offered_last = last;
        if (take) {
            answers[received] = data;
            answer_lasts[received] = last;
            ++received;
        }
        if (give) {
            taken[sent] = core->cycle;
            ++sent;
            held = false;
        }
        idle = take || give ? 0 : idle + 1;
        core->rise();
    }
    top.s_axis_tvalid = 0;
    top.m_axis_tready = 0;
    core->settle();
    // Words that were not taken are the caller's to count: `taken` beyond them is untouched.
    return static_cast<std::int64_t>(received);
}

}  // extern "C"

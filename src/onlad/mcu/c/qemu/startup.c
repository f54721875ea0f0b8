/* From reset to main: the stack, which is painted, the FPU if there is one, memory of zeros. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t bss_start[], bss_end[], stack_low[], STACK[];
int main(void);
void reset(void);

static void begin(void) {
    uint32_t *word = bss_start, *here = (uint32_t*)__builtin_frame_address(0) - 32;
    while (word < bss_end) *word++ = 0;
    for (word = stack_low; word < here; ++word) *word = PAINT;
    host_exit(main() == 0);
}

#ifdef __riscv
/* 0x6000 switches the FPU on; without one nothing happens. */
__attribute__((naked, section(".vectors"))) void reset(void) {
    __asm__ volatile(
        ".option push\n.option norelax\n"
        "la sp, STACK\n.option pop\n"
        "li t0, 0x6000\n.option push\n.option arch, +zicsr\ncsrs mstatus, t0\n.option pop\n"
        "j %0"
        :
        : "i"(begin));
}
#else
static void fail(void) { host_exit(0); }

__attribute__((used, section(".vectors"))) static const struct {
    uint32_t* stack;
    void (*handler[15])(void);
} vectors = {STACK, {reset, fail, fail, fail, fail, fail, 0, 0, 0, 0, fail, 0, 0, fail, fail}};

void reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t*)0xe000ed88u |= 0xf00000u; /* CPACR */
    __asm__ volatile("dsb\nisb");
#endif
    begin();
}
#endif

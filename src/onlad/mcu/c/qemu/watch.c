/* Watch the rows of rows.bin; write the verdict on each and the instructions that it took, and at
 * the end all that was learned. */
#include "onlad.h"
#include "semihosting.h"

static onlad_monitor monitor;
static float x[ONLAD_FEATURES];
static onlad_verdict v;

/* Instructions or ticks of a clock that only counts down: see NS in the Makefile. */
#ifdef __riscv
static void clock_start(void) {}
static uint32_t clock_now(void) {
    uint32_t now;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop"
                     : "=r"(now));
    return ~now;
}
#define CLOCK 0xffffffffu
#else
#define SYSTICK ((volatile uint32_t*)0xe000e010u)
static void clock_start(void) {
    SYSTICK[1] = 0xffffffu;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5; /* on, by the processor's clock */
}
static uint32_t clock_now(void) { return SYSTICK[2]; }
#define CLOCK 0xffffffu
#endif

/* startup.c painted the stack from its end down to here; what is never written stays so. */
extern uint32_t stack_low[], STACK[];

/* The LED of the board, if it has one, and a line on the terminal. */
static void set_led(uint32_t row, int on) {
    char digits[11] = "";
    int at = 10;
#ifdef LED
    *(volatile uint32_t*)LED = (uint32_t)on;
#endif
    do digits[--at] = (char)('0' + row % 10);
    while ((row /= 10) != 0);
    semihosting(SYS_WRITE0, "row ");
    semihosting(SYS_WRITE0, digits + at);
    semihosting(SYS_WRITE0, on ? ": LED on\n" : ": LED off\n");
}

static int write_file(void* context, const void* bytes, size_t size) {
    return host_move(SYS_WRITE, *(intptr_t*)context, bytes, size) != 0;
}

int main(void) {
    intptr_t rows = host_open("rows.bin", 1), verdicts = host_open("verdicts.bin", 5);
    intptr_t state = host_open("state.bin", 5), figures = host_open("figures.bin", 5);
    static uint32_t sizes[2];
    uint32_t *word, row = 0;
    int on = 0;
    if (rows < 0 || verdicts < 0 || state < 0 || figures < 0) return 1;
    clock_start();
    onlad_init(&monitor);
    while (host_move(SYS_READ, rows, x, sizeof x) == 0) {
        uint32_t steps = clock_now();
        onlad_observe(&monitor, x, &v);
        steps = (steps - clock_now()) & CLOCK;
        if (host_move(SYS_WRITE, verdicts, &v, sizeof v)) return 1;
        if (host_move(SYS_WRITE, verdicts, &steps, sizeof steps)) return 1;
        if (v.is_anomaly != on) set_led(row, on = v.is_anomaly);
        ++row;
    }
    if (onlad_dump(&monitor, 0, write_file, &state) != ONLAD_OK) return 1;
    for (word = stack_low; *word == PAINT; ++word) {
    }
    sizes[0] = sizeof monitor;
    sizes[1] = (uint32_t)(4 * (STACK - word)); /* with the frames of main and what called it */
    return host_move(SYS_WRITE, figures, sizes, sizeof sizes) != 0;
}

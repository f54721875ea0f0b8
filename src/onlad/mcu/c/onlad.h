/* onlad: a monitor that learns on the chip what is normal, and says what is not.
 *
 * C99, float32, no heap, no recursion; of the C library memcpy and sqrtf. The sizes stand in
 * onlad_model.h, which `onlad export` writes. The same source runs in Python as
 * onlad.mcu.PortableMonitor, and gives the same bits.
 */
#ifndef ONLAD_H
#define ONLAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef ONLAD_RUNTIME /* in Python the sizes are known when a monitor is made */
#define ONLAD_FEATURES (m->features)
#define ONLAD_WINDOW (m->window)
#define ONLAD_GROUPS (m->groups)
#define ONLAD_UNITS (m->units)
#define ONLAD_MODES (m->modes)
#define onlad_alpha (m->alpha)
#define onlad_bias (m->bias)
#else
#include "onlad_model.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ONLAD_DELAY 64  /* rows after which a row is learned, and rows of a tick */
#define ONLAD_BINS 97   /* of the histogram of recent scores */
#define ONLAD_BEFORE 3  /* words of the bins of the scores counted last */
#define ONLAD_CAUSES 3  /* features that a verdict names */
#define ONLAD_NONE (-1) /* no feature */

/* Sizes that follow. The window is looked at with a constant before it, the newest row last. */
#define ONLAD_INPUTS (ONLAD_FEATURES * ONLAD_WINDOW + 1)
#define ONLAD_HIDDEN (ONLAD_GROUPS * ONLAD_UNITS)
#define ONLAD_RING (ONLAD_DELAY + ONLAD_WINDOW)
#define ONLAD_MASKS ((ONLAD_FEATURES + 31) / 32)
#define ONLAD_TRIANGLE(size) ((size) * ((size) + 1) / 2)

/* One mode: centre, unit, the factors of both instances, beta, usual and largest squares, those of
 * leans, levels.
 */
#define ONLAD_MODE_FLOATS                                                        \
    (2 * ONLAD_FEATURES + ONLAD_TRIANGLE(ONLAD_INPUTS) +                         \
     ONLAD_GROUPS * ONLAD_TRIANGLE(ONLAD_UNITS) + ONLAD_FEATURES * ONLAD_UNITS + \
     6 * ONLAD_FEATURES + 24)
#define ONLAD_ANCHOR_FLOATS (ONLAD_FEATURES * (ONLAD_INPUTS + 6))
#define ONLAD_SCALARS 32
#define ONLAD_FLOATS                                                                       \
    (ONLAD_MODES * ONLAD_MODE_FLOATS + ONLAD_ANCHOR_FLOATS + ONLAD_RING * ONLAD_FEATURES + \
     7 * ONLAD_FEATURES + ONLAD_SCALARS)
#define ONLAD_COUNTS \
    (20 + 4 * ONLAD_MODES + ONLAD_BINS + ONLAD_BEFORE + ONLAD_RING * (1 + ONLAD_MASKS))
#define ONLAD_LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ONLAD_WIDEST ONLAD_LARGER(3 * ONLAD_FEATURES, ONLAD_LARGER(ONLAD_UNITS, ONLAD_INPUTS))
#ifdef ONLAD_FIXED /* matrices in fixed point, for chips without an FPU */
#define ONLAD_SCRATCH (ONLAD_INPUTS + ONLAD_WIDEST + 3 * ONLAD_FEATURES)
#define ONLAD_SMALL (ONLAD_INPUTS + ONLAD_HIDDEN)
typedef int16_t onlad_weight;
#else
#define ONLAD_SCRATCH (ONLAD_INPUTS + ONLAD_WIDEST + ONLAD_HIDDEN + 3 * ONLAD_FEATURES)
typedef float onlad_weight;
#endif

#define ONLAD_HEADER 36 /* bytes of a dump before the state; four of a checksum follow it */
#define ONLAD_DUMP (ONLAD_HEADER + 4 * (ONLAD_COUNTS + ONLAD_FLOATS) + 4)

typedef struct {
#ifdef ONLAD_RUNTIME
    int features, window, groups, units, modes;
    const onlad_weight *alpha, *bias;
    uint32_t* count;
    float *memory, *scratch;
#ifdef ONLAD_FIXED
    int16_t* small;
#endif
#else
    uint32_t count[ONLAD_COUNTS]; /* what is dumped: whole numbers, */
    float memory[ONLAD_FLOATS];   /* and all others */
    float scratch[ONLAD_SCRATCH]; /* of one row */
#ifdef ONLAD_FIXED
    int16_t small[ONLAD_SMALL];
#endif
#endif
} onlad_monitor;

typedef enum {
    ONLAD_OK = 0,
    ONLAD_OUT_OF_RANGE, /* a value is infinite or beyond 1e15: it counted as missing */
    ONLAD_BAD_ARGUMENT, /* nothing was done */
    ONLAD_BAD_DUMP,     /* no dump of this model, or a damaged one: nothing was done */
    ONLAD_WRITE_FAILED  /* the function that writes said so */
} onlad_status;

typedef struct {
    int feature; /* ONLAD_NONE if there are fewer */
    float share; /* of the score; all shares sum to 1 */
} onlad_cause;

typedef struct {
    float score;     /* 0 is usual; there is no upper end */
    float threshold; /* above it a row is an anomaly */
    float p_value;   /* share of recent normal rows that score as high */
    uint8_t ready;   /* 0 while the monitor warms up */
    uint8_t is_anomaly;
    uint8_t learned; /* usual enough to be learned, unless many of the next 64 rows are not */
    uint8_t drift;   /* a lasting change has become a mode of its own here */
    int drifting;    /* the feature that moved away slowly, or ONLAD_NONE */
    onlad_cause causes[ONLAD_CAUSES];
} onlad_verdict;

/* Start anew: with the model of onlad_model.h if it holds one, else with nothing learned. */
void onlad_init(onlad_monitor* m);

/* Judge one row of ONLAD_FEATURES values, NaN for a missing one, and learn it later if it is
 * normal. */
onlad_status onlad_observe(onlad_monitor* m, const float* x, onlad_verdict* verdict);

/* Learn a row whatever its score was: an alarm that was none. `ago` is 0 for the last row, at most
 * ONLAD_DELAY - 1. */
onlad_status onlad_accept(onlad_monitor* m, int ago);

/* While paused, rows are judged and none is learned. */
void onlad_pause(onlad_monitor* m, int paused);

/* Share of normal rows at which a false alarm may begin, in (0, 1). */
onlad_status onlad_set_false_alarms(onlad_monitor* m, float rate);

/* Rows of the start of a monitor that has seen none yet: a multiple of 12, from 96 to 98,304. */
onlad_status onlad_set_warmup(onlad_monitor* m, uint32_t rows);

/* A monitor that has seen no row yet is to watch a counter (energy, pieces, hours), which only
 * rises, by its rate. */
onlad_status onlad_set_counter(onlad_monitor* m, int feature);

/* Write all that was learned, ONLAD_DUMP bytes, piece by piece in order. `sequence` is any number;
 * `write` returns 0 if it succeeded. Little-endian processors with IEEE floats only. */
typedef int (*onlad_write)(void* context, const void* bytes, size_t size);
onlad_status onlad_dump(const onlad_monitor* m, uint32_t sequence, onlad_write write,
                        void* context);

/* Take over a dump. The bytes are checked first; if they are refused, `m` is as it was. */
onlad_status onlad_restore(onlad_monitor* m, const void* bytes, size_t size);

/* Whether the bytes are a whole dump of this model, and if so its sequence number. */
onlad_status onlad_check(const onlad_monitor* m, const void* bytes, size_t size,
                         uint32_t* sequence);

#ifdef __cplusplus
}
#endif

#endif

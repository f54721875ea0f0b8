/* The monitor of onlad on a microcontroller. docs/explanation/mathematics.md, "The monitor on a
 * chip", has the equations; onlad.mcu.definition is the same in NumPy.
 *
 * Each row costs about the same: it is judged, and the row of ONLAD_DELAY rows before is learned by
 * rank-one updates. So there is no solve, no sort, and nothing that is done for many rows at once.
 */
/* A fused multiply-add rounds once where others round twice: without it all chips agree. And a loop
 * that clears memory is to stay one, as memset would be one function more of the C library: for
 * Clang that is said below, of definitions alone. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-tree-loop-distribute-patterns")
#endif

#define ONLAD_IMPLEMENTATION
#include "onlad.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_builtin("memset"))), apply_to = function)
#endif

#if INT_MAX < 2147483647
#error "onlad needs a processor with an int of 32 bits"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "onlad needs arithmetic by the standard, as NaN is a missing value: no -ffast-math"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "onlad needs a little-endian processor: dumps are bytes of it"
#endif

/* constants: python tests/mcu/test_mcu_constants.py */
#define CLIP 10000.0f
#define RANGE 4.0f
#define STILL 1e-12f
#define RIDGE 0.1f
#define CONSTANT 1e-06f
#define LAMBDA 0.99980001f
#define PRIOR 64.0f
#define PRIOR_SQUARE 0.02f
#define OFTEN 64.0f
#define ACCEPTED 8.0f
#define SMOOTHING 0.0333333333f
#define LEANING 0.0333333333f
#define BEYOND 2.0f
#define FEW 4.0f
#define LEAST_REACH 0.5f
#define LEAST_MEAN_REACH 0.05f
#define WINSOR 3.0f
#define CORRELATED 4.0f
#define KEEP 0.5f
#define FILLED 5.0f
#define RESET 0.5f
#define HELD 4.0f
#define REFUSED 0.5f
#define YOUNG_GATE 256.0f
#define SHELVED 1.5f
#define SPARED 0.1f
#define CANDIDATE 256.0f
#define PATIENCE 0.5f
#define SHORTEST 256.0f
#define LONGEST 4096.0f
#define FOREIGN 0.25f
#define LEAST 0.1f
#define TAIL 0.02f
#define FARTHEST 1.4f
#define STEP 0.3f
#define STEP_FACTOR 1.34985881f
#define HIGHEST_FACTOR 54.59815f
#define WEAK 2.0f
#define STRONG 8.0f
#define SINGLE 1.25f
#define YOUNG_LIMIT 2048.0f
#define MEAN 512.0f
#define OUTSIDE 3.0f
#define SLACK 0.5f
#define ANCHOR_CLIP 20.0f
#define GROWS 2.0f
#define EXPIRING 4u
#define MEMORY 5000u
#define RECENT 2048u
#define LASTING 512u
#define TOLD 128u
#define GAP 10u
#define SHORT_EPISODE 4u
#define SETTLED 2048u
#define MEASURED 4096u
/* end of constants */

#ifdef ONLAD_FIXED
#undef CLIP
#define CLIP 1000.0f /* a word of U is less than 2,048 */
#endif

#define BLOCK 512u      /* the mean of the largest of so many rows is about the 0.999 quantile */
#define OCTAVE 16       /* bins of the histogram in a factor of two */
#define LOWEST (-5)     /* the first of them begins at 2^LOWEST, in roots of scores */
#define WIDER 2.0f      /* usual squares of a candidate, in units: above, they are too small */
#define STEEP 8.0f      /* of a running median: its step is whole from a quarter of DEVIATION on */
#define MOST 1e15f      /* the sum of its squares over a start is a float */
#define SMALLEST 1e-30f /* what moves by less is still */
#define NAN_BITS 0x7fc00000u
#define UNCOUNTED (2.0f * MOST) /* in the place of a counter's last value, before the first */
#define STATISTICS 4

/* Whole numbers: of all rows, of the limit and a candidate, of the anchor. */
enum { SEEN, READY, POSITION, CURRENT, WARMUP, PAUSED, TICKED, REFUSED_ROWS };
enum { TOTAL = REFUSED_ROWS + 1, SINCE, EPISODE, ALARMS, EXPLAINED, UNEXPLAINED, IDLE };
enum { ANCHORED = IDLE + 1, SETTLING, ANCHOR_ROWS, DRIFTING, RUN, SLOTS };
enum { ROLE, ROWS, WEIGHT, BEGUN };            /* of a slot */
enum { FREE, MODE, BEGINNING, WAITING, TWIN }; /* its role */
#define SLOT(slot, what) m->count[SLOTS + 4 * (slot) + (what)]
/* The histogram has a word for each bin: rows, and in the upper half those that follow one as high.
 * BEFORE has the bins of the last GAP + 1 rows, a byte each. */
#define HISTOGRAM (m->count + SLOTS + 4 * ONLAD_MODES)
#define BEFORE (HISTOGRAM + ONLAD_BINS)
#define FLAGS (BEFORE + ONLAD_BEFORE)
#define MASK(row) (FLAGS + ONLAD_RING + (row) * ONLAD_MASKS)
/* Flags of a row. The low byte is its mode, the third one the bin of its score. */
enum { OPEN = 256, UNUSUAL = 512, JUDGED = 1024, ALONE = 2048, SCORED = 16 };

/* All others. */
#define MODES_AT 0
#define ANCHOR_AT (ONLAD_MODES * ONLAD_MODE_FLOATS)
#define RING_AT (ANCHOR_AT + ONLAD_ANCHOR_FLOATS)
#define LEANS_AT (RING_AT + ONLAD_RING * ONLAD_FEATURES)
#define FIRST_LEANS_AT (LEANS_AT + 2 * ONLAD_FEATURES)
#define AGE_AT (FIRST_LEANS_AT + 2 * ONLAD_FEATURES)
#define PATIENCE_AT (AGE_AT + ONLAD_FEATURES)
#define COUNTED_AT (PATIENCE_AT + ONLAD_FEATURES)
#define SCALARS_AT (COUNTED_AT + ONLAD_FEATURES)
enum { RATE, FACTOR, NOW, GATE, DOUBT, LAST, PEAK, HIGHEST, MEANS };
enum { BLOCKS = MEANS + 4, FIRST_MEANS = MEANS + 12, DEVIATION = MEANS + 16 };
#define SCALAR(what) m->memory[SCALARS_AT + (what)]

/* A mode. */
#define SCALE_AT ONLAD_FEATURES
#define LINEAR_AT (2 * ONLAD_FEATURES)
#define TANH_AT (LINEAR_AT + ONLAD_TRIANGLE(ONLAD_INPUTS))
#define BETA_AT (TANH_AT + ONLAD_GROUPS * ONLAD_TRIANGLE(ONLAD_UNITS))
#define USUAL_AT (BETA_AT + ONLAD_FEATURES * ONLAD_UNITS)
#define LARGEST_AT (USUAL_AT + 2 * ONLAD_FEATURES)
#define LEANING_AT (LARGEST_AT + 2 * ONLAD_FEATURES)
#define LEVELS_AT (LEANING_AT + 2 * ONLAD_FEATURES)
enum { OF_ROWS, OF_MEANS = 8, OF_LEANS = 16, LEVELS = 24, REACH = 4 }; /* medians, then reaches */

/* An anchor: coefficients by feature, then six rows. */
#define ANCHOR(what) (m->memory + ANCHOR_AT + ONLAD_FEATURES * (ONLAD_INPUTS + (what)))
enum { ITS_CENTRE, ITS_SCALE, ITS_DEVIATION, LEAN, HALVES };

/* Scratch. */
#define V (m->scratch)
#define NEWEST (V + ONLAD_INPUTS - ONLAD_FEATURES) /* of its rows */
#define B (V + ONLAD_INPUTS)
#ifdef ONLAD_FIXED
#define INPUT (m->small) /* V, as it is multiplied */
#define H (m->small + ONLAD_INPUTS)
#define ERRORS (B + ONLAD_WIDEST)
#else
#define INPUT V
#define H (B + ONLAD_WIDEST)
#define ERRORS (H + ONLAD_HIDDEN)
#endif
#define SHARES (ERRORS + 2 * ONLAD_FEATURES)
#define LEANED B /* B is free after `look`, until `learn` */
#define SQUARES (B + 2 * ONLAD_FEATURES)

/* The random layer: stored, or drawn anew for each row, unit by unit, its bias first. */
#ifdef ONLAD_SEED
#define LAYER_BEGINS uint32_t random = ONLAD_SEED
#define BIAS_OF(k) drawn(&random, ONLAD_BIAS_SPREAD)
#define WEIGHT_OF(k, j) ((j) % ONLAD_GROUPS == (k) / ONLAD_UNITS ? 0 : drawn(&random, ONLAD_SPREAD))
#else
#define LAYER_BEGINS const onlad_weight* weight = onlad_alpha
#define BIAS_OF(k) onlad_bias[k]
#define WEIGHT_OF(k, j) *weight++
#endif

#define NEW_ROW(row) (m->memory + RING_AT + (row) * ONLAD_FEATURES)

/* A function that has left the stack when others learn. */
#if defined(__GNUC__)
#define APART __attribute__((noinline))
#else
#define APART
#endif

static float* mode_at(onlad_monitor* m, int slot) {
    return m->memory + MODES_AT + slot * ONLAD_MODE_FLOATS;
}

/* -- functions of one number -- */

static int known(float x) { return x == x; }

static float magnitude(float x) { return x < 0.0f ? -x : x; }

static float bounded(float x, float most) { return x > most ? most : x < -most ? -most : x; }

static float larger(float a, float b) { return a > b ? a : b; }

static float smaller(float a, float b) { return a < b ? a : b; }

static uint32_t bits(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    return word;
}

static float from_bits(uint32_t word) {
    float x;
    memcpy(&x, &word, 4);
    return x;
}

/* The natural logarithm of a positive number. */
static float logarithm(float x) {
    int exponent = (int)(bits(x) >> 23) - 127;
    float part = from_bits((bits(x) & 0x7fffffu) | 0x3f800000u), t, s;
    t = (part - 1.0f) / (part + 1.0f);
    s = t * t;
    t = 2.0f * t * (1.0f + s * (0.333333333f + s * (0.2f + s * (0.142857143f + s * 0.111111111f))));
    return t + (float)exponent * 0.693147181f;
}

/* exp(x) for x from 0 to 40. */
static float exponential(float x) {
    int whole = (int)(x * 1.44269504f);
    float r = x - (float)whole * 0.693147181f;
    float y = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666667f +
                                                  r * (0.0416666667f + r * (0.00833333333f +
                                                                            r * 0.00138888889f)))));
    return y * from_bits((uint32_t)(whole + 127) << 23);
}

static void clear(float* at, int size) {
    while (size--) *at++ = 0.0f;
}

/* -- rows of the ring -- */

static int before(const onlad_monitor* m, int row, int rows) {
    int at = row - rows;
    (void)m;
    return at < 0 ? at + ONLAD_RING : at;
}

static int is_present(onlad_monitor* m, int row, int feature) {
    return (int)(MASK(row)[feature / 32] >> (feature % 32)) & 1;
}

/* -- one mode and one row -- */

/* Say how many rows before a row its window may hold: all of them, or the row stands in for them.
 */
static void set_run(onlad_monitor* m, int row, uint32_t run) {
    FLAGS[row] &= ~(uint32_t)ALONE;
    if (run < (uint32_t)ONLAD_WINDOW - 1) FLAGS[row] |= ALONE;
}

/* Fill V with the window of a row, the newest last, in the units of a mode or of the anchor. */
static void look_at(onlad_monitor* m, int row, const float* centre, const float* scale,
                    float most) {
    const int back = FLAGS[row] & ALONE ? 0 : 1;
    V[0] = 1.0f;
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        const float over = scale[j] > 0.0f ? 1.0f / scale[j] : 0.0f;
        float* v = V + ONLAD_INPUTS - ONLAD_FEATURES + j;
        for (int lag = 0; lag < ONLAD_WINDOW; ++lag, v -= ONLAD_FEATURES) {
            const float z = (NEW_ROW(before(m, row, lag * back))[j] - centre[j]) * over;
            *v = known(z) ? bounded(z, most) : 0.0f;
        }
    }
}

#ifdef ONLAD_SEED
/* The next number of the layer, from -spread to spread. */
static onlad_weight drawn(uint32_t* random, onlad_weight spread) {
    *random = *random * 1664525u + 1013904223u;
#ifdef ONLAD_FIXED
    return (onlad_weight)((int32_t)(*random >> 16) * spread / 32768 - spread);
#else
    return ((float)(*random >> 16) * (1.0f / 32768.0f) - 1.0f) * spread;
#endif
}
#endif

/* One over the weight of the ridge that is put back, for one of `size` units at each row. */
static float put_back(int size) { return 1.0f / (RIDGE * (float)size * (1.0f - LAMBDA)); }

/* What follows is done in floats or in words. Of the errors of the linear instance are made B = D
 * U'v and then (U D U'v)_j / (U D U')_jj of each feature, from its own row on. */
#ifdef ONLAD_FIXED
#include "onlad_fixed.h"
#else
#define UNIT_BITS 0
#define ENTRY(word) from_bits(word) /* of U or beta, from a dump */
#define LARGEST_ENTRY 1e9f          /* of U, */
#define LARGEST_BETA 1e6f           /* and of beta */
#define IS_FIXED 0
#define weight_in(column, i) (column)[i]
#define set_entry(at, x) (*(at) = (x))
#define narrow_inputs(m) 0

/* z - beta h */
static float left_over(const float* beta, const float* h, int size, float z, int fraction) {
    (void)fraction;
    for (int i = 0; i < size; ++i) z -= beta[i] * h[i];
    return z;
}

/* A quotient of polynomials, within 1.2e-4 of tanh. */
static float squash(float x) {
    float s, y;
    if (x > 4.9f) return 1.0f;
    if (x < -4.9f) return -1.0f;
    s = x * x;
    y = x * (135135.0f + s * (17325.0f + s * (378.0f + s)));
    return y / (135135.0f + s * (62370.0f + s * (3150.0f + s * 28.0f)));
}

static void fill_units(onlad_monitor* m, int fraction) {
    LAYER_BEGINS;
    (void)fraction;
    for (int k = 0; k < ONLAD_HIDDEN; ++k) {
        float sum = BIAS_OF(k);
        for (int j = 0; j < ONLAD_FEATURES; ++j) sum += WEIGHT_OF(k, j) * NEWEST[j];
        H[k] = squash(sum);
    }
}

static void linear_errors(onlad_monitor* m, const float* U, int first, int fraction) {
    (void)fraction;
    for (int k = first; k < ONLAD_INPUTS; ++k) {
        const float* column = U + ONLAD_TRIANGLE(k);
        B[k] = V[k];
        for (int i = 0; i < k; ++i) B[k] += column[i] * V[i];
        B[k] *= column[k];
    }
    for (int j = first; j < ONLAD_INPUTS; ++j) {
        const float* column = U + ONLAD_TRIANGLE(j);
        float above = B[j], below = column[j];
        for (int k = j + 1; k < ONLAD_INPUTS; ++k) {
            column += k;
            above += column[j] * B[k];
            below += column[j] * column[j] * column[k];
        }
        ERRORS[ONLAD_FEATURES + j - first] = above / below;
    }
}

/* Add h'h to the inverse of U D U', which was weighed down by `shrink`: Bierman's update. `weight`
 * is one over the weight of h, which is a unit vector if `unit` is not negative. Return by
 * what b is to be multiplied to be the gain. */
static float learn_factor(float* U, int size, const float* h, int fraction, int unit, float weight,
                          float shrink, float* b) {
    const int first = unit < 0 ? 0 : unit;
    (void)fraction;
    clear(b, first);
    for (int j = first; j < size; ++j) {
        float *column = U + ONLAD_TRIANGLE(j), f = j == unit  ? 1.0f
                                                   : unit < 0 ? h[j]
                                                              : column[unit];
        for (int i = 0; unit < 0 && i < j; ++i) f += column[i] * h[i];
        const float v = column[j] * f, next = weight + f * v, p = -f / weight;
        column[j] *= weight / next / shrink;
        for (int i = 0; i < j; ++i) {
            const float u = column[i];
            column[i] = u + b[i] * p;
            b[i] += u * v;
        }
        b[j] = v;
        weight = next;
    }
    return 1.0f / weight;
}

/* beta += b e */
static void move_beta(float* beta, const float* b, float e, int size) {
    for (int k = 0; k < size; ++k) beta[k] += b[k] * e;
}
#endif

/* Fill V, H with the tanh units of a row, and ERRORS with the errors of both instances. */
static void look(onlad_monitor* m, int slot, int row) {
    const float* mode = mode_at(m, slot);
    look_at(m, row, mode, mode + SCALE_AT, CLIP);
    const int fraction = narrow_inputs(m);
    fill_units(m, fraction);
    for (int j = 0; j < ONLAD_FEATURES; ++j)
        ERRORS[j] = left_over(mode + BETA_AT + j * ONLAD_UNITS, H + j % ONLAD_GROUPS * ONLAD_UNITS,
                              ONLAD_UNITS, NEWEST[j], UNIT_BITS);
    linear_errors(m, mode + LINEAR_AT, ONLAD_INPUTS - ONLAD_FEATURES, fraction);
}

/* Learn what `look` saw. */
static void learn(onlad_monitor* m, int slot, float shrink) {
    float *mode = mode_at(m, slot), *linear = mode + LINEAR_AT;
    const int turn = (int)(SLOT(slot, ROWS) % (uint32_t)ONLAD_UNITS);
    const int input = 1 + (int)(SLOT(slot, ROWS) % (uint32_t)(ONLAD_INPUTS - 1));
    const int fraction = narrow_inputs(m);
    for (int group = 0; group < ONLAD_GROUPS; ++group) {
        float *U = mode + TANH_AT + group * ONLAD_TRIANGLE(ONLAD_UNITS), gain;
        gain =
            learn_factor(U, ONLAD_UNITS, H + group * ONLAD_UNITS, UNIT_BITS, -1, shrink, shrink, B);
        for (int j = group; j < ONLAD_FEATURES; j += ONLAD_GROUPS)
            move_beta(mode + BETA_AT + j * ONLAD_UNITS, B, ERRORS[j] * gain, ONLAD_UNITS);
        gain = learn_factor(U, ONLAD_UNITS, H, UNIT_BITS, turn, put_back(ONLAD_UNITS), 1.0f, B);
        for (int j = group; j < ONLAD_FEATURES; j += ONLAD_GROUPS) {
            float* beta = mode + BETA_AT + j * ONLAD_UNITS;
            move_beta(beta, B, -weight_in(beta, turn) * gain, ONLAD_UNITS);
        }
    }
    learn_factor(linear, ONLAD_INPUTS, INPUT, fraction, -1, shrink, shrink, B);
    learn_factor(linear, ONLAD_INPUTS, INPUT, fraction, input, put_back(ONLAD_INPUTS - 1), 1.0f, B);
    ++SLOT(slot, ROWS);
}

/* The usual square of one error of an instance, whose usual squares have this mean: shrunk, and not
 * far below the largest. */
static float usual_square(onlad_monitor* m, int slot, int k, float mean) {
    const float *mode = mode_at(m, slot), weight = (float)SLOT(slot, WEIGHT);
    const float least = PRIOR * larger(mean, PRIOR_SQUARE);
    return larger((weight * mode[USUAL_AT + k] + least) / (weight + PRIOR),
                  mode[LARGEST_AT + k] / OFTEN);
}

static float mean(const float* values, int size) {
    float sum = 0.0f;
    for (int k = 0; k < size; ++k) sum += values[k];
    return sum / (float)size;
}

/* From ERRORS: the four statistics, SQUARES by feature in units of the usual ones, and LEANED, the
 * errors in deviations, of which none counts for more than WINSOR. */
static void statistics(onlad_monitor* m, int slot, int row, float* found) {
    int present = 0;
    clear(SQUARES, ONLAD_FEATURES);
    for (int j = 0; j < ONLAD_FEATURES; ++j) present += is_present(m, row, j);
    for (int instance = 0; instance < 2; ++instance) {
        const int first = instance * ONLAD_FEATURES;
        const float usual = mean(mode_at(m, slot) + USUAL_AT + first, ONLAD_FEATURES);
        float sum = 0.0f, most = 0.0f;
        for (int j = 0; j < ONLAD_FEATURES; ++j) {
            if (is_present(m, row, j)) {
                float error = ERRORS[first + j] / sqrtf(usual_square(m, slot, first + j, usual));
                float square = error * error;
                LEANED[first + j] = bounded(error, WINSOR);
                sum += square;
                most = larger(most, square);
                SQUARES[j] += square;
            }
        }
        found[instance] = present ? sum / (float)present : 0.0f;
        found[2 + instance] = most;
    }
}

/* How far a statistic is above its median, in reaches. */
static float standard(const float* level, int i, float found) {
    return (found - level[i]) / level[REACH + i];
}

static void standardise(const float* level, float* found) {
    for (int i = 0; i < STATISTICS; ++i) found[i] = standard(level, i, found[i]);
}

/* Let leans follow LEANED, which becomes the new leans; a missing value leaves them as they are.
 * Without leans before it they begin at 0. */
static void lean(onlad_monitor* m, int row, const float* before_it) {
    for (int k = 0; k < 2 * ONLAD_FEATURES; ++k) {
        const float last = before_it ? before_it[k] : 0.0f;
        const int present = is_present(m, row, k % ONLAD_FEATURES);
        LEANED[k] = present ? last + LEANING * (LEANED[k] - last) : last;
    }
}

/* The four statistics of LEANED. */
static void lean_statistics(onlad_monitor* m, int slot, float* found) {
    const float* leaning = mode_at(m, slot) + LEANING_AT;
    for (int instance = 0; instance < 2; ++instance) {
        float sum = 0.0f, most = 0.0f;
        for (int j = instance * ONLAD_FEATURES; j < (instance + 1) * ONLAD_FEATURES; ++j) {
            float square = LEANED[j] * LEANED[j] / leaning[j];
            sum += square;
            most = larger(most, square);
        }
        found[instance] = sum / (float)ONLAD_FEATURES;
        found[2 + instance] = most;
    }
}

/* The score of standardised statistics; with running means and statistics of leans if there are
 * any. */
static float total(const float* levels, const float* found, const float* means,
                   const float* leans) {
    float sum = 0.0f;
    for (int i = 0; i < STATISTICS; ++i) {
        float one = found[i];
        if (means) {
            one = larger(one, standard(levels + OF_MEANS, i, means[i]));
            one = larger(one, standard(levels + OF_LEANS, i, leans[i]));
        }
        sum += larger(one, 0.0f);
    }
    return sum / (float)STATISTICS;
}

/* The score of one row by itself. */
static float score_of(onlad_monitor* m, int slot, int row) {
    const float* levels = mode_at(m, slot) + LEVELS_AT;
    float found[STATISTICS];
    look(m, slot, row);
    statistics(m, slot, row, found);
    standardise(levels, found);
    return total(levels, found, NULL, NULL);
}

/* -- learning -- */

/* Let the usual squares follow ERRORS. */
static void take(onlad_monitor* m, int slot, int row) {
    float* mode = mode_at(m, slot);
    const float share = 1.0f / ((float)SLOT(slot, WEIGHT) + 1.0f);
    for (int k = 0; k < 2 * ONLAD_FEATURES; ++k) {
        if (is_present(m, row, k % ONLAD_FEATURES)) {
            float square = ERRORS[k] * ERRORS[k], *usual = mode + USUAL_AT + k;
            *usual += (square - *usual) * share;
            mode[LARGEST_AT + k] = larger(mode[LARGEST_AT + k], square);
        }
    }
    if (SLOT(slot, WEIGHT) < MEMORY) ++SLOT(slot, WEIGHT);
}

static void wake(onlad_monitor* m, int slot, int row) {
    float* mode = mode_at(m, slot);
    const float* x = NEW_ROW(row);
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        float *centre = mode + j, *scale = mode + SCALE_AT + j, moved;
        if (*scale > 0.0f || !is_present(m, row, j)) continue;
        if (!known(*centre)) *centre = x[j];
        moved = magnitude(x[j] - *centre);
        if (moved > STILL * magnitude(*centre) + SMALLEST) *scale = moved;
    }
}

/* -- the histogram of recent scores -- */

static int bin(float score) {
    int at = (int)(bits(sqrtf(score)) >> 19) - (127 + LOWEST) * OCTAVE + 1;
    return at < 0 ? 0 : at >= ONLAD_BINS ? ONLAD_BINS - 1 : at;
}

static uint32_t rows_in(const onlad_monitor* m, int at) { return HISTOGRAM[at] & 0xffffu; }

/* A row begins a cluster above a bin if none of the GAP + 1 rows before it is above it too: the
 * upper half of a word counts the others. A full histogram is halved: of the rows in each bin and
 * those above it every second stays. Half of each bin alone would leave nothing of a tail in which
 * most have one row. */
static void count_score(onlad_monitor* m, int at) {
    uint8_t* before_it = (uint8_t*)BEFORE;
    uint32_t odd = 0;
    int highest = 0;
    for (int k = (int)GAP; k >= 0; --k) {
        if (before_it[k] > highest) highest = before_it[k];
        before_it[k] = k ? before_it[k - 1] : (uint8_t)at;
    }
    ++HISTOGRAM[at];
    HISTOGRAM[highest < at ? highest : at] += 0x10000u;
    if (++m->count[TOTAL] < RECENT) return;
    for (int k = ONLAD_BINS - 1; k >= 0; --k) {
        const uint32_t both = HISTOGRAM[k] + odd;
        odd = both & 0x10001u;
        HISTOGRAM[k] = both >> 1 & 0x7fff7fffu;
    }
    m->count[TOTAL] = RECENT / 2;
}

/* -- the start of a mode: units, learning, usual squares, levels, levels of running means -- */

/* A place that is free holds zeros. */
static void release(onlad_monitor* m, int slot) {
    clear(mode_at(m, slot), ONLAD_MODE_FLOATS);
    SLOT(slot, ROLE) = SLOT(slot, ROWS) = SLOT(slot, WEIGHT) = SLOT(slot, BEGUN) = FREE;
}

/* While units are measured, USUAL has the smallest and largest value, and LARGEST the rows. */
static void measure_units(onlad_monitor* m, int slot, int row) {
    float* mode = mode_at(m, slot);
    const float* x = NEW_ROW(row);
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        float *low = mode + USUAL_AT + j, *high = low + ONLAD_FEATURES;
        float *rows = mode + LARGEST_AT + j, away;
        if (!is_present(m, row, j)) continue;
        if (*rows == 0.0f) *low = *high = mode[j] = x[j];
        *rows += 1.0f;
        away = x[j] - mode[j];
        mode[j] += away / *rows;
        mode[SCALE_AT + j] += away * (x[j] - mode[j]);
        *low = smaller(*low, x[j]);
        *high = larger(*high, x[j]);
    }
}

static void settle_factor(float* U, int size, float first) {
    clear(U, ONLAD_TRIANGLE(size));
    for (int j = 0; j < size; ++j) U[ONLAD_TRIANGLE(j) + j] = 1.0f / (j ? RIDGE : first);
}

/* Begin to learn in the units of a mode. */
static void begin_learning(onlad_monitor* m, int slot) {
    float* mode = mode_at(m, slot);
    clear(mode + LINEAR_AT, ONLAD_MODE_FLOATS - LINEAR_AT);
    for (int k = 0; k < 2 * ONLAD_FEATURES; ++k)
        if (!(mode[SCALE_AT + k % ONLAD_FEATURES] > 0.0f)) mode[LARGEST_AT + k] = 1.0f;
    settle_factor(mode + LINEAR_AT, ONLAD_INPUTS, CONSTANT);
    for (int group = 0; group < ONLAD_GROUPS; ++group)
        settle_factor(mode + TANH_AT + group * ONLAD_TRIANGLE(ONLAD_UNITS), ONLAD_UNITS, RIDGE);
    SLOT(slot, ROWS) = SLOT(slot, WEIGHT) = 0;
    SLOT(slot, BEGUN) = m->count[WARMUP] / 6;
}

static void settle_units(onlad_monitor* m, int slot) {
    float* mode = mode_at(m, slot);
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        float rows = mode[LARGEST_AT + j];
        float span = mode[USUAL_AT + ONLAD_FEATURES + j] - mode[USUAL_AT + j];
        float scale = rows > 0.0f ? sqrtf(mode[SCALE_AT + j] / rows) : 0.0f;
        scale = larger(scale, span / RANGE);
        if (!(scale > STILL * magnitude(mode[j]) + SMALLEST)) scale = 0.0f;
        mode[SCALE_AT + j] = scale;
        if (rows == 0.0f) mode[j] = from_bits(NAN_BITS);
    }
    begin_learning(m, slot);
}

/* Units were measured in few rows. If they are far too small, errors are large, and with usual
 * squares as large any row would be usual: begin again in wider ones. Return whether so. */
static int widen_units(onlad_monitor* m, int slot) {
    float *mode = mode_at(m, slot), *usual = mode + USUAL_AT + ONLAD_FEATURES;
    if (mean(usual, ONLAD_FEATURES) <= WIDER) return 0;
    for (int j = 0; j < ONLAD_FEATURES; ++j)
        mode[SCALE_AT + j] = smaller(mode[SCALE_AT + j] * sqrtf(larger(usual[j], 1.0f)), MOST);
    begin_learning(m, slot);
    return 1;
}

/* Let medians, and sums of the largest of each block, follow row `count` of a measurement. Two of
 * them can go on at a time: `which` is 0 or STATISTICS. Near a median its step is in proportion to
 * the distance: with the sign alone, rounding of a value next to it would turn a whole step. */
static void measure_level(onlad_monitor* m, int which, float* level, const float* found,
                          uint32_t count) {
    for (int i = 0; i < STATISTICS; ++i) {
        float *away = &SCALAR(DEVIATION + which + i), *block = &SCALAR(BLOCKS + which + i);
        float *median = level + i, *sum = level + REACH + i;
        if (count == 0) {
            *median = found[i];
            *away = *sum = 0.0f;
        } else {
            *away += (magnitude(found[i] - *median) - *away) / (float)count;
            *median += bounded(STEEP * (found[i] - *median), 2.0f * *away) / (float)count;
        }
        *block = count % BLOCK == 0 ? found[i] : larger(*block, found[i]);
        if (count % BLOCK == BLOCK - 1) *sum += *block;
    }
}

/* The reach of a level after `count` rows; sums of blocks become reaches. */
static void settle_level(onlad_monitor* m, int which, float* level, uint32_t count,
                         float rows_in_mean, float least) {
    const uint32_t blocks = count / BLOCK;
    const float wider = BEYOND * (1.0f + FEW * rows_in_mean / (float)count);
    for (int i = 0; i < STATISTICS; ++i) {
        float* sum = level + REACH + i;
        const float high = blocks ? *sum / (float)blocks : SCALAR(BLOCKS + which + i);
        *sum = larger(wider * (high - level[i]), least);
    }
}

static void copy_mode(onlad_monitor* m, int to, int from, int floats) {
    memcpy(mode_at(m, to), mode_at(m, from), sizeof(float) * (size_t)floats);
    SLOT(to, ROWS) = SLOT(from, ROWS);
}

/* The usual squares of leans, from their means over `count` rows: shrunk, and not too small. */
static void settle_leaning(onlad_monitor* m, int slot, uint32_t count) {
    float* leaning = mode_at(m, slot) + LEANING_AT;
    for (int instance = 0; instance < 2; ++instance, leaning += ONLAD_FEATURES) {
        const float usual = mean(leaning, ONLAD_FEATURES), rows = (float)count;
        for (int j = 0; j < ONLAD_FEATURES; ++j)
            leaning[j] = larger((rows * leaning[j] + PRIOR * usual) / (rows + PRIOR),
                                CORRELATED * LEANING / (2.0f - LEANING));
    }
}

/* Row `at` of the rows that give the levels: one half those of rows, one those of running means. */
static APART void measure(onlad_monitor* m, int slot, int row, uint32_t at, int is_first) {
    float *mode = mode_at(m, slot), *levels = mode + LEVELS_AT, *leans = m->memory + FIRST_LEANS_AT;
    float found[STATISTICS], leaned[STATISTICS];
    const uint32_t half = m->count[WARMUP] / 4;
    statistics(m, slot, row, found);
    if (at == 0) clear(leans, 2 * ONLAD_FEATURES);
    lean(m, row, leans);
    memcpy(leans, LEANED, sizeof(float) * (size_t)(2 * ONLAD_FEATURES));
    if (at < half) {
        measure_level(m, 0, levels, found, at);
        for (int k = 0; k < 2 * ONLAD_FEATURES; ++k) {
            float* leaning = mode + LEANING_AT + k;
            *leaning += (leans[k] * leans[k] - *leaning) / (float)(at + 1);
        }
        if (at < half - 1) return;
        settle_level(m, 0, levels, half, 1.0f, LEAST_REACH);
        settle_leaning(m, slot, half);
        clear(&SCALAR(FIRST_MEANS), STATISTICS);
        return;
    }
    lean_statistics(m, slot, leaned);
    measure_level(m, STATISTICS, levels + OF_LEANS, leaned, at - half);
    standardise(levels, found);
    if (is_first) count_score(m, bin(total(levels, found, NULL, NULL)));
    for (int i = 0; i < STATISTICS; ++i) {
        float* mean = &SCALAR(FIRST_MEANS + i);
        *mean += SMOOTHING * (smaller(found[i], 1.0f) - *mean);
    }
    measure_level(m, 0, levels + OF_MEANS, &SCALAR(FIRST_MEANS), at - half);
}

/* One row more of a start; return whether it is the last. What is measured are errors of a model
 * that does not learn meanwhile, as errors of neighbours in time would be too small. But with those
 * of a model that knows much less than the mode will, 0 would be far above the usual score. */
static int begin_row(onlad_monitor* m, int slot, int row, int is_first) {
    float* levels = mode_at(m, slot) + LEVELS_AT;
    const uint32_t part = m->count[WARMUP] / 12, at = SLOT(slot, BEGUN)++;
    const int twin = is_first && ONLAD_MODES > 1 ? 1 : -1; /* it learns on meanwhile */
    if (at < 2 * part) {
        measure_units(m, slot, row);
        if (at == 2 * part - 1) settle_units(m, slot);
        return 0;
    }
    if (twin >= 0 && (at == 6 * part || at == 9 * part)) /* each part measures what is known then */
        copy_mode(m, slot, twin, USUAL_AT);
    wake(m, slot, row);
    look(m, slot, row);
    if (at < 4 * part) {
        learn(m, slot, LAMBDA);
        if (is_first && 2 * part <= ONLAD_DELAY) { /* rows of the units, once more */
            look(m, slot, before(m, row, (int)(2 * part)));
            learn(m, slot, LAMBDA);
        }
        return 0;
    }
    take(m, slot, row); /* before it is measured: no square is then above OFTEN usual ones */
    if (at >= 6 * part) measure(m, slot, row, at - 6 * part, is_first);
    if (twin >= 0) {
        if (at == 4 * part) copy_mode(m, twin, slot, ONLAD_MODE_FLOATS);
        SLOT(twin, ROLE) = TWIN;
        wake(m, twin, row);
        look(m, twin, row);
        learn(m, twin, LAMBDA);
    }
    if (at < 12 * part - 1 || (!is_first && widen_units(m, slot))) return 0;
    settle_level(m, 0, levels + OF_MEANS, 3 * part, 1.0f / SMOOTHING, LEAST_MEAN_REACH);
    settle_level(m, STATISTICS, levels + OF_LEANS, 3 * part, CORRELATED / LEANING, LEAST_REACH);
    if (twin >= 0) {
        copy_mode(m, slot, twin, USUAL_AT); /* all but usual squares and levels */
        release(m, twin);
    }
    return 1;
}

/* -- the limit -- */

/* The least root of a bin. */
static float lowest(int at) {
    return at ? from_bits((uint32_t)(at - 1 + (127 + LOWEST) * OCTAVE) << 19) : 0.0f;
}

static float p_value(onlad_monitor* m, float score) {
    uint32_t above = 1;
    for (int i = bin(score); i < ONLAD_BINS; ++i) above += rows_in(m, i);
    return (float)above / (float)(m->count[TOTAL] + 1);
}

/* onlad.limit.tail of a histogram: the root that a normal row exceeds with probability RATE, and
 * the one above which clusters begin with it. The rows of a bin are taken to be spread over it. */
static void tails(onlad_monitor* m, float* roots) {
    const uint32_t n = m->count[TOTAL], beyond = n - (uint32_t)(0.999f * (float)n);
    uint32_t k = 0, wanted = (uint32_t)((float)n * TAIL);
    float clusters = 0.0f, sum = 0.0f, ranked = 0.0f, u = 0.0f, b0, b1, shape, most = 0.0f;
    roots[0] = roots[1] = 0.0f;
    if (n < 2) return;
    if (wanted < 8) wanted = 8;
    if (wanted > n - 1) wanted = n - 1;
    for (int i = ONLAD_BINS - 1; i >= 0; --i) {
        const uint32_t rows = rows_in(m, i), left = wanted - k, own = rows < left ? rows : left;
        if (rows == 0) continue;
        const float high = lowest(i + 1), step = (high - lowest(i)) / (float)rows;
        const float part = (float)own, value = high - 0.5f * step * part;
        if (k < beyond && k + rows >= beyond) most = high - step * ((float)(beyond - k) - 0.5f);
        sum += part * value;
        ranked += part * (value * ((float)k + 0.5f * (part - 1.0f)) -
                          step * (part * part - 1.0f) * (1.0f / 12.0f));
        clusters += part - part * (float)(HISTOGRAM[i] >> 16) / (float)rows;
        k += own;
        u = high - step * (part + 0.5f); /* the first row that is not in the tail */
        if (own < rows) break;
    }
    roots[0] = roots[1] = u;
    if (k < 2) return;
    b0 = sum / (float)k - u;
    b1 = ranked / ((float)k * (float)(k - 1)) - 0.5f * u;
    shape = 2.0f - b0 / larger(b0 - 2.0f * b1, 1e-6f * b0);
    shape = shape < 0.0f ? 0.0f : shape > 0.5f ? 0.5f : shape;
    for (int i = 0; i < 2; ++i) {
        float far = -logarithm(SCALAR(RATE) * (float)n / (i ? larger(clusters, 1.0f) : (float)k));
        if (!(b0 > 0.0f) || far <= 0.0f) continue;
        if (shape > 1e-4f) far = (exponential(shape * far) - 1.0f) / shape;
        roots[i] = smaller(u + b0 * (1.0f - shape) * far, FARTHEST * most);
    }
}

static float learned_rows(onlad_monitor* m) {
    uint32_t rows = 0;
    for (int slot = 0; slot < ONLAD_MODES; ++slot)
        if (SLOT(slot, ROLE) == MODE) rows += SLOT(slot, ROWS);
    return (float)(rows ? rows : 1);
}

static void settle_limit(onlad_monitor* m) {
    const float rows = learned_rows(m);
    float roots[2];
    tails(m, roots);
    SCALAR(DOUBT) = 1.0f + YOUNG_LIMIT / rows;
    SCALAR(NOW) = larger(LEAST, roots[1] * roots[1]) * SCALAR(FACTOR) * SCALAR(DOUBT);
    if (m->count[SINCE] && m->count[EPISODE] >= LASTING && m->count[ALARMS] >= TOLD)
        SCALAR(NOW) = larger(SCALAR(NOW), SHELVED * SCALAR(HIGHEST));
    SCALAR(GATE) = REFUSED * larger(1.0f, roots[0] * roots[0]) * (1.0f + YOUNG_GATE / rows);
}

/* Let the factor follow one row. SINCE is 0 if there is no episode, else rows since its last + 1.
 */
static void follow(onlad_monitor* m, float ratio, int unusual) {
    uint32_t *since = &m->count[SINCE], *rows = &m->count[EPISODE], *alarms = &m->count[ALARMS];
    if (m->count[TICKED] == 0)
        SCALAR(FACTOR) =
            larger(SCALAR(FACTOR) * (1.0f - STEP * (float)ONLAD_DELAY * SCALAR(RATE)), 1.0f);
    if (unusual) {
        *since = 1;
        if (*rows < LASTING) ++*rows;
        if (ratio > 1.0f && *alarms < TOLD) ++*alarms;
        SCALAR(PEAK) = larger(SCALAR(PEAK), ratio);
    } else if (*since && ++*since > GAP + 1) {
        if (SCALAR(PEAK) > 1.0f && SCALAR(PEAK) < (*rows < SHORT_EPISODE ? STRONG : WEAK))
            SCALAR(FACTOR) = smaller(SCALAR(FACTOR) * STEP_FACTOR, HIGHEST_FACTOR);
        *since = *rows = *alarms = 0;
        SCALAR(PEAK) = 0.0f;
    }
}

/* -- the anchor -- */

/* Copy the linear prediction of one feature more: -P_ij / P_jj. */
static void settle_anchor(onlad_monitor* m) {
    const int slot = (int)m->count[ANCHORED] - 1, j = (int)m->count[SETTLING];
    const float *mode = mode_at(m, slot), *U = mode + LINEAR_AT;
    const int own = ONLAD_INPUTS - ONLAD_FEATURES + j;
    const float usual = mean(mode + USUAL_AT + ONLAD_FEATURES, ONLAD_FEATURES);
    float *beta = m->memory + ANCHOR_AT + j * ONLAD_INPUTS, below = 0.0f;
    for (int i = 0; i < ONLAD_INPUTS; ++i) {
        float sum = 0.0f;
        for (int k = i > own ? i : own; k < ONLAD_INPUTS; ++k) {
            const float* column = U + ONLAD_TRIANGLE(k);
            float left = k == i ? 1.0f : weight_in(column, i);
            float right = k == own ? 1.0f : weight_in(column, own);
            sum += left * right * column[k];
        }
        beta[i] = sum;
        if (i == own) below = sum;
    }
    for (int i = 0; i < ONLAD_INPUTS; ++i) set_entry(beta + i, i == own ? 0.0f : -beta[i] / below);
    for (int i = LEAN; i < 6; ++i) ANCHOR(i)[j] = 0.0f;
    ANCHOR(ITS_CENTRE)[j] = mode[j];
    ANCHOR(ITS_SCALE)[j] = mode[SCALE_AT + j];
    ANCHOR(ITS_DEVIATION)[j] = sqrtf(usual_square(m, slot, ONLAD_FEATURES + j, usual));
    ++m->count[SETTLING];
}

/* Let the lean follow a usual row. */
static void follow_anchor(onlad_monitor* m, int row) {
    const int half = 2 * m->count[ANCHOR_ROWS] >= MEASURED;
    float worst = 1.0f;
    look_at(m, row, ANCHOR(ITS_CENTRE), ANCHOR(ITS_SCALE), ANCHOR_CLIP);
    const int fraction = narrow_inputs(m);
    if (m->count[ANCHOR_ROWS] < MEASURED) ++m->count[ANCHOR_ROWS];
    m->count[DRIFTING] = 0;
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        const float* beta = m->memory + ANCHOR_AT + j * ONLAD_INPUTS;
        float *lean = ANCHOR(LEAN) + j, *halves = ANCHOR(HALVES) + j;
        const float slack = SLACK * ANCHOR(ITS_DEVIATION)[j];
        const float error = left_over(beta, INPUT, ONLAD_INPUTS, NEWEST[j], fraction);
        *lean += (error - *lean) / MEAN;
        if (m->count[ANCHOR_ROWS] < MEASURED) {
            halves[half * ONLAD_FEATURES] = larger(halves[half * ONLAD_FEATURES], magnitude(*lean));
        } else if (ANCHOR(ITS_SCALE)[j] > 0.0f &&
                   halves[ONLAD_FEATURES] <= GROWS * halves[0] + slack) {
            float bound = OUTSIDE * larger(halves[0], halves[ONLAD_FEATURES]) + slack;
            if (magnitude(*lean) > worst * bound) {
                worst = magnitude(*lean) / bound;
                m->count[DRIFTING] = (uint32_t)j + 1;
            }
        }
    }
}

/* -- modes -- */

static int slot_with(onlad_monitor* m, uint32_t role) {
    for (int slot = 0; slot < ONLAD_MODES; ++slot)
        if (SLOT(slot, ROLE) == role) return slot;
    return -1;
}

/* The candidate becomes a mode. One slot stays free for the next: the mode that learned least. */
static void confirm(onlad_monitor* m, int candidate) {
    int known_modes = 0, least = -1;
    for (int slot = 0; slot < ONLAD_MODES; ++slot) {
        if (SLOT(slot, ROLE) != MODE) continue;
        ++known_modes;
        if (least < 0 || SLOT(slot, ROWS) < SLOT(least, ROWS)) least = slot;
    }
    if (known_modes == ONLAD_MODES - 1) {
        release(m, least);
        if ((int)m->count[ANCHORED] == least + 1)
            m->count[ANCHORED] = m->count[SETTLING] = m->count[DRIFTING] = 0;
    }
    SLOT(candidate, ROLE) = MODE;
    if (SLOT(m->count[CURRENT], ROLE) != MODE) m->count[CURRENT] = (uint32_t)candidate;
}

/* A row that was refused, with others around it, goes to a candidate. Return whether that is a
 * mode now. */
static int seclude(onlad_monitor* m, int row) {
    int slot = slot_with(m, WAITING);
    m->count[IDLE] = 0;
    if (slot < 0) {
        slot = slot_with(m, BEGINNING);
        if (slot < 0) slot = slot_with(m, FREE);
        if (slot < 0) return 0;
        SLOT(slot, ROLE) = BEGINNING;
        if (begin_row(m, slot, row, 0)) {
            SLOT(slot, ROLE) = WAITING;
            m->count[EXPLAINED] = m->count[UNEXPLAINED] = 0;
        }
        return 0;
    }
    wake(m, slot, row);
    if (score_of(m, slot, row) <= 1.0f) {
        take(m, slot, row);
        learn(m, slot, LAMBDA);
        ++m->count[EXPLAINED];
    } else {
        ++m->count[UNEXPLAINED];
    }
    if ((float)m->count[UNEXPLAINED] > FOREIGN * ((float)m->count[EXPLAINED] + CANDIDATE)) {
        release(m, slot);
        return 0;
    }
    const float needed = smaller(larger(PATIENCE * learned_rows(m), SHORTEST), LONGEST);
    if ((float)m->count[EXPLAINED] < needed) return 0;
    confirm(m, slot);
    return 1;
}

/* Decide on a row, now that it is known what followed. Return whether there is a new mode. */
static int decide(onlad_monitor* m, int row) {
    const uint32_t flags = FLAGS[row];
    const int spared = (float)m->count[REFUSED_ROWS] < SPARED * (float)(ONLAD_DELAY + 1);
    const int most = bin(SCALAR(GATE)), scored = (int)(flags >> SCORED);
    int slot = (int)(flags & 255u);
    if (!(flags & OPEN)) return 0;
    if (!spared) return seclude(m, row);
    count_score(m, scored < most ? scored : most);
    if (++m->count[IDLE] % (ONLAD_DELAY / EXPIRING) == 0) { /* what began is let go in time */
        int young = slot_with(m, BEGINNING);
        if (young >= 0 && m->count[IDLE] / (ONLAD_DELAY / EXPIRING) > SLOT(young, BEGUN))
            release(m, young);
    }
    if (flags & UNUSUAL) return 0;
    if (SLOT(slot, ROLE) != MODE) slot = (int)m->count[CURRENT];
    look(m, slot, row);
    take(m, slot, row);
    learn(m, slot, LAMBDA);
    if (m->count[ANCHORED] == 0 && SLOT(slot, ROWS) >= SETTLED) {
        m->count[ANCHORED] = (uint32_t)slot + 1;
        m->count[SETTLING] = m->count[ANCHOR_ROWS] = 0;
    }
    return 0;
}

/* -- rows -- */

/* Judge a row by the mode of the row before; if its score is high, by the one in which the row by
 * itself is least unusual. A machine changes between the modes of a history, which had no start
 * here, at any row, so no window reaches over such a change. */
static APART float judge(onlad_monitor* m, int row) {
    const int current = (int)m->count[CURRENT];
    float best = -1.0f, least = 0.0f;
    float means[STATISTICS], found[STATISTICS], leaned[STATISTICS], kept[STATISTICS];
    float *now = &SCALAR(MEANS), *leans = m->memory + LEANS_AT;
    const uint32_t run = m->count[RUN];
    memcpy(kept, now, sizeof kept);
    for (int turn = 0; turn < ONLAD_MODES; ++turn) {
        const int slot = turn == 0 ? current : turn <= current ? turn - 1 : turn;
        const uint32_t own = turn && !(SLOT(slot, BEGUN) | SLOT(current, BEGUN)) ? 0 : run;
        if (SLOT(slot, ROLE) != MODE) continue;
        set_run(m, row, own);
        look(m, slot, row);
        statistics(m, slot, row, found);
        standardise(mode_at(m, slot) + LEVELS_AT, found);
        const float alone = total(NULL, found, NULL, NULL);
        if (best >= 0.0f && alone >= least) continue;
        least = alone;
        for (int i = 0; i < STATISTICS; ++i)
            means[i] = kept[i] + SMOOTHING * (smaller(found[i], 1.0f) - kept[i]);
        lean(m, row, turn ? NULL : leans); /* those of another mode do not count */
        lean_statistics(m, slot, leaned);
        best = total(mode_at(m, slot) + LEVELS_AT, found, means, leaned);
        m->count[CURRENT] = (uint32_t)slot;
        m->count[RUN] = own;
        memcpy(now, means, sizeof means);
        memcpy(SHARES, SQUARES, sizeof(float) * (size_t)ONLAD_FEATURES);
        memcpy(leans, LEANED, sizeof(float) * (size_t)(2 * ONLAD_FEATURES));
        if (turn == 0 && best <= KEEP) break;
    }
    set_run(m, row, m->count[RUN]);
    return best;
}

/* Replace what has been missing for long, or the rate of a counter at once, by what the other
 * features make of it. */
static void fill_in(onlad_monitor* m, int row) {
    const int slot = (int)m->count[CURRENT];
    const float* mode = mode_at(m, slot);
    const float *age = m->memory + AGE_AT, *patience = m->memory + PATIENCE_AT;
    float* x = NEW_ROW(row);
    int looked = 0;
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        const int held = age[j] <= patience[j] && !known(m->memory[COUNTED_AT + j]);
        if (is_present(m, row, j) || held || !(mode[SCALE_AT + j] > 0.0f)) continue;
        if (!looked++) look(m, slot, row);
        const float made = NEWEST[j] - ERRORS[ONLAD_FEATURES + j];
        x[j] = mode[j] + bounded(made, FILLED) * mode[SCALE_AT + j];
    }
}

static void name_causes(onlad_monitor* m, onlad_verdict* verdict) {
    float sum = 0.0f;
    for (int j = 0; j < ONLAD_FEATURES; ++j) sum += SHARES[j];
    for (int j = 0; j < ONLAD_FEATURES && sum > 0.0f; ++j) {
        SHARES[j] /= sum;
        for (int k = 0; k < ONLAD_CAUSES; ++k) {
            if (verdict->causes[k].feature != ONLAD_NONE && verdict->causes[k].share >= SHARES[j])
                continue;
            for (int i = ONLAD_CAUSES - 1; i > k; --i) verdict->causes[i] = verdict->causes[i - 1];
            verdict->causes[k].feature = j;
            verdict->causes[k].share = SHARES[j];
            break;
        }
    }
}

/* The value of a feature; of a counter its rise per row since the last value. It is missing at the
 * first value and at a reset, before and after which it rose nobody knows how far. */
static float rate(onlad_monitor* m, int feature, float value) {
    float *counted = m->memory + COUNTED_AT + feature, last = *counted;
    if (!known(last)) return value;
    *counted = value;
    if (last > MOST || (value < last && magnitude(value) <= RESET * magnitude(last)))
        return from_bits(NAN_BITS);
    return bounded((value - last) / (m->memory[AGE_AT + feature] + 1.0f), MOST);
}

/* Put a row into the ring, with the last value for a missing one; return how many are present. */
static int keep(onlad_monitor* m, const float* x, int row, onlad_status* status) {
    const float* last = NEW_ROW(m->count[POSITION]);
    float *now = NEW_ROW(row), *age = m->memory + AGE_AT;
    int present = 0;
    for (int j = 0; j < ONLAD_MASKS; ++j) MASK(row)[j] = 0;
    for (int j = 0; j < ONLAD_FEATURES; ++j) {
        const int said = magnitude(x[j]) <= MOST;
        const float value = said ? rate(m, j, x[j]) : from_bits(NAN_BITS);
        now[j] = known(value) ? value : last[j];
        age[j] = said ? 0.0f : age[j] + 1.0f;
        if (known(value)) {
            MASK(row)[j / 32] |= 1u << (j % 32);
            ++present;
        }
        if (!said && known(x[j])) *status = ONLAD_OUT_OF_RANGE;
    }
    return present;
}

/* A row of the first start. While it lasts, PATIENCE_AT counts the values of each feature. */
static void warm_up(onlad_monitor* m, int row) {
    float* patience = m->memory + PATIENCE_AT;
    for (int j = 0; j < ONLAD_FEATURES; ++j) patience[j] += (float)is_present(m, row, j);
    m->count[POSITION] = (uint32_t)row;
    if (!begin_row(m, 0, row, 1)) return;
    for (int j = 0; j < ONLAD_FEATURES; ++j)
        patience[j] = HELD * (float)m->count[WARMUP] / larger(patience[j], 1.0f);
    SLOT(0, ROLE) = MODE;
    m->count[READY] = 1;
    settle_limit(m);
}

onlad_status onlad_observe(onlad_monitor* m, const float* x, onlad_verdict* verdict) {
    static const onlad_verdict nothing = {
        0.0f, 0.0f,       1.0f,
        0,    0,          0,
        0,    ONLAD_NONE, {{ONLAD_NONE, 0.0f}, {ONLAD_NONE, 0.0f}, {ONLAD_NONE, 0.0f}}};
    const int row =
        m->count[POSITION] + 1 == (uint32_t)ONLAD_RING ? 0 : (int)m->count[POSITION] + 1;
    const int open = !m->count[PAUSED];
    onlad_status status = ONLAD_OK;
    int present, unusual;
    float score, limit;

    *verdict = nothing;
    clear(SHARES, ONLAD_FEATURES);
    ++m->count[SEEN];
    present = keep(m, x, row, &status);
    if (!m->count[READY]) {
        if (present && open) warm_up(m, row);
        return status;
    }
    m->count[POSITION] = (uint32_t)row;
    for (int slot = 0; slot < ONLAD_MODES; ++slot)
        if (SLOT(slot, ROLE) == MODE) wake(m, slot, row);
    set_run(m, row, m->count[RUN]);
    fill_in(m, row);
    score = present ? judge(m, row) : 0.0f;
    if (m->count[RUN] < (uint32_t)ONLAD_WINDOW - 1) ++m->count[RUN];
    limit = SCALAR(LAST) > SCALAR(NOW) ? SCALAR(NOW) : SINGLE * SCALAR(NOW);
    unusual = score > SCALAR(GATE);
    verdict->ready = 1;
    verdict->score = score / SCALAR(DOUBT);
    verdict->threshold = limit / SCALAR(DOUBT);
    verdict->p_value = p_value(m, score);
    verdict->is_anomaly = score > limit;
    verdict->learned = (uint8_t)(open && !unusual);
    name_causes(m, verdict);

    m->count[REFUSED_ROWS] -= (FLAGS[before(m, row, ONLAD_DELAY + 1)] & UNUSUAL) != 0;
    m->count[REFUSED_ROWS] += (uint32_t)unusual;
    FLAGS[row] = (FLAGS[row] & ALONE) | m->count[CURRENT] | JUDGED |
                 (uint32_t)bin(score) << SCORED | (open ? (uint32_t)OPEN : 0u) |
                 (unusual ? (uint32_t)UNUSUAL : 0u);
    SCALAR(LAST) = score;
    SCALAR(HIGHEST) = larger(SCALAR(HIGHEST), score);
    if (open) follow(m, score / limit, unusual);
    verdict->drift = (uint8_t)decide(m, before(m, row, ONLAD_DELAY));
    if (m->count[ANCHORED] && m->count[SETTLING] < (uint32_t)ONLAD_FEATURES)
        settle_anchor(m);
    else if (m->count[ANCHORED] == m->count[CURRENT] + 1 && open && score <= SCALAR(NOW))
        follow_anchor(m, row);
    verdict->drifting = (int)m->count[DRIFTING] - 1;
    if (++m->count[TICKED] == ONLAD_DELAY) {
        settle_limit(m);
        m->count[TICKED] = 0;
        SCALAR(HIGHEST) = 0.0f;
    }
    return status;
}

/* -- what a person does -- */

onlad_status onlad_accept(onlad_monitor* m, int ago) {
    const int row = before(m, (int)m->count[POSITION], ago);
    float best = -1.0f;
    int own = -1;
    if (!m->count[READY] || ago < 0 || ago >= ONLAD_DELAY || !(FLAGS[row] & JUDGED))
        return ONLAD_BAD_ARGUMENT;
    for (int slot = 0; slot < ONLAD_MODES; ++slot) {
        float score;
        if (SLOT(slot, ROLE) != MODE) continue;
        score = score_of(m, slot, row);
        if (own < 0 || score < best) best = score, own = slot;
    }
    look(m, own, row);
    learn(m, own, 1.0f);
    look(m, own, row); /* errors as large as those left are usual from now on */
    for (int k = 0; k < 2 * ONLAD_FEATURES; ++k) {
        float* largest = mode_at(m, own) + LARGEST_AT + k;
        if (is_present(m, row, k % ONLAD_FEATURES))
            *largest = larger(*largest, OFTEN / ACCEPTED * ERRORS[k] * ERRORS[k]);
    }
    FLAGS[row] &= ~(uint32_t)OPEN; /* it is learned once */
    settle_limit(m);
    return ONLAD_OK;
}

void onlad_pause(onlad_monitor* m, int paused) { m->count[PAUSED] = paused != 0; }

onlad_status onlad_set_false_alarms(onlad_monitor* m, float rate) {
    if (!(rate > 0.0f && rate < 1.0f)) return ONLAD_BAD_ARGUMENT;
    SCALAR(RATE) = rate;
    if (m->count[READY]) settle_limit(m);
    return ONLAD_OK;
}

onlad_status onlad_set_warmup(onlad_monitor* m, uint32_t rows) {
    if (m->count[SEEN] || rows % 12 || rows < 96 || rows > 98304) return ONLAD_BAD_ARGUMENT;
    m->count[WARMUP] = rows;
    return ONLAD_OK;
}

onlad_status onlad_set_counter(onlad_monitor* m, int feature) {
    if (m->count[SEEN] || feature < 0 || feature >= ONLAD_FEATURES) return ONLAD_BAD_ARGUMENT;
    m->memory[COUNTED_AT + feature] = UNCOUNTED;
    return ONLAD_OK;
}

#ifndef ONLAD_RUNTIME
/* onlad_model.h says how much RAM there is: another number is another source. */
typedef char onlad_ram_is_as_expected[sizeof(onlad_monitor) == ONLAD_RAM ? 1 : -1];
#endif

void onlad_init(onlad_monitor* m) {
    for (int k = 0; k < ONLAD_COUNTS; ++k) m->count[k] = 0;
    clear(m->memory, ONLAD_FLOATS);
    clear(m->scratch, ONLAD_SCRATCH);
    for (int k = RING_AT; k < LEANS_AT; ++k) m->memory[k] = from_bits(NAN_BITS);
    for (int k = COUNTED_AT; k < SCALARS_AT; ++k) m->memory[k] = from_bits(NAN_BITS);
    m->count[WARMUP] = 384;
    m->count[RUN] = (uint32_t)ONLAD_WINDOW - 1;
    SCALAR(RATE) = 1e-4f;
    SCALAR(FACTOR) = SCALAR(DOUBT) = 1.0f;
    SLOT(0, ROLE) = BEGINNING;
#ifdef ONLAD_FITTED
    onlad_restore(m, onlad_image, sizeof onlad_image);
#elif !defined(ONLAD_RUNTIME)
    m->count[WARMUP] = ONLAD_WARMUP;
    SCALAR(RATE) = ONLAD_FALSE_ALARMS;
#ifdef ONLAD_COUNTERS
    for (size_t k = 0; k < sizeof onlad_counters / sizeof *onlad_counters; ++k)
        onlad_set_counter(m, onlad_counters[k]);
#endif
#endif
}

/* -- dumps: header, whole numbers, all others, checksum; little-endian words of four bytes -- */

#define MAGIC 0x434c4e4fu /* "ONLC" */
#ifdef ONLAD_FIXED
#define VERSION 0x103u /* words where the other has floats */
#else
#define VERSION 3u
#endif
#define HEADER_WORDS (ONLAD_HEADER / 4)

/* CRC-32, as zlib has it, four bits at a time. */
static uint32_t checksum(uint32_t crc, const void* bytes, size_t size) {
    static const uint32_t table[16] = {0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu,
                                       0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
                                       0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
                                       0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
    const uint8_t* byte = (const uint8_t*)bytes;
    crc = ~crc;
    while (size--) {
        crc ^= *byte++;
        crc = table[crc & 15u] ^ (crc >> 4);
        crc = table[crc & 15u] ^ (crc >> 4);
    }
    return ~crc;
}

/* Of the random layer, unit by unit, its bias first: another layer gives another one. */
static uint32_t layer_checksum(const onlad_monitor* m) {
    LAYER_BEGINS;
    uint32_t crc = 0;
    (void)m;
    for (int k = 0; k < ONLAD_HIDDEN; ++k) {
        onlad_weight one = BIAS_OF(k);
        crc = checksum(crc, &one, sizeof one);
        for (int j = 0; j < ONLAD_FEATURES; ++j) {
            one = WEIGHT_OF(k, j);
            crc = checksum(crc, &one, sizeof one);
        }
    }
    return crc;
}

static void fill_header(const onlad_monitor* m, uint32_t sequence, uint32_t* header) {
    const int sizes[] = {ONLAD_FEATURES, ONLAD_WINDOW, ONLAD_GROUPS, ONLAD_UNITS, ONLAD_MODES};
    header[0] = MAGIC;
    header[1] = VERSION;
    for (int k = 0; k < 5; ++k) header[2 + k] = (uint32_t)sizes[k];
    header[7] = layer_checksum(m);
    header[8] = sequence;
}

onlad_status onlad_dump(const onlad_monitor* m, uint32_t sequence, onlad_write write,
                        void* context) {
    const size_t counts = 4 * (size_t)ONLAD_COUNTS, floats = 4 * (size_t)ONLAD_FLOATS;
    uint32_t header[HEADER_WORDS], crc;
    fill_header(m, sequence, header);
    crc = checksum(0, header, sizeof header);
    crc = checksum(checksum(crc, m->count, counts), m->memory, floats);
    if (write(context, header, sizeof header) || write(context, m->count, counts) ||
        write(context, m->memory, floats) || write(context, &crc, 4))
        return ONLAD_WRITE_FAILED;
    return ONLAD_OK;
}

onlad_status onlad_check(const onlad_monitor* m, const void* bytes, size_t size,
                         uint32_t* sequence) {
    uint32_t header[HEADER_WORDS], found[HEADER_WORDS], crc;
    if (size != (size_t)ONLAD_DUMP) return ONLAD_BAD_DUMP;
    memcpy(found, bytes, sizeof found);
    fill_header(m, found[8], header);
    memcpy(&crc, (const uint8_t*)bytes + size - 4, 4);
    for (int k = 0; k < HEADER_WORDS; ++k)
        if (header[k] != found[k]) return ONLAD_BAD_DUMP;
    if (crc != checksum(0, bytes, size - 4)) return ONLAD_BAD_DUMP;
    *sequence = found[8];
    return ONLAD_OK;
}

/* A checksum is no proof: what is not a state that learning can reach is refused. */
typedef struct {
    const uint8_t *counts, *floats;
} dump;

static uint32_t word_of(const uint8_t* words, int at) {
    uint32_t found;
    memcpy(&found, words + 4 * at, 4);
    return found;
}

static uint32_t count_of(const dump* d, int at) { return word_of(d->counts, at); }

#define SLOT_OF(slot, what) count_of(d, SLOTS + 4 * (int)(slot) + (int)(what))

static float float_of(const dump* d, int at) { return from_bits(word_of(d->floats, at)); }

static float entry_of(const dump* d, int at) { return ENTRY(word_of(d->floats, at)); }

/* Whether `size` numbers from `at` on are within bounds; `missing` allows NaN. */
static int within(const dump* d, int at, int size, float low, float high, int missing) {
    for (int i = at; i < at + size; ++i) {
        float x = float_of(d, i);
        if (!(x >= low && x <= high) && !(missing && !known(x))) return 0;
    }
    return 1;
}

/* P = U D U' is bounded by the ridge, and so are all that follow it. `first` bounds input 0. */
static int sound_factor(const dump* d, int at, int size, float first) {
    for (int i = 0; i < size; ++i) {
        float sum = 0.0f;
        for (int k = i; k < size; ++k) {
            float D = float_of(d, at + ONLAD_TRIANGLE(k) + k);
            float u = k == i ? 1.0f : entry_of(d, at + ONLAD_TRIANGLE(k) + i);
            if (!(D >= 1e-14f && magnitude(u) <= LARGEST_ENTRY)) return 0;
            sum += u * u * D;
        }
        if (!(sum <= (i ? 2.0f / RIDGE : first))) return 0;
    }
    return 1;
}

/* A unit is 0, or what `wake` and `settle_units` take: one over it is finite. */
static int sound_scale(const dump* d, int at, int size) {
    for (; size--; ++at)
        if (float_of(d, at) != 0.0f && !within(d, at, 1, SMALLEST, 2.0f * MOST, 0)) return 0;
    return 1;
}

static int sound_beta(const dump* d, int at, int size) {
    for (; size--; ++at)
        if (!(magnitude(entry_of(d, at)) <= LARGEST_BETA)) return 0;
    return 1;
}

static int sound_mode(const onlad_monitor* m, const dump* d, int slot) {
    const uint32_t role = SLOT_OF(slot, ROLE), begun = SLOT_OF(slot, BEGUN);
    const uint32_t part = count_of(d, WARMUP) / 12;
    const int at = MODES_AT + slot * ONLAD_MODE_FLOATS, starts = role == BEGINNING;
    const int has_levels = role != TWIN && !(starts && begun < 9 * part);
    const int has_all = role != TWIN && !starts, n = ONLAD_FEATURES;
    (void)m;
    if (role == FREE)
        return !(SLOT_OF(slot, ROWS) | SLOT_OF(slot, WEIGHT) | begun) &&
               within(d, at, ONLAD_MODE_FLOATS, 0.0f, 0.0f, 0);
    if (SLOT_OF(slot, WEIGHT) > MEMORY || (starts && begun >= 12 * part)) return 0;
    if (starts && begun < 2 * part) /* units are measured */
        return within(d, at, n, -MOST, MOST, 0) && within(d, at + SCALE_AT, n, 0.0f, 1e35f, 0) &&
               within(d, at + USUAL_AT, 2 * n, -MOST, MOST, 0) &&
               within(d, at + LARGEST_AT, 2 * n, 0.0f, (float)begun, 0) &&
               within(d, at + LINEAR_AT, USUAL_AT - LINEAR_AT, 0.0f, 0.0f, 0) &&
               within(d, at + LEANING_AT, 2 * n + LEVELS, 0.0f, 0.0f, 0);
    for (int group = 0; group < ONLAD_GROUPS; ++group)
        if (!sound_factor(d, at + TANH_AT + group * ONLAD_TRIANGLE(ONLAD_UNITS), ONLAD_UNITS,
                          2.0f / RIDGE))
            return 0;
    return within(d, at, n, -MOST, MOST, 1) && sound_scale(d, at + SCALE_AT, n) &&
           sound_factor(d, at + LINEAR_AT, ONLAD_INPUTS, 2.0f / CONSTANT) &&
           sound_beta(d, at + BETA_AT, n * ONLAD_UNITS) &&
           within(d, at + USUAL_AT, 4 * n, 0.0f, 1e28f, 0) &&
           within(d, at + LEANING_AT, 2 * n, has_levels ? 0.01f : 0.0f, WINSOR * WINSOR, 0) &&
           within(d, at + LEVELS_AT, LEVELS, -1e33f, 1e33f, 0) &&
           (!has_levels || within(d, at + LEVELS_AT + REACH, 4, LEAST_REACH, 1e33f, 0)) &&
           (!has_all ||
            (within(d, at + LEVELS_AT + OF_MEANS + REACH, 4, LEAST_MEAN_REACH, 1e33f, 0) &&
             within(d, at + LEVELS_AT + OF_LEANS + REACH, 4, LEAST_REACH, 1e33f, 0)));
}

static int sound(const onlad_monitor* m, const dump* d) {
    const uint32_t warmup = count_of(d, WARMUP), ready = count_of(d, READY);
    const int histogram = SLOTS + 4 * ONLAD_MODES, flags = histogram + ONLAD_BINS + ONLAD_BEFORE;
    uint32_t sum = 0, following = 0, of_role[TWIN + 1], unusual = 0;
    const int row = (int)count_of(d, POSITION);
    const uint32_t modes = (uint32_t)ONLAD_MODES, n = (uint32_t)ONLAD_FEATURES, any = 0xffffffffu;
    const uint32_t ring = (uint32_t)ONLAD_RING, window = (uint32_t)ONLAD_WINDOW;
    const uint32_t most[SLOTS] = {
        any, 1,          ring - 1, modes - 1, 98304, 1,         ONLAD_DELAY - 1,
        any, RECENT - 1, GAP + 1,  LASTING,   TOLD,  any,       any,
        any, modes,      n,        MEASURED,  n,     window - 1}; /* in their order */
#ifndef ONLAD_RUNTIME
    static /* not on the stack; in Python the sizes are variables */
#endif
        const struct {
        int at, size;
        float low, high;
        int missing;
    } bounds[] = {{ANCHOR_AT, IS_FIXED ? 0 : ONLAD_FEATURES * ONLAD_INPUTS, -1e15f, 1e15f, 1},
                  {RING_AT - 6 * ONLAD_FEATURES, 6 * ONLAD_FEATURES, -1e15f, 1e15f, 1},
                  {RING_AT, ONLAD_RING * ONLAD_FEATURES, -1e16f, 1e16f, 1},
                  {LEANS_AT, 4 * ONLAD_FEATURES, -WINSOR, WINSOR, 0},
                  {AGE_AT, 2 * ONLAD_FEATURES, 0.0f, 1e9f, 0},
                  {COUNTED_AT, ONLAD_FEATURES, -MOST, UNCOUNTED, 1},
                  {SCALARS_AT + RATE, 1, 1e-45f, 0.99999994f, 0},
                  {SCALARS_AT + FACTOR, 1, 1.0f, HIGHEST_FACTOR, 0},
                  {SCALARS_AT + NOW, 2, 0.0f, 1e37f, 0},
                  {SCALARS_AT + DOUBT, 1, 1.0f, 1.0f + YOUNG_LIMIT, 0},
                  {SCALARS_AT + LAST, 3, 0.0f, 1e38f, 0},
                  {SCALARS_AT + MEANS, 6 * STATISTICS, -1e33f, 1e33f, 0}};
    if (warmup % 12 || warmup < 96) return 0;
    for (int i = 0; i < SLOTS; ++i)
        if (count_of(d, i) > most[i]) return 0;
    for (int i = 0; i <= TWIN; ++i) of_role[i] = 0;
    for (int i = 0; i < ONLAD_MODES; ++i) {
        uint32_t role = SLOT_OF(i, ROLE);
        if (role > TWIN || !sound_mode(m, d, i)) return 0;
        ++of_role[role];
    }
    if (ready ? SLOT_OF(count_of(d, CURRENT), ROLE) != MODE || of_role[TWIN] ||
                    of_role[BEGINNING] + of_role[WAITING] > 1 ||
                    (ONLAD_MODES > 1 && of_role[MODE] == (uint32_t)ONLAD_MODES)
              : SLOT_OF(0, ROLE) != BEGINNING || of_role[TWIN] > 1 ||
                    of_role[FREE] + of_role[TWIN] != (uint32_t)ONLAD_MODES - 1 ||
                    (ONLAD_MODES > 1 &&
                     (SLOT_OF(1, ROLE) == TWIN) != (SLOT_OF(0, BEGUN) > warmup / 3)))
        return 0;
    if (count_of(d, ANCHORED) && SLOT_OF(count_of(d, ANCHORED) - 1, ROLE) != MODE) return 0;
    for (int i = 0; i < ONLAD_BINS; ++i) {
        sum += count_of(d, histogram + i) & 0xffffu;
        following += count_of(d, histogram + i) >> 16;
    }
    if (sum != count_of(d, TOTAL) || following != sum) return 0;
    for (int i = 0; i < ONLAD_RING; ++i) {
        uint32_t flag = count_of(d, flags + i);
        if ((flag & 255u) >= (uint32_t)ONLAD_MODES || flag >> SCORED >= ONLAD_BINS ||
            flag & 0xf000u)
            return 0;
        if ((row - i + ONLAD_RING) % ONLAD_RING <= ONLAD_DELAY) unusual += (flag & UNUSUAL) != 0;
        for (int j = 0; j < ONLAD_FEATURES; ++j) /* a value that is present is a value */
            if (count_of(d, flags + ONLAD_RING + i * ONLAD_MASKS + j / 32) >> (j % 32) & 1 &&
                !within(d, RING_AT + i * ONLAD_FEATURES + j, 1, -MOST, MOST, 0))
                return 0;
    }
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; ++i)
        if (!within(d, bounds[i].at, bounds[i].size, bounds[i].low, bounds[i].high,
                    bounds[i].missing))
            return 0;
    return unusual == count_of(d, REFUSED_ROWS) &&
           (!ready || within(d, SCALARS_AT + NOW, 2, 1e-3f, 1e37f, 0));
}

onlad_status onlad_restore(onlad_monitor* m, const void* bytes, size_t size) {
    uint32_t sequence;
    dump d;
    if (onlad_check(m, bytes, size, &sequence) != ONLAD_OK) return ONLAD_BAD_DUMP;
    d.counts = (const uint8_t*)bytes + ONLAD_HEADER;
    d.floats = d.counts + 4 * ONLAD_COUNTS;
    if (!sound(m, &d)) return ONLAD_BAD_DUMP;
    memcpy(m->count, d.counts, 4 * (size_t)ONLAD_COUNTS);
    memcpy(m->memory, d.floats, 4 * (size_t)ONLAD_FLOATS);
    return ONLAD_OK;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif

/* The matrices of the monitor in fixed point, for chips without an FPU: a part of onlad.c.
 *
 * U and beta are words of 32 bits with 20 fraction bits, as in ONLAD Core. What they are multiplied
 * by has 16 bits: inputs share an exponent, tanh units have 15 fraction bits, weights 12. So a
 * product is two multiplications of 32 bits, which the smallest processor has. The diagonal D, and
 * what is done once for a feature or a column, is float as ever.
 */
#ifndef ONLAD_FIXED_H
#define ONLAD_FIXED_H

/* A word lies where a float would. Where memcpy of four bytes is a call, it takes most of the time.
 */
#if defined(__GNUC__)
#define INNER static inline __attribute__((always_inline))
typedef int32_t __attribute__((may_alias)) placed;
#define WORD_AT(at) (*(const placed*)(at))
#define SET_WORD(at, value) (*(placed*)(at) = (value))
#else
#define INNER static inline
#define WORD_AT(at) word_at(at)
#define SET_WORD(at, value) set_word_at(at, value)
static int32_t word_at(const float* at) {
    int32_t found;
    memcpy(&found, at, 4);
    return found;
}
static void set_word_at(float* at, int32_t value) { memcpy(at, &value, 4); }
#endif

#define WORD_BITS 20              /* fraction bits of U and beta */
#define GAIN_BITS 24              /* of a gain, which is small */
#define UNIT_BITS 15              /* of a tanh unit */
#define WEIGHT_BITS 12            /* of weights and biases */
#define SUM_BITS 10               /* that products of weights lose before they are added */
#define STEPS 32                  /* of the table, in a unit */
#define LEAST_EXPONENT (127 - 46) /* of D: 1.4e-14 */
#define ENTRY(word) to_float((int32_t)(word), WORD_BITS) /* of U or beta, from a dump */
#define LARGEST_ENTRY 1023.0f                            /* of both */
#define LARGEST_BETA LARGEST_ENTRY
#define IS_FIXED 1

/* table: python tests/mcu/test_mcu_constants.py */
static const int16_t tanh_table[161] = {
    0,     1024,  2045,  3063,  4075,  5079,  6073,  7056,  8025,  8980,  9919,  10840, 11742,
    12625, 13486, 14325, 15142, 15936, 16706, 17451, 18173, 18869, 19541, 20189, 20812, 21411,
    21986, 22537, 23065, 23570, 24053, 24515, 24955, 25375, 25775, 26156, 26518, 26863, 27190,
    27501, 27796, 28075, 28340, 28592, 28829, 29054, 29267, 29469, 29659, 29839, 30009, 30169,
    30321, 30464, 30599, 30726, 30846, 30959, 31066, 31166, 31261, 31350, 31435, 31514, 31588,
    31658, 31725, 31787, 31845, 31900, 31952, 32001, 32047, 32090, 32131, 32169, 32205, 32239,
    32270, 32300, 32328, 32355, 32380, 32403, 32425, 32446, 32465, 32483, 32500, 32516, 32531,
    32546, 32559, 32572, 32583, 32595, 32605, 32615, 32624, 32633, 32641, 32648, 32656, 32662,
    32669, 32675, 32680, 32685, 32690, 32695, 32699, 32703, 32707, 32711, 32714, 32717, 32720,
    32723, 32726, 32728, 32731, 32733, 32735, 32737, 32739, 32740, 32742, 32744, 32745, 32746,
    32748, 32749, 32750, 32751, 32752, 32753, 32754, 32754, 32755, 32756, 32757, 32757, 32758,
    32758, 32759, 32759, 32760, 32760, 32761, 32761, 32761, 32762, 32762, 32762, 32763, 32763,
    32763, 32763, 32764, 32764, 32764};
/* end of table */

/* a b / 2^16, rounded; b has 16 bits. */
INNER int32_t product(int32_t a, int32_t b) {
    return (a >> 16) * b + (((int32_t)(a & 0xffff) * b + 0x8000) >> 16);
}

/* Words are less than 2^30, so that the sum of two fits 32 bits. */
#define LARGEST_WORD ((1 << 30) - 1)

INNER int32_t kept_in(int32_t value, int32_t most) {
    return value > most ? most : value < -most ? -most : value;
}

INNER int32_t limited(int64_t value) {
    return value > LARGEST_WORD    ? LARGEST_WORD
           : value < -LARGEST_WORD ? -LARGEST_WORD
                                   : (int32_t)value;
}

/* What is done once for a column is done in short numbers: m 2^e with 2^14 <= |m| < 2^15, or 0.
 * They are four bytes, as what fits a register is passed in one: on a Cortex-M0 others are copied.
 */
typedef struct {
    int16_t m, e;
} number;

INNER number short_number(int32_t m, int e) {
    const number found = {(int16_t)m, (int16_t)e};
    return found;
}

static int highest_bit(uint32_t x) {
    int at = 0;
    if (x >> 16) at += 16, x >>= 16;
    if (x >> 8) at += 8, x >>= 8;
    if (x >> 4) at += 4, x >>= 4;
    if (x >> 2) at += 2, x >>= 2;
    return at + (int)(x >> 1);
}

static number number_of(int32_t value, int fraction) {
    if (!value) return short_number(0, 0);
    const int right = highest_bit((uint32_t)(value < 0 ? -value : value)) - 14;
    const int32_t m = right > 0 ? value >> right : value * (1 << -right);
    return short_number(m == -32768 ? -32767 : m, right - fraction);
}

static number number_in(float x) {
    const uint32_t all = bits(x);
    const int exponent = (int)(all >> 23 & 255u);
    const int32_t m = (int32_t)(((all & 0x7fffffu) | 0x800000u) >> 9);
    return exponent ? short_number(all >> 31 ? -m : m, exponent - 127 - 14) : short_number(0, 0);
}

static float float_in(number x) {
    const uint32_t size = (uint32_t)(x.m < 0 ? -x.m : x.m) << 9;
    const int exponent = x.e + 14 + 127;
    if (!x.m || exponent <= 0) return 0.0f;
    return from_bits((x.m < 0 ? 0x80000000u : 0u) | (uint32_t)exponent << 23 | (size & 0x7fffffu));
}

static number multiplied(number a, number b) {
    int32_t found = a.m * b.m, size = found < 0 ? -found : found;
    const int right = size >> 29 ? 15 : 14;
    size = (size + (1 << right >> 1)) >> right;
    if (size > 32767) size = 32767;
    return short_number(found < 0 ? -size : size, a.e + b.e + right);
}

/* Of two that are not negative. */
static number added(number a, number b) {
    if (!a.m || (b.m && a.e < b.e)) {
        const number other = a;
        a = b;
        b = other;
    }
    const int32_t sum = a.m + (b.m && a.e - b.e < 16 ? b.m >> (a.e - b.e) : 0);
    return sum >> 15 ? short_number(sum >> 1, a.e + 1) : short_number(sum, a.e);
}

static number inverse(number a) {
    const int32_t m = (1 << 29) / a.m;
    return short_number(m > 32767 ? 32767 : m, -29 - a.e);
}

/* A number by which words are multiplied: mantissa / 2^(16 + right). */
typedef struct {
    int16_t mantissa, right;
} multiplier;

/* `bits_lost` is how many fraction bits the result has less than what is multiplied. */
static multiplier to_multiplier(number x, int bits_lost) {
    const int right = bits_lost - x.e - 16;
    const multiplier found = {x.m, (int16_t)(right < -30 ? -30 : right)}, none = {0, 0};
    return right > 30 || !x.m ? none : found;
}

/* Of a word; the result is one. */
INNER int32_t times(int32_t a, multiplier by) {
    const int32_t found = product(a, by.mantissa);
    if (by.right >= 0) return (found + (1 << by.right >> 1)) >> by.right;
    return kept_in(found, LARGEST_WORD >> -by.right) * (1 << -by.right);
}

/* D weight / next / shrink, where share is 1 - weight / next, and forgotten 1 / shrink - 1. */
static float shrunk(float D, number share, number ratio, number forgotten) {
    const uint32_t all = bits(D);
    int32_t size = (int32_t)((all & 0x7fffffu) | 0x800000u) << 6;
    int exponent = (int)(all >> 23) - 6, right;
    if (share.e < -15) /* less than a half: the more exact way */
        size -= times(size, to_multiplier(share, 0));
    else
        size = times(size, to_multiplier(ratio, 0));
    size += times(size, to_multiplier(forgotten, 0));
    if (size < 1) size = 1;
    right = highest_bit((uint32_t)size) - 23;
    size = right > 0 ? (size + (1 << right >> 1)) >> right : size * (1 << -right);
    if (size >> 24) size >>= 1, ++right;
    exponent += right;
    if (exponent < LEAST_EXPONENT) exponent = LEAST_EXPONENT;
    return from_bits((uint32_t)exponent << 23 | ((uint32_t)size & 0x7fffffu));
}

/* value / 2^fraction. */
static float to_float(int64_t value, int fraction) {
    return (float)limited(value) * from_bits((uint32_t)(127 - fraction) << 23);
}

static float weight_in(const float* column, int i) {
    return to_float(WORD_AT(column + i), WORD_BITS);
}

/* x with `fraction` fraction bits, in 16 bits; it is known to fit up to rounding. */
static int16_t narrow(float x, int fraction) {
    const uint32_t all = bits(x);
    const int right = 127 + 23 - (int)(all >> 23 & 255u) - fraction;
    int32_t found;
    if (right > 24) return 0;
    found = (int32_t)((((all & 0x7fffffu) | 0x800000u) >> (right - 1)) + 1) >> 1;
    if (found > INT16_MAX) found = INT16_MAX;
    return (int16_t)(all >> 31 ? -found : found);
}

/* tanh of a number with WEIGHT_BITS fraction bits. */
static int16_t squash_word(int32_t x) {
    const int32_t size = x < 0 ? -x : x, step = (1 << WEIGHT_BITS) / STEPS, at = size / step;
    const int32_t last = (int32_t)(sizeof tanh_table / sizeof *tanh_table) - 1;
    int32_t y;
    if (at >= last) {
        y = tanh_table[last];
    } else {
        const int32_t low = tanh_table[at];
        y = low + (tanh_table[at + 1] - low) * (size % step) / step;
    }
    return (int16_t)(x < 0 ? -y : y);
}

/* Fill INPUT from V; return its fraction bits. */
static int narrow_inputs(onlad_monitor* m) {
    uint32_t most = 0;
    int fraction;
    for (int k = 0; k < ONLAD_INPUTS; ++k) {
        const uint32_t size = bits(V[k]) & 0x7fffffffu;
        if (size > most) most = size;
    }
    fraction = 127 + 14 - (int)(most >> 23);
    for (int k = 0; k < ONLAD_INPUTS; ++k) INPUT[k] = narrow(V[k], fraction);
    return fraction;
}

static void set_entry(float* at, float x) {
    SET_WORD(at, (int32_t)bounded(x * (float)(1 << WORD_BITS), (float)(1 << 29)));
}

/* z - beta h, of the words of beta. */
static float left_over(const float* beta, const int16_t* h, int size, float z, int fraction) {
    int64_t sum = 0;
    for (int i = 0; i < size; ++i) sum += product(WORD_AT(beta + i), h[i]);
    return z - to_float(sum, fraction + WORD_BITS - 16);
}

/* h_j + sum over i < j of U_ij h_i. */
static number projected(const float* column, const int16_t* h, int j, int fraction) {
    int64_t sum = (int64_t)h[j] * 16;
    for (int i = 0; i < j; ++i) sum += product(WORD_AT(column + i), h[i]);
    return number_of(limited(sum), fraction + WORD_BITS - 16);
}

static void fill_units(onlad_monitor* m, int fraction) {
    const int16_t* newest = INPUT + ONLAD_INPUTS - ONLAD_FEATURES;
    const int right = fraction - SUM_BITS; /* from what sums have to WEIGHT_BITS */
    LAYER_BEGINS;
    for (int k = 0; k < ONLAD_HIDDEN; ++k) {
        const int32_t bias = BIAS_OF(k);
        int32_t sum = 0;
        for (int j = 0; j < ONLAD_FEATURES; ++j)
            sum += (int32_t)WEIGHT_OF(k, j) * newest[j] >> SUM_BITS;
        sum = right > 0 ? sum >> right : limited((int64_t)sum * (1 << -right));
        H[k] = squash_word(limited((int64_t)sum + bias));
    }
}

static void linear_errors(onlad_monitor* m, const float* U, int first, int fraction) {
    for (int k = first; k < ONLAD_INPUTS; ++k) {
        const float* column = U + ONLAD_TRIANGLE(k);
        B[k] = float_in(multiplied(number_in(column[k]), projected(column, INPUT, k, fraction)));
    }
    for (int j = first; j < ONLAD_INPUTS; ++j) {
        int64_t above = 0, below = 0; /* in units of some 2^-20 of D_jj, of which 16 make one */
        const float *column = U + ONLAD_TRIANGLE(j), D = column[j];
        const int unit = WORD_BITS + 127 - (int)(bits(D) >> 23);
        for (int k = j + 1; k < ONLAD_INPUTS; ++k) {
            column += k;
            const int32_t u = WORD_AT(column + j);
            above += times(u, to_multiplier(number_in(B[k]), WORD_BITS - unit));
            const int32_t weighed = times(u, to_multiplier(number_in(column[k]), WORD_BITS - unit));
            below += u < 1 << 23 && u > -(1 << 23) ? product(weighed, u >> 8)
                                                   : (int64_t)product(weighed, u >> 15) * 128;
        }
        ERRORS[ONLAD_FEATURES + j - first] =
            (B[j] + to_float(above, unit)) / (D + to_float(below, unit - 4));
    }
}

/* As learn_factor of floats is, but b, as words, is the gain at every step, not the gain times
 * what it is to be divided by: so it is never large. `fraction` is that of h; `weight` is one over
 * the weight of h. */
static float learn_factor(float* U, int size, const int16_t* h, int fraction, int unit,
                          float weight, float shrink, float* b) {
    const number forgotten = number_in(1.0f / shrink - 1.0f), one = number_in(1.0f);
    number w = number_in(weight);
    int i, j, first = unit < 0 ? 0 : unit;
    for (i = 0; i < first; ++i) SET_WORD(b + i, 0);
    for (j = first; j < size; ++j) {
        float* column = U + ONLAD_TRIANGLE(j);
        const number f = unit < 0    ? projected(column, h, j, fraction)
                         : j == unit ? one
                                     : number_of(WORD_AT(column + unit), WORD_BITS);
        const number v = multiplied(number_in(column[j]), f), next = added(w, multiplied(f, v));
        const number over = inverse(next), gain = multiplied(v, over), share = multiplied(f, gain);
        const multiplier by_f = to_multiplier(f, GAIN_BITS - WORD_BITS);
        const multiplier by_gain = to_multiplier(gain, WORD_BITS - GAIN_BITS);
        const multiplier by_share = to_multiplier(share, 0);
        column[j] = shrunk(column[j], share, multiplied(w, over), forgotten);
        for (i = 0; i < j; ++i) {
            const int32_t u = WORD_AT(column + i), c = WORD_AT(b + i);
            SET_WORD(column + i, kept_in(u - times(c, by_f), LARGEST_WORD));
            SET_WORD(b + i, kept_in(c - times(c, by_share) + times(u, by_gain), LARGEST_WORD));
        }
        SET_WORD(b + j, times(1 << WORD_BITS, by_gain));
        w = next;
    }
    return 1.0f;
}

/* beta += b e */
static void move_beta(float* beta, const float* b, float e, int size) {
    const multiplier by = to_multiplier(number_in(e), GAIN_BITS - WORD_BITS);
    for (int k = 0; k < size; ++k)
        SET_WORD(beta + k, kept_in(WORD_AT(beta + k) + times(WORD_AT(b + k), by), LARGEST_WORD));
}

#endif

/* Any bytes are refused or are a model; any rows leave it finite. For ASan and UBSan.
 * Random bytes seldom have a right checksum, so good dumps are changed and signed again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onlad.h"

static uint32_t seed = 1;
static uint32_t draw(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static uint8_t* bytes;
static size_t filled;
static int put(void* context, const void* from, size_t size) {
    (void)context;
    memcpy(bytes + filled, from, size);
    filled += size;
    return 0;
}

static uint32_t crc(const uint8_t* data, size_t size) {
    uint32_t sum = 0xffffffffu;
    int k;
    while (size--)
        for (sum ^= *data++, k = 0; k < 8; ++k) sum = sum & 1 ? sum >> 1 ^ 0xedb88320u : sum >> 1;
    return ~sum;
}

/* A value as a sensor could send it, and some that none could. */
static float value(void) {
    static const float odd[] = {0.0f,  -0.0f,  1e15f,    -1e15f,    9.9e14f, 1e-38f, 1e-45f,
                                1e38f, -1e38f, INFINITY, -INFINITY, NAN,     1e4f,   1e-9f};
    uint32_t which = draw() % 40;
    if (which < 14) return odd[which];
    return (float)((int)(draw() % 2001) - 1000) * (which < 20 ? 1e9f : 0.01f);
}

/* Some bits, a special number, or a number of another place. */
static void spoil(size_t words) {
    static const uint32_t odd[] = {0,           1,           2,           3,           64,
                                   255,         0x7f800000u, 0x7fc00000u, 0xffffffffu, 0x7f7fffffu,
                                   0x80000000u, 0x3f800000u, 0x00000001u, 0x4b000000u};
    size_t at = 9 + draw() % (words - 10), other = 9 + draw() % (words - 10);
    uint32_t word;
    memcpy(&word, bytes + 4 * at, 4);
    switch (draw() % 4) {
        case 0:
            word ^= 1u << draw() % 32;
            break;
        case 1:
            word = odd[draw() % 14];
            break;
        case 2:
            memcpy(&word, bytes + 4 * other, 4);
            break;
        default:
            word += draw() % 3 - 1;
            break;
    }
    memcpy(bytes + 4 * at, &word, 4);
}

/* Of a model that learned by itself: its dump is taken, so all is within bounds. */
static void need_sound(const onlad_monitor* m) {
    static onlad_monitor twin;
    filled = 0;
    onlad_dump(m, 0, put, NULL);
    if (onlad_restore(&twin, bytes, filled) == ONLAD_OK) return;
    fprintf(stderr, "the dump of a living model is refused\n");
    abort();
}

/* In fixed point U and beta are words, which any bits can be. */
static int is_word(int k) {
#ifdef ONLAD_FIXED
    const int at = k % ONLAD_MODE_FLOATS, first = 2 * ONLAD_FEATURES;
    const int anchor = k - ONLAD_MODES * ONLAD_MODE_FLOATS;
    if (anchor >= 0) return anchor < ONLAD_FEATURES * ONLAD_INPUTS;
    return at >= first && at < ONLAD_MODE_FLOATS - 6 * ONLAD_FEATURES - 24;
#else
    (void)k;
    return 0;
#endif
}

/* A new model, in every second round with a counter. */
static void start(onlad_monitor* m) {
    onlad_init(m);
    if (draw() % 2) onlad_set_counter(m, (int)(draw() % ONLAD_FEATURES));
}

/* Of any model: no number is infinite. Places of values that were never seen hold NaN. */
static void need_finite(const onlad_monitor* m, const onlad_verdict* v) {
    int k;
    for (k = 0; k < ONLAD_FLOATS; ++k) {
        const int beyond = k - ONLAD_MODES * ONLAD_MODE_FLOATS;
        const int counted = ONLAD_FLOATS - ONLAD_SCALARS - ONLAD_FEATURES;
        const int unseen = beyond < 0
                               ? k % ONLAD_MODE_FLOATS < ONLAD_FEATURES
                               : beyond < ONLAD_ANCHOR_FLOATS + ONLAD_RING * ONLAD_FEATURES ||
                                     (k >= counted && k < counted + ONLAD_FEATURES);
        if (isfinite(m->memory[k]) || (unseen && isnan(m->memory[k])) || is_word(k)) continue;
        fprintf(stderr, "number %d is %g\n", k, (double)m->memory[k]);
        abort();
    }
    if (isfinite(v->score) && isfinite(v->threshold) && v->p_value > 0.0f) return;
    fprintf(stderr, "the score is %g of %g\n", (double)v->score, (double)v->threshold);
    abort();
}

int main(int argc, char** argv) {
    static onlad_monitor m;
    const int rounds = argc > 1 ? atoi(argv[1]) : 2000;
    int round, t, j, taken = 0;
    float x[ONLAD_FEATURES];
    onlad_verdict v;
    bytes = malloc(ONLAD_DUMP); /* on the heap, so that ASan sees what is beside it */
    seed = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    memset(&v, 0, sizeof v);
    v.p_value = 1.0f;

    /* Rows of any kind, from the first on. */
    start(&m);
    for (t = 0; t < 6000; ++t) {
        for (j = 0; j < ONLAD_FEATURES; ++j) {
            float plain = (float)((t * (j + 3)) % 64) + (float)(draw() % 100) * 0.1f;
            x[j] = draw() % 8 ? plain : value();
        }
        onlad_observe(&m, x, &v);
        if (draw() % 50 == 0) onlad_accept(&m, (int)(draw() % 70) - 3);
        if (draw() % 300 == 0) onlad_pause(&m, (int)(draw() % 2));
        if (draw() % 300 == 0) onlad_set_false_alarms(&m, value());
        if (t % 16 == 0) need_sound(&m);
        need_finite(&m, &v);
    }

    /* Bytes of any kind. */
    for (round = 0; round < rounds; ++round) {
        uint32_t sum, changes = draw() % 4;
        filled = 0;
        onlad_dump(&m, 0, put, NULL);
        while (changes--) spoil(filled / 4);
        sum = crc(bytes, filled - 4);
        if (draw() % 8) memcpy(bytes + filled - 4, &sum, 4);
        if (onlad_restore(&m, bytes, draw() % 16 ? filled : draw() % filled) == ONLAD_OK) ++taken;
        for (t = 0; t < 40; ++t) {
            for (j = 0; j < ONLAD_FEATURES; ++j)
                x[j] = draw() % 16 ? (float)((t * (j + 3)) % 64) : value();
            onlad_observe(&m, x, &v);
            if (draw() % 8 == 0) onlad_accept(&m, (int)(draw() % 70) - 3);
        }
        need_finite(&m, &v);
        if (draw() % 20 == 0) start(&m);
        if (draw() % 4 == 0)
            for (t = 0; t < 400; ++t) {
                for (j = 0; j < ONLAD_FEATURES; ++j) x[j] = (float)(draw() % 1000);
                onlad_observe(&m, x, &v);
            }
    }
    printf("%d of %d dumps were taken\n", taken, rounds);
    free(bytes);
    return 0;
}

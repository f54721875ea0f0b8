// The constants of a monitor. They stand in the Python modules; the binding takes them by name.

#pragma once

// X(module, NAME); the numbers of a tuple are NAME_0, NAME_1.
#define ONLAD_CONSTANTS(X)  \
    X(instance, RIDGE)      \
    X(instance, CONSTANT)   \
    X(instance, LEAST_REST) \
    X(mode, FORGETTING)     \
    X(mode, CLIP)           \
    X(mode, RANGE)          \
    X(mode, PRIOR)          \
    X(mode, PRIOR_SQUARE)   \
    X(mode, OFTEN)          \
    X(mode, MEMORY)         \
    X(mode, SMOOTHING)      \
    X(mode, LEANING)        \
    X(mode, QUANTILE)       \
    X(mode, BEYOND)         \
    X(mode, FEW)            \
    X(mode, LEAST_0)        \
    X(mode, LEAST_1)        \
    X(mode, WINSOR)         \
    X(mode, CORRELATED)     \
    X(mode, STILL)          \
    X(mode, SMALLEST_UNIT)  \
    X(mode, COVERED)        \
    X(mode, WIDENING)       \
    X(mode, NARROWEST)      \
    X(counter, RESET)       \
    X(judge, KEEP)          \
    X(judge, FILLED)        \
    X(limit, LEAST)         \
    X(limit, RECENT)        \
    X(limit, FRESH)         \
    X(limit, TAIL)          \
    X(limit, FEWEST)        \
    X(limit, EXPONENTIAL)   \
    X(limit, HEAVIEST)      \
    X(limit, HIGH)          \
    X(limit, FARTHEST)      \
    X(limit, LEAST_SPREAD)  \
    X(limit, STEP)          \
    X(limit, LASTING)       \
    X(limit, TOLD)          \
    X(limit, HIGHEST)       \
    X(limit, GAP)           \
    X(limit, SHORT)         \
    X(limit, SINGLE)        \
    X(limit, WEAK)          \
    X(limit, STRONG)        \
    X(limit, YOUNG)         \
    X(anchor, SETTLED)      \
    X(anchor, MEASURED)     \
    X(anchor, MEAN)         \
    X(anchor, OUTSIDE)      \
    X(anchor, SLACK)        \
    X(anchor, FARTHEST)     \
    X(anchor, GROWS)        \
    X(severity, POINTS)     \
    X(severity, LATELY)     \
    X(severity, HIGHEST)    \
    X(watching, TICK)       \
    X(watching, REFUSED)    \
    X(watching, YOUNG)      \
    X(watching, SHELVED)    \
    X(watching, SPARED)     \
    X(watching, MODES)      \
    X(watching, CANDIDATE)  \
    X(watching, EXPIRING)   \
    X(watching, PATIENCE)   \
    X(watching, SHORTEST)   \
    X(watching, LONGEST)    \
    X(watching, FOREIGN)

namespace onlad {

#define ONLAD_CONSTANT(module, NAME) double module##_##NAME;
struct Constants {
    ONLAD_CONSTANTS(ONLAD_CONSTANT)
};
#undef ONLAD_CONSTANT

}  // namespace onlad

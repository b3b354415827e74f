/* Times in ns, kept so that percentiles of any number of them cost the same memory. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include "common.h"

/* 64 linear steps to each power of two: a percentile is right within 1.6 %. */
enum { STEPS = 64, BINS = 64 * STEPS };
struct histogram {
    unsigned long long counts[BINS], total, most;
};

static inline unsigned bin_of(unsigned long long ns) {
    if (ns < STEPS)
        return (unsigned)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - 6;
    return shift * STEPS + (unsigned)(ns >> shift);
}

static inline void note(struct histogram *h, uint64_t ns) {
    h->counts[bin_of(ns)]++;
    h->total++;
    if (ns > h->most)
        h->most = ns;
}

static inline double percentile_us(const struct histogram *h, double share) {
    unsigned long long seen = 0, rank = (unsigned long long)(share * (double)h->total);
    for (unsigned bin = 0; bin < BINS; bin++)
        if ((seen += h->counts[bin]) > rank) {
            unsigned shift = bin < STEPS ? 0 : bin / STEPS - 1;
            return (double)((unsigned long long)(bin - shift * STEPS) << shift) / 1e3;
        }
    return (double)h->most / 1e3;
}

#endif

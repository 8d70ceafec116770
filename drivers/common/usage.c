/* The controller owns what processes use; this side reads it at any instant. */
#include "usage.h"

#include "shared_state.h"

void copy_uses(const struct uses *uses, const struct power *power, struct uses *into)
{
    uint64_t sequence;
    do {
        sequence = begin_reading(power);
        *into = *uses;
    } while (was_rewritten(power, sequence));
    if (into->count > MAX_USES)
        into->count = MAX_USES;
}

double busy_at(const struct use *use, double instant)
{
    uint64_t count = use->segment_count <= MAX_USE_SEGMENTS ? use->segment_count : MAX_USE_SEGMENTS;
    for (uint64_t i = count; i > 0; i--) {
        const struct use_segment *segment = &use->segments[i - 1];
        if (segment->start <= instant)
            return segment->busy + segment->share * (instant - segment->start);
    }
    return count > 0 ? use->segments[0].busy : 0; /* before anything is known of it */
}

double busy_seconds(const struct uses *uses, uint64_t pid, double instant)
{
    for (uint64_t i = 0; i < uses->count; i++)
        if (uses->of[i].pid == pid)
            return busy_at(&uses->of[i], instant);
    return 0;
}

/*
 * The controller owns the power segments; this side integrates them, and adds one where a client's
 * call changes what is drawn. Everything it computes is a pure function of the state file and of
 * the instant, so any process gets the same answer.
 */
#include "physics.h"

#include "sensors.h"
#include "shared_state.h"

#include <math.h>
#include <string.h>

/* When the segments run out of room, this many of the oldest go at once. */
#define DROP_SEGMENTS 1024

/* The last segment that started at or before `instant`; the first one reaches back for ever. */
static uint64_t segment_number(const struct power *power, double instant)
{
    uint64_t low = 0, count = power->segment_count;
    uint64_t high = count <= MAX_SEGMENTS ? count : MAX_SEGMENTS;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (power->segments[middle].start <= instant)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double watts_at(const struct power *power, double instant)
{
    struct segment segment = power->segments[segment_number(power, instant)];
    double elapsed = instant - segment.start;
    if (segment.period > 0 &&
        elapsed - floor(elapsed / segment.period) * segment.period < segment.on)
        return segment.watts + segment.swing;
    return segment.watts;
}

static double joules_up_to(struct segment segment, double instant)
{
    double elapsed = instant - segment.start;
    double joules = segment.joules + segment.watts * elapsed;
    if (segment.period > 0) {
        double cycles = floor(elapsed / segment.period);
        double rest = fmin(elapsed - cycles * segment.period, segment.on);
        joules += segment.swing * (cycles * segment.on + rest);
    }
    return joules;
}

double joules_at(const struct power *power, double instant)
{
    return joules_up_to(power->segments[segment_number(power, instant)], instant);
}

double watts_now(const struct power *power)
{
    double now = monotonic_now(), watts;
    uint64_t sequence;
    do {
        sequence = begin_reading(power);
        watts = watts_at(power, now);
    } while (was_rewritten(power, sequence));
    return watts;
}

/*
 * Forgets what was scheduled. The caller keeps other writers out; readers wait, so that a reading
 * after this instant is of the new power, and there was none with the old one.
 */
void draw_from_now_on(struct power *power, double watts)
{
    begin_rewriting(power);
    double now = monotonic_now();
    uint64_t last = segment_number(power, now);
    struct segment before = power->segments[last];
    uint64_t kept = before.start < now ? last + 1 : last;
    if (kept == MAX_SEGMENTS) {
        count_before(power, power->segments[DROP_SEGMENTS].start);
        kept -= DROP_SEGMENTS;
        memmove(power->segments, power->segments + DROP_SEGMENTS, kept * sizeof before);
        power->dropped_segments += DROP_SEGMENTS;
    }
    power->segments[kept] = (struct segment){
        .start = now,
        .watts = watts,
        .joules = joules_up_to(before, now),
    };
    power->segment_count = kept + 1;
    end_rewriting(power);
}

/*
 * The controller owns the power segments; this side integrates them, and adds one where a client's
 * call changes what is drawn. Everything it computes is a pure function of the state file and of
 * the instant, so any process gets the same answer.
 */
#include "physics.h"

#include "shared_state.h"

#include <string.h>

/* When the segments run out of room, this many of the oldest go at once. */
#define DROP_SEGMENTS 1024

int64_t round_down(double value)
{
    int64_t truncated = (int64_t)value;
    return (double)truncated > value ? truncated - 1 : truncated;
}

/* A number in [0, 1) that depends on nothing but its arguments (and matches the controller's). */
double scatter(uint64_t number, uint64_t salt)
{
    uint64_t mixed = number * 0xDF7C85303DD46B6Bu + salt * 0xF820571E8B29C9DDu;
    mixed += 0x3C4F9A1D70E6B285u;
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1u;
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9u;
    mixed ^= mixed >> 32;
    return (double)(mixed >> 11) * 0x1p-53;
}

/* --- Power and energy --- */

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

static struct segment segment_at(const struct power *power, double instant)
{
    struct segment segment;
    uint64_t sequence;
    do {
        sequence = begin_reading(power);
        segment = power->segments[segment_number(power, instant)];
    } while (was_rewritten(power, sequence));
    return segment;
}

double watts_at(const struct power *power, double instant)
{
    return segment_at(power, instant).watts;
}

static double joules_at(const struct power *power, double instant)
{
    struct segment segment = segment_at(power, instant);
    return segment.joules + segment.watts * (instant - segment.start);
}

double average_watts(const struct power *power, double now)
{
    double start = now - power->average_window;
    return (joules_at(power, now) - joules_at(power, start)) / power->average_window;
}

/*
 * Forgets whatever was scheduled. The caller keeps other writers out; readers wait, so whoever looks
 * after this instant sees the new power, and nobody has looked past it with the old one.
 */
void draw_from_now_on(struct power *power, double watts)
{
    begin_rewriting(power);
    double now = monotonic_now();
    uint64_t last = segment_number(power, now);
    struct segment before = power->segments[last];
    uint64_t kept = before.start < now ? last + 1 : last;
    if (kept == MAX_SEGMENTS) {
        kept -= DROP_SEGMENTS;
        memmove(power->segments, power->segments + DROP_SEGMENTS, kept * sizeof before);
        power->dropped_segments += DROP_SEGMENTS;
    }
    power->segments[kept] = (struct segment){
        .start = now,
        .watts = watts,
        .joules = before.joules + before.watts * (now - before.start),
    };
    power->segment_count = kept + 1;
    end_rewriting(power);
}

/* --- The energy counter --- */

static double tick_instant(const struct power *power, int index, int64_t tick)
{
    double instant = power->tick_phase + (double)tick * power->tick_period;
    if (power->tick_jitter > 0)
        instant += power->tick_jitter * scatter((uint64_t)tick, (uint64_t)index);
    return instant;
}

double last_tick(const struct power *power, int index, double now)
{
    if (power->tick_period <= 0)
        return now;
    int64_t tick = round_down((now - power->tick_phase) / power->tick_period);
    double instant = tick_instant(power, index, tick);
    return instant <= now ? instant : tick_instant(power, index, tick - 1);
}

/* What the counter stands for from `tick` on, before the driver rounds it to its unit. */
double counted_joules(const struct power *power, double tick)
{
    return power->counter_offset + power->counter_gain * joules_at(power, tick);
}

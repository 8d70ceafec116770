/*
 * Every reading is a pure function of the state file and of the instant, so any process gets the
 * same one. Nothing is kept but the sum of a part-time counter, to save adding it up again.
 */
#include "sensors.h"

#include "physics.h"
#include "shared_state.h"

#include <math.h>

/* A sensor that is always fresh has the same noise for this many seconds. */
#define LIVE_NOISE 1e-3
#define PI 3.141592653589793

/* A number in [0, 1) that depends on nothing but its arguments. */
static double scatter(int64_t number, uint64_t salt)
{
    uint64_t mixed = (uint64_t)number * 0xDF7C85303DD46B6Bu + salt * 0xF820571E8B29C9DDu;
    mixed += 0x3C4F9A1D70E6B285u;
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1u;
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9u;
    mixed ^= mixed >> 32;
    return (double)(mixed >> 11) * 0x1p-53;
}

/* Likewise, with mean 0 and standard deviation 1. */
static double normal(int64_t number, uint64_t salt)
{
    double radius = sqrt(-2 * log(1 - scatter(number, salt + 2)));
    return radius * cos(2 * PI * scatter(number, salt + 3));
}

/* --- Refreshes --- */

double refresh_instant(const struct sensor *sensor, int64_t number)
{
    double phase = isnan(sensor->phase) ? scatter(0, sensor->salt) : sensor->phase;
    double late = sensor->jitter > 0 ? sensor->jitter * scatter(number, sensor->salt + 1) : 0;
    return ((double)number + phase) * sensor->period + late;
}

int64_t last_refresh(const struct sensor *sensor, double now)
{
    int64_t number = (int64_t)floor(now / sensor->period) + 1;
    while (refresh_instant(sensor, number) > now)
        number--;
    return number;
}

/* --- Power --- */

static double mean_watts(const struct power *power, double end, double window)
{
    double begin = end - window;
    if (window <= 0)
        return watts_at(power, end);
    return (joules_at(power, end) - joules_at(power, begin)) / (end - begin);
}

double read_power(const struct power *power, const struct sensor *sensor, double now)
{
    bool live = sensor->period <= 0;
    int64_t number = live ? (int64_t)floor(now / LIVE_NOISE) : last_refresh(sensor, now);
    double end = (live ? now : refresh_instant(sensor, number)) - sensor->lag;
    double watts;
    uint64_t sequence;
    do {
        sequence = begin_reading(power);
        watts = mean_watts(power, end, sensor->window);
    } while (was_rewritten(power, sequence));
    if (sensor->noise > 0)
        watts *= 1 + sensor->noise * normal(number, sensor->salt);
    return sensor->gain * watts;
}

/* --- The energy counter --- */

/* What a part-time counter adds at a refresh. */
static double increment(const struct power *power, int64_t number)
{
    const struct sensor *counter = &power->counter;
    double end = refresh_instant(counter, number), begin = refresh_instant(counter, number - 1);
    double window = fmin(counter->part_time, end - begin);
    double seen = joules_at(power, end - counter->lag);
    seen -= joules_at(power, end - counter->lag - window);
    return counter->gain * seen / window * (end - begin);
}

static struct count count_up_to(const struct power *power, struct count count, int64_t number)
{
    while (count.refresh < number)
        count.joules += increment(power, ++count.refresh);
    return count;
}

void count_before(struct power *power, double instant)
{
    const struct sensor *counter = &power->counter;
    if (counter->part_time <= 0)
        return;
    /* Later refreshes see nothing of what was drawn before the instant. */
    int64_t number = last_refresh(counter, instant + counter->lag + counter->part_time);
    power->counted = count_up_to(power, power->counted, number);
}

/* What this thread has counted already. Adding up in one order gives all threads the same sum. */
static _Thread_local struct {
    const struct power *power;
    uint64_t changes_of_past;
    struct count count;
} known[MAX_GPUS];

static struct count part_time_count(const struct power *power, int index, int64_t number)
{
    struct count count;
    uint64_t sequence, changes;
    do {
        sequence = begin_reading(power);
        changes = power->changes_of_past;
        count = power->counted;
        if (known[index].power == power && known[index].changes_of_past == changes &&
            known[index].count.refresh > count.refresh && known[index].count.refresh <= number)
            count = known[index].count;
        count = count_up_to(power, count, number);
    } while (was_rewritten(power, sequence));
    known[index].power = power;
    known[index].changes_of_past = changes;
    known[index].count = count;
    return count;
}

struct counter_reading read_counter(const struct power *power, int index, double now)
{
    const struct sensor *counter = &power->counter;
    struct counter_reading reading = {.refreshed = now};
    int64_t number = 0;
    if (counter->period > 0) {
        number = last_refresh(counter, now);
        reading.refreshed = refresh_instant(counter, number);
    }
    if (counter->part_time > 0) {
        reading.joules = part_time_count(power, index, number).joules;
    } else {
        uint64_t sequence;
        do {
            sequence = begin_reading(power);
            reading.joules = joules_at(power, reading.refreshed - counter->lag);
        } while (was_rewritten(power, sequence));
        reading.joules *= counter->gain;
    }
    reading.joules += power->counter_offset;
    return reading;
}

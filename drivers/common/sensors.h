/*
 * What the sensors of a simulated GPU make of the power that is really drawn. Zeus's model of
 * sensors, in Python, computes the same to the last bit.
 */
#ifndef SIMULATED_COMMON_SENSORS_H
#define SIMULATED_COMMON_SENSORS_H

#include "layout.h"

#pragma GCC visibility push(hidden)

/* The energy counter since its last refresh, before the driver rounds it to its unit. */
struct counter_reading {
    double refreshed;
    double joules;
};

double refresh_instant(const struct sensor *sensor, int64_t number);
int64_t last_refresh(const struct sensor *sensor, double now);

double read_power(const struct power *power, const struct sensor *sensor, double now);
struct counter_reading read_counter(const struct power *power, int index, double now);

/* To be called while rewriting, before what was drawn before an instant is dropped. */
void count_before(struct power *power, double instant);

#pragma GCC visibility pop

#endif

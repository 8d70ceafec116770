/*
 * The power that a simulated GPU draws and the energy that this adds up to. Instants are seconds of
 * CLOCK_MONOTONIC; `index` is the number of the GPU, which tells the jitter of GPUs apart.
 */
#ifndef ZEUS_SIMULATED_COMMON_PHYSICS_H
#define ZEUS_SIMULATED_COMMON_PHYSICS_H

#include "layout.h"

#pragma GCC visibility push(hidden)

int64_t round_down(double value);
double scatter(uint64_t number, uint64_t salt);

double watts_at(const struct power *power, double instant);
double average_watts(const struct power *power, double now);
void draw_from_now_on(struct power *power, double watts);

double last_tick(const struct power *power, int index, double now);
double counted_joules(const struct power *power, double tick);

#pragma GCC visibility pop

#endif

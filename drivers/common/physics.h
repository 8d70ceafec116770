/*
 * The power that a simulated GPU draws and the energy that this adds up to. Instants are seconds of
 * CLOCK_MONOTONIC.
 */
#ifndef SIMULATED_COMMON_PHYSICS_H
#define SIMULATED_COMMON_PHYSICS_H

#include "layout.h"

#pragma GCC visibility push(hidden)

/* Between begin_reading and was_rewritten, or by a writer. */
double watts_at(const struct power *power, double instant);
double joules_at(const struct power *power, double instant);

double watts_now(const struct power *power);
void draw_from_now_on(struct power *power, double watts);

#pragma GCC visibility pop

#endif

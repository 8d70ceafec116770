/* For how long processes have used a GPU. */
#ifndef SIMULATED_COMMON_USAGE_H
#define SIMULATED_COMMON_USAGE_H

#include "layout.h"

#pragma GCC visibility push(hidden)

/* A copy of the uses, while the controller may rewrite them under the sequence of `power`. */
void copy_uses(const struct uses *uses, const struct power *power, struct uses *into);

/* Seconds for which kernels of a process have run by an instant. */
double busy_at(const struct use *use, double instant);

/* Of the process with this number; 0 if it is not known. */
double busy_seconds(const struct uses *uses, uint64_t pid, double instant);

#pragma GCC visibility pop

#endif

/*
 * The state file of a simulated driver library: map it, count calls, apply faults, read what the
 * controller may be rewriting and rewrite what follows from a client's call.
 */
#ifndef SIMULATED_COMMON_SHARED_STATE_H
#define SIMULATED_COMMON_SHARED_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

#pragma GCC visibility push(hidden)

/* A state file as a library expects it to be. */
struct expectation {
    const char *variable; /* names the environment variable that holds the path */
    const char *magic;
    uint32_t function_count;
    size_t size;
};

enum mapping { MAPPED, FILE_ABSENT, FILE_MISMATCH };

enum mapping map_state(const struct expectation *expected, void **mapped);

double monotonic_now(void);
void pass_time(double seconds);

void count_call(struct header *header, unsigned int function);
void apply_fault(struct fault *fault, unsigned int *result, bool *sentinel);
bool may_control(const uint32_t *flags);

int lock_state(const char *variable);
void unlock_state(int lock);

uint64_t begin_reading(const struct power *power);
bool was_rewritten(const struct power *power, uint64_t sequence);
void begin_rewriting(struct power *power);
void end_rewriting(struct power *power);

#pragma GCC visibility pop

#endif

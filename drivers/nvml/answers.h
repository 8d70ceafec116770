/*
 * Building blocks of the exported functions, which the nvidia-ml-py binding calls.
 *
 * Each one enters through enter_system, enter_lookup or enter_device, which count the call and
 * apply faults, and leaves through one of the put_ helpers, which answer with garbage if a fault
 * says so. Functions that are not exported are missing symbols, which the binding reports.
 */
#ifndef SIMULATED_NVML_ANSWERS_H
#define SIMULATED_NVML_ANSWERS_H

#include "simulation.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS_OF(name) __attribute__((visibility("default"), alias(#name)))

/* Enter a call, or leave the function with the error that the call ends with. */
#define ENTER(entry) \
    struct call call = entry; \
    if (call.result != SUCCESS) \
        return call.result

/* Leave the function if the GPU lacks a feature. */
#define REQUIRE(flag) \
    if (!has(&call, flag)) \
        return NOT_SUPPORTED

#pragma GCC visibility push(hidden)

unsigned int answer32(const struct call *call, unsigned int value);
uint64_t answer64(const struct call *call, uint64_t value);
result_t put32(const struct call *call, unsigned int *out, unsigned int value);
result_t put64(const struct call *call, uint64_t *out, uint64_t value);
result_t put_text(char *out, unsigned int length, const char *text);
result_t put_handle(handle_t *out, handle_t handle);
result_t put_list32(const struct call *call, unsigned int *count, unsigned int *out,
                    const uint32_t *values, unsigned int number);
unsigned int to_milliwatts(double watts);
bool has(const struct call *call, enum flag flag);
struct call enter_control(enum function function, handle_t handle);

/* A knob that a client is turning: set it between the two. */
struct turn {
    struct gpu *gpu;
    int lock;
};

struct turn begin_turn(struct gpu *gpu);
void end_turn(struct turn turn);
unsigned int graphics_clock_in_force(const struct gpu *gpu);

void set32(uint32_t *field, unsigned int value);
unsigned int get32(const uint32_t *field);

#pragma GCC visibility pop

#endif

/*
 * What stands behind the exported functions: the common entry of every call (counting, latency,
 * faults), handles and sensors.
 */
#ifndef SIMULATED_NVML_SIMULATION_H
#define SIMULATED_NVML_SIMULATION_H

#include <stdbool.h>

#include "abi.h"
#include "physics.h"
#include "sensors.h"
#include "shared_state.h"
#include "state.h"

#pragma GCC visibility push(hidden)

#define NO_MIG (-1)

/* What a handle points to. Clients only ever see the address. */
struct device {
    int gpu;
    int mig;
};

/* One call in progress. `result` is SUCCESS when the function should do its work. */
struct call {
    result_t result;
    bool sentinel;
    int index;
    int mig;
    struct gpu *gpu;
};

/* A function that reads or sets a whole GPU is not available on a slice of one. */
enum mig_policy { GPU_ONLY, GPU_OR_MIG };

result_t open_state(void);
result_t close_state(void);
struct state *state(void);

struct call enter_system(enum function function);
struct call enter_lookup(enum function function, int gpu);
struct call enter_device(enum function function, handle_t handle, enum mig_policy policy);
result_t check_control_permission(const struct gpu *gpu);

handle_t handle_of_gpu(int gpu);
handle_t handle_of_mig(int gpu, int mig);

uint64_t energy_counter_mj(const struct gpu *gpu, int index, double now);
struct memory_v2 memory_of(const struct call *call);
unsigned int copy_processes(const struct gpu *gpu, bool graphics, struct process *into);

#pragma GCC visibility pop

#endif

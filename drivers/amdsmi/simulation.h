/*
 * What stands behind the exported functions: the common entry of every call (counting and faults)
 * and handles.
 */
#ifndef SIMULATED_AMDSMI_SIMULATION_H
#define SIMULATED_AMDSMI_SIMULATION_H

#include "abi.h"
#include "physics.h"
#include "sensors.h"
#include "shared_state.h"
#include "state.h"
#include "usage.h"

#pragma GCC visibility push(hidden)

/* What a handle points to. Clients only ever see the address. */
struct processor {
    uint32_t index;
};

/* One call in progress. `result` is SUCCESS when the function should do its work. */
struct call {
    status_t result;
    bool sentinel;
    struct state *state;
    struct gpu *gpu;
};

status_t open_state(void);
status_t close_state(void);

struct call enter_system(enum function function);
struct call enter_lookup(enum function function, handle_t handle);
struct call enter_device(enum function function, handle_t handle);
struct call enter_control(enum function function, handle_t handle);
handle_t handle_of(uint32_t index);

uint32_t copy_processes(const struct gpu *gpu, struct process *into);

#pragma GCC visibility pop

#endif

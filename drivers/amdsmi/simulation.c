/*
 * Starting and stopping the library, and the common entry of every call.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdatomic.h>
#include <string.h>

static const struct expectation expected = {
    .variable = "SIMULATED_AMDSMI",
    .magic = STATE_MAGIC,
    .function_count = FUNCTION_COUNT,
    .size = sizeof(struct state),
};

static _Atomic(struct state *) shared;
static struct processor processors[MAX_GPUS];

/* --- Starting and stopping --- */

/* Like the real library, this one does not count its users: the second opening does nothing, and
 * one closing closes it for the whole process. */
status_t open_state(void)
{
    if (atomic_load(&shared) != NULL)
        return SUCCESS;
    void *mapped = NULL;
    if (map_state(&expected, &mapped) != MAPPED)
        return DRIVER_NOT_LOADED;
    for (uint32_t index = 0; index < MAX_GPUS; index++)
        processors[index].index = index;
    atomic_store(&shared, mapped);
    return SUCCESS;
}

status_t close_state(void)
{
    /* The memory stays mapped: another thread may be hanging inside a call. */
    return atomic_exchange(&shared, NULL) == NULL ? NOT_INIT : SUCCESS;
}

/* --- The common entry of every call --- */

static struct call begin(enum function function)
{
    struct call call = {.result = SUCCESS, .state = atomic_load(&shared)};
    if (call.state == NULL)
        call.result = NOT_INIT;
    else
        count_call(&call.state->header, function);
    return call;
}

static void apply_fault_of(struct call *call, uint32_t row, enum function function)
{
    apply_fault(&call->state->header.faults[row][function], &call->result, &call->sentinel);
}

struct call enter_system(enum function function)
{
    struct call call = begin(function);
    if (call.result == SUCCESS)
        apply_fault_of(&call, MAX_GPUS, function);
    return call;
}

static bool is_handle(handle_t handle, uint32_t gpu_count)
{
    for (uint32_t index = 0; index < gpu_count; index++)
        if (handle == &processors[index])
            return true;
    return false;
}

/*
 * What the library remembers of a GPU from its own start, such as the PCI address, is known even
 * after the GPU is lost: the faults of "any function" leave this alone.
 */
struct call enter_lookup(enum function function, handle_t handle)
{
    struct call call = begin(function);
    if (call.result != SUCCESS)
        return call;
    if (!is_handle(handle, call.state->header.gpu_count)) {
        call.result = NOT_FOUND;
        return call;
    }
    call.gpu = &call.state->gpus[handle->index];
    apply_fault_of(&call, handle->index, function);
    if (call.result == SUCCESS && call.gpu->unsupported[function])
        call.result = NOT_SUPPORTED;
    return call;
}

struct call enter_device(enum function function, handle_t handle)
{
    struct call call = enter_lookup(function, handle);
    if (call.result == SUCCESS)
        apply_fault_of(&call, handle->index, FN_ANY);
    return call;
}

struct call enter_control(enum function function, handle_t handle)
{
    struct call call = enter_device(function, handle);
    if (call.result != SUCCESS)
        return call;
    if (!may_control(&call.gpu->flags))
        call.result = NO_PERM;
    return call;
}

handle_t handle_of(uint32_t index)
{
    return &processors[index];
}

/* --- Reading what the controller rewrites --- */

uint32_t copy_processes(const struct gpu *gpu, struct process *into)
{
    uint64_t sequence, number;
    do {
        sequence = begin_reading(&gpu->power);
        number = gpu->process_count <= MAX_PROCESSES ? gpu->process_count : MAX_PROCESSES;
        memcpy(into, gpu->processes, number * sizeof *into);
    } while (was_rewritten(&gpu->power, sequence));
    return (uint32_t)number;
}

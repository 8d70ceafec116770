/*
 * Starting and stopping the library, the common entry of every call, and what several of them read.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <pthread.h>
#include <stdatomic.h>

static const struct expectation expected = {
    .variable = STATE_VARIABLE,
    .magic = STATE_MAGIC,
    .function_count = FUNCTION_COUNT,
    .size = sizeof(struct state),
};

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct state *) shared;
static atomic_int users;

/* Filled in when the library is loaded, so that a handle outlives a shutdown like a real one. */
static struct device gpu_devices[MAX_GPUS];
static struct device mig_devices[MAX_GPUS * MAX_MIG_DEVICES];

__attribute__((constructor)) static void number_devices(void)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        gpu_devices[gpu] = (struct device){.gpu = gpu, .mig = NO_MIG};
        for (int mig = 0; mig < MAX_MIG_DEVICES; mig++)
            mig_devices[gpu * MAX_MIG_DEVICES + mig] = (struct device){.gpu = gpu, .mig = mig};
    }
}

/* --- Starting and stopping --- */

result_t open_state(void)
{
    static const result_t results[] = {
        [MAPPED] = SUCCESS,
        [FILE_ABSENT] = DRIVER_NOT_LOADED,
        [FILE_MISMATCH] = LIB_RM_VERSION_MISMATCH,
    };
    result_t result = SUCCESS;
    pthread_mutex_lock(&lifecycle);
    if (atomic_load(&users) == 0) {
        void *mapped = NULL;
        result = results[map_state(&expected, &mapped)];
        /* An earlier mapping stays in place: another thread may be hanging inside a call. */
        if (result == SUCCESS)
            atomic_store(&shared, mapped);
    }
    if (result == SUCCESS)
        atomic_fetch_add(&users, 1);
    pthread_mutex_unlock(&lifecycle);
    return result;
}

result_t close_state(void)
{
    result_t result = UNINITIALIZED;
    pthread_mutex_lock(&lifecycle);
    if (atomic_load(&users) > 0) {
        atomic_fetch_sub(&users, 1);
        result = SUCCESS;
    }
    pthread_mutex_unlock(&lifecycle);
    return result;
}

struct state *state(void)
{
    return atomic_load_explicit(&shared, memory_order_acquire);
}

/* --- The common entry of every call --- */

static void apply_faults(struct fault *row, enum function function, bool also_any,
                         struct call *call)
{
    apply_fault(&row[function], &call->result, &call->sentinel);
    if (also_any && call->result == SUCCESS)
        apply_fault(&row[FN_ANY], &call->result, &call->sentinel);
}

static bool is_running(void)
{
    return atomic_load_explicit(&users, memory_order_acquire) > 0;
}

struct call enter_system(enum function function)
{
    struct call call = {.result = SUCCESS, .index = -1, .mig = NO_MIG};
    if (!is_running()) {
        call.result = UNINITIALIZED;
        return call;
    }
    count_call(&state()->header, function);
    apply_faults(state()->header.faults[MAX_GPUS], function, true, &call);
    return call;
}

/*
 * A handle lookup that found its GPU. "Any function" faults leave it alone, because a real driver
 * still hands out the handle of a GPU that fell off the bus after initialization.
 */
struct call enter_lookup(enum function function, int gpu)
{
    struct state *s = state();
    struct call call = {.result = SUCCESS, .index = gpu, .mig = NO_MIG, .gpu = &s->gpus[gpu]};
    if (call.gpu->flags & FLAG_LOST_AT_INIT)
        call.result = GPU_IS_LOST;
    pass_time(s->driver_latency);
    apply_faults(s->header.faults[gpu], function, false, &call);
    return call;
}

static bool points_into(handle_t handle, const struct device *first, size_t number)
{
    uintptr_t address = (uintptr_t)handle, base = (uintptr_t)first;
    return address >= base && address < base + number * sizeof *first &&
           (address - base) % sizeof *first == 0;
}

static bool is_handle(handle_t handle)
{
    return points_into(handle, gpu_devices, MAX_GPUS) ||
           points_into(handle, mig_devices, MAX_GPUS * MAX_MIG_DEVICES);
}

static bool exists(const struct state *s, const struct device *device)
{
    return device->gpu < (int)s->header.gpu_count &&
           (device->mig == NO_MIG || device->mig < (int)s->gpus[device->gpu].mig_count);
}

struct call enter_device(enum function function, handle_t handle, enum mig_policy policy)
{
    struct call call = {.result = SUCCESS};
    if (!is_running()) {
        call.result = UNINITIALIZED;
        return call;
    }
    struct state *s = state();
    count_call(&s->header, function);
    if (!is_handle(handle) || !exists(s, handle)) {
        call.result = INVALID_ARGUMENT;
        return call;
    }
    call.index = handle->gpu;
    call.mig = handle->mig;
    call.gpu = &s->gpus[handle->gpu];
    pass_time(s->driver_latency);
    apply_faults(s->header.faults[handle->gpu], function, true, &call);
    if (call.result != SUCCESS)
        return call;
    if (call.gpu->unsupported[function] || (policy == GPU_ONLY && call.mig != NO_MIG))
        call.result = NOT_SUPPORTED;
    return call;
}

result_t check_control_permission(const struct gpu *gpu)
{
    return may_control(&gpu->flags) ? SUCCESS : NO_PERMISSION;
}

handle_t handle_of_gpu(int gpu)
{
    return &gpu_devices[gpu];
}

handle_t handle_of_mig(int gpu, int mig)
{
    return &mig_devices[gpu * MAX_MIG_DEVICES + mig];
}

/* --- Reading what the controller rewrites --- */

static unsigned int gather_processes(const struct gpu *gpu, bool graphics, struct process *into)
{
    unsigned int found = 0;
    uint64_t number = gpu->process_count <= MAX_PROCESSES ? gpu->process_count : MAX_PROCESSES;
    for (uint64_t i = 0; i < number; i++)
        if ((gpu->processes[i].is_graphics != 0) == graphics)
            into[found++] = gpu->processes[i];
    return found;
}

unsigned int copy_processes(const struct gpu *gpu, bool graphics, struct process *into)
{
    unsigned int found;
    uint64_t sequence;
    do {
        sequence = begin_reading(&gpu->power);
        found = gather_processes(gpu, graphics, into);
    } while (was_rewritten(&gpu->power, sequence));
    return found;
}

/* --- Memory --- */

/* MIG devices share the memory of their GPU evenly and stand empty. */
struct memory_v2 memory_of(const struct call *call)
{
    const struct gpu *gpu = call->gpu;
    struct memory_v2 memory = {.total = gpu->memory_total};
    if (call->mig == NO_MIG) {
        memory.reserved = gpu->memory_reserved;
        memory.used = __atomic_load_n(&gpu->memory_used, __ATOMIC_ACQUIRE);
    } else {
        memory.total /= gpu->mig_count;
    }
    memory.free = memory.total - memory.reserved - memory.used;
    return memory;
}

/* --- Sensors --- */

uint64_t energy_counter_mj(const struct gpu *gpu, int index, double now)
{
    double counted = 1000.0 * read_counter(&gpu->power, index, now).joules;
    return counted > 0 ? (uint64_t)counted : 0;
}

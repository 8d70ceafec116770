/*
 * The shared state, the common entry of every call and the physics of the simulated library.
 *
 * All it reports is a pure function of the state file and of CLOCK_MONOTONIC, so every process
 * gets the same answer.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STATE_VARIABLE "ZEUS_SIMULATED_AMDSMI"
#define HANG_POLL_SECONDS 0.005

static _Atomic(struct state *) shared;
static struct processor processors[MAX_GPUS];

/* --- The state file ------------------------------------------------------------------------- */

static bool looks_right(const struct state *candidate)
{
    return memcmp(candidate->magic, STATE_MAGIC, sizeof candidate->magic) == 0 &&
           candidate->version == STATE_VERSION && candidate->size == sizeof(struct state) &&
           candidate->function_count == FUNCTION_COUNT && candidate->gpu_count <= MAX_GPUS;
}

static struct state *map_state(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    struct stat status;
    void *memory = MAP_FAILED;
    if (fstat(file, &status) == 0 && (uint64_t)status.st_size == sizeof(struct state))
        memory = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return NULL;
    if (looks_right(memory))
        return memory;
    munmap(memory, sizeof(struct state));
    return NULL;
}

/* Like the real library, this one does not count its users: the second opening does nothing, and
 * one closing closes it for everybody in the process. */
status_t open_state(void)
{
    if (atomic_load(&shared) != NULL)
        return SUCCESS;
    const char *path = getenv(STATE_VARIABLE);
    struct state *mapped = path == NULL ? NULL : map_state(path);
    if (mapped == NULL)
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

/* --- Time ----------------------------------------------------------------------------------- */

double monotonic_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_for(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* --- The common entry of every call ----------------------------------------------------------- */

static bool fires(struct fault *fault)
{
    if (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == FAULT_NONE)
        return false;
    if (__atomic_fetch_sub(&fault->skip, 1, __ATOMIC_RELAXED) > 0)
        return false;
    return __atomic_fetch_sub(&fault->left, 1, __ATOMIC_RELAXED) > 0;
}

static void apply_fault(struct fault *fault, struct call *call)
{
    if (!fires(fault))
        return;
    /* A hanging call comes back when the controller takes the fault away. */
    while (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == FAULT_HANG)
        sleep_for(HANG_POLL_SECONDS);
    uint32_t kind = __atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE);
    if (kind == FAULT_DELAY)
        sleep_for(fault->seconds);
    else if (kind == FAULT_ERROR)
        call->result = fault->code;
    else if (kind == FAULT_SENTINEL)
        call->sentinel = true;
}

static struct call begin(enum function function)
{
    struct call call = {.result = SUCCESS, .state = atomic_load(&shared)};
    if (call.state == NULL)
        call.result = NOT_INIT;
    else
        __atomic_fetch_add(&call.state->calls[function], 1, __ATOMIC_RELAXED);
    return call;
}

struct call enter_system(enum function function)
{
    struct call call = begin(function);
    if (call.result == SUCCESS)
        apply_fault(&call.state->faults[MAX_GPUS][function], &call);
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
 * What the library remembers of a GPU from its own start, such as the PCI address, it can still
 * tell once the GPU is gone: the faults of "any function" leave this alone.
 */
struct call enter_lookup(enum function function, handle_t handle)
{
    struct call call = begin(function);
    if (call.result != SUCCESS)
        return call;
    if (!is_handle(handle, call.state->gpu_count)) {
        call.result = NOT_FOUND;
        return call;
    }
    call.gpu = &call.state->gpus[handle->index];
    apply_fault(&call.state->faults[handle->index][function], &call);
    if (call.result == SUCCESS && call.gpu->unsupported[function])
        call.result = NOT_SUPPORTED;
    return call;
}

struct call enter_device(enum function function, handle_t handle)
{
    struct call call = enter_lookup(function, handle);
    if (call.result == SUCCESS)
        apply_fault(&call.state->faults[handle->index][FN_ANY], &call);
    return call;
}

struct call enter_control(enum function function, handle_t handle)
{
    struct call call = enter_device(function, handle);
    if (call.result != SUCCESS)
        return call;
    uint32_t flags = __atomic_load_n(&call.gpu->flags, __ATOMIC_ACQUIRE);
    if ((flags & FLAG_DENY_CONTROL) || ((flags & FLAG_NEEDS_ROOT) && geteuid() != 0))
        call.result = NO_PERM;
    return call;
}

handle_t handle_of(uint32_t index)
{
    return &processors[index];
}

/* --- Reading what the controller rewrites ------------------------------------------------------ */

static uint64_t begin_reading(const struct gpu *gpu)
{
    for (;;) {
        uint64_t sequence = __atomic_load_n(&gpu->sequence, __ATOMIC_ACQUIRE);
        if (sequence % 2 == 0)
            return sequence;
        sched_yield();
    }
}

static bool was_rewritten(const struct gpu *gpu, uint64_t sequence)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&gpu->sequence, __ATOMIC_RELAXED) != sequence;
}

uint32_t copy_processes(const struct gpu *gpu, struct process *into)
{
    uint64_t sequence, number;
    do {
        sequence = begin_reading(gpu);
        number = gpu->process_count <= MAX_PROCESSES ? gpu->process_count : MAX_PROCESSES;
        memcpy(into, gpu->processes, number * sizeof *into);
    } while (was_rewritten(gpu, sequence));
    return (uint32_t)number;
}

/* --- Power and energy ------------------------------------------------------------------------- */

/* The last segment that began at or before `instant`; the first one reaches back for ever. */
static struct segment find_segment(const struct gpu *gpu, double instant)
{
    uint64_t low = 0, high = gpu->segment_count <= MAX_SEGMENTS ? gpu->segment_count : MAX_SEGMENTS;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (gpu->segments[middle].start <= instant)
            low = middle;
        else
            high = middle;
    }
    return gpu->segments[low];
}

static struct segment segment_at(const struct gpu *gpu, double instant)
{
    struct segment segment;
    uint64_t sequence;
    do {
        sequence = begin_reading(gpu);
        segment = find_segment(gpu, instant);
    } while (was_rewritten(gpu, sequence));
    return segment;
}

double watts_at(const struct gpu *gpu, double instant)
{
    return segment_at(gpu, instant).watts;
}

double joules_at(const struct gpu *gpu, double instant)
{
    struct segment segment = segment_at(gpu, instant);
    return segment.joules + segment.watts * (instant - segment.start);
}

double average_watts(const struct gpu *gpu, double now)
{
    double window = gpu->average_window;
    return (joules_at(gpu, now) - joules_at(gpu, now - window)) / window;
}

double last_tick(const struct gpu *gpu, double now)
{
    if (gpu->tick_period <= 0)
        return now;
    /* Truncation rounds towards the phase, so an instant before it belongs to the tick below. */
    int64_t tick = (int64_t)((now - gpu->tick_phase) / gpu->tick_period);
    double instant = gpu->tick_phase + (double)tick * gpu->tick_period;
    return instant <= now ? instant : instant - gpu->tick_period;
}

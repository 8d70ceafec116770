/*
 * The shared state, the common entry of every call and the physics of the simulated driver.
 *
 * The controller owns the power segments; this side only integrates them. Everything it reports
 * is a pure function of the state file and of CLOCK_MONOTONIC, so any process gets the same answer.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STATE_VARIABLE "ZEUS_SIMULATED_NVML"
#define HANG_POLL_SECONDS 0.005
#define BUSY_WAIT_BELOW_SECONDS 50e-6

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

/* --- The state file --- */

static bool looks_right(const struct state *candidate)
{
    return memcmp(candidate->magic, STATE_MAGIC, sizeof candidate->magic) == 0 &&
           candidate->version == STATE_VERSION && candidate->size == sizeof(struct state) &&
           candidate->function_count == FUNCTION_COUNT && candidate->gpu_count <= MAX_GPUS;
}

static result_t map_state(const char *path, struct state **mapped)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return DRIVER_NOT_LOADED;
    struct stat status;
    if (fstat(file, &status) != 0 || (uint64_t)status.st_size != sizeof(struct state)) {
        close(file);
        return LIB_RM_VERSION_MISMATCH;
    }
    void *memory = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return DRIVER_NOT_LOADED;
    if (!looks_right(memory)) {
        munmap(memory, sizeof(struct state));
        return LIB_RM_VERSION_MISMATCH;
    }
    *mapped = memory;
    return SUCCESS;
}

result_t open_state(void)
{
    result_t result = SUCCESS;
    pthread_mutex_lock(&lifecycle);
    if (atomic_load(&users) == 0) {
        const char *path = getenv(STATE_VARIABLE);
        struct state *mapped = NULL;
        result = path == NULL || *path == '\0' ? DRIVER_NOT_LOADED : map_state(path, &mapped);
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

/* --- Time --- */

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

static void pass_time(double seconds)
{
    if (seconds <= 0)
        return;
    if (seconds >= BUSY_WAIT_BELOW_SECONDS) {
        sleep_for(seconds);
        return;
    }
    double end = monotonic_now() + seconds;
    while (monotonic_now() < end)
        ;
}

/* --- The common entry of every call --- */

static bool fires(struct fault *fault)
{
    if (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == FAULT_NONE)
        return false;
    if (__atomic_load_n(&fault->skip, __ATOMIC_RELAXED) > 0 &&
        __atomic_fetch_sub(&fault->skip, 1, __ATOMIC_RELAXED) > 0)
        return false;
    return __atomic_load_n(&fault->left, __ATOMIC_RELAXED) > 0 &&
           __atomic_fetch_sub(&fault->left, 1, __ATOMIC_RELAXED) > 0;
}

static void apply(struct fault *fault, struct call *call)
{
    while (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == FAULT_HANG)
        sleep_for(HANG_POLL_SECONDS);
    pass_time(fault->seconds);
    switch (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE)) {
    case FAULT_ERROR:
        call->result = fault->code;
        break;
    case FAULT_SENTINEL:
        call->sentinel = true;
        break;
    default:
        break;
    }
}

static void apply_faults(struct fault *row, enum function function, bool also_any,
                         struct call *call)
{
    if (fires(&row[function]))
        apply(&row[function], call);
    if (also_any && call->result == SUCCESS && fires(&row[FN_ANY]))
        apply(&row[FN_ANY], call);
}

static void count(struct state *s, enum function function)
{
    __atomic_fetch_add(&s->calls[function], 1, __ATOMIC_RELAXED);
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
    count(state(), function);
    apply_faults(state()->faults[MAX_GPUS], function, true, &call);
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
    apply_faults(s->faults[gpu], function, false, &call);
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
    return device->gpu < (int)s->gpu_count &&
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
    count(s, function);
    if (!is_handle(handle) || !exists(s, handle)) {
        call.result = INVALID_ARGUMENT;
        return call;
    }
    call.index = handle->gpu;
    call.mig = handle->mig;
    call.gpu = &s->gpus[handle->gpu];
    pass_time(s->driver_latency);
    apply_faults(s->faults[handle->gpu], function, true, &call);
    if (call.result != SUCCESS)
        return call;
    if (call.gpu->unsupported[function] || (policy == GPU_ONLY && call.mig != NO_MIG))
        call.result = NOT_SUPPORTED;
    return call;
}

result_t check_control_permission(const struct gpu *gpu)
{
    uint32_t flags = __atomic_load_n(&gpu->flags, __ATOMIC_ACQUIRE);
    bool denied = (flags & FLAG_DENY_CONTROL) || ((flags & FLAG_NEEDS_ROOT) && geteuid() != 0);
    return denied ? NO_PERMISSION : SUCCESS;
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
        sequence = begin_reading(gpu);
        found = gather_processes(gpu, graphics, into);
    } while (was_rewritten(gpu, sequence));
    return found;
}

/* --- Power and energy --- */

/* The last segment that started at or before `instant`; the first one reaches back for ever. */
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

static double joules_at(const struct gpu *gpu, double instant)
{
    struct segment segment = segment_at(gpu, instant);
    return segment.joules + segment.watts * (instant - segment.start);
}

static int64_t round_down(double value)
{
    int64_t truncated = (int64_t)value;
    return (double)truncated > value ? truncated - 1 : truncated;
}

/* A number in [0, 1) that depends on nothing but its arguments (and matches the controller's). */
static double scatter(uint64_t number, uint64_t salt)
{
    uint64_t mixed = number * 0xDF7C85303DD46B6Bu + salt * 0xF820571E8B29C9DDu;
    mixed += 0x3C4F9A1D70E6B285u;
    mixed = (mixed ^ (mixed >> 31)) * 0x94C5AD41FD4DAED1u;
    mixed = (mixed ^ (mixed >> 29)) * 0xA5A8B7D8486604E9u;
    mixed ^= mixed >> 32;
    return (double)(mixed >> 11) * 0x1p-53;
}

static double tick_instant(const struct gpu *gpu, int index, int64_t tick)
{
    double instant = gpu->tick_phase + (double)tick * gpu->tick_period;
    if (gpu->tick_jitter > 0)
        instant += gpu->tick_jitter * scatter((uint64_t)tick, (uint64_t)index);
    return instant;
}

static double last_tick(const struct gpu *gpu, int index, double now)
{
    if (gpu->tick_period <= 0)
        return now;
    int64_t tick = round_down((now - gpu->tick_phase) / gpu->tick_period);
    double instant = tick_instant(gpu, index, tick);
    return instant <= now ? instant : tick_instant(gpu, index, tick - 1);
}

uint64_t energy_counter_mj(const struct gpu *gpu, int index, double now)
{
    double joules = joules_at(gpu, last_tick(gpu, index, now));
    double counted = 1000.0 * (gpu->counter_offset + gpu->counter_gain * joules);
    return counted > 0 ? (uint64_t)counted : 0;
}

static double with_noise(const struct gpu *gpu, int index, double watts, int64_t sample)
{
    if (gpu->power_noise <= 0)
        return watts;
    double swing = 2.0 * scatter((uint64_t)sample, 1000u + (uint64_t)index) - 1.0;
    return watts * (1.0 + gpu->power_noise * swing);
}

/* A live sensor still needs a sample number for its noise; it gets a new one every millisecond. */
static int64_t live_sample(double now)
{
    return round_down(now * 1000.0);
}

double sensed_watts(const struct gpu *gpu, int index, double now)
{
    if (gpu->power_period <= 0)
        return with_noise(gpu, index, watts_at(gpu, now), live_sample(now));
    int64_t sample = round_down((now - gpu->power_phase) / gpu->power_period);
    double instant = gpu->power_phase + (double)sample * gpu->power_period;
    return with_noise(gpu, index, watts_at(gpu, instant), sample);
}

double average_watts(const struct gpu *gpu, int index, double now)
{
    double start = now - gpu->average_window;
    double watts = (joules_at(gpu, now) - joules_at(gpu, start)) / gpu->average_window;
    return with_noise(gpu, index, watts, live_sample(now));
}

/*
 * The state file that a simulated driver library shares with its controller.
 *
 * The controller writes it from another process, hence the atomic accesses throughout.
 */
#define _GNU_SOURCE
#include "shared_state.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HANG_POLL_SECONDS 0.005
#define BUSY_WAIT_BELOW_SECONDS 50e-6

/* --- The state file --- */

static bool is_expected(const struct header *header, const struct expectation *expected)
{
    return memcmp(header->magic, expected->magic, sizeof header->magic) == 0 &&
           header->version == STATE_VERSION && header->size == expected->size &&
           header->function_count == expected->function_count && header->gpu_count <= MAX_GPUS;
}

enum mapping map_state(const struct expectation *expected, void **mapped)
{
    const char *path = getenv(expected->variable);
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return FILE_ABSENT;
    struct stat status;
    if (fstat(file, &status) != 0 || (uint64_t)status.st_size != expected->size) {
        close(file);
        return FILE_MISMATCH;
    }
    void *memory = mmap(NULL, expected->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return FILE_ABSENT;
    if (!is_expected(memory, expected)) {
        munmap(memory, expected->size);
        return FILE_MISMATCH;
    }
    *mapped = memory;
    return MAPPED;
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

void pass_time(double seconds)
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

/* --- Calls --- */

void count_call(struct header *header, unsigned int function)
{
    __atomic_fetch_add(&header->calls[function], 1, __ATOMIC_RELAXED);
}

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

void apply_fault(struct fault *fault, unsigned int *result, bool *sentinel)
{
    if (!fires(fault))
        return;
    /* A hanging call comes back when the controller takes the fault away. */
    while (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE) == FAULT_HANG)
        sleep_for(HANG_POLL_SECONDS);
    pass_time(fault->seconds);
    uint32_t kind = __atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE);
    if (kind == FAULT_ERROR)
        *result = fault->code;
    else if (kind == FAULT_SENTINEL)
        *sentinel = true;
}

bool may_control(const uint32_t *flags)
{
    uint32_t now = __atomic_load_n(flags, __ATOMIC_ACQUIRE);
    return !(now & FLAG_DENY_CONTROL) && (!(now & FLAG_NEEDS_ROOT) || geteuid() == 0);
}

/* --- Reading what the controller rewrites --- */

uint64_t begin_reading(const struct power *power)
{
    for (;;) {
        uint64_t sequence = __atomic_load_n(&power->sequence, __ATOMIC_ACQUIRE);
        if (sequence % 2 == 0)
            return sequence;
        sched_yield();
    }
}

bool was_rewritten(const struct power *power, uint64_t sequence)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&power->sequence, __ATOMIC_RELAXED) != sequence;
}

/* --- Rewriting what follows from a client's call --- */

/*
 * Keeps other writers out, the controller among them. Opened again each time, because a file
 * that is inherited over a fork would count as the same lock on both sides.
 */
int lock_state(const char *variable)
{
    const char *path = getenv(variable);
    int lock = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR)
        ;
    return lock;
}

void unlock_state(int lock)
{
    if (lock >= 0)
        close(lock);
}

void begin_rewriting(struct power *power)
{
    __atomic_fetch_add(&power->sequence, 1, __ATOMIC_ACQ_REL);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

void end_rewriting(struct power *power)
{
    __atomic_fetch_add(&power->sequence, 1, __ATOMIC_RELEASE);
}

/* For how long each process has used a device, as the driver samples it. */
#define _GNU_SOURCE
#include "answers.h"
#include "usage.h"

#include <math.h>
#include <time.h>

#define SAMPLE_PERIOD (1.0 / 6)
#define KEPT_SAMPLES 72

static uint64_t timestamp_of(double instant)
{
    return (uint64_t)((instant + state()->realtime_offset) * 1e6);
}

/* The last sample in which a process ran; 0 if it is not later than `since`. */
static double last_run(const struct use *use, double since, double latest)
{
    for (double end = latest; end > since; end -= SAMPLE_PERIOD)
        if (busy_at(use, end) > busy_at(use, end - SAMPLE_PERIOD))
            return end;
    return 0;
}

/*
 * One entry per process that ran in any sample since `seen`: its mean over all of these samples,
 * in whole percent, dated by the last one in which it ran.
 */
static unsigned int sampled(const struct call *call, const struct uses *uses, uint64_t seen,
                            struct process_utilization *into)
{
    double latest = floor(monotonic_now() / SAMPLE_PERIOD) * SAMPLE_PERIOD;
    double since = fmax(seen / 1e6 - state()->realtime_offset,
                        latest - KEPT_SAMPLES * SAMPLE_PERIOD);
    unsigned int found = 0;
    for (uint64_t i = 0; i < uses->count && since < latest; i++) {
        const struct use *use = &uses->of[i];
        double ran = last_run(use, since, latest);
        if (ran == 0 || timestamp_of(ran) <= seen)
            continue;
        double mean = (busy_at(use, latest) - busy_at(use, since)) / (latest - since);
        into[found++] = (struct process_utilization){
            .pid = (unsigned int)use->pid,
            .timestamp = timestamp_of(ran),
            .sm = answer32(call, (unsigned int)(100 * mean + 0.5)),
        };
    }
    return found;
}

/* Where use is not simulated: what the device shows, for every process on it. */
static unsigned int same_for_all(const struct call *call, struct process_utilization *into)
{
    struct process found[MAX_PROCESSES];
    struct timespec wall;
    unsigned int number = copy_processes(call->gpu, false, found);
    clock_gettime(CLOCK_REALTIME, &wall);
    for (unsigned int i = 0; i < number; i++)
        into[i] = (struct process_utilization){
            .pid = found[i].pid,
            .timestamp = (uint64_t)wall.tv_sec * 1000000u + (uint64_t)wall.tv_nsec / 1000u,
            .sm = answer32(call, call->gpu->utilization_gpu),
            .memory = answer32(call, call->gpu->utilization_memory),
        };
    return number;
}

EXPORT result_t nvmlDeviceGetProcessUtilization(handle_t device,
                                                struct process_utilization *samples,
                                                unsigned int *count, uint64_t since)
{
    struct process_utilization found[MAX_PROCESSES];
    struct uses uses;
    ENTER(enter_device(FN_nvmlDeviceGetProcessUtilization, device, GPU_ONLY));
    if (count == NULL)
        return INVALID_ARGUMENT;
    if (call.gpu->mig_count > 0)
        return NOT_SUPPORTED;
    copy_uses(&call.gpu->uses, &call.gpu->power, &uses);
    unsigned int number = uses.count > 0 ? sampled(&call, &uses, since, found)
                                         : same_for_all(&call, found);
    unsigned int room = samples == NULL ? 0 : *count;
    *count = number;
    if (number == 0)
        return NOT_FOUND;
    if (room < number)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < number; i++)
        samples[i] = found[i];
    return SUCCESS;
}

/* How busy and how hot a device is, and which processes use its memory. */
#define _GNU_SOURCE
#include "answers.h"

#define NO_INSTANCE 0xFFFFFFFFu

/* --- Temperature, fans, load --- */

static unsigned int celsius(const struct gpu *gpu)
{
    return (unsigned int)(30.0 + 0.12 * watts_now(&gpu->power));
}

EXPORT result_t nvmlDeviceGetTemperature(handle_t device, unsigned int sensor,
                                         unsigned int *temperature)
{
    ENTER(enter_device(FN_nvmlDeviceGetTemperature, device, GPU_ONLY));
    return sensor != 0 ? INVALID_ARGUMENT : put32(&call, temperature, celsius(call.gpu));
}

EXPORT result_t nvmlDeviceGetTemperatureV(handle_t device, struct temperature *temperature)
{
    ENTER(enter_device(FN_nvmlDeviceGetTemperatureV, device, GPU_ONLY));
    if (temperature == NULL)
        return INVALID_ARGUMENT;
    if (temperature->version != VERSIONED(struct temperature, 1u))
        return VERSION_MISMATCH;
    if (temperature->sensor != 0)
        return INVALID_ARGUMENT;
    temperature->celsius = (int)answer32(&call, celsius(call.gpu));
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetTemperatureThreshold(handle_t device, unsigned int which,
                                                  unsigned int *temperature)
{
    static const unsigned int thresholds[] = {92, 89, 95, 85};
    ENTER(enter_device(FN_nvmlDeviceGetTemperatureThreshold, device, GPU_ONLY));
    if (which >= sizeof thresholds / sizeof *thresholds)
        return NOT_SUPPORTED;
    return put32(&call, temperature, thresholds[which]);
}

EXPORT result_t nvmlDeviceGetFanSpeed(handle_t device, unsigned int *percent)
{
    ENTER(enter_device(FN_nvmlDeviceGetFanSpeed, device, GPU_ONLY));
    REQUIRE(FLAG_FAN_SUPPORTED);
    return put32(&call, percent, call.gpu->fan_percent);
}

EXPORT result_t nvmlDeviceGetFanSpeed_v2(handle_t device, unsigned int fan, unsigned int *percent)
{
    return fan != 0 ? INVALID_ARGUMENT : nvmlDeviceGetFanSpeed(device, percent);
}

EXPORT result_t nvmlDeviceGetUtilizationRates(handle_t device, struct utilization *rates)
{
    ENTER(enter_device(FN_nvmlDeviceGetUtilizationRates, device, GPU_ONLY));
    if (rates == NULL)
        return INVALID_ARGUMENT;
    rates->gpu = answer32(&call, get32(&call.gpu->utilization_gpu));
    rates->memory = answer32(&call, get32(&call.gpu->utilization_memory));
    return SUCCESS;
}

static result_t put_idle_engine(const struct call *call, unsigned int *percent,
                                unsigned int *period_us)
{
    result_t result = put32(call, percent, 0);
    return result ? result : put32(call, period_us, 167000);
}

EXPORT result_t nvmlDeviceGetEncoderUtilization(handle_t device, unsigned int *percent,
                                                unsigned int *period_us)
{
    ENTER(enter_device(FN_nvmlDeviceGetEncoderUtilization, device, GPU_ONLY));
    return put_idle_engine(&call, percent, period_us);
}

EXPORT result_t nvmlDeviceGetDecoderUtilization(handle_t device, unsigned int *percent,
                                                unsigned int *period_us)
{
    ENTER(enter_device(FN_nvmlDeviceGetDecoderUtilization, device, GPU_ONLY));
    return put_idle_engine(&call, percent, period_us);
}

EXPORT result_t nvmlDeviceGetPcieThroughput(handle_t device, unsigned int counter,
                                            unsigned int *kilobytes)
{
    ENTER(enter_device(FN_nvmlDeviceGetPcieThroughput, device, GPU_ONLY));
    return counter > 1 ? INVALID_ARGUMENT : put32(&call, kilobytes, 0);
}

/* --- Memory and processes --- */

EXPORT result_t nvmlDeviceGetMemoryInfo(handle_t device, struct memory_v1 *out)
{
    ENTER(enter_device(FN_nvmlDeviceGetMemoryInfo, device, GPU_OR_MIG));
    if (out == NULL)
        return INVALID_ARGUMENT;
    struct memory_v2 memory = memory_of(&call);
    out->total = answer64(&call, memory.total);
    out->free = answer64(&call, memory.free);
    /* The first version of this call counts what the driver reserves as used. */
    out->used = answer64(&call, memory.used + memory.reserved);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetMemoryInfo_v2(handle_t device, struct memory_v2 *out)
{
    ENTER(enter_device(FN_nvmlDeviceGetMemoryInfo, device, GPU_OR_MIG));
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (out->version != VERSIONED(struct memory_v2, 2u))
        return VERSION_MISMATCH;
    struct memory_v2 memory = memory_of(&call);
    out->total = answer64(&call, memory.total);
    out->reserved = answer64(&call, memory.reserved);
    out->free = answer64(&call, memory.free);
    out->used = answer64(&call, memory.used);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetBAR1MemoryInfo(handle_t device, struct bar1_memory *out)
{
    ENTER(enter_device(FN_nvmlDeviceGetBAR1MemoryInfo, device, GPU_OR_MIG));
    if (out == NULL)
        return INVALID_ARGUMENT;
    out->total = answer64(&call, call.gpu->memory_total);
    out->free = answer64(&call, call.gpu->memory_total);
    out->used = answer64(&call, 0);
    return SUCCESS;
}

static result_t put_processes(const struct call *call, bool graphics, unsigned int *count,
                              struct process_info *out)
{
    struct process found[MAX_PROCESSES];
    if (count == NULL)
        return INVALID_ARGUMENT;
    unsigned int number = call->mig == NO_MIG ? copy_processes(call->gpu, graphics, found) : 0;
    unsigned int room = out == NULL ? 0 : *count;
    *count = number;
    if (room < number)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < number; i++) {
        out[i].pid = found[i].pid;
        out[i].used_memory = answer64(call, found[i].bytes);
        out[i].gpu_instance = NO_INSTANCE;
        out[i].compute_instance = NO_INSTANCE;
    }
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetComputeRunningProcesses_v3(handle_t device, unsigned int *count,
                                                        struct process_info *processes)
{
    ENTER(enter_device(FN_nvmlDeviceGetComputeRunningProcesses, device, GPU_OR_MIG));
    return put_processes(&call, false, count, processes);
}

ALIAS_OF(nvmlDeviceGetComputeRunningProcesses_v3)
result_t nvmlDeviceGetComputeRunningProcesses_v2(handle_t device, unsigned int *count,
                                                 struct process_info *processes);

EXPORT result_t nvmlDeviceGetGraphicsRunningProcesses_v3(handle_t device, unsigned int *count,
                                                         struct process_info *processes)
{
    ENTER(enter_device(FN_nvmlDeviceGetGraphicsRunningProcesses, device, GPU_OR_MIG));
    return put_processes(&call, true, count, processes);
}

ALIAS_OF(nvmlDeviceGetGraphicsRunningProcesses_v3)
result_t nvmlDeviceGetGraphicsRunningProcesses_v2(handle_t device, unsigned int *count,
                                                  struct process_info *processes);

EXPORT result_t nvmlDeviceGetMPSComputeRunningProcesses_v3(handle_t device, unsigned int *count,
                                                           struct process_info *processes)
{
    (void)processes;
    ENTER(enter_device(FN_nvmlDeviceGetMPSComputeRunningProcesses, device, GPU_OR_MIG));
    if (count == NULL)
        return INVALID_ARGUMENT;
    *count = 0;
    return SUCCESS;
}

ALIAS_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3)
result_t nvmlDeviceGetMPSComputeRunningProcesses_v2(handle_t device, unsigned int *count,
                                                    struct process_info *processes);

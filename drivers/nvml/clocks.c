/* Clocks: what they are, what they may be, and who holds them down. */
#define _GNU_SOURCE
#include "answers.h"

static bool contains(const uint32_t *values, unsigned int number, unsigned int wanted)
{
    for (unsigned int i = 0; i < number; i++)
        if (values[i] == wanted)
            return true;
    return false;
}

static bool is_memory_clock(const struct gpu *gpu, unsigned int clock)
{
    return contains(gpu->memory_clocks, gpu->memory_clock_count, clock);
}

/* The controller lists clocks from the highest down, as the driver does. */
static unsigned int highest_clock(const struct gpu *gpu, unsigned int type)
{
    return type == CLOCK_MEMORY ? gpu->memory_clocks[0] : gpu->graphics_clocks[0];
}

static unsigned int default_clock(const struct gpu *gpu, unsigned int type)
{
    return type == CLOCK_MEMORY ? gpu->memory_clocks[0] : gpu->default_graphics_clock;
}

static unsigned int application_clock(const struct gpu *gpu, unsigned int type)
{
    return get32(type == CLOCK_MEMORY ? &gpu->application_memory : &gpu->application_graphics);
}

static unsigned int into_range(unsigned int clock, unsigned int lowest, unsigned int highest)
{
    if (highest == 0)
        return clock;
    if (clock > highest)
        return highest;
    return clock < lowest ? lowest : clock;
}

/* A simulated GPU always runs as fast as its settings allow. */
static unsigned int current_clock(const struct gpu *gpu, unsigned int type)
{
    bool memory = type == CLOCK_MEMORY;
    unsigned int lowest = get32(memory ? &gpu->locked_memory_min : &gpu->locked_graphics_min);
    unsigned int highest = get32(memory ? &gpu->locked_memory_max : &gpu->locked_graphics_max);
    unsigned int clock = into_range(application_clock(gpu, type), lowest, highest);
    return clock < highest_clock(gpu, type) ? clock : highest_clock(gpu, type);
}

unsigned int graphics_clock_in_force(const struct gpu *gpu)
{
    return current_clock(gpu, CLOCK_GRAPHICS);
}

typedef unsigned int (*clock_reader)(const struct gpu *, unsigned int);

static result_t put_clock(const struct call *call, unsigned int type, unsigned int *clock,
                          clock_reader read)
{
    return type > CLOCK_VIDEO ? INVALID_ARGUMENT : put32(call, clock, read(call->gpu, type));
}

EXPORT result_t nvmlDeviceGetClockInfo(handle_t device, unsigned int type, unsigned int *clock)
{
    ENTER(enter_device(FN_nvmlDeviceGetClockInfo, device, GPU_ONLY));
    return put_clock(&call, type, clock, current_clock);
}

EXPORT result_t nvmlDeviceGetMaxClockInfo(handle_t device, unsigned int type, unsigned int *clock)
{
    ENTER(enter_device(FN_nvmlDeviceGetMaxClockInfo, device, GPU_ONLY));
    return put_clock(&call, type, clock, highest_clock);
}

EXPORT result_t nvmlDeviceGetApplicationsClock(handle_t device, unsigned int type,
                                               unsigned int *clock)
{
    ENTER(enter_device(FN_nvmlDeviceGetApplicationsClock, device, GPU_ONLY));
    return put_clock(&call, type, clock, application_clock);
}

EXPORT result_t nvmlDeviceGetDefaultApplicationsClock(handle_t device, unsigned int type,
                                                      unsigned int *clock)
{
    ENTER(enter_device(FN_nvmlDeviceGetDefaultApplicationsClock, device, GPU_ONLY));
    return put_clock(&call, type, clock, default_clock);
}

EXPORT result_t nvmlDeviceGetClock(handle_t device, unsigned int type, unsigned int which,
                                   unsigned int *clock)
{
    static const clock_reader readers[] = {
        [CLOCK_ID_CURRENT] = current_clock,
        [CLOCK_ID_APPLICATION] = application_clock,
        [CLOCK_ID_DEFAULT] = default_clock,
        [CLOCK_ID_BOOST] = highest_clock,
    };
    ENTER(enter_device(FN_nvmlDeviceGetClock, device, GPU_ONLY));
    if (which > CLOCK_ID_BOOST)
        return INVALID_ARGUMENT;
    return put_clock(&call, type, clock, readers[which]);
}

EXPORT result_t nvmlDeviceGetSupportedMemoryClocks(handle_t device, unsigned int *count,
                                                   unsigned int *clocks)
{
    ENTER(enter_device(FN_nvmlDeviceGetSupportedMemoryClocks, device, GPU_ONLY));
    return put_list32(&call, count, clocks, call.gpu->memory_clocks, call.gpu->memory_clock_count);
}

EXPORT result_t nvmlDeviceGetSupportedGraphicsClocks(handle_t device, unsigned int memory_clock,
                                                     unsigned int *count, unsigned int *clocks)
{
    ENTER(enter_device(FN_nvmlDeviceGetSupportedGraphicsClocks, device, GPU_ONLY));
    if (!is_memory_clock(call.gpu, memory_clock))
        return NOT_FOUND;
    return put_list32(&call, count, clocks, call.gpu->graphics_clocks,
                      call.gpu->graphics_clock_count);
}

static result_t lock_clocks(struct gpu *gpu, unsigned int type, unsigned int lowest,
                            unsigned int highest)
{
    bool memory = type == CLOCK_MEMORY;
    if (lowest > highest || highest == 0)
        return INVALID_ARGUMENT;
    struct turn turn = begin_turn(gpu);
    set32(memory ? &gpu->locked_memory_min : &gpu->locked_graphics_min, lowest);
    set32(memory ? &gpu->locked_memory_max : &gpu->locked_graphics_max, highest);
    end_turn(turn);
    return SUCCESS;
}

static void unlock_clocks(struct gpu *gpu, unsigned int type)
{
    bool memory = type == CLOCK_MEMORY;
    struct turn turn = begin_turn(gpu);
    set32(memory ? &gpu->locked_memory_max : &gpu->locked_graphics_max, 0);
    set32(memory ? &gpu->locked_memory_min : &gpu->locked_graphics_min, 0);
    end_turn(turn);
}

EXPORT result_t nvmlDeviceSetGpuLockedClocks(handle_t device, unsigned int lowest,
                                             unsigned int highest)
{
    ENTER(enter_control(FN_nvmlDeviceSetGpuLockedClocks, device));
    return lock_clocks(call.gpu, CLOCK_GRAPHICS, lowest, highest);
}

EXPORT result_t nvmlDeviceResetGpuLockedClocks(handle_t device)
{
    ENTER(enter_control(FN_nvmlDeviceResetGpuLockedClocks, device));
    unlock_clocks(call.gpu, CLOCK_GRAPHICS);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceSetMemoryLockedClocks(handle_t device, unsigned int lowest,
                                                unsigned int highest)
{
    ENTER(enter_control(FN_nvmlDeviceSetMemoryLockedClocks, device));
    return lock_clocks(call.gpu, CLOCK_MEMORY, lowest, highest);
}

EXPORT result_t nvmlDeviceResetMemoryLockedClocks(handle_t device)
{
    ENTER(enter_control(FN_nvmlDeviceResetMemoryLockedClocks, device));
    unlock_clocks(call.gpu, CLOCK_MEMORY);
    return SUCCESS;
}

static void set_application_clocks(struct gpu *gpu, unsigned int memory, unsigned int graphics)
{
    struct turn turn = begin_turn(gpu);
    set32(&gpu->application_memory, memory);
    set32(&gpu->application_graphics, graphics);
    end_turn(turn);
}

EXPORT result_t nvmlDeviceSetApplicationsClocks(handle_t device, unsigned int memory,
                                                unsigned int graphics)
{
    ENTER(enter_control(FN_nvmlDeviceSetApplicationsClocks, device));
    struct gpu *gpu = call.gpu;
    if (!is_memory_clock(gpu, memory) ||
        !contains(gpu->graphics_clocks, gpu->graphics_clock_count, graphics))
        return INVALID_ARGUMENT;
    set_application_clocks(gpu, memory, graphics);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceResetApplicationsClocks(handle_t device)
{
    ENTER(enter_control(FN_nvmlDeviceResetApplicationsClocks, device));
    set_application_clocks(call.gpu, default_clock(call.gpu, CLOCK_MEMORY),
                           default_clock(call.gpu, CLOCK_GRAPHICS));
    return SUCCESS;
}

static uint64_t throttle_reasons(const struct gpu *gpu)
{
    uint64_t reasons = 0;
    if (gpu->utilization_gpu == 0)
        reasons |= REASON_IDLE;
    if (get32(&gpu->application_graphics) != gpu->default_graphics_clock)
        reasons |= REASON_APPLICATION_CLOCKS;
    if (to_milliwatts(watts_now(&gpu->power)) >= get32(&gpu->limit_mw))
        reasons |= REASON_POWER_CAP;
    return reasons;
}

EXPORT result_t nvmlDeviceGetCurrentClocksThrottleReasons(handle_t device, uint64_t *reasons)
{
    ENTER(enter_device(FN_nvmlDeviceGetCurrentClocksThrottleReasons, device, GPU_ONLY));
    return put64(&call, reasons, throttle_reasons(call.gpu));
}

ALIAS_OF(nvmlDeviceGetCurrentClocksThrottleReasons)
result_t nvmlDeviceGetCurrentClocksEventReasons(handle_t device, uint64_t *reasons);

EXPORT result_t nvmlDeviceGetSupportedClocksThrottleReasons(handle_t device, uint64_t *reasons)
{
    ENTER(enter_device(FN_nvmlDeviceGetSupportedClocksThrottleReasons, device, GPU_ONLY));
    return put64(&call, reasons, REASON_IDLE | REASON_APPLICATION_CLOCKS | REASON_POWER_CAP);
}

ALIAS_OF(nvmlDeviceGetSupportedClocksThrottleReasons)
result_t nvmlDeviceGetSupportedClocksEventReasons(handle_t device, uint64_t *reasons);

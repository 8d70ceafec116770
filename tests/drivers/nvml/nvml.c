/*
 * The exported functions of the simulated driver library, as the nvidia-ml-py binding calls them.
 *
 * Each one enters through enter_system, enter_lookup or enter_device, which count the call and act
 * out any fault, and leaves through one of the put_ helpers, which know how to answer garbage.
 * Functions that are missing here are missing symbols, which the binding reports as such.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi.h"
#include "simulation.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS_OF(name) __attribute__((visibility("default"), alias(#name)))

#define MOST_MIG_DEVICES 7
#define NO_INSTANCE 0xFFFFFFFFu
#define PROCESS_NAME_LENGTH 1024

/* --- Answers --- */

static unsigned int answer32(const struct call *call, unsigned int value)
{
    return call->sentinel ? UINT32_MAX : value;
}

static uint64_t answer64(const struct call *call, uint64_t value)
{
    return call->sentinel ? UINT64_MAX : value;
}

static result_t put32(const struct call *call, unsigned int *out, unsigned int value)
{
    if (call->result != SUCCESS)
        return call->result;
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = answer32(call, value);
    return SUCCESS;
}

static result_t put64(const struct call *call, uint64_t *out, uint64_t value)
{
    if (call->result != SUCCESS)
        return call->result;
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = answer64(call, value);
    return SUCCESS;
}

static result_t put_text(const struct call *call, char *out, unsigned int length, const char *text)
{
    if (call->result != SUCCESS)
        return call->result;
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static result_t put_handle(const struct call *call, handle_t *out, handle_t handle)
{
    if (call->result != SUCCESS)
        return call->result;
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = handle;
    return SUCCESS;
}

/* The driver's convention for lists: say how many there are when the caller brings too little. */
static result_t put_list32(const struct call *call, unsigned int *count, unsigned int *out,
                           const uint32_t *values, unsigned int number)
{
    if (call->result != SUCCESS)
        return call->result;
    if (count == NULL)
        return INVALID_ARGUMENT;
    unsigned int room = out == NULL ? 0 : *count;
    *count = number;
    if (room < number)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < number; i++)
        out[i] = answer32(call, values[i]);
    return SUCCESS;
}

static unsigned int to_milliwatts(double watts)
{
    return watts <= 0 ? 0 : (unsigned int)(watts * 1000.0 + 0.5);
}

static bool has(const struct call *call, enum flag flag)
{
    return call->gpu != NULL && (call->gpu->flags & flag) != 0;
}

/* A call on a feature that the GPU may lack. */
static struct call require(struct call call, enum flag flag)
{
    if (call.result == SUCCESS && !has(&call, flag))
        call.result = NOT_SUPPORTED;
    return call;
}

/* A call that changes the GPU. */
static struct call enter_control(enum function function, handle_t handle)
{
    struct call call = enter_device(function, handle, GPU_ONLY);
    if (call.result == SUCCESS)
        call.result = check_control_permission(call.gpu);
    return call;
}

static void set32(uint32_t *field, unsigned int value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

static unsigned int get32(const uint32_t *field)
{
    return __atomic_load_n(field, __ATOMIC_ACQUIRE);
}

/* --- Library --- */

EXPORT result_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    result_t result = open_state();
    if (result != SUCCESS)
        return result;
    struct call call = enter_system(FN_nvmlInit);
    if (call.result != SUCCESS)
        close_state();
    return call.result;
}

EXPORT result_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

ALIAS_OF(nvmlInit_v2) result_t nvmlInit(void);

EXPORT result_t nvmlShutdown(void)
{
    struct call call = enter_system(FN_nvmlShutdown);
    return call.result != SUCCESS ? call.result : close_state();
}

EXPORT const char *nvmlErrorString(result_t result)
{
    static const char *const texts[] = {
        [SUCCESS] = "Success",
        [UNINITIALIZED] = "The library was not initialized",
        [INVALID_ARGUMENT] = "An argument is invalid",
        [NOT_SUPPORTED] = "The device does not support this",
        [NO_PERMISSION] = "The user has no permission for this",
        [NOT_FOUND] = "Nothing was found",
        [INSUFFICIENT_SIZE] = "The buffer is too small",
        [DRIVER_NOT_LOADED] = "The driver is not loaded",
        [FUNCTION_NOT_FOUND] = "The library lacks this function",
        [GPU_IS_LOST] = "The GPU is lost",
        [LIB_RM_VERSION_MISMATCH] = "The library and the driver differ in version",
        [VERSION_MISMATCH] = "The version of the argument is not known",
    };
    bool known = result < sizeof texts / sizeof *texts && texts[result] != NULL;
    return known ? texts[result] : "Unknown error";
}

EXPORT result_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    struct call call = enter_system(FN_nvmlSystemGetDriverVersion);
    return call.result ? call.result : put_text(&call, version, length, state()->driver_version);
}

EXPORT result_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    struct call call = enter_system(FN_nvmlSystemGetNVMLVersion);
    return call.result ? call.result : put_text(&call, version, length, state()->nvml_version);
}

EXPORT result_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct call call = enter_system(FN_nvmlSystemGetCudaDriverVersion);
    if (call.result != SUCCESS)
        return call.result;
    return put32(&call, (unsigned int *)version, (unsigned int)state()->cuda_version);
}

ALIAS_OF(nvmlSystemGetCudaDriverVersion_v2) result_t nvmlSystemGetCudaDriverVersion(int *version);

EXPORT result_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct call call = enter_system(FN_nvmlSystemGetProcessName);
    if (call.result != SUCCESS)
        return call.result;
    char path[64], command[PROCESS_NAME_LENGTH] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NOT_FOUND;
    /* The arguments are separated by zero bytes, so the text ends after the program. */
    size_t size = fread(command, 1, sizeof command - 1, file);
    fclose(file);
    return size == 0 ? NOT_FOUND : put_text(&call, name, length, command);
}

/* --- Finding devices --- */

EXPORT result_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    struct call call = enter_system(FN_nvmlDeviceGetCount);
    return call.result ? call.result : put32(&call, count, state()->gpu_count);
}

ALIAS_OF(nvmlDeviceGetCount_v2) result_t nvmlDeviceGetCount(unsigned int *count);

static result_t put_gpu_handle(enum function function, handle_t *device, int gpu)
{
    struct call call = enter_lookup(function, gpu);
    return put_handle(&call, device, handle_of_gpu(gpu));
}

EXPORT result_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t *device)
{
    struct call call = enter_system(FN_nvmlDeviceGetHandleByIndex);
    if (call.result != SUCCESS)
        return call.result;
    if (index >= state()->gpu_count)
        return INVALID_ARGUMENT;
    return put_gpu_handle(FN_nvmlDeviceGetHandleByIndex, device, (int)index);
}

ALIAS_OF(nvmlDeviceGetHandleByIndex_v2)
result_t nvmlDeviceGetHandleByIndex(unsigned int index, handle_t *device);

static result_t find_mig(const struct gpu *gpu, const char *uuid, int *found)
{
    for (int mig = 0; mig < (int)gpu->mig_count; mig++) {
        if (strcmp(gpu->mig_uuids[mig], uuid) == 0) {
            *found = mig;
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetHandleByUUID(const char *uuid, handle_t *device)
{
    struct call call = enter_system(FN_nvmlDeviceGetHandleByUUID);
    if (call.result != SUCCESS)
        return call.result;
    if (uuid == NULL)
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->gpu_count; gpu++) {
        int mig;
        if (strcmp(state()->gpus[gpu].uuid, uuid) == 0)
            return put_gpu_handle(FN_nvmlDeviceGetHandleByUUID, device, gpu);
        if (find_mig(&state()->gpus[gpu], uuid, &mig) == SUCCESS) {
            call = enter_lookup(FN_nvmlDeviceGetHandleByUUID, gpu);
            return put_handle(&call, device, handle_of_mig(gpu, mig));
        }
    }
    return NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetHandleBySerial(const char *serial, handle_t *device)
{
    struct call call = enter_system(FN_nvmlDeviceGetHandleBySerial);
    if (call.result != SUCCESS)
        return call.result;
    if (serial == NULL)
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->gpu_count; gpu++)
        if (strcmp(state()->gpus[gpu].serial, serial) == 0)
            return put_gpu_handle(FN_nvmlDeviceGetHandleBySerial, device, gpu);
    return NOT_FOUND;
}

/* Accepts both widths of the domain, and no domain at all, in either case. */
static bool parse_bus_id(const char *text, unsigned int *domain, unsigned int *bus,
                         unsigned int *device)
{
    *domain = 0;
    return sscanf(text, "%x:%x:%x", domain, bus, device) == 3 ||
           (*domain = 0, sscanf(text, "%x:%x", bus, device) == 2);
}

EXPORT result_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle_t *device)
{
    struct call call = enter_system(FN_nvmlDeviceGetHandleByPciBusId);
    if (call.result != SUCCESS)
        return call.result;
    unsigned int domain, bus, slot;
    if (bus_id == NULL || !parse_bus_id(bus_id, &domain, &bus, &slot))
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->gpu_count; gpu++) {
        const struct gpu *g = &state()->gpus[gpu];
        if (g->pci_domain == domain && g->pci_bus == bus && g->pci_device == slot)
            return put_gpu_handle(FN_nvmlDeviceGetHandleByPciBusId, device, gpu);
    }
    return NOT_FOUND;
}

ALIAS_OF(nvmlDeviceGetHandleByPciBusId_v2)
result_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle_t *device);

/* --- Energy and power --- */

EXPORT result_t nvmlDeviceGetTotalEnergyConsumption(handle_t device, uint64_t *energy)
{
    struct call call = enter_device(FN_nvmlDeviceGetTotalEnergyConsumption, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    return put64(&call, energy, energy_counter_mj(call.gpu, call.index, monotonic_now()));
}

EXPORT result_t nvmlDeviceGetPowerUsage(handle_t device, unsigned int *power)
{
    struct call call = enter_device(FN_nvmlDeviceGetPowerUsage, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    double now = monotonic_now();
    double watts = has(&call, FLAG_POWER_USAGE_IS_AVERAGE)
                       ? average_watts(call.gpu, call.index, now)
                       : sensed_watts(call.gpu, call.index, now);
    return put32(&call, power, to_milliwatts(watts));
}

static void fill32(const struct call *call, struct field_value *field, unsigned int value)
{
    field->value_type = TYPE_UNSIGNED_INT;
    field->value.as_uint = answer32(call, value);
    field->result = SUCCESS;
}

static void fill_power(const struct call *call, struct field_value *field, double watts)
{
    switch (field->scope) {
    case SCOPE_GPU:
        fill32(call, field, to_milliwatts(watts));
        break;
    case SCOPE_MODULE:
        if (has(call, FLAG_MODULE_POWER_SUPPORTED))
            fill32(call, field, to_milliwatts(watts + call->gpu->module_power_extra));
        break;
    case SCOPE_MEMORY:
        if (has(call, FLAG_MEMORY_POWER_SUPPORTED))
            fill32(call, field, to_milliwatts(watts * call->gpu->memory_power_fraction));
        break;
    default:
        field->result = INVALID_ARGUMENT;
        break;
    }
}

static void fill_energy(const struct call *call, struct field_value *field, double now)
{
    if (call->gpu->unsupported[FN_nvmlDeviceGetTotalEnergyConsumption])
        return;
    uint64_t millijoules = energy_counter_mj(call->gpu, call->index, now);
    field->value_type = TYPE_UNSIGNED_LONG_LONG;
    field->value.as_uint64 = answer64(call, millijoules);
    field->result = SUCCESS;
}

static void fill_limit(const struct call *call, struct field_value *field, unsigned int limit)
{
    if (field->scope == SCOPE_GPU)
        fill32(call, field, limit);
}

static bool lacks_field(const struct gpu *gpu, unsigned int field)
{
    for (unsigned int i = 0; i < gpu->unsupported_field_count && i < MAX_UNSUPPORTED_FIELDS; i++)
        if (gpu->unsupported_fields[i] == field)
            return true;
    return false;
}

/* Leaves "not supported" in place for whatever this GPU cannot tell. */
static void fill_field(const struct call *call, struct field_value *field, double now)
{
    const struct gpu *gpu = call->gpu;
    field->result = NOT_SUPPORTED;
    if (lacks_field(gpu, field->field))
        return;
    switch (field->field) {
    case FIELD_TOTAL_ENERGY:
        fill_energy(call, field, now);
        break;
    case FIELD_POWER_AVERAGE:
        fill_power(call, field, average_watts(gpu, call->index, now));
        break;
    case FIELD_POWER_INSTANT:
        fill_power(call, field, sensed_watts(gpu, call->index, now));
        break;
    case FIELD_LIMIT_MIN:
        fill_limit(call, field, gpu->limit_min_mw);
        break;
    case FIELD_LIMIT_MAX:
        fill_limit(call, field, gpu->limit_max_mw);
        break;
    case FIELD_LIMIT_DEFAULT:
        fill_limit(call, field, gpu->limit_default_mw);
        break;
    case FIELD_LIMIT_CURRENT:
    case FIELD_LIMIT_REQUESTED:
        fill_limit(call, field, get32(&gpu->limit_mw));
        break;
    default:
        break;
    }
}

EXPORT result_t nvmlDeviceGetFieldValues(handle_t device, int count, struct field_value *fields)
{
    struct call call = enter_device(FN_nvmlDeviceGetFieldValues, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    if (count < 1 || fields == NULL)
        return INVALID_ARGUMENT;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    double now = monotonic_now();
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
        fields[i].latency = 0;
        fill_field(&call, &fields[i], now);
    }
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetPowerManagementMode(handle_t device, unsigned int *mode)
{
    struct call call = enter_device(FN_nvmlDeviceGetPowerManagementMode, device, GPU_ONLY);
    return put32(&call, mode, 1);
}

EXPORT result_t nvmlDeviceGetPowerManagementLimit(handle_t device, unsigned int *limit)
{
    struct call call = enter_device(FN_nvmlDeviceGetPowerManagementLimit, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, limit, get32(&call.gpu->limit_mw));
}

EXPORT result_t nvmlDeviceGetEnforcedPowerLimit(handle_t device, unsigned int *limit)
{
    struct call call = enter_device(FN_nvmlDeviceGetEnforcedPowerLimit, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, limit, get32(&call.gpu->limit_mw));
}

EXPORT result_t nvmlDeviceGetPowerManagementDefaultLimit(handle_t device, unsigned int *limit)
{
    struct call call = enter_device(FN_nvmlDeviceGetPowerManagementDefaultLimit, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, limit, call.gpu->limit_default_mw);
}

EXPORT result_t nvmlDeviceGetPowerManagementLimitConstraints(handle_t device, unsigned int *lowest,
                                                             unsigned int *highest)
{
    struct call call =
        enter_device(FN_nvmlDeviceGetPowerManagementLimitConstraints, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    result_t result = put32(&call, lowest, call.gpu->limit_min_mw);
    return result ? result : put32(&call, highest, call.gpu->limit_max_mw);
}

static result_t set_limit(struct gpu *gpu, unsigned int limit)
{
    if (limit < gpu->limit_min_mw || limit > gpu->limit_max_mw)
        return INVALID_ARGUMENT;
    set32(&gpu->limit_mw, limit);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceSetPowerManagementLimit(handle_t device, unsigned int limit)
{
    struct call call = enter_control(FN_nvmlDeviceSetPowerManagementLimit, device);
    return call.result ? call.result : set_limit(call.gpu, limit);
}

EXPORT result_t nvmlDeviceSetPowerManagementLimit_v2(handle_t device, struct power_value *wanted)
{
    struct call call = enter_control(FN_nvmlDeviceSetPowerManagementLimit, device);
    if (call.result != SUCCESS)
        return call.result;
    if (wanted == NULL)
        return INVALID_ARGUMENT;
    if (wanted->version != VERSIONED(struct power_value, 2u))
        return VERSION_MISMATCH;
    return wanted->scope == SCOPE_GPU ? set_limit(call.gpu, wanted->milliwatts) : NOT_SUPPORTED;
}

/* --- Persistence mode --- */

EXPORT result_t nvmlDeviceGetPersistenceMode(handle_t device, unsigned int *mode)
{
    struct call call = require(enter_device(FN_nvmlDeviceGetPersistenceMode, device, GPU_ONLY),
                               FLAG_PERSISTENCE_SUPPORTED);
    return call.result ? call.result : put32(&call, mode, get32(&call.gpu->persistence));
}

EXPORT result_t nvmlDeviceSetPersistenceMode(handle_t device, unsigned int mode)
{
    struct call call = require(enter_control(FN_nvmlDeviceSetPersistenceMode, device),
                               FLAG_PERSISTENCE_SUPPORTED);
    if (call.result != SUCCESS)
        return call.result;
    if (mode > 1)
        return INVALID_ARGUMENT;
    set32(&call.gpu->persistence, mode);
    return SUCCESS;
}

/* --- Clocks --- */

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

typedef unsigned int (*clock_reader)(const struct gpu *, unsigned int);

static result_t put_clock(const struct call *call, unsigned int type, unsigned int *clock,
                          clock_reader read)
{
    if (call->result != SUCCESS)
        return call->result;
    return type > CLOCK_VIDEO ? INVALID_ARGUMENT : put32(call, clock, read(call->gpu, type));
}

EXPORT result_t nvmlDeviceGetClockInfo(handle_t device, unsigned int type, unsigned int *clock)
{
    struct call call = enter_device(FN_nvmlDeviceGetClockInfo, device, GPU_ONLY);
    return put_clock(&call, type, clock, current_clock);
}

EXPORT result_t nvmlDeviceGetMaxClockInfo(handle_t device, unsigned int type, unsigned int *clock)
{
    struct call call = enter_device(FN_nvmlDeviceGetMaxClockInfo, device, GPU_ONLY);
    return put_clock(&call, type, clock, highest_clock);
}

EXPORT result_t nvmlDeviceGetApplicationsClock(handle_t device, unsigned int type,
                                               unsigned int *clock)
{
    struct call call = enter_device(FN_nvmlDeviceGetApplicationsClock, device, GPU_ONLY);
    return put_clock(&call, type, clock, application_clock);
}

EXPORT result_t nvmlDeviceGetDefaultApplicationsClock(handle_t device, unsigned int type,
                                                      unsigned int *clock)
{
    struct call call = enter_device(FN_nvmlDeviceGetDefaultApplicationsClock, device, GPU_ONLY);
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
    struct call call = enter_device(FN_nvmlDeviceGetClock, device, GPU_ONLY);
    if (call.result == SUCCESS && which > CLOCK_ID_BOOST)
        return INVALID_ARGUMENT;
    return call.result ? call.result : put_clock(&call, type, clock, readers[which]);
}

EXPORT result_t nvmlDeviceGetSupportedMemoryClocks(handle_t device, unsigned int *count,
                                                   unsigned int *clocks)
{
    struct call call = enter_device(FN_nvmlDeviceGetSupportedMemoryClocks, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    return put_list32(&call, count, clocks, call.gpu->memory_clocks, call.gpu->memory_clock_count);
}

EXPORT result_t nvmlDeviceGetSupportedGraphicsClocks(handle_t device, unsigned int memory_clock,
                                                     unsigned int *count, unsigned int *clocks)
{
    struct call call = enter_device(FN_nvmlDeviceGetSupportedGraphicsClocks, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    if (!is_memory_clock(call.gpu, memory_clock))
        return NOT_FOUND;
    return put_list32(&call, count, clocks, call.gpu->graphics_clocks,
                      call.gpu->graphics_clock_count);
}

static result_t lock_clocks(uint32_t *lowest_field, uint32_t *highest_field, unsigned int lowest,
                            unsigned int highest)
{
    if (lowest > highest || highest == 0)
        return INVALID_ARGUMENT;
    set32(lowest_field, lowest);
    set32(highest_field, highest);
    return SUCCESS;
}

static void unlock_clocks(uint32_t *lowest_field, uint32_t *highest_field)
{
    set32(highest_field, 0);
    set32(lowest_field, 0);
}

EXPORT result_t nvmlDeviceSetGpuLockedClocks(handle_t device, unsigned int lowest,
                                             unsigned int highest)
{
    struct call call = enter_control(FN_nvmlDeviceSetGpuLockedClocks, device);
    if (call.result != SUCCESS)
        return call.result;
    return lock_clocks(&call.gpu->locked_graphics_min, &call.gpu->locked_graphics_max, lowest,
                       highest);
}

EXPORT result_t nvmlDeviceResetGpuLockedClocks(handle_t device)
{
    struct call call = enter_control(FN_nvmlDeviceResetGpuLockedClocks, device);
    if (call.result == SUCCESS)
        unlock_clocks(&call.gpu->locked_graphics_min, &call.gpu->locked_graphics_max);
    return call.result;
}

EXPORT result_t nvmlDeviceSetMemoryLockedClocks(handle_t device, unsigned int lowest,
                                                unsigned int highest)
{
    struct call call = enter_control(FN_nvmlDeviceSetMemoryLockedClocks, device);
    if (call.result != SUCCESS)
        return call.result;
    return lock_clocks(&call.gpu->locked_memory_min, &call.gpu->locked_memory_max, lowest, highest);
}

EXPORT result_t nvmlDeviceResetMemoryLockedClocks(handle_t device)
{
    struct call call = enter_control(FN_nvmlDeviceResetMemoryLockedClocks, device);
    if (call.result == SUCCESS)
        unlock_clocks(&call.gpu->locked_memory_min, &call.gpu->locked_memory_max);
    return call.result;
}

EXPORT result_t nvmlDeviceSetApplicationsClocks(handle_t device, unsigned int memory,
                                                unsigned int graphics)
{
    struct call call = enter_control(FN_nvmlDeviceSetApplicationsClocks, device);
    if (call.result != SUCCESS)
        return call.result;
    struct gpu *gpu = call.gpu;
    if (!is_memory_clock(gpu, memory) ||
        !contains(gpu->graphics_clocks, gpu->graphics_clock_count, graphics))
        return INVALID_ARGUMENT;
    set32(&gpu->application_memory, memory);
    set32(&gpu->application_graphics, graphics);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceResetApplicationsClocks(handle_t device)
{
    struct call call = enter_control(FN_nvmlDeviceResetApplicationsClocks, device);
    if (call.result == SUCCESS) {
        set32(&call.gpu->application_memory, default_clock(call.gpu, CLOCK_MEMORY));
        set32(&call.gpu->application_graphics, default_clock(call.gpu, CLOCK_GRAPHICS));
    }
    return call.result;
}

static uint64_t throttle_reasons(const struct gpu *gpu)
{
    uint64_t reasons = 0;
    if (gpu->utilization_gpu == 0)
        reasons |= REASON_IDLE;
    if (get32(&gpu->application_graphics) != gpu->default_graphics_clock)
        reasons |= REASON_APPLICATION_CLOCKS;
    if (to_milliwatts(watts_at(gpu, monotonic_now())) >= get32(&gpu->limit_mw))
        reasons |= REASON_POWER_CAP;
    return reasons;
}

EXPORT result_t nvmlDeviceGetCurrentClocksThrottleReasons(handle_t device, uint64_t *reasons)
{
    struct call call = enter_device(FN_nvmlDeviceGetCurrentClocksThrottleReasons, device, GPU_ONLY);
    return call.result ? call.result : put64(&call, reasons, throttle_reasons(call.gpu));
}

ALIAS_OF(nvmlDeviceGetCurrentClocksThrottleReasons)
result_t nvmlDeviceGetCurrentClocksEventReasons(handle_t device, uint64_t *reasons);

EXPORT result_t nvmlDeviceGetSupportedClocksThrottleReasons(handle_t device, uint64_t *reasons)
{
    struct call call =
        enter_device(FN_nvmlDeviceGetSupportedClocksThrottleReasons, device, GPU_ONLY);
    return put64(&call, reasons, REASON_IDLE | REASON_APPLICATION_CLOCKS | REASON_POWER_CAP);
}

ALIAS_OF(nvmlDeviceGetSupportedClocksThrottleReasons)
result_t nvmlDeviceGetSupportedClocksEventReasons(handle_t device, uint64_t *reasons);

/* --- Temperature, fans, load --- */

static unsigned int celsius(const struct gpu *gpu)
{
    return (unsigned int)(30.0 + 0.12 * watts_at(gpu, monotonic_now()));
}

EXPORT result_t nvmlDeviceGetTemperature(handle_t device, unsigned int sensor,
                                         unsigned int *temperature)
{
    struct call call = enter_device(FN_nvmlDeviceGetTemperature, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    return sensor != 0 ? INVALID_ARGUMENT : put32(&call, temperature, celsius(call.gpu));
}

EXPORT result_t nvmlDeviceGetTemperatureV(handle_t device, struct temperature *temperature)
{
    struct call call = enter_device(FN_nvmlDeviceGetTemperatureV, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
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
    struct call call = enter_device(FN_nvmlDeviceGetTemperatureThreshold, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    if (which >= sizeof thresholds / sizeof *thresholds)
        return NOT_SUPPORTED;
    return put32(&call, temperature, thresholds[which]);
}

EXPORT result_t nvmlDeviceGetFanSpeed(handle_t device, unsigned int *percent)
{
    struct call call =
        require(enter_device(FN_nvmlDeviceGetFanSpeed, device, GPU_ONLY), FLAG_FAN_SUPPORTED);
    return call.result ? call.result : put32(&call, percent, call.gpu->fan_percent);
}

EXPORT result_t nvmlDeviceGetFanSpeed_v2(handle_t device, unsigned int fan, unsigned int *percent)
{
    return fan != 0 ? INVALID_ARGUMENT : nvmlDeviceGetFanSpeed(device, percent);
}

EXPORT result_t nvmlDeviceGetUtilizationRates(handle_t device, struct utilization *rates)
{
    struct call call = enter_device(FN_nvmlDeviceGetUtilizationRates, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
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
    struct call call = enter_device(FN_nvmlDeviceGetEncoderUtilization, device, GPU_ONLY);
    return put_idle_engine(&call, percent, period_us);
}

EXPORT result_t nvmlDeviceGetDecoderUtilization(handle_t device, unsigned int *percent,
                                                unsigned int *period_us)
{
    struct call call = enter_device(FN_nvmlDeviceGetDecoderUtilization, device, GPU_ONLY);
    return put_idle_engine(&call, percent, period_us);
}

EXPORT result_t nvmlDeviceGetPcieThroughput(handle_t device, unsigned int counter,
                                            unsigned int *kilobytes)
{
    struct call call = enter_device(FN_nvmlDeviceGetPcieThroughput, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    return counter > 1 ? INVALID_ARGUMENT : put32(&call, kilobytes, 0);
}

/* --- Memory and processes --- */

/* MIG devices share the memory of their GPU evenly and stand empty. */
static struct memory_v2 memory_of(const struct call *call)
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

EXPORT result_t nvmlDeviceGetMemoryInfo(handle_t device, struct memory_v1 *out)
{
    struct call call = enter_device(FN_nvmlDeviceGetMemoryInfo, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
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
    struct call call = enter_device(FN_nvmlDeviceGetMemoryInfo, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
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
    struct call call = enter_device(FN_nvmlDeviceGetBAR1MemoryInfo, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
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
    if (call->result != SUCCESS)
        return call->result;
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
    struct call call = enter_device(FN_nvmlDeviceGetComputeRunningProcesses, device, GPU_OR_MIG);
    return put_processes(&call, false, count, processes);
}

ALIAS_OF(nvmlDeviceGetComputeRunningProcesses_v3)
result_t nvmlDeviceGetComputeRunningProcesses_v2(handle_t device, unsigned int *count,
                                                 struct process_info *processes);

EXPORT result_t nvmlDeviceGetGraphicsRunningProcesses_v3(handle_t device, unsigned int *count,
                                                         struct process_info *processes)
{
    struct call call = enter_device(FN_nvmlDeviceGetGraphicsRunningProcesses, device, GPU_OR_MIG);
    return put_processes(&call, true, count, processes);
}

ALIAS_OF(nvmlDeviceGetGraphicsRunningProcesses_v3)
result_t nvmlDeviceGetGraphicsRunningProcesses_v2(handle_t device, unsigned int *count,
                                                  struct process_info *processes);

EXPORT result_t nvmlDeviceGetMPSComputeRunningProcesses_v3(handle_t device, unsigned int *count,
                                                           struct process_info *processes)
{
    (void)processes;
    struct call call = enter_device(FN_nvmlDeviceGetMPSComputeRunningProcesses, device, GPU_OR_MIG);
    if (call.result == SUCCESS && count != NULL)
        *count = 0;
    return call.result;
}

ALIAS_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3)
result_t nvmlDeviceGetMPSComputeRunningProcesses_v2(handle_t device, unsigned int *count,
                                                    struct process_info *processes);

static void sample_process(const struct call *call, const struct process *process,
                           struct process_utilization *sample)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    *sample = (struct process_utilization){
        .pid = process->pid,
        .timestamp = (uint64_t)wall.tv_sec * 1000000u + (uint64_t)wall.tv_nsec / 1000u,
        .sm = answer32(call, call->gpu->utilization_gpu),
        .memory = answer32(call, call->gpu->utilization_memory),
    };
}

EXPORT result_t nvmlDeviceGetProcessUtilization(handle_t device,
                                                struct process_utilization *samples,
                                                unsigned int *count, uint64_t since)
{
    (void)since;
    struct process found[MAX_PROCESSES];
    struct call call = enter_device(FN_nvmlDeviceGetProcessUtilization, device, GPU_ONLY);
    if (call.result != SUCCESS)
        return call.result;
    if (count == NULL)
        return INVALID_ARGUMENT;
    unsigned int number = copy_processes(call.gpu, false, found);
    unsigned int room = samples == NULL ? 0 : *count;
    *count = number;
    if (number == 0)
        return NOT_FOUND;
    if (room < number)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < number; i++)
        sample_process(&call, &found[i], &samples[i]);
    return SUCCESS;
}

/* --- Identity --- */

EXPORT result_t nvmlDeviceGetName(handle_t device, char *name, unsigned int length)
{
    struct call call = enter_device(FN_nvmlDeviceGetName, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
    char text[TEXT_LENGTH + 16];
    bool slice = call.mig != NO_MIG;
    snprintf(text, sizeof text, "%s%s", call.gpu->name, slice ? " MIG 1g" : "");
    return put_text(&call, name, length, text);
}

EXPORT result_t nvmlDeviceGetUUID(handle_t device, char *uuid, unsigned int length)
{
    struct call call = enter_device(FN_nvmlDeviceGetUUID, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
    bool slice = call.mig != NO_MIG;
    return put_text(&call, uuid, length, slice ? call.gpu->mig_uuids[call.mig] : call.gpu->uuid);
}

EXPORT result_t nvmlDeviceGetSerial(handle_t device, char *serial, unsigned int length)
{
    struct call call = enter_device(FN_nvmlDeviceGetSerial, device, GPU_ONLY);
    return call.result ? call.result : put_text(&call, serial, length, call.gpu->serial);
}

EXPORT result_t nvmlDeviceGetVbiosVersion(handle_t device, char *version, unsigned int length)
{
    struct call call = enter_device(FN_nvmlDeviceGetVbiosVersion, device, GPU_ONLY);
    return put_text(&call, version, length, "00.00.00.00.00");
}

EXPORT result_t nvmlDeviceGetIndex(handle_t device, unsigned int *index)
{
    struct call call = enter_device(FN_nvmlDeviceGetIndex, device, GPU_OR_MIG);
    return put32(&call, index, (unsigned int)(call.mig == NO_MIG ? call.index : call.mig));
}

EXPORT result_t nvmlDeviceGetMinorNumber(handle_t device, unsigned int *minor)
{
    struct call call = enter_device(FN_nvmlDeviceGetMinorNumber, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, minor, call.gpu->minor_number);
}

EXPORT result_t nvmlDeviceGetPciInfo_v3(handle_t device, struct pci_info *pci)
{
    struct call call = enter_device(FN_nvmlDeviceGetPciInfo, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
    if (pci == NULL)
        return INVALID_ARGUMENT;
    const struct gpu *gpu = call.gpu;
    memset(pci, 0, sizeof *pci);
    pci->domain = answer32(&call, gpu->pci_domain);
    pci->bus = answer32(&call, gpu->pci_bus);
    pci->device = answer32(&call, gpu->pci_device);
    pci->device_id = answer32(&call, gpu->pci_device_id);
    pci->subsystem_id = answer32(&call, gpu->pci_subsystem_id);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0",
             gpu->pci_domain & 0xFFFFu, gpu->pci_bus & 0xFFu, gpu->pci_device & 0xFFu);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", gpu->pci_domain,
             gpu->pci_bus & 0xFFu, gpu->pci_device & 0xFFu);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceGetBoardId(handle_t device, unsigned int *board)
{
    struct call call = enter_device(FN_nvmlDeviceGetBoardId, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, board, call.gpu->board_id);
}

EXPORT result_t nvmlDeviceGetBrand(handle_t device, unsigned int *brand)
{
    struct call call = enter_device(FN_nvmlDeviceGetBrand, device, GPU_OR_MIG);
    return call.result ? call.result : put32(&call, brand, call.gpu->brand);
}

EXPORT result_t nvmlDeviceGetArchitecture(handle_t device, unsigned int *architecture)
{
    struct call call = enter_device(FN_nvmlDeviceGetArchitecture, device, GPU_OR_MIG);
    return call.result ? call.result : put32(&call, architecture, call.gpu->architecture);
}

EXPORT result_t nvmlDeviceGetCudaComputeCapability(handle_t device, int *major, int *minor)
{
    struct call call = enter_device(FN_nvmlDeviceGetCudaComputeCapability, device, GPU_OR_MIG);
    if (call.result != SUCCESS)
        return call.result;
    result_t result = put32(&call, (unsigned int *)major, call.gpu->compute_major);
    return result ? result : put32(&call, (unsigned int *)minor, call.gpu->compute_minor);
}

EXPORT result_t nvmlDeviceGetNumGpuCores(handle_t device, unsigned int *cores)
{
    struct call call = enter_device(FN_nvmlDeviceGetNumGpuCores, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, cores, call.gpu->cores);
}

/* --- Modes --- */

EXPORT result_t nvmlDeviceGetComputeMode(handle_t device, unsigned int *mode)
{
    struct call call = enter_device(FN_nvmlDeviceGetComputeMode, device, GPU_OR_MIG);
    return call.result ? call.result : put32(&call, mode, call.gpu->compute_mode);
}

EXPORT result_t nvmlDeviceGetPerformanceState(handle_t device, unsigned int *pstate)
{
    struct call call = enter_device(FN_nvmlDeviceGetPerformanceState, device, GPU_ONLY);
    return call.result ? call.result : put32(&call, pstate, call.gpu->performance_state);
}

ALIAS_OF(nvmlDeviceGetPerformanceState)
result_t nvmlDeviceGetPowerState(handle_t device, unsigned int *pstate);

/* Simulated modes have no pending change: what is set is in force. */
static result_t put_mode(const struct call *call, unsigned int *current, unsigned int *pending,
                         unsigned int mode)
{
    result_t result = put32(call, current, mode);
    return result ? result : put32(call, pending, mode);
}

EXPORT result_t nvmlDeviceGetEccMode(handle_t device, unsigned int *current, unsigned int *pending)
{
    struct call call =
        require(enter_device(FN_nvmlDeviceGetEccMode, device, GPU_ONLY), FLAG_ECC_SUPPORTED);
    return put_mode(&call, current, pending, has(&call, FLAG_ECC_ENABLED));
}

EXPORT result_t nvmlDeviceGetTotalEccErrors(handle_t device, unsigned int error_type,
                                            unsigned int counter_type, uint64_t *errors)
{
    struct call call =
        require(enter_device(FN_nvmlDeviceGetTotalEccErrors, device, GPU_ONLY), FLAG_ECC_ENABLED);
    if (call.result == SUCCESS && (error_type > 1 || counter_type > 1))
        return INVALID_ARGUMENT;
    return put64(&call, errors, 0);
}

EXPORT result_t nvmlDeviceGetDisplayMode(handle_t device, unsigned int *display)
{
    struct call call = enter_device(FN_nvmlDeviceGetDisplayMode, device, GPU_ONLY);
    return put32(&call, display, has(&call, FLAG_DISPLAY));
}

EXPORT result_t nvmlDeviceGetDisplayActive(handle_t device, unsigned int *active)
{
    struct call call = enter_device(FN_nvmlDeviceGetDisplayActive, device, GPU_ONLY);
    return put32(&call, active, has(&call, FLAG_DISPLAY));
}

/* Driver models exist on Windows only; elsewhere the function is there and refuses. */
EXPORT result_t nvmlDeviceGetDriverModel_v2(handle_t device, unsigned int *current,
                                            unsigned int *pending)
{
    (void)current;
    (void)pending;
    struct call call = enter_device(FN_nvmlDeviceGetDriverModel, device, GPU_ONLY);
    return call.result ? call.result : NOT_SUPPORTED;
}

ALIAS_OF(nvmlDeviceGetDriverModel_v2)
result_t nvmlDeviceGetDriverModel(handle_t device, unsigned int *current, unsigned int *pending);

/* --- MIG --- */

EXPORT result_t nvmlDeviceGetMigMode(handle_t device, unsigned int *current, unsigned int *pending)
{
    struct call call =
        require(enter_device(FN_nvmlDeviceGetMigMode, device, GPU_ONLY), FLAG_MIG_SUPPORTED);
    return call.result ? call.result : put_mode(&call, current, pending, call.gpu->mig_count > 0);
}

EXPORT result_t nvmlDeviceGetMaxMigDeviceCount(handle_t device, unsigned int *count)
{
    struct call call = enter_device(FN_nvmlDeviceGetMaxMigDeviceCount, device, GPU_ONLY);
    return put32(&call, count, has(&call, FLAG_MIG_SUPPORTED) ? MOST_MIG_DEVICES : 0);
}

EXPORT result_t nvmlDeviceGetMigDeviceHandleByIndex(handle_t device, unsigned int index,
                                                    handle_t *mig_device)
{
    struct call call = require(
        enter_device(FN_nvmlDeviceGetMigDeviceHandleByIndex, device, GPU_ONLY), FLAG_MIG_SUPPORTED);
    if (call.result != SUCCESS)
        return call.result;
    if (index >= MOST_MIG_DEVICES)
        return INVALID_ARGUMENT;
    if (index >= call.gpu->mig_count)
        return NOT_FOUND;
    return put_handle(&call, mig_device, handle_of_mig(call.index, (int)index));
}

/* A call that only makes sense on a MIG device. */
static struct call enter_mig(enum function function, handle_t device)
{
    struct call call = enter_device(function, device, GPU_OR_MIG);
    if (call.result == SUCCESS && call.mig == NO_MIG)
        call.result = NOT_SUPPORTED;
    return call;
}

EXPORT result_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle_t mig_device, handle_t *device)
{
    struct call call = enter_mig(FN_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig_device);
    return call.result ? call.result : put_handle(&call, device, handle_of_gpu(call.index));
}

EXPORT result_t nvmlDeviceGetGpuInstanceId(handle_t device, unsigned int *id)
{
    struct call call = enter_mig(FN_nvmlDeviceGetGpuInstanceId, device);
    return put32(&call, id, (unsigned int)(call.mig + 1));
}

EXPORT result_t nvmlDeviceGetComputeInstanceId(handle_t device, unsigned int *id)
{
    struct call call = enter_mig(FN_nvmlDeviceGetComputeInstanceId, device);
    return put32(&call, id, 0);
}

EXPORT result_t nvmlDeviceIsMigDeviceHandle(handle_t device, unsigned int *is_mig)
{
    struct call call = enter_device(FN_nvmlDeviceIsMigDeviceHandle, device, GPU_OR_MIG);
    return put32(&call, is_mig, call.mig != NO_MIG);
}

EXPORT result_t nvmlDeviceGetAttributes_v2(handle_t device, struct attributes *out)
{
    struct call call = enter_mig(FN_nvmlDeviceGetAttributes, device);
    if (call.result != SUCCESS)
        return call.result;
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = (struct attributes){
        .multiprocessors = answer32(&call, 14),
        .copy_engines = 1,
        .gpu_slices = 1,
        .compute_slices = 1,
        .memory_mib = answer64(&call, memory_of(&call).total >> 20),
    };
    return SUCCESS;
}

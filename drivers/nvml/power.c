/* Energy, power, the power limit and persistence mode. */
#define _GNU_SOURCE
#include "answers.h"

#include <time.h>

/* --- Energy and power --- */

EXPORT result_t nvmlDeviceGetTotalEnergyConsumption(handle_t device, uint64_t *energy)
{
    ENTER(enter_device(FN_nvmlDeviceGetTotalEnergyConsumption, device, GPU_ONLY));
    return put64(&call, energy, energy_counter_mj(call.gpu, call.index, monotonic_now()));
}

EXPORT result_t nvmlDeviceGetPowerUsage(handle_t device, unsigned int *power)
{
    ENTER(enter_device(FN_nvmlDeviceGetPowerUsage, device, GPU_ONLY));
    const struct power *drawn = &call.gpu->power;
    bool average = has(&call, FLAG_POWER_USAGE_IS_AVERAGE);
    double watts = read_power(drawn, average ? &drawn->average : &drawn->instant, monotonic_now());
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

/* Leaves "not supported" in place for a field that this GPU lacks. */
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
        if (has(call, FLAG_AVERAGE_POWER_SUPPORTED))
            fill_power(call, field, read_power(&gpu->power, &gpu->power.average, now));
        break;
    case FIELD_POWER_INSTANT:
        fill_power(call, field, read_power(&gpu->power, &gpu->power.instant, now));
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
    ENTER(enter_device(FN_nvmlDeviceGetFieldValues, device, GPU_ONLY));
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

/* Microseconds of CLOCK_REALTIME; the same at every call, so that a client can go on from it. */
static uint64_t timestamp_of(double instant)
{
    return (uint64_t)((instant + state()->realtime_offset) * 1e6);
}

static unsigned int newer_samples(const struct call *call, uint64_t seen, unsigned int room,
                                  struct sample *samples)
{
    const struct power *drawn = &call->gpu->power;
    int64_t last = last_refresh(&drawn->instant, monotonic_now());
    unsigned int found = 0;
    for (int64_t i = last + 1 - (int64_t)call->gpu->power_samples; i <= last && found < room; i++) {
        double refreshed = refresh_instant(&drawn->instant, i);
        if (timestamp_of(refreshed) <= seen)
            continue;
        double watts = read_power(drawn, &drawn->instant, refreshed);
        samples[found].timestamp = timestamp_of(refreshed);
        samples[found++].value.as_uint = answer32(call, to_milliwatts(watts));
    }
    return found;
}

EXPORT result_t nvmlDeviceGetSamples(handle_t device, unsigned int kind, uint64_t seen,
                                     unsigned int *value_type, unsigned int *count,
                                     struct sample *samples)
{
    ENTER(enter_device(FN_nvmlDeviceGetSamples, device, GPU_ONLY));
    if (value_type == NULL || count == NULL)
        return INVALID_ARGUMENT;
    if (kind != TOTAL_POWER_SAMPLES || call.gpu->power_samples == 0)
        return NOT_SUPPORTED;
    *value_type = TYPE_UNSIGNED_INT;
    /* Without a place for them, the caller asks how many there can be. */
    *count = samples == NULL ? (unsigned int)call.gpu->power_samples
                             : newer_samples(&call, seen, *count, samples);
    return *count > 0 ? SUCCESS : NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetPowerManagementMode(handle_t device, unsigned int *mode)
{
    ENTER(enter_device(FN_nvmlDeviceGetPowerManagementMode, device, GPU_ONLY));
    return put32(&call, mode, 1);
}

EXPORT result_t nvmlDeviceGetPowerManagementLimit(handle_t device, unsigned int *limit)
{
    ENTER(enter_device(FN_nvmlDeviceGetPowerManagementLimit, device, GPU_ONLY));
    return put32(&call, limit, get32(&call.gpu->limit_mw));
}

EXPORT result_t nvmlDeviceGetEnforcedPowerLimit(handle_t device, unsigned int *limit)
{
    ENTER(enter_device(FN_nvmlDeviceGetEnforcedPowerLimit, device, GPU_ONLY));
    return put32(&call, limit, get32(&call.gpu->limit_mw));
}

EXPORT result_t nvmlDeviceGetPowerManagementDefaultLimit(handle_t device, unsigned int *limit)
{
    ENTER(enter_device(FN_nvmlDeviceGetPowerManagementDefaultLimit, device, GPU_ONLY));
    return put32(&call, limit, call.gpu->limit_default_mw);
}

EXPORT result_t nvmlDeviceGetPowerManagementLimitConstraints(handle_t device, unsigned int *lowest,
                                                             unsigned int *highest)
{
    ENTER(enter_device(FN_nvmlDeviceGetPowerManagementLimitConstraints, device, GPU_ONLY));
    result_t result = put32(&call, lowest, call.gpu->limit_min_mw);
    return result ? result : put32(&call, highest, call.gpu->limit_max_mw);
}

static result_t set_limit(struct gpu *gpu, unsigned int limit)
{
    if (limit < gpu->limit_min_mw || limit > gpu->limit_max_mw)
        return INVALID_ARGUMENT;
    struct turn turn = begin_turn(gpu);
    set32(&gpu->limit_mw, limit);
    end_turn(turn);
    return SUCCESS;
}

EXPORT result_t nvmlDeviceSetPowerManagementLimit(handle_t device, unsigned int limit)
{
    ENTER(enter_control(FN_nvmlDeviceSetPowerManagementLimit, device));
    return set_limit(call.gpu, limit);
}

EXPORT result_t nvmlDeviceSetPowerManagementLimit_v2(handle_t device, struct power_value *wanted)
{
    ENTER(enter_control(FN_nvmlDeviceSetPowerManagementLimit, device));
    if (wanted == NULL)
        return INVALID_ARGUMENT;
    if (wanted->version != VERSIONED(struct power_value, 2u))
        return VERSION_MISMATCH;
    return wanted->scope == SCOPE_GPU ? set_limit(call.gpu, wanted->milliwatts) : NOT_SUPPORTED;
}

/* --- Persistence mode --- */

EXPORT result_t nvmlDeviceGetPersistenceMode(handle_t device, unsigned int *mode)
{
    ENTER(enter_device(FN_nvmlDeviceGetPersistenceMode, device, GPU_ONLY));
    REQUIRE(FLAG_PERSISTENCE_SUPPORTED);
    return put32(&call, mode, get32(&call.gpu->persistence));
}

EXPORT result_t nvmlDeviceSetPersistenceMode(handle_t device, unsigned int mode)
{
    ENTER(enter_control(FN_nvmlDeviceSetPersistenceMode, device));
    REQUIRE(FLAG_PERSISTENCE_SUPPORTED);
    if (mode > 1)
        return INVALID_ARGUMENT;
    set32(&call.gpu->persistence, mode);
    return SUCCESS;
}

/*
 * The functions that the simulated libamd_smi.so exports.
 *
 * Each one enters through simulation.c, which counts the call and applies faults, and then answers
 * from the shared state. Symbols that only have to exist are listed in unsupported.h.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <stdio.h>
#include <string.h>

#include "unsupported.h"

#define EXPORT __attribute__((visibility("default")))
#define MICRO 1000000u
#define MEBI (1024u * 1024u)

/* Leave the function unless it should do its work. */
#define ENTER(kind, name, handle) \
    struct call call = enter_##kind(FN_##name, handle); \
    if (call.result != SUCCESS) \
        return call.result; \
    struct gpu *gpu = call.gpu

#define AS_UNSUPPORTED(name) \
    EXPORT status_t name(void); \
    EXPORT status_t name(void) { return NOT_SUPPORTED; }
FOR_EACH_UNSUPPORTED(AS_UNSUPPORTED)
#undef AS_UNSUPPORTED

static void write_text(char *into, size_t size, const char *text)
{
    size_t length = strlen(text);
    length = length < size ? length : size - 1;
    memcpy(into, text, length);
    into[length] = '\0';
}

static bool has(const struct gpu *gpu, uint32_t flag)
{
    return (__atomic_load_n(&gpu->flags, __ATOMIC_ACQUIRE) & flag) != 0;
}

/* --- The library --- */

EXPORT status_t amdsmi_init(uint64_t flags)
{
    (void)flags;
    status_t result = open_state();
    return result == SUCCESS ? enter_system(FN_amdsmi_init).result : result;
}

EXPORT status_t amdsmi_shut_down(void)
{
    struct call call = enter_system(FN_amdsmi_shut_down);
    return call.result == SUCCESS ? close_state() : call.result;
}

EXPORT status_t amdsmi_get_lib_version(struct version *version)
{
    *version = (struct version){.major = 26, .minor = 0, .release = 2, .build = "simulated"};
    return SUCCESS;
}

EXPORT status_t amdsmi_status_code_to_string(status_t status, const char **text)
{
    *text = status == SUCCESS ? "success" : "simulated failure";
    return SUCCESS;
}

EXPORT void amdsmi_free_name_value_pairs(void *pairs)
{
    (void)pairs;
}

/* --- Finding GPUs: the library reports each as alone in its socket --- */

EXPORT status_t amdsmi_get_socket_handles(uint32_t *count, handle_t *sockets)
{
    struct call call = enter_system(FN_amdsmi_get_socket_handles);
    if (call.result != SUCCESS)
        return call.result;
    uint32_t present = call.state->header.gpu_count;
    for (uint32_t index = 0; sockets != NULL && index < present && index < *count; index++)
        sockets[index] = handle_of(index);
    *count = present;
    return SUCCESS;
}

EXPORT status_t amdsmi_get_socket_info(handle_t socket, size_t size, char *name)
{
    ENTER(lookup, amdsmi_get_socket_info, socket);
    snprintf(name, size, "%04x:%02x:%02x", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_processor_handles(handle_t socket, uint32_t *count, handle_t *handles)
{
    struct call call = enter_lookup(FN_amdsmi_get_processor_handles, socket);
    if (call.result != SUCCESS)
        return call.result;
    if (handles != NULL && *count > 0)
        handles[0] = socket;
    *count = 1;
    return SUCCESS;
}

static union bdf address_of(const struct gpu *gpu)
{
    union bdf bdf = {.whole = 0};
    bdf.part.function = gpu->pci_function;
    bdf.part.device = gpu->pci_device;
    bdf.part.bus = gpu->pci_bus;
    bdf.part.domain = gpu->pci_domain;
    return bdf;
}

EXPORT status_t amdsmi_get_processor_handle_from_bdf(union bdf bdf, handle_t *handle)
{
    struct call call = enter_system(FN_amdsmi_get_processor_handle_from_bdf);
    if (call.result != SUCCESS)
        return call.result;
    for (uint32_t index = 0; index < call.state->header.gpu_count; index++) {
        if (address_of(&call.state->gpus[index]).whole == bdf.whole) {
            *handle = handle_of(index);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

EXPORT status_t amdsmi_get_processor_type(handle_t handle, uint32_t *type)
{
    struct call call = enter_lookup(FN_amdsmi_get_processor_type, handle);
    *type = PROCESSOR_TYPE_AMD_GPU;
    return call.result;
}

/* --- Names --- */

EXPORT status_t amdsmi_get_gpu_device_bdf(handle_t handle, union bdf *bdf)
{
    ENTER(lookup, amdsmi_get_gpu_device_bdf, handle);
    *bdf = address_of(gpu);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_device_uuid(handle_t handle, uint32_t *length, char *uuid)
{
    ENTER(device, amdsmi_get_gpu_device_uuid, handle);
    if (strlen(gpu->uuid) >= *length)
        return INSUFFICIENT_SIZE;
    write_text(uuid, *length, gpu->uuid);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_enumeration_info(handle_t handle, struct enumeration_info *info)
{
    ENTER(device, amdsmi_get_gpu_enumeration_info, handle);
    if (!has(gpu, FLAG_HIP_ID))
        return NOT_SUPPORTED;
    uint32_t minor = handle->index;
    *info = (struct enumeration_info){.drm_render = 128 + minor, .drm_card = minor,
                                      .hsa_id = 1 + minor, .hip_id = gpu->hip_id};
    snprintf(info->hip_uuid, sizeof info->hip_uuid, "GPU-%s", gpu->serial);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_asic_info(handle_t handle, struct asic_info *info)
{
    ENTER(device, amdsmi_get_gpu_asic_info, handle);
    *info = (struct asic_info){.vendor_id = 0x1002, .subvendor_id = 0x1002,
                               .device_id = gpu->device_id, .oam_id = UNKNOWN_32,
                               .compute_units = 110, .target_graphics_version = 0x90a};
    write_text(info->market_name, sizeof info->market_name, gpu->name);
    write_text(info->vendor_name, sizeof info->vendor_name, "Advanced Micro Devices Inc.");
    write_text(info->asic_serial, sizeof info->asic_serial, gpu->serial);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_board_info(handle_t handle, struct board_info *info)
{
    ENTER(device, amdsmi_get_gpu_board_info, handle);
    *info = (struct board_info){.model_number = "SIMULATED", .manufacturer_name = "AMD"};
    write_text(info->product_name, sizeof info->product_name, gpu->name);
    write_text(info->product_serial, sizeof info->product_serial, gpu->board_serial);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_driver_info(handle_t handle, struct driver_info *info)
{
    ENTER(device, amdsmi_get_gpu_driver_info, handle);
    (void)gpu;
    *info = (struct driver_info){.version = "6.14.14", .date = "2025/01/01", .name = "amdgpu"};
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_vendor_name(handle_t handle, char *name, size_t size)
{
    ENTER(device, amdsmi_get_gpu_vendor_name, handle);
    (void)gpu;
    write_text(name, size, "Advanced Micro Devices, Inc. [AMD/ATI]");
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_kfd_info(handle_t handle, struct kfd_info *info)
{
    ENTER(device, amdsmi_get_gpu_kfd_info, handle);
    *info = (struct kfd_info){.kfd_id = 1000 + handle->index, .node_id = 1 + handle->index,
                              .current_partition_id = gpu->pci_function};
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_compute_partition(handle_t handle, char *partition, uint32_t size)
{
    ENTER(device, amdsmi_get_gpu_compute_partition, handle);
    if (gpu->partition[0] == '\0')
        return NOT_SUPPORTED;
    write_text(partition, size, gpu->partition);
    return SUCCESS;
}

/* --- Power and energy --- */

static uint64_t count_energy(const struct gpu *gpu, double joules)
{
    double counted = joules * MICRO / gpu->counter_resolution;
    return counted > 0 && !has(gpu, FLAG_SECONDARY_DIE) ? (uint64_t)counted : 0;
}

EXPORT status_t amdsmi_get_energy_count(handle_t handle, uint64_t *accumulator, float *resolution,
                                        uint64_t *timestamp)
{
    ENTER(device, amdsmi_get_energy_count, handle);
    if (!has(gpu, FLAG_ENERGY_COUNTER))
        return NOT_SUPPORTED;
    struct counter_reading counter =
        read_counter(&gpu->power, (int)handle->index, monotonic_now());
    *accumulator = call.sentinel ? UNKNOWN_64 : count_energy(gpu, counter.joules);
    *resolution = (float)gpu->counter_resolution;
    *timestamp = counter.refreshed > 0 ? (uint64_t)(counter.refreshed * 1e9) : 0;
    return SUCCESS;
}

static uint32_t whole_watts(const struct gpu *gpu, const struct sensor *sensor, double now)
{
    double watts = read_power(&gpu->power, sensor, now);
    return watts <= 0 || has(gpu, FLAG_SECONDARY_DIE) ? 0 : (uint32_t)(watts + 0.5);
}

EXPORT status_t amdsmi_get_power_info(handle_t handle, struct power_info *info)
{
    ENTER(device, amdsmi_get_power_info, handle);
    double now = monotonic_now();
    uint32_t unknown = call.sentinel ? UNKNOWN_32 : UNKNOWN_16;
    bool current = has(gpu, FLAG_CURRENT_POWER) && !call.sentinel;
    bool average = has(gpu, FLAG_AVERAGE_POWER) && !call.sentinel;
    *info = (struct power_info){.gfx_voltage = UNKNOWN_16, .soc_voltage = UNKNOWN_16,
                                .mem_voltage = UNKNOWN_16};
    const struct power *drawn = &gpu->power;
    info->current_socket_power = current ? whole_watts(gpu, &drawn->instant, now) : unknown;
    info->average_socket_power = average ? whole_watts(gpu, &drawn->average, now) : unknown;
    info->socket_power = current ? info->current_socket_power : info->average_socket_power;
    info->power_limit = (uint32_t)(gpu->limit_uw / MICRO);
    return SUCCESS;
}

EXPORT status_t amdsmi_is_gpu_power_management_enabled(handle_t handle, bool *enabled)
{
    ENTER(device, amdsmi_is_gpu_power_management_enabled, handle);
    *enabled = !has(gpu, FLAG_SECONDARY_DIE);
    return SUCCESS;
}

EXPORT status_t amdsmi_get_power_cap_info(handle_t handle, uint32_t sensor,
                                          struct power_cap_info *info)
{
    ENTER(device, amdsmi_get_power_cap_info, handle);
    if (sensor != 0)
        return INVAL;
    *info = (struct power_cap_info){.power_cap = 0};
    if (has(gpu, FLAG_SECONDARY_DIE))
        return SUCCESS;
    info->power_cap = __atomic_load_n(&gpu->limit_uw, __ATOMIC_ACQUIRE);
    info->default_power_cap = gpu->limit_default_uw;
    info->min_power_cap = gpu->limit_min_uw;
    info->max_power_cap = gpu->limit_max_uw;
    return SUCCESS;
}

EXPORT status_t amdsmi_set_power_cap(handle_t handle, uint32_t sensor, uint64_t microwatts)
{
    ENTER(control, amdsmi_set_power_cap, handle);
    if (has(gpu, FLAG_SECONDARY_DIE))
        return NOT_SUPPORTED;
    if (sensor != 0 || microwatts < gpu->limit_min_uw || microwatts > gpu->limit_max_uw)
        return INVAL;
    /* The kernel driver keeps whole watts and drops the rest. */
    __atomic_store_n(&gpu->limit_uw, microwatts / MICRO * MICRO, __ATOMIC_RELEASE);
    return SUCCESS;
}

/* --- Temperature, activity, memory, processes --- */

EXPORT status_t amdsmi_get_temp_metric(handle_t handle, uint32_t sensor, uint32_t metric,
                                       int64_t *celsius)
{
    ENTER(device, amdsmi_get_temp_metric, handle);
    bool hotspot = sensor == TEMPERATURE_HOTSPOT && has(gpu, FLAG_HOTSPOT);
    bool edge = sensor == TEMPERATURE_EDGE && has(gpu, FLAG_EDGE);
    if (metric != TEMPERATURE_CURRENT || (!hotspot && !edge))
        return NOT_SUPPORTED;
    *celsius = hotspot ? gpu->hotspot_celsius : gpu->edge_celsius;
    if (call.sentinel)
        *celsius = UNKNOWN_16;
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_activity(handle_t handle, struct engine_usage *usage)
{
    ENTER(device, amdsmi_get_gpu_activity, handle);
    *usage = (struct engine_usage){.gfx = gpu->gfx_activity, .umc = gpu->gfx_activity / 2,
                                   .mm = UNKNOWN_16};
    if (call.sentinel)
        usage->gfx = usage->umc = UNKNOWN_16;
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_vram_usage(handle_t handle, struct vram_usage *usage)
{
    ENTER(device, amdsmi_get_gpu_vram_usage, handle);
    *usage = (struct vram_usage){.total = (uint32_t)(gpu->memory_total / MEBI),
                                 .used = (uint32_t)(gpu->memory_used / MEBI)};
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_vram_info(handle_t handle, struct vram_info *info)
{
    ENTER(device, amdsmi_get_gpu_vram_info, handle);
    *info = (struct vram_info){.type = 1, .vendor = "SIMULATED", .bit_width = UNKNOWN_32,
                               .size = gpu->memory_total / MEBI, .max_bandwidth = UNKNOWN_64};
    return SUCCESS;
}

EXPORT status_t amdsmi_get_gpu_memory_total(handle_t handle, uint32_t type, uint64_t *bytes)
{
    ENTER(device, amdsmi_get_gpu_memory_total, handle);
    *bytes = call.sentinel ? UNKNOWN_64 : gpu->memory_total;
    return type == MEMORY_VRAM ? SUCCESS : NOT_SUPPORTED;
}

EXPORT status_t amdsmi_get_gpu_memory_usage(handle_t handle, uint32_t type, uint64_t *bytes)
{
    ENTER(device, amdsmi_get_gpu_memory_usage, handle);
    *bytes = call.sentinel ? UNKNOWN_64 : __atomic_load_n(&gpu->memory_used, __ATOMIC_ACQUIRE);
    return type == MEMORY_VRAM ? SUCCESS : NOT_SUPPORTED;
}

static uint64_t nanoseconds(const struct uses *uses, const struct process *process)
{
    return (uint64_t)(1e9 * busy_seconds(uses, process->pid, monotonic_now()));
}

EXPORT status_t amdsmi_get_gpu_process_list(handle_t handle, uint32_t *count,
                                            struct process_info *list)
{
    ENTER(device, amdsmi_get_gpu_process_list, handle);
    struct process processes[MAX_PROCESSES];
    struct uses uses;
    uint32_t present = copy_processes(gpu, processes), room = *count;
    copy_uses(&gpu->uses, &gpu->power, &uses);
    *count = present;
    if (room == 0)
        return SUCCESS;
    if (room < present)
        return OUT_OF_RESOURCES;
    for (uint32_t index = 0; index < present; index++) {
        const struct process *process = &processes[index];
        list[index] = (struct process_info){.pid = (uint32_t)process->pid,
                                            .memory = process->bytes,
                                            .memory_usage = {.vram = process->bytes},
                                            .engine_usage = {.gfx = nanoseconds(&uses, process)},
                                            .cu_occupancy = UNKNOWN_32};
        write_text(list[index].name, sizeof list[index].name, process->name);
    }
    return SUCCESS;
}

/* --- Clocks --- */

/* One clock domain of a GPU: what it offers and the bounds in force. */
struct domain {
    const struct clocks *clocks;
    struct bounds *bounds;
};

static bool find_domain(struct gpu *gpu, uint32_t type, struct domain *domain)
{
    if (type == CLOCK_GRAPHICS)
        *domain = (struct domain){&gpu->graphics, &gpu->graphics_bounds};
    else if (type == CLOCK_MEMORY)
        *domain = (struct domain){&gpu->memory, &gpu->memory_bounds};
    else
        return false;
    return domain->clocks->count > 0;
}

static struct bounds widest(const struct clocks *clocks)
{
    return (struct bounds){clocks->mhz[0], clocks->mhz[clocks->count - 1]};
}

static bool is_narrowed(const struct domain *domain)
{
    struct bounds full = widest(domain->clocks);
    return domain->bounds->minimum != full.minimum || domain->bounds->maximum != full.maximum;
}

EXPORT status_t amdsmi_get_clock_info(handle_t handle, uint32_t type, struct clock_info *info)
{
    ENTER(device, amdsmi_get_clock_info, handle);
    struct domain domain;
    if (!find_domain(gpu, type, &domain))
        return NOT_SUPPORTED;
    *info = (struct clock_info){.clock = domain.bounds->maximum, .minimum = domain.bounds->minimum,
                                .maximum = domain.bounds->maximum, .locked = is_narrowed(&domain)};
    if (call.sentinel)
        info->clock = info->minimum = info->maximum = UNKNOWN_32;
    return SUCCESS;
}

/* As on Instinct parts, the levels that are listed shrink to the bounds in force. */
EXPORT status_t amdsmi_get_clk_freq(handle_t handle, uint32_t type, struct frequencies *list)
{
    ENTER(device, amdsmi_get_clk_freq, handle);
    struct domain domain;
    if (!find_domain(gpu, type, &domain))
        return NOT_SUPPORTED;
    struct bounds bounds = *domain.bounds;
    uint32_t found = 0;
    *list = (struct frequencies){.has_deep_sleep = false};
    list->frequency[found++] = (uint64_t)bounds.minimum * MICRO;
    for (uint32_t index = 0; index < domain.clocks->count; index++) {
        uint32_t mhz = domain.clocks->mhz[index];
        if (mhz > bounds.minimum && mhz < bounds.maximum && found < MAX_FREQUENCIES - 1)
            list->frequency[found++] = (uint64_t)mhz * MICRO;
    }
    if (bounds.maximum != bounds.minimum)
        list->frequency[found++] = (uint64_t)bounds.maximum * MICRO;
    list->supported = found;
    list->current = found - 1;
    return SUCCESS;
}

static struct range in_hertz(struct bounds bounds)
{
    return (struct range){(uint64_t)bounds.minimum * MICRO, (uint64_t)bounds.maximum * MICRO, {0}};
}

EXPORT status_t amdsmi_get_gpu_od_volt_info(handle_t handle, struct voltage_frequency_data *data)
{
    ENTER(device, amdsmi_get_gpu_od_volt_info, handle);
    if (!has(gpu, FLAG_CLOCK_LIMITS))
        return NOT_SUPPORTED;
    *data = (struct voltage_frequency_data){.regions = 0};
    data->graphics = in_hertz(gpu->graphics_bounds);
    data->graphics_limits = in_hertz(widest(&gpu->graphics));
    data->memory = in_hertz(gpu->memory_bounds);
    data->memory_limits = in_hertz(widest(&gpu->memory));
    if (call.sentinel)
        data->graphics.lower = data->graphics.upper = UNKNOWN_64;
    return SUCCESS;
}

/* The kernel driver takes only bounds with room between them, within what the part offers. */
static status_t set_bounds(struct gpu *gpu, const struct domain *domain, struct bounds wanted)
{
    struct bounds full = widest(domain->clocks);
    __atomic_store_n(&gpu->performance_level, LEVEL_MANUAL, __ATOMIC_RELEASE);
    if (wanted.minimum < full.minimum || wanted.maximum > full.maximum ||
        wanted.minimum >= wanted.maximum)
        return INVAL;
    *domain->bounds = wanted;
    return SUCCESS;
}

EXPORT status_t amdsmi_set_gpu_clk_range(handle_t handle, uint64_t minimum, uint64_t maximum,
                                         uint32_t type)
{
    ENTER(control, amdsmi_set_gpu_clk_range, handle);
    struct domain domain;
    if (!has(gpu, FLAG_CLOCK_LIMITS) || !find_domain(gpu, type, &domain))
        return NOT_SUPPORTED;
    return set_bounds(gpu, &domain, (struct bounds){(uint32_t)minimum, (uint32_t)maximum});
}

EXPORT status_t amdsmi_set_gpu_clk_limit(handle_t handle, uint32_t type, uint32_t limit,
                                         uint64_t mhz)
{
    ENTER(control, amdsmi_set_gpu_clk_limit, handle);
    struct domain domain;
    if (!has(gpu, FLAG_CLOCK_LIMITS) || !find_domain(gpu, type, &domain))
        return NOT_SUPPORTED;
    struct bounds wanted = *domain.bounds;
    if (limit == LIMIT_MIN)
        wanted.minimum = (uint32_t)mhz;
    else if (limit == LIMIT_MAX)
        wanted.maximum = (uint32_t)mhz;
    else
        return INVAL;
    return set_bounds(gpu, &domain, wanted);
}

EXPORT status_t amdsmi_get_gpu_perf_level(handle_t handle, uint32_t *level)
{
    ENTER(device, amdsmi_get_gpu_perf_level, handle);
    *level = __atomic_load_n(&gpu->performance_level, __ATOMIC_ACQUIRE);
    return SUCCESS;
}

EXPORT status_t amdsmi_set_gpu_perf_level(handle_t handle, uint32_t level)
{
    ENTER(control, amdsmi_set_gpu_perf_level, handle);
    if (level > LEVEL_LAST)
        return INVAL;
    __atomic_store_n(&gpu->performance_level, level, __ATOMIC_RELEASE);
    if (level == LEVEL_MANUAL)
        return SUCCESS;
    /* Any level but the manual one forgets the bounds. */
    gpu->graphics_bounds = widest(&gpu->graphics);
    gpu->memory_bounds = widest(&gpu->memory);
    return SUCCESS;
}

/* The library itself and finding its devices. */
#define _GNU_SOURCE
#include "answers.h"

#include <stdio.h>
#include <string.h>

#define PROCESS_NAME_LENGTH 1024

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
    ENTER(enter_system(FN_nvmlShutdown));
    return close_state();
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
    ENTER(enter_system(FN_nvmlSystemGetDriverVersion));
    return put_text(version, length, state()->driver_version);
}

EXPORT result_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    ENTER(enter_system(FN_nvmlSystemGetNVMLVersion));
    return put_text(version, length, state()->nvml_version);
}

EXPORT result_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(enter_system(FN_nvmlSystemGetCudaDriverVersion));
    return put32(&call, (unsigned int *)version, (unsigned int)state()->cuda_version);
}

ALIAS_OF(nvmlSystemGetCudaDriverVersion_v2) result_t nvmlSystemGetCudaDriverVersion(int *version);

EXPORT result_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    ENTER(enter_system(FN_nvmlSystemGetProcessName));
    char path[64], command[PROCESS_NAME_LENGTH] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NOT_FOUND;
    /* The arguments are separated by zero bytes, so the text ends after the program. */
    size_t size = fread(command, 1, sizeof command - 1, file);
    fclose(file);
    return size == 0 ? NOT_FOUND : put_text(name, length, command);
}

/* --- Finding devices --- */

EXPORT result_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER(enter_system(FN_nvmlDeviceGetCount));
    return put32(&call, count, state()->header.gpu_count);
}

ALIAS_OF(nvmlDeviceGetCount_v2) result_t nvmlDeviceGetCount(unsigned int *count);

static result_t put_found(enum function function, handle_t *device, int gpu, handle_t handle)
{
    ENTER(enter_lookup(function, gpu));
    return put_handle(device, handle);
}

static result_t put_gpu_handle(enum function function, handle_t *device, int gpu)
{
    return put_found(function, device, gpu, handle_of_gpu(gpu));
}

EXPORT result_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t *device)
{
    ENTER(enter_system(FN_nvmlDeviceGetHandleByIndex));
    if (index >= state()->header.gpu_count)
        return INVALID_ARGUMENT;
    return put_gpu_handle(FN_nvmlDeviceGetHandleByIndex, device, (int)index);
}

ALIAS_OF(nvmlDeviceGetHandleByIndex_v2)
result_t nvmlDeviceGetHandleByIndex(unsigned int index, handle_t *device);

static bool find_mig(const struct gpu *gpu, const char *uuid, int *mig)
{
    for (*mig = 0; *mig < (int)gpu->mig_count; ++*mig)
        if (strcmp(gpu->mig_uuids[*mig], uuid) == 0)
            return true;
    return false;
}

EXPORT result_t nvmlDeviceGetHandleByUUID(const char *uuid, handle_t *device)
{
    ENTER(enter_system(FN_nvmlDeviceGetHandleByUUID));
    if (uuid == NULL)
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->header.gpu_count; gpu++) {
        int mig;
        if (strcmp(state()->gpus[gpu].uuid, uuid) == 0)
            return put_gpu_handle(FN_nvmlDeviceGetHandleByUUID, device, gpu);
        if (find_mig(&state()->gpus[gpu], uuid, &mig))
            return put_found(FN_nvmlDeviceGetHandleByUUID, device, gpu, handle_of_mig(gpu, mig));
    }
    return NOT_FOUND;
}

EXPORT result_t nvmlDeviceGetHandleBySerial(const char *serial, handle_t *device)
{
    ENTER(enter_system(FN_nvmlDeviceGetHandleBySerial));
    if (serial == NULL)
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->header.gpu_count; gpu++)
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
    ENTER(enter_system(FN_nvmlDeviceGetHandleByPciBusId));
    unsigned int domain, bus, slot;
    if (bus_id == NULL || !parse_bus_id(bus_id, &domain, &bus, &slot))
        return INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)state()->header.gpu_count; gpu++) {
        const struct gpu *g = &state()->gpus[gpu];
        if (g->pci_domain == domain && g->pci_bus == bus && g->pci_device == slot)
            return put_gpu_handle(FN_nvmlDeviceGetHandleByPciBusId, device, gpu);
    }
    return NOT_FOUND;
}

ALIAS_OF(nvmlDeviceGetHandleByPciBusId_v2)
result_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle_t *device);

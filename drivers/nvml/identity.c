/* What a device is: its names, its modes and its MIG devices. */
#define _GNU_SOURCE
#include "answers.h"

#include <stdio.h>
#include <string.h>

/* --- Identity --- */

EXPORT result_t nvmlDeviceGetName(handle_t device, char *name, unsigned int length)
{
    ENTER(enter_device(FN_nvmlDeviceGetName, device, GPU_OR_MIG));
    char text[TEXT_LENGTH + 16];
    bool slice = call.mig != NO_MIG;
    snprintf(text, sizeof text, "%s%s", call.gpu->name, slice ? " MIG 1g" : "");
    return put_text(name, length, text);
}

EXPORT result_t nvmlDeviceGetUUID(handle_t device, char *uuid, unsigned int length)
{
    ENTER(enter_device(FN_nvmlDeviceGetUUID, device, GPU_OR_MIG));
    bool slice = call.mig != NO_MIG;
    return put_text(uuid, length, slice ? call.gpu->mig_uuids[call.mig] : call.gpu->uuid);
}

EXPORT result_t nvmlDeviceGetSerial(handle_t device, char *serial, unsigned int length)
{
    ENTER(enter_device(FN_nvmlDeviceGetSerial, device, GPU_ONLY));
    return put_text(serial, length, call.gpu->serial);
}

EXPORT result_t nvmlDeviceGetVbiosVersion(handle_t device, char *version, unsigned int length)
{
    ENTER(enter_device(FN_nvmlDeviceGetVbiosVersion, device, GPU_ONLY));
    return put_text(version, length, "00.00.00.00.00");
}

EXPORT result_t nvmlDeviceGetIndex(handle_t device, unsigned int *index)
{
    ENTER(enter_device(FN_nvmlDeviceGetIndex, device, GPU_OR_MIG));
    return put32(&call, index, (unsigned int)(call.mig == NO_MIG ? call.index : call.mig));
}

EXPORT result_t nvmlDeviceGetMinorNumber(handle_t device, unsigned int *minor)
{
    ENTER(enter_device(FN_nvmlDeviceGetMinorNumber, device, GPU_ONLY));
    return put32(&call, minor, call.gpu->minor_number);
}

EXPORT result_t nvmlDeviceGetPciInfo_v3(handle_t device, struct pci_info *pci)
{
    ENTER(enter_device(FN_nvmlDeviceGetPciInfo, device, GPU_OR_MIG));
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
    ENTER(enter_device(FN_nvmlDeviceGetBoardId, device, GPU_ONLY));
    return put32(&call, board, call.gpu->board_id);
}

EXPORT result_t nvmlDeviceGetBrand(handle_t device, unsigned int *brand)
{
    ENTER(enter_device(FN_nvmlDeviceGetBrand, device, GPU_OR_MIG));
    return put32(&call, brand, call.gpu->brand);
}

EXPORT result_t nvmlDeviceGetArchitecture(handle_t device, unsigned int *architecture)
{
    ENTER(enter_device(FN_nvmlDeviceGetArchitecture, device, GPU_OR_MIG));
    return put32(&call, architecture, call.gpu->architecture);
}

EXPORT result_t nvmlDeviceGetCudaComputeCapability(handle_t device, int *major, int *minor)
{
    ENTER(enter_device(FN_nvmlDeviceGetCudaComputeCapability, device, GPU_OR_MIG));
    result_t result = put32(&call, (unsigned int *)major, call.gpu->compute_major);
    return result ? result : put32(&call, (unsigned int *)minor, call.gpu->compute_minor);
}

EXPORT result_t nvmlDeviceGetNumGpuCores(handle_t device, unsigned int *cores)
{
    ENTER(enter_device(FN_nvmlDeviceGetNumGpuCores, device, GPU_ONLY));
    return put32(&call, cores, call.gpu->cores);
}

/* --- Modes --- */

EXPORT result_t nvmlDeviceGetComputeMode(handle_t device, unsigned int *mode)
{
    ENTER(enter_device(FN_nvmlDeviceGetComputeMode, device, GPU_OR_MIG));
    return put32(&call, mode, call.gpu->compute_mode);
}

EXPORT result_t nvmlDeviceGetPerformanceState(handle_t device, unsigned int *pstate)
{
    ENTER(enter_device(FN_nvmlDeviceGetPerformanceState, device, GPU_ONLY));
    return put32(&call, pstate, call.gpu->performance_state);
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
    ENTER(enter_device(FN_nvmlDeviceGetEccMode, device, GPU_ONLY));
    REQUIRE(FLAG_ECC_SUPPORTED);
    return put_mode(&call, current, pending, has(&call, FLAG_ECC_ENABLED));
}

EXPORT result_t nvmlDeviceGetTotalEccErrors(handle_t device, unsigned int error_type,
                                            unsigned int counter_type, uint64_t *errors)
{
    ENTER(enter_device(FN_nvmlDeviceGetTotalEccErrors, device, GPU_ONLY));
    REQUIRE(FLAG_ECC_ENABLED);
    if (error_type > 1 || counter_type > 1)
        return INVALID_ARGUMENT;
    return put64(&call, errors, 0);
}

EXPORT result_t nvmlDeviceGetDisplayMode(handle_t device, unsigned int *display)
{
    ENTER(enter_device(FN_nvmlDeviceGetDisplayMode, device, GPU_ONLY));
    return put32(&call, display, has(&call, FLAG_DISPLAY));
}

EXPORT result_t nvmlDeviceGetDisplayActive(handle_t device, unsigned int *active)
{
    ENTER(enter_device(FN_nvmlDeviceGetDisplayActive, device, GPU_ONLY));
    return put32(&call, active, has(&call, FLAG_DISPLAY));
}

/* Driver models exist on Windows only; elsewhere the function is there and refuses. */
EXPORT result_t nvmlDeviceGetDriverModel_v2(handle_t device, unsigned int *current,
                                            unsigned int *pending)
{
    (void)current;
    (void)pending;
    ENTER(enter_device(FN_nvmlDeviceGetDriverModel, device, GPU_ONLY));
    return NOT_SUPPORTED;
}

ALIAS_OF(nvmlDeviceGetDriverModel_v2)
result_t nvmlDeviceGetDriverModel(handle_t device, unsigned int *current, unsigned int *pending);

/* --- MIG --- */

EXPORT result_t nvmlDeviceGetMigMode(handle_t device, unsigned int *current, unsigned int *pending)
{
    ENTER(enter_device(FN_nvmlDeviceGetMigMode, device, GPU_ONLY));
    REQUIRE(FLAG_MIG_SUPPORTED);
    return put_mode(&call, current, pending, call.gpu->mig_count > 0);
}

EXPORT result_t nvmlDeviceGetMaxMigDeviceCount(handle_t device, unsigned int *count)
{
    ENTER(enter_device(FN_nvmlDeviceGetMaxMigDeviceCount, device, GPU_ONLY));
    return put32(&call, count, has(&call, FLAG_MIG_SUPPORTED) ? MAX_MIG_DEVICES : 0);
}

EXPORT result_t nvmlDeviceGetMigDeviceHandleByIndex(handle_t device, unsigned int index,
                                                    handle_t *mig_device)
{
    ENTER(enter_device(FN_nvmlDeviceGetMigDeviceHandleByIndex, device, GPU_ONLY));
    REQUIRE(FLAG_MIG_SUPPORTED);
    if (index >= MAX_MIG_DEVICES)
        return INVALID_ARGUMENT;
    if (index >= call.gpu->mig_count)
        return NOT_FOUND;
    return put_handle(mig_device, handle_of_mig(call.index, (int)index));
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
    ENTER(enter_mig(FN_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig_device));
    return put_handle(device, handle_of_gpu(call.index));
}

EXPORT result_t nvmlDeviceGetGpuInstanceId(handle_t device, unsigned int *id)
{
    ENTER(enter_mig(FN_nvmlDeviceGetGpuInstanceId, device));
    return put32(&call, id, (unsigned int)(call.mig + 1));
}

EXPORT result_t nvmlDeviceGetComputeInstanceId(handle_t device, unsigned int *id)
{
    ENTER(enter_mig(FN_nvmlDeviceGetComputeInstanceId, device));
    return put32(&call, id, 0);
}

EXPORT result_t nvmlDeviceIsMigDeviceHandle(handle_t device, unsigned int *is_mig)
{
    ENTER(enter_device(FN_nvmlDeviceIsMigDeviceHandle, device, GPU_OR_MIG));
    return put32(&call, is_mig, call.mig != NO_MIG);
}

EXPORT result_t nvmlDeviceGetAttributes_v2(handle_t device, struct attributes *out)
{
    ENTER(enter_mig(FN_nvmlDeviceGetAttributes, device));
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

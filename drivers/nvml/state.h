/*
 * The binary layout of the state file that the simulated driver shares with its controller
 * (_nvml.py), and the list of functions that can be counted and made to fail.
 * What it shares with other simulated libraries is in layout.h.
 */
#ifndef SIMULATED_NVML_STATE_H
#define SIMULATED_NVML_STATE_H

#include "layout.h"

#define STATE_MAGIC "SIM-NVML"
#define STATE_VARIABLE "SIMULATED_NVML"

#define MAX_MIG_DEVICES 7
#define MAX_MEMORY_CLOCKS 8
#define MAX_GRAPHICS_CLOCKS 256
#define MAX_UNSUPPORTED_FIELDS 16
#define MAX_LIMIT_KNOTS 512
#define MAX_CLOCK_KNOTS 256

/*
 * Every function that callers can count or fault, named without its version suffix: all versions
 * of one function share one entry.
 */
#define FOR_EACH_FUNCTION(FUNCTION) \
    FUNCTION(nvmlInit) \
    FUNCTION(nvmlShutdown) \
    FUNCTION(nvmlSystemGetDriverVersion) \
    FUNCTION(nvmlSystemGetNVMLVersion) \
    FUNCTION(nvmlSystemGetCudaDriverVersion) \
    FUNCTION(nvmlSystemGetProcessName) \
    FUNCTION(nvmlDeviceGetCount) \
    FUNCTION(nvmlDeviceGetHandleByIndex) \
    FUNCTION(nvmlDeviceGetHandleByUUID) \
    FUNCTION(nvmlDeviceGetHandleBySerial) \
    FUNCTION(nvmlDeviceGetHandleByPciBusId) \
    FUNCTION(nvmlDeviceGetTotalEnergyConsumption) \
    FUNCTION(nvmlDeviceGetPowerUsage) \
    FUNCTION(nvmlDeviceGetFieldValues) \
    FUNCTION(nvmlDeviceGetSamples) \
    FUNCTION(nvmlDeviceGetPowerManagementMode) \
    FUNCTION(nvmlDeviceGetPowerManagementLimit) \
    FUNCTION(nvmlDeviceGetPowerManagementDefaultLimit) \
    FUNCTION(nvmlDeviceGetPowerManagementLimitConstraints) \
    FUNCTION(nvmlDeviceGetEnforcedPowerLimit) \
    FUNCTION(nvmlDeviceSetPowerManagementLimit) \
    FUNCTION(nvmlDeviceGetPersistenceMode) \
    FUNCTION(nvmlDeviceSetPersistenceMode) \
    FUNCTION(nvmlDeviceGetSupportedMemoryClocks) \
    FUNCTION(nvmlDeviceGetSupportedGraphicsClocks) \
    FUNCTION(nvmlDeviceSetGpuLockedClocks) \
    FUNCTION(nvmlDeviceResetGpuLockedClocks) \
    FUNCTION(nvmlDeviceSetMemoryLockedClocks) \
    FUNCTION(nvmlDeviceResetMemoryLockedClocks) \
    FUNCTION(nvmlDeviceGetApplicationsClock) \
    FUNCTION(nvmlDeviceGetDefaultApplicationsClock) \
    FUNCTION(nvmlDeviceSetApplicationsClocks) \
    FUNCTION(nvmlDeviceResetApplicationsClocks) \
    FUNCTION(nvmlDeviceGetClockInfo) \
    FUNCTION(nvmlDeviceGetMaxClockInfo) \
    FUNCTION(nvmlDeviceGetClock) \
    FUNCTION(nvmlDeviceGetCurrentClocksThrottleReasons) \
    FUNCTION(nvmlDeviceGetSupportedClocksThrottleReasons) \
    FUNCTION(nvmlDeviceGetTemperature) \
    FUNCTION(nvmlDeviceGetTemperatureV) \
    FUNCTION(nvmlDeviceGetTemperatureThreshold) \
    FUNCTION(nvmlDeviceGetUtilizationRates) \
    FUNCTION(nvmlDeviceGetEncoderUtilization) \
    FUNCTION(nvmlDeviceGetDecoderUtilization) \
    FUNCTION(nvmlDeviceGetProcessUtilization) \
    FUNCTION(nvmlDeviceGetMemoryInfo) \
    FUNCTION(nvmlDeviceGetBAR1MemoryInfo) \
    FUNCTION(nvmlDeviceGetComputeRunningProcesses) \
    FUNCTION(nvmlDeviceGetGraphicsRunningProcesses) \
    FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses) \
    FUNCTION(nvmlDeviceGetName) \
    FUNCTION(nvmlDeviceGetUUID) \
    FUNCTION(nvmlDeviceGetSerial) \
    FUNCTION(nvmlDeviceGetVbiosVersion) \
    FUNCTION(nvmlDeviceGetIndex) \
    FUNCTION(nvmlDeviceGetMinorNumber) \
    FUNCTION(nvmlDeviceGetPciInfo) \
    FUNCTION(nvmlDeviceGetPcieThroughput) \
    FUNCTION(nvmlDeviceGetBoardId) \
    FUNCTION(nvmlDeviceGetBrand) \
    FUNCTION(nvmlDeviceGetArchitecture) \
    FUNCTION(nvmlDeviceGetCudaComputeCapability) \
    FUNCTION(nvmlDeviceGetNumGpuCores) \
    FUNCTION(nvmlDeviceGetComputeMode) \
    FUNCTION(nvmlDeviceGetPerformanceState) \
    FUNCTION(nvmlDeviceGetFanSpeed) \
    FUNCTION(nvmlDeviceGetEccMode) \
    FUNCTION(nvmlDeviceGetTotalEccErrors) \
    FUNCTION(nvmlDeviceGetDisplayMode) \
    FUNCTION(nvmlDeviceGetDisplayActive) \
    FUNCTION(nvmlDeviceGetDriverModel) \
    FUNCTION(nvmlDeviceGetMigMode) \
    FUNCTION(nvmlDeviceGetMaxMigDeviceCount) \
    FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex) \
    FUNCTION(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    FUNCTION(nvmlDeviceGetGpuInstanceId) \
    FUNCTION(nvmlDeviceGetComputeInstanceId) \
    FUNCTION(nvmlDeviceIsMigDeviceHandle) \
    FUNCTION(nvmlDeviceGetAttributes)

NUMBER_FUNCTIONS(FOR_EACH_FUNCTION);

enum flag {
    FLAG_LOST_AT_INIT = 1u << 2,
    FLAG_POWER_USAGE_IS_AVERAGE = 1u << 3,
    FLAG_PERSISTENCE_SUPPORTED = 1u << 4,
    FLAG_ECC_SUPPORTED = 1u << 5,
    FLAG_ECC_ENABLED = 1u << 6,
    FLAG_FAN_SUPPORTED = 1u << 7,
    FLAG_DISPLAY = 1u << 8,
    FLAG_MIG_SUPPORTED = 1u << 9,
    FLAG_MEMORY_POWER_SUPPORTED = 1u << 10,
    FLAG_MODULE_POWER_SUPPORTED = 1u << 11,
    FLAG_AVERAGE_POWER_SUPPORTED = 1u << 12,
};

struct process {
    uint32_t pid;
    uint32_t is_graphics;
    uint64_t bytes;
};

/* What the GPU draws and how fast it works under one setting of a knob: watts or MHz. */
struct knot {
    double setting;
    double watts;
    double speed;
};

/*
 * How the GPU answers to its knobs, by rising settings. Without knots it does not: it draws what
 * the controller has scheduled. `speed` is the one that follows from the knobs as they are.
 */
struct response {
    uint64_t limit_knot_count;
    uint64_t clock_knot_count;
    double speed;
    struct knot limit_knots[MAX_LIMIT_KNOTS];
    struct knot clock_knots[MAX_CLOCK_KNOTS];
};

struct gpu {
    char name[TEXT_LENGTH];
    char uuid[TEXT_LENGTH];
    char serial[TEXT_LENGTH];
    char mig_uuids[MAX_MIG_DEVICES][TEXT_LENGTH];

    uint32_t flags;
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t pci_device_id;
    uint32_t pci_subsystem_id;
    uint32_t minor_number;
    uint32_t board_id;
    uint32_t brand;
    uint32_t architecture;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t cores;
    uint32_t compute_mode;
    uint32_t performance_state;
    uint32_t fan_percent;
    uint32_t utilization_gpu;
    uint32_t utilization_memory;
    uint32_t mig_count;
    uint32_t unsupported_field_count;
    uint32_t unsupported_fields[MAX_UNSUPPORTED_FIELDS];

    uint64_t memory_total;
    uint64_t memory_reserved;
    uint64_t memory_used;

    uint64_t power_samples; /* how many refreshes of the power sensor can be asked for */
    double memory_power_fraction;
    double module_power_extra;

    uint32_t limit_min_mw;
    uint32_t limit_max_mw;
    uint32_t limit_default_mw;
    uint32_t memory_clock_count;
    uint32_t graphics_clock_count;
    uint32_t default_graphics_clock;
    uint32_t memory_clocks[MAX_MEMORY_CLOCKS];
    uint32_t graphics_clocks[MAX_GRAPHICS_CLOCKS];
    uint8_t unsupported[MAX_FUNCTIONS];

    /* Written by the clients of the driver. A pair of zeros means "not locked". */
    uint32_t limit_mw;
    uint32_t persistence;
    uint32_t locked_graphics_min;
    uint32_t locked_graphics_max;
    uint32_t locked_memory_min;
    uint32_t locked_memory_max;
    uint32_t application_memory;
    uint32_t application_graphics;

    uint64_t process_count;
    struct process processes[MAX_PROCESSES];
    struct uses uses;
    struct response response;
    struct power power;
};

struct state {
    struct header header;
    double driver_latency;
    double realtime_offset; /* of CLOCK_REALTIME from CLOCK_MONOTONIC, seconds */
    int32_t cuda_version;
    uint32_t unused;
    char driver_version[TEXT_LENGTH];
    char nvml_version[TEXT_LENGTH];
    struct gpu gpus[MAX_GPUS];
};

_Static_assert(sizeof(struct process) == 16, "layout of struct process");
_Static_assert(sizeof(struct response) == 18456, "layout of struct response");
_Static_assert(sizeof(struct gpu) == 230672, "layout of struct gpu");
_Static_assert(sizeof(struct state) == 3761656, "layout of struct state");

#endif

/*
 * The part of the NVML binary interface that the simulated driver implements: return codes,
 * constants and structures, declared here so that no vendor header is needed.
 */
#ifndef SIMULATED_NVML_ABI_H
#define SIMULATED_NVML_ABI_H

#include <stdint.h>

typedef unsigned int result_t;
typedef struct device *handle_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, CLOCK_VIDEO = 3 };
enum { CLOCK_ID_CURRENT = 0, CLOCK_ID_APPLICATION = 1, CLOCK_ID_DEFAULT = 2, CLOCK_ID_BOOST = 3 };
enum { SCOPE_GPU = 0, SCOPE_MODULE = 1, SCOPE_MEMORY = 2 };
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };

enum {
    FIELD_TOTAL_ENERGY = 83,
    FIELD_POWER_AVERAGE = 185,
    FIELD_POWER_INSTANT = 186,
    FIELD_LIMIT_MIN = 187,
    FIELD_LIMIT_MAX = 188,
    FIELD_LIMIT_DEFAULT = 189,
    FIELD_LIMIT_CURRENT = 190,
    FIELD_LIMIT_REQUESTED = 192,
};

enum { TOTAL_POWER_SAMPLES = 0 };
enum { REASON_IDLE = 1, REASON_APPLICATION_CLOCKS = 2, REASON_POWER_CAP = 4 };

/* Versioned structures carry their size and version number in their first word. */
#define VERSIONED(type, number) ((unsigned int)(sizeof(type) | ((number) << 24u)))

struct memory_v1 { uint64_t total, free, used; };

struct memory_v2 {
    unsigned int version;
    uint64_t total, reserved, free, used;
};

struct bar1_memory { uint64_t total, free, used; };

struct utilization { unsigned int gpu, memory; };

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct process_info {
    unsigned int pid;
    uint64_t used_memory;
    unsigned int gpu_instance, compute_instance;
};

struct process_utilization {
    unsigned int pid;
    uint64_t timestamp;
    unsigned int sm, memory, encoder, decoder;
};

union value {
    double as_double;
    unsigned int as_uint;
    uint64_t as_uint64;
};

struct sample {
    uint64_t timestamp;
    union value value;
};

struct field_value {
    uint32_t field, scope;
    int64_t timestamp, latency;
    unsigned int value_type;
    result_t result;
    union value value;
};

struct temperature { unsigned int version, sensor; int celsius; };

struct power_value { unsigned int version, scope, milliwatts; };

struct attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned int gpu_slices, compute_slices;
    uint64_t memory_mib;
};

_Static_assert(sizeof(struct memory_v2) == 40, "layout of the memory information");
_Static_assert(sizeof(struct pci_info) == 68, "layout of the PCI information");
_Static_assert(sizeof(struct process_info) == 24, "layout of a running process");
_Static_assert(sizeof(struct process_utilization) == 32, "layout of a process sample");
_Static_assert(sizeof(struct sample) == 16, "layout of a sample");
_Static_assert(sizeof(struct field_value) == 40, "layout of a field value");
_Static_assert(sizeof(struct temperature) == 12, "layout of a temperature");
_Static_assert(sizeof(struct power_value) == 12, "layout of a power value");
_Static_assert(sizeof(struct attributes) == 40, "layout of the device attributes");

#endif

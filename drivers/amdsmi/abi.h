/*
 * The part of the AMD SMI binary interface (as of ROCm 7.0) that the simulated library implements:
 * status codes, constants and structures, declared here so that no vendor header is needed.
 */
#ifndef SIMULATED_AMDSMI_ABI_H
#define SIMULATED_AMDSMI_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t status_t;
typedef struct processor *handle_t;

enum {
    SUCCESS = 0,
    INVAL = 1,
    NOT_SUPPORTED = 2,
    NO_PERM = 10,
    OUT_OF_RESOURCES = 15,
    NOT_FOUND = 31,
    NOT_INIT = 32,
    DRIVER_NOT_LOADED = 34,
    INSUFFICIENT_SIZE = 41,
    UNEXPECTED_SIZE = 42,
};

enum { PROCESSOR_TYPE_AMD_GPU = 1 };
enum { CLOCK_GRAPHICS = 0, CLOCK_MEMORY = 4 };
enum { LIMIT_MIN = 0, LIMIT_MAX = 1 };
enum { TEMPERATURE_EDGE = 0, TEMPERATURE_HOTSPOT = 1 };
enum { TEMPERATURE_CURRENT = 0 };
enum { MEMORY_VRAM = 0 };
enum { LEVEL_AUTO = 0, LEVEL_MANUAL = 3, LEVEL_LAST = 8 };

/* How a field says "I do not know": all bits set. */
#define UNKNOWN_16 0xFFFFu
#define UNKNOWN_32 0xFFFFFFFFu
#define UNKNOWN_64 UINT64_MAX

#define STRING_LENGTH 256
#define MAX_FREQUENCIES 33

union bdf {
    struct {
        uint64_t function : 3;
        uint64_t device : 5;
        uint64_t bus : 8;
        uint64_t domain : 48;
    } part;
    uint64_t whole;
};

struct version { uint32_t major, minor, release; const char *build; };

struct enumeration_info {
    uint32_t drm_render, drm_card, hsa_id, hip_id;
    char hip_uuid[STRING_LENGTH];
};

struct asic_info {
    char market_name[STRING_LENGTH];
    uint32_t vendor_id;
    char vendor_name[STRING_LENGTH];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[STRING_LENGTH];
    uint32_t oam_id, compute_units;
    uint64_t target_graphics_version;
    uint32_t subsystem_id;
    uint32_t reserved[21];
};

struct board_info {
    char model_number[STRING_LENGTH], product_serial[STRING_LENGTH], fru_id[STRING_LENGTH];
    char product_name[STRING_LENGTH], manufacturer_name[STRING_LENGTH];
    uint64_t reserved[64];
};

struct driver_info {
    char version[STRING_LENGTH], date[STRING_LENGTH], name[STRING_LENGTH];
};

struct kfd_info {
    uint64_t kfd_id;
    uint32_t node_id, current_partition_id;
    uint32_t reserved[12];
};

/* Watts; voltages in mV. */
struct power_info {
    uint64_t socket_power;
    uint32_t current_socket_power, average_socket_power;
    uint64_t gfx_voltage, soc_voltage, mem_voltage;
    uint32_t power_limit;
    uint64_t reserved[18];
};

/* Microwatts. */
struct power_cap_info {
    uint64_t power_cap, default_power_cap, dpm_cap, min_power_cap, max_power_cap;
    uint64_t reserved[3];
};

/* Percent. */
struct engine_usage { uint32_t gfx, umc, mm; uint32_t reserved[13]; };

/* MiB. */
struct vram_usage { uint32_t total, used; uint32_t reserved[2]; };

struct vram_info {
    uint32_t type;
    char vendor[STRING_LENGTH];
    uint64_t size;
    uint32_t bit_width;
    uint64_t max_bandwidth;
    uint64_t reserved[37];
};

struct process_info {
    char name[STRING_LENGTH];
    uint32_t pid;
    uint64_t memory;
    struct { uint64_t gfx, enc; uint32_t reserved[12]; } engine_usage;
    struct { uint64_t gtt, cpu, vram; uint32_t reserved[10]; } memory_usage;
    char container_name[STRING_LENGTH];
    uint32_t cu_occupancy;
    uint32_t reserved[11];
};

/* MHz. */
struct clock_info {
    uint32_t clock, minimum, maximum;
    uint8_t locked, deep_sleep;
    uint32_t reserved[4];
};

/* Hz. */
struct frequencies {
    bool has_deep_sleep;
    uint32_t supported, current;
    uint64_t frequency[MAX_FREQUENCIES];
};

/* Hz. */
struct range { uint64_t lower, upper, reserved[2]; };

struct voltage_frequency_data {
    struct range graphics, memory, graphics_limits, memory_limits;
    uint64_t curve[3][2];
    uint32_t regions;
};

_Static_assert(sizeof(union bdf) == 8, "layout of a PCI address");
_Static_assert(sizeof(struct version) == 24, "layout of the library version");
_Static_assert(sizeof(struct enumeration_info) == 272, "layout of the enumeration information");
_Static_assert(sizeof(struct asic_info) == 896, "layout of the chip information");
_Static_assert(offsetof(struct asic_info, asic_serial) == 532, "place of the chip serial");
_Static_assert(sizeof(struct board_info) == 1792, "layout of the board information");
_Static_assert(sizeof(struct driver_info) == 768, "layout of the driver information");
_Static_assert(sizeof(struct kfd_info) == 64, "layout of the KFD information");
_Static_assert(sizeof(struct power_info) == 192, "layout of the power information");
_Static_assert(offsetof(struct power_info, power_limit) == 40, "place of the power limit");
_Static_assert(sizeof(struct power_cap_info) == 64, "layout of the power cap information");
_Static_assert(sizeof(struct engine_usage) == 64, "layout of the activity");
_Static_assert(sizeof(struct vram_usage) == 16, "layout of the memory use");
_Static_assert(sizeof(struct vram_info) == 584, "layout of the memory information");
_Static_assert(sizeof(struct process_info) == 704, "layout of a process");
_Static_assert(offsetof(struct process_info, cu_occupancy) == 656, "place of the occupancy");
_Static_assert(sizeof(struct clock_info) == 32, "layout of a clock");
_Static_assert(sizeof(struct frequencies) == 280, "layout of the frequencies");
_Static_assert(sizeof(struct voltage_frequency_data) == 184, "layout of the clock ranges");

#endif

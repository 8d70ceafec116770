/*
 * The binary layout of the state file that the simulated AMD SMI library shares with its
 * controller (_amdsmi.py), and the list of functions that can be counted and made to fail.
 * What it shares with other simulated libraries is in layout.h.
 */
#ifndef SIMULATED_AMDSMI_STATE_H
#define SIMULATED_AMDSMI_STATE_H

#include "layout.h"

#define STATE_MAGIC "SIM-ASMI"

#define MAX_CLOCKS 33

/* The functions that do something, which callers can count or fault. */
#define FOR_EACH_FUNCTION(FUNCTION) \
    FUNCTION(amdsmi_init) \
    FUNCTION(amdsmi_shut_down) \
    FUNCTION(amdsmi_get_lib_version) \
    FUNCTION(amdsmi_status_code_to_string) \
    FUNCTION(amdsmi_get_socket_handles) \
    FUNCTION(amdsmi_get_socket_info) \
    FUNCTION(amdsmi_get_processor_handles) \
    FUNCTION(amdsmi_get_processor_handle_from_bdf) \
    FUNCTION(amdsmi_get_processor_type) \
    FUNCTION(amdsmi_get_gpu_device_bdf) \
    FUNCTION(amdsmi_get_gpu_device_uuid) \
    FUNCTION(amdsmi_get_gpu_enumeration_info) \
    FUNCTION(amdsmi_get_gpu_asic_info) \
    FUNCTION(amdsmi_get_gpu_board_info) \
    FUNCTION(amdsmi_get_gpu_driver_info) \
    FUNCTION(amdsmi_get_gpu_vendor_name) \
    FUNCTION(amdsmi_get_gpu_kfd_info) \
    FUNCTION(amdsmi_get_gpu_compute_partition) \
    FUNCTION(amdsmi_get_energy_count) \
    FUNCTION(amdsmi_get_power_info) \
    FUNCTION(amdsmi_is_gpu_power_management_enabled) \
    FUNCTION(amdsmi_get_power_cap_info) \
    FUNCTION(amdsmi_set_power_cap) \
    FUNCTION(amdsmi_get_temp_metric) \
    FUNCTION(amdsmi_get_gpu_activity) \
    FUNCTION(amdsmi_get_gpu_vram_usage) \
    FUNCTION(amdsmi_get_gpu_vram_info) \
    FUNCTION(amdsmi_get_gpu_memory_total) \
    FUNCTION(amdsmi_get_gpu_memory_usage) \
    FUNCTION(amdsmi_get_gpu_process_list) \
    FUNCTION(amdsmi_get_clock_info) \
    FUNCTION(amdsmi_get_clk_freq) \
    FUNCTION(amdsmi_get_gpu_od_volt_info) \
    FUNCTION(amdsmi_set_gpu_clk_range) \
    FUNCTION(amdsmi_set_gpu_clk_limit) \
    FUNCTION(amdsmi_get_gpu_perf_level) \
    FUNCTION(amdsmi_set_gpu_perf_level)

NUMBER_FUNCTIONS(FOR_EACH_FUNCTION);

enum flag {
    FLAG_CURRENT_POWER = 1u << 2,    /* power_info has the momentary power */
    FLAG_AVERAGE_POWER = 1u << 3,    /* power_info has the averaged power */
    FLAG_ENERGY_COUNTER = 1u << 4,
    FLAG_HOTSPOT = 1u << 5,
    FLAG_EDGE = 1u << 6,
    FLAG_SECONDARY_DIE = 1u << 7,    /* power and energy are those of the other die: zero here */
    FLAG_CLOCK_LIMITS = 1u << 8,     /* the clocks can be bounded and the bounds be read */
    FLAG_HIP_ID = 1u << 9,           /* the library knows how HIP counts the GPUs */
};

struct process {
    char name[TEXT_LENGTH];
    uint64_t pid;
    uint64_t bytes;
};

/* The lowest and highest clock in force, in MHz. */
struct bounds {
    uint32_t minimum;
    uint32_t maximum;
};

/* The clocks of one domain, in MHz, lowest first. */
struct clocks {
    uint32_t count;
    uint32_t mhz[MAX_CLOCKS];
};

struct gpu {
    char name[TEXT_LENGTH];
    char uuid[TEXT_LENGTH];
    char serial[TEXT_LENGTH];
    char board_serial[TEXT_LENGTH];
    char partition[TEXT_LENGTH];

    uint32_t flags;
    uint32_t device_id;
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t pci_function;
    uint32_t hip_id;
    uint32_t gfx_activity;
    int32_t hotspot_celsius;
    int32_t edge_celsius;
    uint64_t memory_total;
    uint64_t memory_used;

    double counter_resolution;
    uint64_t limit_min_uw;
    uint64_t limit_max_uw;
    uint64_t limit_default_uw;
    struct clocks graphics;
    struct clocks memory;
    uint8_t unsupported[MAX_FUNCTIONS];

    /* Written by the clients of the library. */
    uint64_t limit_uw;
    uint32_t performance_level;
    uint32_t unused;
    struct bounds graphics_bounds;
    struct bounds memory_bounds;

    uint64_t process_count;
    struct process processes[MAX_PROCESSES];
    struct uses uses;
    struct power power;
};

struct state {
    struct header header;
    struct gpu gpus[MAX_GPUS];
};

_Static_assert(sizeof(struct process) == 112, "layout of struct process");
_Static_assert(sizeof(struct clocks) == 136, "layout of struct clocks");

#endif

/*
 * The part of a state file's binary layout that is the same for every simulated driver library,
 * mirrored by _state.py, _power.py and _sensors.py.
 *
 * Fields have explicit widths and no hidden padding, so that the two descriptions of this layout
 * can only disagree loudly: both sides check the magic, the version and the total size.
 */
#ifndef SIMULATED_COMMON_LAYOUT_H
#define SIMULATED_COMMON_LAYOUT_H

#include <stdint.h>

#define STATE_VERSION 4u

#define MAX_GPUS 16
#define MAX_SEGMENTS 4096
#define MAX_FUNCTIONS 128
#define MAX_PROCESSES 32
#define MAX_USES 8
#define MAX_USE_SEGMENTS 64
#define TEXT_LENGTH 96

/*
 * Each library lists the functions that callers can count or fault. The controller reads that list
 * from the library's state.h, so its order is the only place where a function gets its number: the
 * first one is number 1; number 0 stands for "any function of this GPU".
 */
#define FUNCTION_NUMBER(name) FN_##name,
#define NUMBER_FUNCTIONS(FOR_EACH_FUNCTION) \
    enum function { FN_ANY = 0, FOR_EACH_FUNCTION(FUNCTION_NUMBER) FUNCTION_COUNT }; \
    _Static_assert(FUNCTION_COUNT <= MAX_FUNCTIONS, "the function list outgrew its tables")

enum fault_kind { FAULT_NONE = 0, FAULT_ERROR = 1, FAULT_HANG = 2, FAULT_DELAY = 3,
                  FAULT_SENTINEL = 4 };

/* The flags of a GPU that every library knows; the library's own ones follow. */
enum common_flag {
    FLAG_NEEDS_ROOT = 1u << 0,       /* settings are taken from root only */
    FLAG_DENY_CONTROL = 1u << 1,     /* settings are refused, even to root */
};

/* The call counts down `skip` first, then fires `left` times. */
struct fault {
    uint32_t kind;
    uint32_t code;
    double seconds;
    int64_t skip;
    int64_t left;
};

/* From `start` on, until the next segment, the GPU draws `watts`; if `period` is not 0, `swing`
 * more in the first `on` seconds of every period. `joules` is the energy drawn up to `start`, so
 * that the energy at any instant takes one binary search and no summing. */
struct segment {
    double start;
    double watts;
    double joules;
    double swing;
    double period;
    double on;
};

/* How a power reading or an energy counter follows what is drawn, see Sensor in _sensors.py. A
 * phase that is no number differs by GPU and sensor, as their salts do. */
struct sensor {
    double period;
    double phase;
    double window;
    double lag;
    double jitter;
    double noise;
    double gain;
    double part_time;
    uint64_t salt;
};

/* What a part-time counter has counted by one of its refreshes. */
struct count {
    int64_t refresh;
    double joules;
};

/* What a GPU draws over time, and the sensors that follow it. */
struct power {
    struct sensor counter;
    struct sensor instant;
    struct sensor average;
    double counter_offset;
    /* A part-time counter goes on from here: what was drawn before may have been dropped. */
    struct count counted;
    /* How often the past was changed; what was counted until then is no longer so. */
    uint64_t changes_of_past;
    /* `sequence` is odd while someone rewrites the segments, or the controller the processes. */
    uint64_t sequence;
    uint64_t dropped_segments;
    uint64_t segment_count;
    struct segment segments[MAX_SEGMENTS];
};

/* From `start` on, until the next one, kernels run for this share of the time; `busy` is how long
 * they had run by then, in seconds. */
struct use_segment {
    double start;
    double busy;
    double share;
};

/* How long one process has used a GPU. */
struct use {
    uint64_t pid;
    uint64_t segment_count;
    struct use_segment segments[MAX_USE_SEGMENTS];
};

/* All processes of a GPU whose use is known; without any, that of processes is not simulated. */
struct uses {
    uint64_t count;
    struct use of[MAX_USES];
};

/* What every state file begins with. */
struct header {
    char magic[8];
    uint32_t version;
    uint32_t gpu_count;
    uint64_t size;
    uint32_t function_count;
    uint32_t unused;
    uint64_t calls[MAX_FUNCTIONS];
    /* The last row holds the faults of the library itself, for functions that name no GPU. */
    struct fault faults[MAX_GPUS + 1][MAX_FUNCTIONS];
};

_Static_assert(sizeof(struct fault) == 32, "layout of struct fault");
_Static_assert(sizeof(struct segment) == 48, "layout of struct segment");
_Static_assert(sizeof(struct sensor) == 72, "layout of struct sensor");
_Static_assert(sizeof(struct power) == 196880, "layout of struct power");
_Static_assert(sizeof(struct use) == 1552, "layout of struct use");
_Static_assert(sizeof(struct header) == 70688, "layout of struct header");

#endif

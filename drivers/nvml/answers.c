/*
 * The ways in which the exported functions end: an answer of each type, which is garbage if a fault
 * says so, and the refusal of what the GPU or the user may not do.
 */
#define _GNU_SOURCE
#include "answers.h"

#include <string.h>

unsigned int answer32(const struct call *call, unsigned int value)
{
    return call->sentinel ? UINT32_MAX : value;
}

uint64_t answer64(const struct call *call, uint64_t value)
{
    return call->sentinel ? UINT64_MAX : value;
}

result_t put32(const struct call *call, unsigned int *out, unsigned int value)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = answer32(call, value);
    return SUCCESS;
}

result_t put64(const struct call *call, uint64_t *out, uint64_t value)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = answer64(call, value);
    return SUCCESS;
}

result_t put_text(char *out, unsigned int length, const char *text)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

result_t put_handle(handle_t *out, handle_t handle)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = handle;
    return SUCCESS;
}

/* The driver's convention for lists: say how many there are when the caller brings too little. */
result_t put_list32(const struct call *call, unsigned int *count, unsigned int *out,
                    const uint32_t *values, unsigned int number)
{
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

unsigned int to_milliwatts(double watts)
{
    return watts <= 0 ? 0 : (unsigned int)(watts * 1000.0 + 0.5);
}

bool has(const struct call *call, enum flag flag)
{
    return call->gpu != NULL && (call->gpu->flags & flag) != 0;
}

/* A call that changes the GPU. */
struct call enter_control(enum function function, handle_t handle)
{
    struct call call = enter_device(function, handle, GPU_ONLY);
    if (call.result == SUCCESS)
        call.result = check_control_permission(call.gpu);
    return call;
}

void set32(uint32_t *field, unsigned int value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

unsigned int get32(const uint32_t *field)
{
    return __atomic_load_n(field, __ATOMIC_ACQUIRE);
}

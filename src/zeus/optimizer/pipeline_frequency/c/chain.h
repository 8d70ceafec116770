/* Chains of windows, one member for each rank; see `windows.c`. */

#ifndef ZEUS_CHAIN_H
#define ZEUS_CHAIN_H

#include "pipeline.h"

enum { MOST_OPTIONS = 256 };      /* of an operation in a chain */

/* What makes up the cost of one member. */
typedef struct {
    int32_t curve[3];             /* of its three operations */
    double price[3];              /* of a tick of each */
    double share[3];              /* of each operation that counts here */
    double behind;                /* price of a tick that the next member's first two are longer */
    double ahead;                 /* price of a tick that they are shorter than its own last two */
} Member;

/* Options of a member. */
typedef struct {
    int32_t curve[3];
    uint16_t option[3];
} Picked;

typedef struct Chain Chain;

int chain_create(Chain **chain, const Problem *problem);
void chain_destroy(Chain *chain);
/* The least cost of a chain; `picked` has the options of each member until the next call. */
double chain_least(Chain *chain, const Member *members, int32_t count, const Picked **picked);

#endif

/* A bound above the continuous one, from windows in which real options have to fit.
 *
 * Let ranks follow each other as in 1F1B: forward and backward in turn, F B F B. Between the end of
 * a forward and the start of the next backward but one, a rank has one backward and one forward to
 * run, and the rank after it as well: its forward waits for the first and its backward precedes the
 * last of the four. So these two sums of two real options are equal, or one of the ranks waits for
 * the difference. Waiting costs as much as flows along the rank. The continuous frontier has no such
 * cost: there, an option may be mixed of two so that all sums are equal.
 *
 * For any flow, what all operations and all waiting cost at the price of their flow, less the flow
 * times the iteration time, is at most what a plan costs. A pause lies in up to three windows, which
 * share its price. All windows of a wave of microbatches, from rank to rank, are one chain, and the
 * least cost of a chain is found rank by rank, over all pairs of options. An operation of two chains
 * counts half in each. Operations of no chain cost what they do on the continuous frontier.
 */

#include "chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Windows {
    const Problem *problem;
    Watch *watch;
    int32_t *next;                /* operation after it on the rank, or -1 */
    double *shares;               /* of the three operations of each member that count there */
    int32_t *counts;              /* members that each operation is in */
    int32_t *uses;                /* windows of the pause before each operation */
    Chain *chain;
    Member *members;              /* of the chain in work */
    Member *previous;             /* of the chain before */
};

static const int32_t LINK_BEHIND = 1, LINK_AHEAD = 2;

/* --- prices ------------------------------------------------------------------------------------ */

/* Operations before which the pauses of a window lie: of the member itself, or of the next. */
static void heads_of(const Windows *windows, const int32_t *member, int32_t link, int32_t heads[3])
{
    if (link == LINK_BEHIND) {
        heads[0] = member[1];
        heads[1] = member[2];
        heads[2] = windows->next[member[2]];
    } else {
        memcpy(heads, member + 4, 3 * sizeof(int32_t));
    }
}

/* A window's share of the price of its pauses, if all have the same. */
static double weight_of(const Windows *windows, const int32_t *member, int32_t link)
{
    int32_t heads[3], most = 1;
    heads_of(windows, member, link, heads);
    for (int32_t pause = 0; pause < 3; pause++)
        if (windows->uses[heads[pause]] > most)
            most = windows->uses[heads[pause]];
    return 1.0 / most;
}

/* What a tick costs that all pauses of a window take longer; windows of a pause share its price. */
static double price_of(const Windows *windows, const int64_t *flow, const int32_t *member,
                       int32_t link)
{
    double price = INFINITY;
    int32_t heads[3];
    heads_of(windows, member, link, heads);
    for (int32_t pause = 0; pause < 3; pause++) {
        int32_t head = heads[pause];
        double own = (double)flow[windows->problem->rank_before[head]] / windows->uses[head];
        if (own < price)
            price = own;
    }
    return price;
}

static void set_member(Windows *windows, Member *member, const int32_t *numbers,
                       const int64_t *operation_flow, const int64_t *pause_flow)
{
    const double *shares =
        windows->shares + (numbers - windows->problem->chain_member) / 4 * 3;
    memset(member, 0, sizeof *member); /* compared byte by byte */
    for (int32_t part = 0; part < 3; part++) {
        member->curve[part] = windows->problem->curve[numbers[part]];
        member->price[part] = operation_flow ? (double)operation_flow[numbers[part]] : 0;
        member->share[part] = shares[part];
    }
    if (pause_flow && numbers[3] & LINK_BEHIND)
        member->behind = price_of(windows, pause_flow, numbers, LINK_BEHIND);
    if (pause_flow && numbers[3] & LINK_AHEAD)
        member->ahead = price_of(windows, pause_flow, numbers, LINK_AHEAD);
}

/* --- bounds ------------------------------------------------------------------------------------ */

double windows_cycle(Windows *windows, int32_t chain, const double *price, double *length)
{
    const Problem *problem = windows->problem;
    const int32_t *numbers = problem->chain_member + 4 * problem->chain_start[chain];
    int32_t count = problem->chain_start[chain + 1] - problem->chain_start[chain];
    for (int32_t number = 0; number < count; number++) {
        Member *member = &windows->members[number];
        const int32_t *own = numbers + 4 * number;
        set_member(windows, member, own, NULL, NULL);
        for (int32_t part = 0; part < 3; part++)
            member->price[part] = price[number];
        if (own[3] & LINK_BEHIND)
            member->behind = price[number] * weight_of(windows, own, LINK_BEHIND);
        if (own[3] & LINK_AHEAD)
            member->ahead = price[number + 1] * weight_of(windows, own, LINK_AHEAD);
        length[number] = 0;
    }
    const Picked *picked;
    double left = 0, least = chain_least(windows->chain, windows->members, count, &picked);
    for (int32_t number = 0; number < count; number++) {
        double ticks[3];
        for (int32_t part = 0; part < 3; part++) {
            int32_t place = problem->option_start[picked[number].curve[part]];
            ticks[part] = (double)problem->option_ticks[place + picked[number].option[part]];
            length[number] += windows->members[number].share[part] * ticks[part];
        }
        if (number > 0) {
            double late = ticks[0] + ticks[1] - left;
            const int32_t *before = numbers + 4 * (number - 1);
            if (late > 0 && before[3] & LINK_BEHIND)
                length[number - 1] += late * weight_of(windows, before, LINK_BEHIND);
            if (late < 0 && before[3] & LINK_AHEAD)
                length[number] -= late * weight_of(windows, before, LINK_AHEAD);
        }
        left = ticks[1] + ticks[2];
    }
    return least;
}

/* What every plan would cost in no time, at least, beyond the slowest options. */
int windows_bound(Windows *windows, const int64_t *operation_flow, const int64_t *pause_flow,
                  __int128 *bound)
{
    const Problem *problem = windows->problem;
    double least = 0;
    int32_t before = 0;
    const Picked *picked;
    *bound = 0;
    for (int32_t operation = 0; operation < problem->operations; operation++)
        if (windows->counts[operation] == 0)
            *bound += least_cost(problem, operation, operation_flow[operation]);
    for (int32_t chain = 0; chain < problem->chains; chain++) {
        int32_t count = problem->chain_start[chain + 1] - problem->chain_start[chain];
        const int32_t *numbers = problem->chain_member + 4 * problem->chain_start[chain];
        if (watch_over(windows->watch))
            return windows->watch->over;
        for (int32_t number = 0; number < count; number++)
            set_member(windows, &windows->members[number], numbers + 4 * number, operation_flow,
                       pause_flow);
        if (count != before ||
            memcmp(windows->members, windows->previous, sizeof(Member) * (size_t)count)) {
            least = chain_least(windows->chain, windows->members, count, &picked);
            least -= 0x1p-40 * least; /* more than is lost by rounding */
            memcpy(windows->previous, windows->members, sizeof(Member) * (size_t)count);
            before = count;
        }
        *bound += (__int128)least;
    }
    return 0;
}

/* --- room -------------------------------------------------------------------------------------- */

static void count_uses(Windows *windows, const int32_t *member)
{
    int32_t heads[3];
    for (int32_t part = 0; part < 3; part++)
        windows->counts[member[part]]++;
    for (int32_t link = LINK_BEHIND; link <= LINK_AHEAD; link *= 2) {
        if (!(member[3] & link))
            continue;
        heads_of(windows, member, link, heads);
        for (int32_t pause = 0; pause < 3; pause++)
            windows->uses[heads[pause]]++;
    }
}

/* Whether a window has to do with how long an operation of a member takes. */
static int matters(const Problem *problem, int32_t chain, int32_t place, int32_t part)
{
    if (part == 0)
        return place > problem->chain_start[chain];
    return part == 1 || place + 1 < problem->chain_start[chain + 1];
}

/* An operation counts where windows have to do with it, in equal parts. */
static int share(Windows *windows)
{
    const Problem *problem = windows->problem;
    int32_t *matter = calloc((size_t)problem->operations, sizeof(int32_t));
    if (!matter)
        return OUT_OF_MEMORY;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t chain = 0; chain < problem->chains; chain++)
            for (int32_t place = problem->chain_start[chain];
                 place < problem->chain_start[chain + 1]; place++)
                for (int32_t part = 0; part < 3; part++) {
                    int32_t operation = problem->chain_member[4 * place + part];
                    int here = matters(problem, chain, place, part);
                    if (pass == 0)
                        matter[operation] += here;
                    else if (matter[operation] > 0)
                        windows->shares[3 * place + part] = (double)here / matter[operation];
                    else
                        windows->shares[3 * place + part] = 1.0 / windows->counts[operation];
                }
    free(matter);
    return 0;
}

int windows_create(Windows **created, const Problem *problem, Watch *watch)
{
    size_t operations = (size_t)problem->operations;
    size_t members = (size_t)problem->chain_start[problem->chains], longest = 1;
    Windows *windows = *created = calloc(1, sizeof(Windows));
    if (!windows)
        return OUT_OF_MEMORY;
    for (int32_t chain = 0; chain < problem->chains; chain++) {
        size_t count = (size_t)(problem->chain_start[chain + 1] - problem->chain_start[chain]);
        longest = count > longest ? count : longest;
    }
    windows->problem = problem;
    windows->watch = watch;
    windows->next = malloc(operations * sizeof(int32_t));
    windows->shares = calloc(3 * members + 1, sizeof(double));
    windows->counts = calloc(operations, sizeof(int32_t));
    windows->uses = calloc(operations, sizeof(int32_t));
    windows->members = calloc(longest, sizeof(Member));
    windows->previous = calloc(longest, sizeof(Member));
    if (!windows->next || !windows->shares || !windows->counts || !windows->uses ||
        !windows->members || !windows->previous)
        return OUT_OF_MEMORY;
    for (int32_t operation = 0; operation < problem->operations; operation++)
        windows->next[operation] = -1;
    for (int32_t operation = 0; operation < problem->operations; operation++)
        if (problem->rank_before[operation] >= 0)
            windows->next[problem->before[problem->rank_before[operation]]] = operation;
    for (size_t place = 0; place < members; place++)
        count_uses(windows, problem->chain_member + 4 * place);
    return share(windows) || chain_create(&windows->chain, problem);
}

void windows_destroy(Windows *windows)
{
    if (!windows)
        return;
    chain_destroy(windows->chain);
    free(windows->next);
    free(windows->shares);
    free(windows->counts);
    free(windows->uses);
    free(windows->members);
    free(windows->previous);
    free(windows);
}

/* The least cost of a chain of windows, over all options of all its operations.
 *
 * A member has three operations, of which the first two lie beside the last two of the member before.
 * So rank by rank, for each pair of its last two options, the least cost of all so far is enough.
 * What is saved by the best options of a chain much like it bounds what an option may cost more than
 * the best of its operation: all others are left out beforehand.
 */

#include "chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pairs of an option of one curve and one of another, by rising sum of their times. */
typedef struct {
    int32_t one;
    int32_t other;
    int32_t count;
    double *sum;
    uint16_t *first;
    uint16_t *second;
} Pairs;

/* Room for one member. */
typedef struct {
    double cost[3][MOST_OPTIONS]; /* of each option of the three operations */
    uint8_t kept[3][MOST_OPTIONS];
    Pairs enters;                 /* kept pairs of the first and the second operation */
    Pairs leaves;                 /* of the third and the second */
    int32_t *from;                /* pair that the member before is left with, for each entered */
    int32_t through[MOST_OPTIONS]; /* pair that it is entered with, for each second option */
} Room;

struct Chain {
    const Problem *problem;
    Pairs *pairs;                 /* all of each two curves */
    int32_t count;
    Room *rooms;
    int32_t longest;              /* members */
    Picked *picked;               /* of each rank, as most recently found; the last rank is last */
    double *cost;                 /* of each pair that a member is left with */
    double *best;                 /* of all before, for each pair that a member is entered with */
};

/* --- pairs of options -------------------------------------------------------------------------- */

typedef struct {
    double sum;
    uint16_t first;
    uint16_t second;
} Pair;

static int by_sum(const void *one, const void *other)
{
    const Pair *first = one, *second = other;
    return first->sum < second->sum ? -1 : first->sum > second->sum;
}

static int32_t options_of(const Problem *problem, int32_t curve)
{
    return problem->option_start[curve + 1] - problem->option_start[curve];
}

static const int64_t *ticks_of(const Problem *problem, int32_t curve)
{
    return problem->option_ticks + problem->option_start[curve];
}

static int reserve(Pairs *pairs, size_t count)
{
    pairs->sum = malloc(sizeof(double) * count);
    pairs->first = malloc(sizeof(uint16_t) * count);
    pairs->second = malloc(sizeof(uint16_t) * count);
    return pairs->sum && pairs->first && pairs->second ? 0 : OUT_OF_MEMORY;
}

static void discard(Pairs *pairs)
{
    free(pairs->sum);
    free(pairs->first);
    free(pairs->second);
}

static int fill(Pairs *pairs, const Problem *problem, int32_t one, int32_t other)
{
    int32_t firsts = options_of(problem, one), seconds = options_of(problem, other);
    size_t count = (size_t)firsts * (size_t)seconds, place = 0;
    Pair *sorted = malloc(sizeof(Pair) * count);
    *pairs = (Pairs){.one = one, .other = other, .count = (int32_t)count};
    if (reserve(pairs, count) || !sorted) {
        free(sorted);
        return OUT_OF_MEMORY;
    }
    for (int32_t first = 0; first < firsts; first++)
        for (int32_t second = 0; second < seconds; second++) {
            int64_t sum = ticks_of(problem, one)[first] + ticks_of(problem, other)[second];
            sorted[place++] = (Pair){(double)sum, (uint16_t)first, (uint16_t)second};
        }
    qsort(sorted, count, sizeof(Pair), by_sum);
    for (place = 0; place < count; place++) {
        pairs->sum[place] = sorted[place].sum;
        pairs->first[place] = sorted[place].first;
        pairs->second[place] = sorted[place].second;
    }
    free(sorted);
    return 0;
}

/* The pairs of two curves; NULL if they are not prepared. */
static const Pairs *find(const Chain *chain, int32_t one, int32_t other)
{
    for (int32_t number = 0; number < chain->count; number++)
        if (chain->pairs[number].one == one && chain->pairs[number].other == other)
            return &chain->pairs[number];
    return NULL;
}

/* Those pairs both of whose options are kept. */
static void filter(Pairs *kept, const Pairs *all, const uint8_t *first, const uint8_t *second)
{
    int32_t count = 0;
    for (int32_t pair = 0; pair < all->count; pair++) {
        kept->sum[count] = all->sum[pair];
        kept->first[count] = all->first[pair];
        kept->second[count] = all->second[pair];
        count += first[all->first[pair]] & second[all->second[pair]];
    }
    kept->count = count;
}

/* --- which options may be best ----------------------------------------------------------------- */

/* What options cost, beyond their curve's last one and with their ticks at their price. */
static double set_costs(const Problem *problem, const Member *member, int32_t part, double *cost)
{
    int32_t curve = member->curve[part], count = options_of(problem, curve);
    const int64_t *prices = problem->option_cost + problem->option_start[curve];
    double least = INFINITY;
    for (int32_t option = 0; option < count; option++) {
        int64_t more = prices[option] - prices[count - 1];
        /* Both were rounded down, so the difference may be one too large. */
        cost[option] = more > 0 ? (double)(more - 1) * problem->cost_unit : 0;
        cost[option] += member->price[part] * (double)ticks_of(problem, curve)[option];
        cost[option] *= member->share[part];
        least = cost[option] < least ? cost[option] : least;
    }
    return least;
}

/* How much longer a member's first two operations are than the last two of the one before. */
static double excess(const Problem *problem, const Picked *before, const Picked *picked)
{
    return (double)(ticks_of(problem, picked->curve[0])[picked->option[0]] +
                    ticks_of(problem, picked->curve[1])[picked->option[1]] -
                    ticks_of(problem, before->curve[1])[before->option[1]] -
                    ticks_of(problem, before->curve[2])[before->option[2]]);
}

/* What the chain costs with the options found most recently; infinite if it is another. */
static double recent_cost(const Chain *chain, const Member *members, int32_t count)
{
    const Picked *picked = chain->picked + chain->longest - count;
    double cost = 0;
    for (int32_t number = 0; number < count; number++) {
        if (memcmp(picked[number].curve, members[number].curve, sizeof picked->curve))
            return INFINITY;
        for (int32_t part = 0; part < 3; part++)
            cost += chain->rooms[number].cost[part][picked[number].option[part]];
        if (number > 0) {
            double late = excess(chain->problem, &picked[number - 1], &picked[number]);
            const Member *before = &members[number - 1];
            cost += late > 0 ? late * before->behind : -late * before->ahead;
        }
    }
    return cost;
}

static void leave_out(Chain *chain, const Member *members, int32_t count)
{
    double least[3], total = 0;
    for (int32_t number = 0; number < count; number++)
        for (int32_t part = 0; part < 3; part++)
            total += set_costs(chain->problem, &members[number], part,
                               chain->rooms[number].cost[part]);
    /* Somewhat more, so that rounding leaves out nothing that might be best. */
    double recent = recent_cost(chain, members, count);
    double spare = recent - total + 0x1p-30 * recent;
    for (int32_t number = 0; number < count; number++) {
        Room *room = &chain->rooms[number];
        const int32_t *curve = members[number].curve;
        for (int32_t part = 0; part < 3; part++) {
            int32_t options = options_of(chain->problem, curve[part]);
            least[part] = INFINITY;
            for (int32_t option = 0; option < options; option++)
                if (room->cost[part][option] < least[part])
                    least[part] = room->cost[part][option];
            for (int32_t option = 0; option < options; option++)
                room->kept[part][option] = room->cost[part][option] - least[part] <= spare;
        }
        filter(&room->enters, find(chain, curve[0], curve[1]), room->kept[0], room->kept[1]);
        filter(&room->leaves, find(chain, curve[2], curve[1]), room->kept[2], room->kept[1]);
    }
}

/* --- from rank to rank ------------------------------------------------------------------------- */

/* The least cost of a member and all before it, for each pair that the next one is entered with. */
static void enter(const Chain *chain, const Member *member, const Pairs *own, Room *next)
{
    const Pairs *pairs = &next->enters;
    double least = INFINITY;
    int32_t left = 0;
    for (int32_t pair = 0, place = 0; pair < pairs->count; pair++) {
        for (; place < own->count && own->sum[place] <= pairs->sum[pair]; place++) {
            double cost = chain->cost[place] - member->behind * own->sum[place];
            if (cost < least) {
                least = cost;
                left = place;
            }
        }
        chain->best[pair] = least + member->behind * pairs->sum[pair];
        next->from[pair] = left;
    }
    least = INFINITY;
    for (int32_t pair = pairs->count - 1, place = own->count - 1; pair >= 0; pair--) {
        for (; place >= 0 && own->sum[place] > pairs->sum[pair]; place--) {
            double cost = chain->cost[place] + member->ahead * own->sum[place];
            if (cost < least) {
                least = cost;
                left = place;
            }
        }
        double cost = least - member->ahead * pairs->sum[pair];
        if (cost < chain->best[pair]) {
            chain->best[pair] = cost;
            next->from[pair] = left;
        }
    }
}

/* From the least cost for each pair that a member is entered with to that it is left with. */
static void pass(const Chain *chain, Room *room)
{
    double second[MOST_OPTIONS];
    const Pairs *enters = &room->enters, *leaves = &room->leaves;
    for (int32_t option = 0; option < MOST_OPTIONS; option++)
        second[option] = INFINITY;
    for (int32_t pair = 0; pair < enters->count; pair++) {
        double cost = chain->best[pair] + room->cost[0][enters->first[pair]];
        if (cost < second[enters->second[pair]]) {
            second[enters->second[pair]] = cost;
            room->through[enters->second[pair]] = pair;
        }
    }
    for (int32_t pair = 0; pair < leaves->count; pair++) {
        int32_t option = leaves->second[pair];
        chain->cost[pair] = second[option] + room->cost[1][option] +
                            room->cost[2][leaves->first[pair]];
    }
}

double chain_least(Chain *chain, const Member *members, int32_t count, const Picked **picked)
{
    Picked *found = chain->picked + chain->longest - count;
    double least = INFINITY;
    int32_t pair = 0;
    leave_out(chain, members, count);
    for (int32_t number = 0; number < count; number++) {
        Room *room = &chain->rooms[number];
        if (number == 0)
            memset(chain->best, 0, sizeof(double) * (size_t)room->enters.count);
        else
            enter(chain, &members[number - 1], &chain->rooms[number - 1].leaves, room);
        pass(chain, room);
    }
    for (int32_t place = 0; place < chain->rooms[count - 1].leaves.count; place++)
        if (chain->cost[place] < least) {
            least = chain->cost[place];
            pair = place;
        }
    for (int32_t number = count - 1; number >= 0; number--) {
        const Room *room = &chain->rooms[number];
        uint16_t second = room->leaves.second[pair];
        int32_t entered = room->through[second];
        memcpy(found[number].curve, members[number].curve, sizeof found->curve);
        found[number].option[0] = room->enters.first[entered];
        found[number].option[1] = second;
        found[number].option[2] = room->leaves.first[pair];
        pair = number > 0 ? room->from[entered] : 0;
    }
    *picked = found;
    return least;
}

/* --- room -------------------------------------------------------------------------------------- */

static int prepare(Chain *chain, int32_t one, int32_t other, size_t *most)
{
    if (find(chain, one, other))
        return 0;
    Pairs *pairs = &chain->pairs[chain->count++];
    int failed = fill(pairs, chain->problem, one, other);
    if ((size_t)pairs->count > *most)
        *most = (size_t)pairs->count;
    return failed;
}

static int reserve_rooms(Chain *chain, size_t most)
{
    size_t longest = (size_t)chain->longest;
    chain->rooms = calloc(longest + 1, sizeof(Room));
    chain->picked = malloc(sizeof(Picked) * (longest + 1));
    chain->cost = malloc(sizeof(double) * most);
    chain->best = malloc(sizeof(double) * most);
    if (!chain->rooms || !chain->picked || !chain->cost || !chain->best)
        return OUT_OF_MEMORY;
    for (int32_t number = 0; number < chain->longest; number++) {
        Room *room = &chain->rooms[number];
        /* One more than all, as `filter` writes before it decides. */
        room->from = malloc(sizeof(int32_t) * most);
        if (!room->from || reserve(&room->enters, most + 1) || reserve(&room->leaves, most + 1))
            return OUT_OF_MEMORY;
        chain->picked[number].curve[0] = -1;
    }
    return 0;
}

int chain_create(Chain **created, const Problem *problem)
{
    int32_t members = problem->chain_start[problem->chains];
    size_t most = 1;
    Chain *chain = *created = calloc(1, sizeof(Chain));
    if (!chain)
        return OUT_OF_MEMORY;
    chain->problem = problem;
    chain->pairs = calloc(2 * (size_t)members + 1, sizeof(Pairs));
    if (!chain->pairs)
        return OUT_OF_MEMORY;
    for (int32_t number = 0; number < problem->chains; number++) {
        int32_t count = problem->chain_start[number + 1] - problem->chain_start[number];
        chain->longest = count > chain->longest ? count : chain->longest;
    }
    for (int32_t place = 0; place < members; place++) {
        const int32_t *member = problem->chain_member + 4 * place;
        int32_t second = problem->curve[member[1]];
        if (prepare(chain, problem->curve[member[0]], second, &most) ||
            prepare(chain, problem->curve[member[2]], second, &most))
            return OUT_OF_MEMORY;
    }
    return reserve_rooms(chain, most);
}

void chain_destroy(Chain *chain)
{
    if (!chain)
        return;
    for (int32_t number = 0; number < chain->count; number++)
        discard(&chain->pairs[number]);
    for (int32_t number = 0; chain->rooms && number < chain->longest; number++) {
        free(chain->rooms[number].from);
        discard(&chain->rooms[number].enters);
        discard(&chain->rooms[number].leaves);
    }
    free(chain->pairs);
    free(chain->rooms);
    free(chain->picked);
    free(chain->cost);
    free(chain->best);
    free(chain);
}

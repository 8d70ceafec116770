/* The continuous frontier, exactly: the project time-cost problem as a parametric flow.
 *
 * Every operation is an arc from its start to its end, every dependency an arc without length. The
 * dual of "least cost within T" is a flow whose value is what one tick less would cost. From the
 * slowest schedule on, the flow is raised along paths of arcs that have no slack (Dinic), until
 * none is left; then all that cannot be reached from the source moves earlier, until the next path
 * appears (Dijkstra over what is left of slack). Flow and times are carried over from one to the
 * next, so the whole frontier costs little more than one point of it. Kelley 1961, Fulkerson 1961.
 *
 * An arc with corners at t[0] < ... < t[m] and slopes s[1] > ... > s[m] carries a flow f in
 * [s[k+1], s[k]] while it takes t[k], and f = s[k] while it is between t[k-1] and t[k].
 */

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { SOURCE = 0, SINK = 1, SLOW_VISITS = 128 };
#define CLOSED (UNBOUNDED + UNBOUNDED / 2) /* length of a link that can carry nothing */

typedef struct {
    int64_t distance;
    int32_t node;
} Entry;

/* An arc as one of its ends sees it. The searches read nothing else of it, so all links of a node
 * lie side by side, and how long a link is is kept up to date where flow changes, which is rare. */
typedef struct {
    int64_t length;         /* what it adds to the slack: see `slack` */
    int32_t to;
    int32_t link;           /* 2 x arc, plus 1 if against its direction */
} Link;

typedef struct {
    int32_t nodes;
    int32_t arcs;           /* operations first, dependencies after them */
    int32_t *tail;
    int32_t *head;
    int32_t *first;         /* of an arc's corners */
    int32_t *last;
    int32_t *at;            /* corner at which one more unit of flow would travel */
    int64_t *flow;
    const int64_t *ticks;   /* of all corners; place 0 is that of arcs without length */
    const int64_t *slope;
    int64_t *when;          /* of each node */
    int32_t *link_start;    /* places of a node's links */
    Link *link;
    int32_t *place;         /* of each link, by its number */
    int32_t *arc_of_place;  /* arc of each dependency, by its place in `before` */
    int32_t *via;           /* place of the link by which a node was found */
    int64_t *distance;
    int32_t *level;
    int32_t *current;
    int32_t *queue;
    int32_t *path;
    uint8_t *settled;
    Entry *heap;
    int32_t waiting;        /* entries of the heap */
    int32_t reached;        /* entries of the queue */
    const Problem *problem;
    __int128 dual;          /* sum of `least_cost` over all operations */
    Watch *watch;
} Network;

static int32_t start_node(int32_t operation) { return 2 + 2 * operation; }
static int32_t end_node(int32_t operation) { return 3 + 2 * operation; }
/* --- flow along an arc ----------------------------------------------------------------------- */

static int64_t slope_beyond(const Network *network, int32_t arc, int32_t corner)
{
    return corner < network->last[arc] ? network->slope[corner + 1] : 0;
}

/* The corner from which flow would be taken back; -1 if there is none. */
static int32_t corner_back(const Network *network, int32_t arc)
{
    if (network->flow[arc] == 0)
        return -1;
    int32_t corner = network->at[arc];
    return network->flow[arc] > slope_beyond(network, arc, corner) ? corner : corner + 1;
}

static int64_t room(const Network *network, int32_t link)
{
    int32_t arc = link >> 1;
    if (link & 1)
        return network->flow[arc] - slope_beyond(network, arc, corner_back(network, arc));
    int32_t corner = network->at[arc];
    return corner == network->first[arc] ? UNBOUNDED : network->slope[corner] - network->flow[arc];
}

/* Keep the two links of an arc up to date with its flow. */
static void measure_links(Network *network, int32_t arc)
{
    int32_t back = corner_back(network, arc);
    network->link[network->place[2 * arc]].length = -network->ticks[network->at[arc]];
    network->link[network->place[2 * arc + 1]].length = back < 0 ? CLOSED : network->ticks[back];
}

static void change_flow(Network *network, int32_t link, int64_t amount)
{
    int32_t arc = link >> 1;
    if (arc < network->problem->operations)
        network->dual -= least_cost(network->problem, arc, network->flow[arc]);
    int64_t flow = network->flow[arc] += link & 1 ? -amount : amount;
    int32_t corner = network->at[arc];
    while (corner > network->first[arc] && flow >= network->slope[corner])
        corner--;
    while (flow < slope_beyond(network, arc, corner))
        corner++;
    network->at[arc] = corner;
    measure_links(network, arc);
    if (arc < network->problem->operations)
        network->dual += least_cost(network->problem, arc, flow);
}

static int32_t near_end(const Network *network, int32_t link)
{
    return link & 1 ? network->head[link >> 1] : network->tail[link >> 1];
}

/* How far a link is from being able to carry flow. */
static int64_t slack(const Network *network, int32_t node, const Link *link)
{
    return network->when[link->to] - network->when[node] + link->length;
}

/* --- how much everything moves until the next path without slack ------------------------------ */

static void push(Network *network, int64_t distance, int32_t node)
{
    Entry *heap = network->heap;
    int32_t place = network->waiting++;
    while (place > 0 && heap[(place - 1) / 2].distance > distance) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = (Entry){distance, node};
}

static Entry pop(Network *network)
{
    Entry *heap = network->heap;
    Entry top = heap[0], moved = heap[--network->waiting];
    int32_t place = 0;
    for (;;) {
        int32_t child = 2 * place + 1;
        if (child >= network->waiting)
            break;
        if (child + 1 < network->waiting && heap[child + 1].distance < heap[child].distance)
            child++;
        if (heap[child].distance >= moved.distance)
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = moved;
    return top;
}

/* Offer a way from a node on to all others that it is linked with. What is as near as the node
 * itself needs no turn in the heap, and what is as far as the sink moves like the sink. */
static void relax(Network *network, int32_t node, int64_t distance)
{
    int32_t *stack = network->queue + network->reached;
    int32_t height = 0;
    for (;;) {
        for (int32_t place = network->link_start[node]; place < network->link_start[node + 1];
             place++) {
            const Link *link = &network->link[place];
            int32_t other = link->to;
            if (network->settled[other])
                continue;
            int64_t far = distance + slack(network, node, link);
            if (far >= network->distance[other] || far >= network->distance[SINK])
                continue;
            network->distance[other] = far;
            network->via[other] = place;
            if (far > distance)
                push(network, far, other);
            else
                network->settled[stack[height++] = other] = 1;
        }
        if (height == 0)
            return;
        node = stack[--height];
    }
}

/* By how much the iteration gets shorter until a path opens; `distance` has it for every node. To
 * be called when the sink is out of reach: what was reached instead stays where it is. */
static int64_t shortening(Network *network)
{
    network->waiting = 0;
    for (int32_t node = 0; node < network->nodes; node++) {
        network->settled[node] = network->level[node] >= 0;
        network->distance[node] = network->settled[node] ? 0 : UNBOUNDED;
    }
    for (int32_t place = 0; place < network->reached; place++)
        relax(network, network->queue[place], 0);
    while (network->waiting > 0) {
        Entry entry = pop(network);
        if (entry.node == SINK)
            break;
        if (network->settled[entry.node])
            continue;
        network->settled[entry.node] = 1;
        relax(network, entry.node, entry.distance);
    }
    return network->distance[SINK];
}

/* --- as much flow as paths without slack can carry -------------------------------------------- */

static int reachable(Network *network)
{
    for (int32_t node = 0; node < network->nodes; node++)
        network->level[node] = -1;
    int32_t head = 0, tail = 0;
    network->queue[tail++] = SOURCE;
    network->level[SOURCE] = 0;
    while (head < tail && network->level[SINK] < 0) {
        int32_t node = network->queue[head++];
        for (int32_t place = network->link_start[node]; place < network->link_start[node + 1];
             place++) {
            const Link *link = &network->link[place];
            int32_t other = link->to;
            if (network->level[other] < 0 && slack(network, node, link) == 0) {
                network->level[other] = network->level[node] + 1;
                network->via[other] = place;
                network->queue[tail++] = other;
            }
        }
    }
    network->reached = tail;
    return network->level[SINK] >= 0;
}

/* Push flow along the path found, which has `length` links. Returns how much, and in `cut` the
 * first link that has no more room. */
static int64_t augment(Network *network, int32_t length, int32_t *cut)
{
    int64_t amount = UNBOUNDED;
    for (int32_t step = 0; step < length; step++) {
        int64_t left = room(network, network->path[step]);
        if (left < amount) {
            amount = left;
            *cut = step;
        }
    }
    if (amount < UNBOUNDED)
        for (int32_t step = 0; step < length; step++)
            change_flow(network, network->path[step], amount);
    return amount;
}

/* Push flow along the path that `shortening` has opened; returns how much. */
static int64_t use_opened(Network *network)
{
    int32_t length = 0, cut = 0;
    for (int32_t node = SINK; node != SOURCE; length++) {
        int32_t link = network->link[network->via[node]].link;
        network->path[length] = link;
        node = near_end(network, link);
    }
    return augment(network, length, &cut);
}

/* Flow that was added; UNBOUNDED if nothing bounds it, because nothing can be made faster. Less than
 * there could be once the watch is over. */
static int64_t saturate(Network *network)
{
    int64_t added = 0;
    while (!network->watch->over && reachable(network)) {
        memcpy(network->current, network->link_start, sizeof(int32_t) * (size_t)network->nodes);
        int32_t length = 0, node = SOURCE;
        while (!watch_over(network->watch)) {
            if (node == SINK) {
                int32_t cut = 0;
                int64_t amount = augment(network, length, &cut);
                if (amount == UNBOUNDED)
                    return UNBOUNDED;
                added += amount;
                length = cut;
                node = near_end(network, network->path[cut]);
                continue;
            }
            int32_t *place = &network->current[node];
            for (; *place < network->link_start[node + 1]; ++*place) {
                const Link *link = &network->link[*place];
                if (network->level[link->to] == network->level[node] + 1 &&
                    slack(network, node, link) == 0)
                    break;
            }
            if (*place < network->link_start[node + 1]) {
                network->path[length++] = network->link[*place].link;
                node = network->link[*place].to;
            } else if (length > 0) {
                node = near_end(network, network->path[--length]);
                network->current[node]++;
            } else {
                break;
            }
        }
    }
    return added;
}

/* --- making the network ----------------------------------------------------------------------- */

static void *room_for(int64_t count, size_t size)
{
    return calloc((size_t)(count > 0 ? count : 1), size);
}

static void release(Network *network)
{
    void *parts[] = {network->tail, network->head, network->first, network->last, network->at,
                     network->flow, (void *)network->ticks, (void *)network->slope, network->when,
                     network->link_start, network->link, network->place,
                     network->arc_of_place, network->via, network->distance, network->level,
                     network->current, network->queue, network->path, network->settled,
                     network->heap};
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
        free(parts[part]);
}

static int allocate(Network *network, const Problem *problem)
{
    int32_t operations = problem->operations;
    int32_t dependencies = problem->before_start[operations];
    int32_t corners = problem->corner_start[problem->curves];
    network->nodes = 2 + 2 * operations;
    /* At most one arc from the source and one to the sink for each operation. */
    int64_t arcs = 3 * (int64_t)operations + dependencies;
    network->tail = room_for(arcs, sizeof(int32_t));
    network->head = room_for(arcs, sizeof(int32_t));
    network->first = room_for(arcs, sizeof(int32_t));
    network->last = room_for(arcs, sizeof(int32_t));
    network->at = room_for(arcs, sizeof(int32_t));
    network->flow = room_for(arcs, sizeof(int64_t));
    int64_t *ticks = room_for(corners + 1, sizeof(int64_t));
    int64_t *slope = room_for(corners + 1, sizeof(int64_t));
    network->ticks = ticks;
    network->slope = slope;
    network->when = room_for(network->nodes, sizeof(int64_t));
    network->link_start = room_for((int64_t)network->nodes + 1, sizeof(int32_t));
    network->link = room_for(2 * arcs, sizeof(Link));
    network->place = room_for(2 * arcs, sizeof(int32_t));
    network->arc_of_place = room_for(dependencies, sizeof(int32_t));
    network->via = room_for(network->nodes, sizeof(int32_t));
    network->distance = room_for(network->nodes, sizeof(int64_t));
    network->level = room_for(network->nodes, sizeof(int32_t));
    network->current = room_for(network->nodes, sizeof(int32_t));
    network->queue = room_for(network->nodes, sizeof(int32_t));
    network->path = room_for(network->nodes, sizeof(int32_t));
    network->settled = room_for(network->nodes, 1);
    network->heap = room_for(2 * arcs + 1, sizeof(Entry));
    if (!network->tail || !network->head || !network->first || !network->last || !network->at ||
        !network->flow || !ticks || !slope || !network->when || !network->link_start ||
        !network->link || !network->place || !network->arc_of_place ||
        !network->via || !network->distance || !network->level || !network->current ||
        !network->queue || !network->path || !network->settled || !network->heap)
        return OUT_OF_MEMORY;
    memcpy(ticks + 1, problem->corner_ticks, sizeof(int64_t) * (size_t)corners);
    memcpy(slope + 1, problem->corner_slope, sizeof(int64_t) * (size_t)corners);
    return 0;
}

static void add_arc(Network *network, int32_t tail, int32_t head, int32_t first, int32_t last)
{
    int32_t arc = network->arcs++;
    network->tail[arc] = tail;
    network->head[arc] = head;
    network->first[arc] = first;
    network->last[arc] = network->at[arc] = last;
    network->link_start[tail + 1]++;
    network->link_start[head + 1]++;
}

static void connect(Network *network, const Problem *problem, const Graph *graph)
{
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        const int32_t *corners = problem->corner_start + problem->curve[operation];
        add_arc(network, start_node(operation), end_node(operation), corners[0] + 1, corners[1]);
    }
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        const int32_t *before = problem->before_start + operation;
        for (int32_t place = before[0]; place < before[1]; place++) {
            network->arc_of_place[place] = network->arcs;
            add_arc(network, end_node(problem->before[place]), start_node(operation), 0, 0);
        }
        if (before[0] == before[1])
            add_arc(network, SOURCE, start_node(operation), 0, 0);
        if (graph->after_start[operation] == graph->after_start[operation + 1])
            add_arc(network, end_node(operation), SINK, 0, 0);
    }
    for (int32_t node = 0; node < network->nodes; node++)
        network->link_start[node + 1] += network->link_start[node];
    memcpy(network->current, network->link_start, sizeof(int32_t) * (size_t)network->nodes);
    for (int32_t arc = 0; arc < network->arcs; arc++) {
        int32_t there = network->current[network->tail[arc]]++;
        int32_t back = network->current[network->head[arc]]++;
        network->link[there] = (Link){0, network->head[arc], 2 * arc};
        network->link[back] = (Link){0, network->tail[arc], 2 * arc + 1};
        network->place[2 * arc] = there;
        network->place[2 * arc + 1] = back;
        measure_links(network, arc);
    }
}

/* Everything as slow as it is of any use, as early as possible; returns the shortest time. */
static int64_t begin(Network *network, const Problem *problem)
{
    int64_t *fastest = network->distance; /* not needed yet */
    int64_t slow_end = 0, fast_end = 0;
    for (int32_t operation = 0; operation < problem->operations; operation++) {
        int64_t slow = 0, fast = 0;
        for (int32_t place = problem->before_start[operation];
             place < problem->before_start[operation + 1]; place++) {
            int32_t node = end_node(problem->before[place]);
            if (network->when[node] > slow)
                slow = network->when[node];
            if (fastest[node] > fast)
                fast = fastest[node];
        }
        network->when[start_node(operation)] = slow;
        slow += network->ticks[network->last[operation]];
        network->when[end_node(operation)] = slow;
        fast += network->ticks[network->first[operation]];
        fastest[end_node(operation)] = fast;
        if (slow > slow_end)
            slow_end = slow;
        if (fast > fast_end)
            fast_end = fast;
    }
    network->when[SINK] = slow_end;
    return fast_end;
}

/* --- the frontier ----------------------------------------------------------------------------- */

/* The iteration times asked for: evenly from the least energy to the shortest, slowest first. */
typedef struct {
    int64_t slowest;
    int64_t fastest;
    int64_t count;
    int64_t next;
    int64_t *finish;
} Targets;

static int64_t target(const Targets *targets, int64_t number)
{
    if (targets->count == 1)
        return targets->fastest;
    int64_t range = targets->slowest - targets->fastest, steps = targets->count - 1;
    return targets->slowest - (range / steps * number + range % steps * number / steps);
}

/* Note when operations end in the schedule that is `moved` ticks shorter than the present one. */
static void note_finish(const Targets *targets, const Network *network, int64_t moved,
                        int32_t operations)
{
    for (int32_t operation = 0; operation < operations; operation++) {
        int32_t end = end_node(operation);
        int64_t far = moved > 0 && network->distance[end] < moved ? network->distance[end] : moved;
        targets->finish[operation] = network->when[end] - far;
    }
}

/* Visit that schedule. */
static int visit_one(const Targets *targets, const Network *network, int64_t moved,
                     int32_t operations, Visitor visit, void *context)
{
    note_finish(targets, network, moved, operations);
    return visit(context, network->when[SINK] - moved, targets->finish, targets->count > 0);
}

/* Visit the times asked for that lie within the next `shortened` ticks. */
static int visit_targets(Targets *targets, const Network *network, int64_t shortened,
                         int32_t operations, Visitor visit, void *context)
{
    for (; targets->next < targets->count; targets->next++) {
        int64_t moved = network->when[SINK] - target(targets, targets->next);
        if (moved > shortened)
            return 0;
        int failed = visit_one(targets, network, moved, operations, visit, context);
        if (failed)
            return failed;
    }
    return 0;
}

/* Let the line from the last breakpoint go on to the shortest time. As the frontier is convex, it
 * lies nowhere above it. */
static int cut_short(const Network *network, int64_t fastest, Bound *bound)
{
    int failed = 0;
    if (bound->solution->breakpoints == 0)
        failed = bound_breakpoint(bound, network->dual, network->when[SINK], 0);
    if (!failed)
        failed = bound_breakpoint(bound, network->dual, fastest, UNBOUNDED);
    return failed ? failed : network->watch->over;
}

static int follow(Network *network, const Problem *problem, Targets *targets, Visitor visit,
                  void *context, Bound *bound)
{
    int64_t slope = 0, opened = 0, visited = -1;
    for (;;) {
        int64_t added = opened == UNBOUNDED ? UNBOUNDED : saturate(network);
        if (watch_look(network->watch))
            return cut_short(network, targets->fastest, bound);
        if (added == UNBOUNDED)
            break;
        slope += opened + added;
        int failed = bound_breakpoint(bound, network->dual, network->when[SINK], slope);
        if (!failed && slope > problem->blocking_slope && bound_due(bound, network->when[SINK])) {
            note_finish(targets, network, 0, problem->operations);
            failed = bound_windows(bound, network->when[SINK], network->flow,
                                   network->arc_of_place, targets->finish);
        }
        if (failed)
            return failed;
        int64_t shortened = shortening(network);
        /* While a tick less costs no more than it saves, slower schedules are of no use; but a real
         * plan near one of their corners may happen to be the one of least energy. A large
         * pipeline has thousands of them, most much alike. */
        if (slope <= problem->blocking_slope) {
            if (visited < 0 || slope - visited > problem->blocking_slope / SLOW_VISITS) {
                failed = visit_one(targets, network, 0, problem->operations, visit, context);
                visited = slope;
            }
        } else {
            if (targets->count == 0) {
                targets->slowest = network->when[SINK];
                targets->count = targets->slowest > targets->fastest ? problem->plans : 1;
            }
            failed = visit_targets(targets, network, shortened, problem->operations, visit, context);
        }
        if (failed)
            return failed;
        for (int32_t node = 0; node < network->nodes; node++) {
            int64_t moved = network->distance[node];
            network->when[node] -= moved < shortened ? moved : shortened;
        }
        opened = use_opened(network);
    }
    int failed = bound_breakpoint(bound, network->dual, network->when[SINK], UNBOUNDED);
    note_finish(targets, network, 0, problem->operations);
    if (!failed)
        failed = bound_shortest(bound, network->flow, network->arc_of_place, targets->finish);
    if (failed || (targets->count > 0 && targets->next == targets->count))
        return failed;
    /* The shortest time itself, if it is of least energy. */
    if (targets->count == 0)
        targets->count = 1;
    memset(network->distance, 0, sizeof(int64_t) * (size_t)network->nodes);
    return visit_targets(targets, network, 0, problem->operations, visit, context);
}

int sweep(const Problem *problem, const Graph *graph, Watch *watch, Visitor visit, void *context,
          Solution *solution)
{
    Network network = {.problem = problem, .watch = watch};
    Targets targets = {0};
    Bound bound = {0};
    int failed = allocate(&network, problem) || 
                 bound_create(&bound, problem, graph, watch, solution);
    targets.finish = room_for(problem->operations, sizeof(int64_t));
    if (!targets.finish)
        failed = OUT_OF_MEMORY;
    if (!failed) {
        connect(&network, problem, graph);
        targets.fastest = bound.fastest = begin(&network, problem);
        failed = follow(&network, problem, &targets, visit, context, &bound);
    }
    bound_destroy(&bound);
    free(targets.finish);
    release(&network);
    return failed;
}

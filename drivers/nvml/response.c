/*
 * What follows when a client turns a knob: the GPU draws and does what its response says from that
 * instant on. The physics is the controller's (_response.py), tabulated in the state file.
 */
#define _GNU_SOURCE
#include "answers.h"

/* Linear between two knots, constant beyond the outermost; the controller computes the same. */
static struct knot between(const struct knot *knots, uint64_t count, double setting)
{
    uint64_t upper = 0;
    while (upper < count && knots[upper].setting <= setting)
        upper++;
    if (upper == 0 || upper == count)
        return knots[upper == 0 ? 0 : count - 1];
    struct knot low = knots[upper - 1], high = knots[upper];
    double share = (setting - low.setting) / (high.setting - low.setting);
    return (struct knot){
        .setting = setting,
        .watts = low.watts + share * (high.watts - low.watts),
        .speed = low.speed + share * (high.speed - low.speed),
    };
}

static void respond(struct gpu *gpu)
{
    struct response *response = &gpu->response;
    if (response->limit_knot_count == 0 || response->clock_knot_count == 0)
        return;
    struct knot settled = between(response->limit_knots, response->limit_knot_count,
                                  (double)get32(&gpu->limit_mw) / 1000.0);
    struct knot by_clock = between(response->clock_knots, response->clock_knot_count,
                                   (double)graphics_clock_in_force(gpu));
    if (by_clock.watts < settled.watts)
        settled = by_clock;
    draw_from_now_on(&gpu->power, settled.watts);
    __atomic_store(&response->speed, &settled.speed, __ATOMIC_RELEASE);
}

/* One knob at a time, and not while the controller changes the load. */
struct turn begin_turn(struct gpu *gpu)
{
    return (struct turn){.gpu = gpu, .lock = lock_state(STATE_VARIABLE)};
}

void end_turn(struct turn turn)
{
    respond(turn.gpu);
    unlock_state(turn.lock);
}

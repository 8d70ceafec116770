"""The whole optimizer on recorded A40 profiles: within 1 % of the best, whatever the objective.

Recorded profiles are bumpier than physics: limits above what the job draws differ by up to 14 %.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.optimizer.support import excess, monitor
from tests.present import present

from zeus.frontier import Energy, Frontier, MaxSlowdownConstraint, Objective, Time, ZeusCost
from zeus.optimizer import GlobalPowerLimitOptimizer
from zeus.testing import ProfileNode, RecordedProfile

OBJECTIVES = [
    *map(ZeusCost, (0.25, 0.5, 0.75, 1)),
    Energy(),
    Time(),
    *map(MaxSlowdownConstraint, (1.0, 1.1, 1.2, 1.3, 1.5, 3.0)),
]
PROFILES = [
    "A40+bert-base-uncased+gpu0",
    "A40+resnet18+gpu0",
    "A40+resnet18+gpu0,1,2,3",
    "A40+resnet50+gpu0",
    "A40+resnet50+gpu0,1,2,3",
    "A40+shufflenetv2+gpu0",
]


def decide(profile: RecordedProfile, objective: Objective, **lengths: Any) -> float:
    node = ProfileNode(profile)
    optimizer = GlobalPowerLimitOptimizer(monitor(node), objective, **lengths)
    for _ in range(5000):
        optimizer.on_step_begin()
        profile.run(node.gpus)
        optimizer.on_step_end()
        if optimizer.decided:
            break
    assert optimizer.trouble == ""
    chosen = float(present(optimizer.selection).point.knob)
    assert node.gpus[0].power_limit() == chosen
    optimizer.close()
    assert node.gpus[0].power_limit() == profile.limits[-1]
    return chosen


def keeps(objective: Objective, chosen: float, true: Frontier) -> bool:
    if not isinstance(objective, MaxSlowdownConstraint):
        return True
    return true.at(chosen).time <= objective.factor * true.fastest.time * 1.001


GIVEN = {"warmup_steps": 1, "profile_steps": 5}


@pytest.mark.parametrize("lengths", [{}, GIVEN], ids=["found", "given"])
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.thorough(keep=3)
def test_within_one_percent_of_the_best(traces, name, lengths):
    profile = RecordedProfile.read(traces / "profiles" / f"{name}.csv", step_time=0.1)
    true = profile.frontier()
    for objective in OBJECTIVES:
        chosen = decide(profile, objective, **lengths)
        assert excess(objective, chosen, true) <= 0.01, (objective, chosen)
        assert keeps(objective, chosen, true), (objective, chosen)

"""Leases when the clock on the wall jumps: of a real server, and of two that disagree."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.optimizer.batch_size.histories import spec
from tests.optimizer.pipeline_frequency.job.reports import registering
from tests.server.child import serving

from zeus.optimizer.batch_size.api._commands import (
    CreateJob,
    Decide,
    DeleteJob,
    ListTrials,
    RenewTrial,
)
from zeus.optimizer.batch_size.storage._leases import WatchedLeases
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.optimizer.pipeline_frequency.api._commands import ShowPipeline
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import RankPlace, Registration
from zeus.optimizer.pipeline_frequency.storage._presence import LEASE
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store

GPU: dict[str, Any] = {"gpu": "NVIDIA A40", "max_power": 300.0}
JUMP = 7200.0  # seconds
SEAT = RankPlace(0, 0, 0, 0, 1, 1, 1, 1)  # the only rank of a job
# The world's clock, which is set by what is in a file; before anything of ours is imported.
SET_CLOCK = """
import pathlib, sys, time
real, file = time.time, pathlib.Path(sys.argv.pop(1))
time.time = lambda: real() + float(file.read_text() or 0)
from zeus.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Wall:
    """The clock on the wall of a server; `command` starts one that looks at it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0.0)
        self.command = (sys.executable, "-c", SET_CLOCK, str(file), "serve")

    def jump(self, seconds: float) -> None:
        spare = self._file.with_suffix(".new")
        spare.write_text(str(seconds))
        spare.replace(self._file)


@pytest.fixture
def wall(tmp_path) -> Wall:
    return Wall(tmp_path / "clock")


def states(jobs) -> list[str]:
    return [trial.state for trial in jobs.do(ListTrials(job="nightly"))[::-1]]


def test_a_clock_that_is_set_forward_ends_no_lease(storage, wall):
    with serving(storage, command=wall.command) as server:
        jobs, pipelines = server.jobs(), RemotePipelines(server.url, timeout=60.0)
        jobs.do(CreateJob(spec=spec()))
        trial = jobs.do(Decide(job="nightly", **GPU)).trial
        pipelines.do(registering("pipe", Registration("s", SEAT, "A100", (1410,))))
        began = jobs.do(ListTrials(job="nightly"))[0].began
        wall.jump(JUMP)
        jobs.do(Decide(job="nightly", **GPU))
        assert jobs.do(ListTrials(job="nightly"))[0].began > began + JUMP / 2, (
            "the clock has jumped"
        )
        assert states(jobs) == ["running", "running"]
        assert pipelines.do(ShowPipeline(job="pipe"))["alive"] == 1
        assert jobs.do(RenewTrial(trial=trial)).go_on
    # And neither does a restart, whatever the clock says.
    wall.jump(2 * JUMP)
    with serving(storage, command=wall.command) as server:
        jobs = server.jobs()
        jobs.do(Decide(job="nightly", **GPU))
        assert states(jobs) == ["running"] * 3


def test_a_clock_that_is_set_back_makes_no_lease_longer(storage, wall):
    with serving(storage, command=wall.command) as server:
        jobs = server.jobs()
        jobs.do(CreateJob(spec=spec()))
        jobs.do(Decide(job="nightly", **GPU, lease=1.0))
        wall.jump(-JUMP)
        deadline = time.monotonic() + 120
        while states(jobs) != ["expired"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_two_servers_whose_clocks_disagree(storage):
    """Each counts a lease from when it has last seen it start over, whoever was told."""
    steady = [Clock(5.0), Clock(70_000.0)]
    walls = [Clock(1e9), Clock(1e9 + JUMP)]
    servers = [
        Jobs(Store(storage), wall, WatchedLeases(clock))
        for wall, clock in zip(walls, steady, strict=True)
    ]
    here, there = servers
    here.do(CreateJob(spec=spec()))
    trial = here.do(Decide(job="nightly", **GPU, lease=100.0)).trial

    def passes(seconds: float) -> None:
        for clock in steady:
            clock.now += seconds
        for server in servers:
            server.sweep()

    for _ in range(5):  # it is told to one of them only
        passes(60.0)
        walls[0].now += 60.0
        here.do(RenewTrial(trial=trial))
    assert states(there) == ["running"]
    passes(60.0)
    walls[1].now += 60.0
    there.do(RenewTrial(trial=trial))  # and now to the other
    passes(90.0)
    assert states(here) == ["running"]
    passes(30.0)
    assert states(here) == states(there) == ["expired"]
    # After a restart of both, every lease is a whole one.
    second = here.do(Decide(job="nightly", **GPU, lease=100.0)).trial
    again = Jobs(Store(storage), Clock(9e9), WatchedLeases(steady[0]))
    again.sweep()
    steady[0].now += 99.0
    again.sweep()
    assert states(again) == ["expired", "running"]
    steady[0].now += 2.0
    assert again.sweep() == 1
    assert states(again) == ["expired", "expired"]
    # Who comes back goes on, as ever.
    assert again.do(RenewTrial(trial=second)).go_on
    assert again.sweep() == 0
    again.do(DeleteJob(job="nightly"))
    steady[0].now += 999.0
    assert again.sweep() == 0
    for each in (*servers, again):
        each.close()


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_ranks_are_lost_by_a_clock_that_does_not_jump(storage, jump):
    store, wall, steady = Store(storage), Clock(1e9), Clock(0.0)
    pipelines = Pipelines(store, wall, clock=steady)
    pipelines.do(registering("pipe", Registration("s", SEAT, "A100", (1410,))))
    wall.now += jump
    steady.now += LEASE - 1.0
    assert pipelines.do(ShowPipeline(job="pipe"))["alive"] == 1
    again = Pipelines(store, wall, clock=steady)
    assert again.do(ShowPipeline(job="pipe"))["alive"] == 1
    steady.now += 2.0
    assert pipelines.do(ShowPipeline(job="pipe"))["alive"] == 0
    assert again.do(ShowPipeline(job="pipe"))["alive"] == 1
    steady.now += LEASE
    assert again.do(ShowPipeline(job="pipe"))["alive"] == 0
    store.close()

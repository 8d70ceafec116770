"""What is told when, and what is heard of it."""

from __future__ import annotations

import time

from tests.optimizer.batch_size.clients import job, trials

from zeus.optimizer.batch_size.running import _reporter as reporter_module
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._reporter import Reporter
from zeus.optimizer.batch_size.running._run_report import RunReport


def test_a_run_that_must_stop_hears_so_as_soon_as_it_asks(tmp_path, monkeypatch):
    storage = f"sqlite:///{tmp_path}/jobs.db"
    now = 0.0

    def clock():
        nonlocal now
        now += 3.0  # whatever is asked takes longer than it should
        return now

    monkeypatch.setattr(reporter_module, "clock", clock)

    def begun():
        spec = job(batch_sizes=(16, 32), beta=1.5, policy="paper")
        notes = RunReport(storage, spec, "V100", 1, 250.0, 32, at=time.time())
        return Reporter(Location(storage), notes)

    first = begun()
    assert first.report(time=10.0, energy=2500.0, metric=0.95).outcome == "converged"
    first.close()
    second = begun()
    part = {"time": 4.0, "energy": 1000.0, "metric": 0.1}  # 0.4 of what the first has cost
    assert second.report(**part).go_on
    for _ in range(2):  # it rests, having waited so long
        assert second.report(**part) is None
        assert trials(storage)[1].epochs == 1
    now += 1000.0
    # The third epoch was one too many.
    assert second.report(**part).outcome == "stopped"
    second.close()
    assert trials(storage)[1].epochs == 3

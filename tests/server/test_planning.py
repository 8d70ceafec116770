"""One tenant's large pipeline makes nobody else wait: not for plans, nor for the server to end."""

from __future__ import annotations

import http.client
import json
import random
import time
from dataclasses import replace

import pytest
from tests.optimizer.pipeline_frequency.job.reports import (
    instructions,
    measured,
    registering,
    registration,
)
from tests.present import present
from tests.server.child import Server, serving

from zeus.optimizer.pipeline_frequency import Option
from zeus.optimizer.pipeline_frequency._schedules import Shape, one_forward_one_backward
from zeus.optimizer.pipeline_frequency.api._commands import (
    PutMeasurements,
    PutSequence,
    ReportStraggler,
    ShowFrontier,
    ShowPipeline,
    ShowPlan,
)
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import InstructionKind, Measured, Straggler
from zeus.store import Store, Tokens

CLOCKS = tuple(1410 - 3 * number for number in range(300))
SOON = 120.0  # seconds; a large pipeline was planned for many minutes


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


def tell_large(api: RemotePipelines, job: str = "large", places: int = 8, parts: int = 3_000):
    """All ranks of a pipeline as large as a server takes them tell everything."""
    noise = random.Random(1)
    orders = one_forward_one_backward(Shape(places, places, parts))
    for rank, steps in enumerate(orders):
        who = replace(registration(rank, (1, places, 1)), clocks=CLOCKS)
        api.do(registering(job, who))
        api.do(
            PutSequence(
                job=job, rank=rank, session=who.session, instructions=instructions(steps, places)
            )
        )
        found = {}
        for name, usual in (("forward", 0.1), ("backward", 0.2)):
            seconds = usual * (1 + 0.1 * noise.random())
            found[InstructionKind(name, 0)] = tuple(
                Option(
                    clock,
                    seconds * (0.2 + 0.8 * 1410 / clock) * (1 + 5e-4 * noise.random()),
                    300 * seconds * (clock / 1410) ** 1.5 * (1 + 1e-3 * noise.random()),
                )
                for clock in CLOCKS
            )
        api.do(
            PutMeasurements(
                job=job, rank=rank, session=who.session, **Measured(found, 80.0, 7).to_dict()
            )
        )


def tell_small(api: RemotePipelines, job: str = "small") -> None:
    """Two ranks tell everything."""
    orders = [instructions(steps, 2) for steps in one_forward_one_backward(Shape(2, 2, 4))]
    for rank, order in enumerate(orders):
        who = registration(rank)
        api.do(registering(job, who))
        api.do(PutSequence(job=job, rank=rank, session=who.session, instructions=order))
        loads = {(name, 0): 1.0 + 0.2 * rank for name in ("forward", "backward")}
        api.do(
            PutMeasurements(
                job=job, rank=rank, session=who.session, **measured(order, loads).to_dict()
            )
        )


def planned_soon(api: RemotePipelines, job: str) -> None:
    """Wait until a job is planned."""
    deadline = time.monotonic() + SOON
    while (status := api.do(ShowPipeline(job=job))["status"]) != "planned":
        assert time.monotonic() < deadline, f"{job}: {status}"
        time.sleep(0.02)


def test_a_small_pipeline_is_planned_beside_a_large_one_of_another(file):
    store = Store(file)
    secrets = {job: Tokens(store).create(job, now=0.0)[0] for job in ("large", "small")}
    store.close()
    with serving(file, "--planning-seconds", "600") as server:
        large = RemotePipelines(server.url, secrets["large"], timeout=60.0)
        small = RemotePipelines(server.url, secrets["small"], timeout=60.0)
        tell_large(large)
        tell_small(small)
        planned_soon(small, "small")
        assert large.do(ShowPipeline(job="large"))["status"] == "planning"
        version = small.do(ShowPipeline(job="small"))["version"]
        small.do(ReportStraggler(job="small", straggler=Straggler(0, slowdown=1.1)))
        after = small.do(
            ShowPlan(job="small", rank=0, session="session 0", version=version, wait=30.0)
        )
        assert after.version == version + 1, "a report is answered meanwhile"
        assert large.do(ShowPipeline(job="large"))["status"] == "planning", (
            "who plans it asks about it, too"
        )


def stop_soon(server: Server) -> None:
    """End it by a signal, in the midst of what it plans."""
    server.process.terminate()
    _, said = server.process.communicate(timeout=SOON)
    assert (server.process.returncode, said) == (0, "")


def test_a_server_that_plans_a_large_pipeline_ends_soon_and_plans_small_ones_first(file):
    first = Server(file, "--planning-seconds", "600")
    api = RemotePipelines(first.url, timeout=60.0)
    tell_small(api, "small")
    planned_soon(api, "small")
    version = api.do(ShowPipeline(job="small"))["version"]
    clocks = api.do(ShowPlan(job="small", rank=0, session="session 0")).clocks
    tell_large(api)
    deadline = time.monotonic() + SOON
    while api.do(ShowPipeline(job="large"))["status"] != "planning":
        assert time.monotonic() < deadline
    stop_soon(first)
    second = Server(file, "--planning-seconds", "600", port=first.port)
    again = api.do(ShowPlan(job="small", rank=0, session="session 0", version=0, wait=30.0))
    assert (again.version, again.state, again.clocks) == (version, "plan", clocks)
    assert api.do(ShowFrontier(job="small"))["points"]
    assert api.do(ShowPipeline(job="large"))["status"] == "planning", "it was not lost"
    tell_small(api, "another")
    planned_soon(api, "another")
    assert api.do(ShowPipeline(job="large"))["status"] == "planning"
    stop_soon(second)


@pytest.mark.real_time
def test_a_pipeline_too_large_to_refine_gets_a_plan_that_says_so(file):
    with serving(file, "--planning-seconds", "2") as server:
        api = RemotePipelines(server.url, timeout=60.0)
        tell_large(api, parts=400)
        planned_soon(api, "large")
        found = api.do(ShowFrontier(job="large"))
        before = present(found["before"])
        assert found["active"][0]["energy"] < before["energy"]
        assert found["points"][0]["time"] <= before["time"]
        assert all(each["lower_bound"] <= each["energy"] for each in found["points"])
        standing = api.do(ShowPlan(job="large", rank=0, session="session 0"))
        assert len(present(standing.clocks)) == 800
        # A first plan is an event of its own; the rest follows, as far as there is time.
        end = "; not fully refined, as that takes more than 2 s"
        deadline = time.monotonic() + SOON
        while not any(
            each["message"].endswith(end)
            for each in events(server, "large")
            if each["kind"] == "plan"
        ):
            assert time.monotonic() < deadline, events(server, "large")
            time.sleep(0.05)


def test_a_pipeline_for_which_there_is_no_plan_in_time_is_told_so(file):
    with serving(file, "--planning-seconds", "0.001") as server:
        api = RemotePipelines(server.url, timeout=60.0)
        tell_large(api, parts=50)
        deadline = time.monotonic() + SOON
        while (
            standing := api.do(ShowPlan(job="large", rank=0, session="session 0"))
        ).state != "cannot plan":
            assert time.monotonic() < deadline, standing
        assert "must be small enough to be planned within 0.001 s" in standing.message
        assert "ranks keep their present clocks" in standing.message


def events(server: Server, job: str) -> list:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    bearer = {"Authorization": f"Bearer {server.token}"}
    connection.request("GET", f"/api/pipelines/{job}/events", headers=bearer)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found

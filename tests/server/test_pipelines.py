"""Pipeline jobs over a real server: ranks, long questions, restarts, and who may say what."""

from __future__ import annotations

import http.client
import json
import logging
import time
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.optimizer.pipeline_frequency.job.reports import (
    instructions,
    measured,
    registering,
    registration,
)
from tests.optimizer.pipeline_frequency.running.rig import Training
from tests.present import present
from tests.server.child import Server, serving

from zeus.clock import MonotonicClock
from zeus.errors import JobConflictError, PipelineError, TokenError, UnknownJobError
from zeus.optimizer import PipelineFrequencyOptimizer
from zeus.optimizer.pipeline_frequency import Option, Profile, build, solve
from zeus.optimizer.pipeline_frequency._schedules import Shape, one_forward_one_backward
from zeus.optimizer.pipeline_frequency.api._commands import (
    DeletePipeline,
    ListPipelines,
    PutMeasurements,
    PutSequence,
    ReportSteps,
    ReportStraggler,
    ShowFrontier,
    ShowOperations,
    ShowPipeline,
    ShowPlan,
    ShowProfile,
)
from zeus.optimizer.pipeline_frequency.api._remote import RemotePipelines
from zeus.optimizer.pipeline_frequency.job._messages import (
    Directive,
    Instruction,
    StepReport,
    StepSums,
    Straggler,
)
from zeus.store import Store, Tokens
from zeus.testing import SimulatedNode

QUICK = {"clock_stride": 120}
LOADS = (1.0, 1.3)


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with serving(f"sqlite:///{tmp_path_factory.mktemp('pipelines')}/jobs.db") as server:
        yield server


@pytest.fixture
def server(started):
    started.share_token()
    return started


@pytest.fixture
def api(server):
    return RemotePipelines(server.url, timeout=60.0)


def tell_all(api: RemotePipelines, job: str, degrees, orders, ranks=None) -> None:
    """Every rank tells everything, or some do."""
    for rank in ranks or range(degrees[0] * degrees[1] * degrees[2]):
        who = registration(rank, degrees)
        place = who.seat.pp_rank
        api.do(registering(job, who))
        api.do(PutSequence(job=job, rank=rank, session=who.session, instructions=orders[place]))
        loads = {(name, 0): 1.0 + 0.1 * place for name in ("forward", "backward")}
        api.do(
            PutMeasurements(
                job=job, rank=rank, session=who.session, **measured(orders[place], loads).to_dict()
            )
        )


def orders_of(places: int, microbatches: int):
    shape = Shape(places, places, microbatches)
    return [instructions(steps, places) for steps in one_forward_one_backward(shape)]


def report_steps(
    api: RemotePipelines, job: str, seconds: float, *, ranks: int, joules: float = 90.0
) -> None:
    """Every rank tells of steps under the plan, and of reference steps that took 100 J."""
    version = api.do(ShowPipeline(job=job))["version"]

    def sums(steps: int, each: float) -> StepSums:
        total = seconds * steps
        return StepSums(steps, total, seconds * total, total, steps, each * steps)

    report = StepReport(version, sums(20, joules), sums(3, 100.0), sums(8, joules))
    for rank in range(ranks):
        api.do(ReportSteps(job=job, rank=rank, session=f"session {rank}", report=report))


# --- training -------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_training_goes_on_without_a_server_and_is_planned_once_there_is_one(file, caplog):
    first = Server(file)
    first.stop()
    training = Training(LOADS, microbatches=4)
    training.connect(RemotePipelines(first.url, timeout=60.0), **QUICK)
    with caplog.at_level(logging.WARNING, "zeus"):
        training.iterate(8)
        assert {optimizer.state for optimizer in training.optimizers} == {"waiting"}
        assert len(caplog.messages) == 2, "one warning per rank"
        second = Server(file, port=first.port)
        training.until("following")
        (planned,) = training.iterate()
        assert second.stop() == ""
        (later,) = training.iterate()
        assert later.clocks == planned.clocks, "the last plan stays"
        third = Server(file, port=first.port)
        api = RemotePipelines(third.url, timeout=60.0)
        assert api.do(ShowPipeline(job="test"))["status"] == "planned", "a restart keeps everything"
        assert (
            api.do(
                ShowPlan(job="test", rank=0, session=training.optimizers[0]._link._me["session"])
            ).clocks
            == present(training.optimizers[0].standing).clocks
        )
        api.do(ReportStraggler(job="test", straggler=Straggler(0, slowdown=1.1)))
        for _ in range(40):  # it is asked again at growing intervals
            if all(present(each.standing).version == 3 for each in training.optimizers):
                break
            training.iterate()
        assert [present(each.standing).version for each in training.optimizers] == [3, 3]
    training.close()
    assert [gpu.locked_graphics_clock() for gpu in training.node.gpus] == [None, None]
    assert third.stop() == ""


# --- 8 pipelines of 8 places ----------------------------------------------------------------------


class Ranks:
    """The ranks of a job, with all their threads, in one process and in real time.

    Those of the first pipeline have told everything by hand. The others see two steps and get the
    plan: nothing has to be measured again.
    """

    def __init__(self, server: Server, api: RemotePipelines, degrees: tuple[int, int, int]) -> None:
        self.pipelines, self.places, _ = self.degrees = degrees
        self.world = self.pipelines * self.places
        self.orders = orders_of(self.places, 4)
        tell_all(api, "wide", degrees, self.orders, range(self.places))
        self.node = SimulatedNode(
            f"a100x{self.world}", clock=MonotonicClock(), sensors="live-power"
        )
        self.clients = [
            PipelineFrequencyOptimizer(
                rank, *divmod(rank, self.places), 0, rank, *degrees, self.world, server.url,
                job="wide", node=self.node, sync_execution_with=None, warm_up_steps=2, timeout=60.0,
            )
            for rank in range(self.places, self.world)
        ]  # fmt: skip

    def iterate(self) -> dict[int, tuple[float, ...] | None]:
        """One iteration of all; the clocks that each rank followed in it."""
        for client in self.clients:
            client.on_step_begin()
            for instruction in self.orders[client.seat.pp_rank]:
                with client.instruction(instruction.name):
                    pass
            client.on_step_end()
        return {client.seat.rank: client.clocks for client in self.clients}

    def hear(self, version: int) -> None:
        """Wait until what was told has come down the open questions."""
        deadline = time.monotonic() + 120.0
        while any(
            client.standing is None or client.standing.version < version for client in self.clients
        ):
            assert time.monotonic() < deadline, "a rank was not told"
            time.sleep(0.01)


@pytest.mark.real_time
@pytest.mark.thorough
def test_8_pipelines_of_8_places_follow_a_report_in_their_next_iteration(server, api):
    ranks = Ranks(server, api, (8, 8, 1))
    before = _planned(api, "wide")
    ranks.hear(before["version"])
    for _ in range(3):
        ranks.iterate()  # what a step does has been seen, and told
    deadline = time.monotonic() + 120.0
    while None in (fastest := ranks.iterate()).values():
        assert time.monotonic() < deadline, {client.trouble for client in ranks.clients}
    times = []

    def after(straggler: Straggler) -> dict:
        """A report comes in amid an iteration; the clocks of the next one."""
        ranks.hear(api.do(ReportStraggler(job="wide", straggler=straggler))["version"])
        clocks = ranks.iterate()
        times.append(
            {client.seat.dp_rank: present(client.standing).time for client in ranks.clients}
        )
        return clocks

    slower = after(Straggler(3, slowdown=1.2))
    for rank, clocks in slower.items():
        straggles = rank // 8 == 3
        assert (clocks == fastest[rank]) == straggles, "all others take their time, at once"
        assert straggles or clocks == slower[56 + rank % 8]
    usual = before["active"][0]["time"]
    assert times[0][3] == usual < times[0][5] <= 1.2 * usual
    worse = after(Straggler(5, slowdown=1.3))
    assert worse[40] == fastest[40]
    assert worse[24] != fastest[24], "who is less slow than the worst has time, too"
    assert after(Straggler(5, healthy=True)) == slower
    assert after(Straggler(3, healthy=True)) == fastest
    for client in ranks.clients:
        assert client.trouble == ""
        client.close()
    assert [gpu.locked_graphics_clock() for gpu in ranks.node.gpus] == [None] * 64


def _planned(api: RemotePipelines, job: str):
    """Its frontier, once the server has solved it beside answering."""
    version, deadline = api.do(ShowPipeline(job=job))["version"], time.monotonic() + 120.0
    while not (found := api.do(ShowFrontier(job=job)))["points"]:
        assert time.monotonic() < deadline, api.do(ShowPipeline(job=job))["status"]
        version = api.do(
            ShowPlan(job=job, rank=0, session="session 0", version=version, wait=30.0)
        ).version
    assert found["active"][0]["energy"] < present(found["before"])["energy"]
    assert all(p["lower_bound"] <= p["energy"] for p in found["points"])
    return found


def test_what_was_measured_and_planned_can_be_had(api):
    orders = orders_of(2, 2)
    tell_all(api, "told", (2, 2, 1), orders)
    fastest = _planned(api, "told")["points"][0]
    rows = api.do(ShowProfile(job="told"))
    profile = Profile(
        {
            (stage, name): [
                Option(row["frequency"], row["time"], row["energy"])
                for row in rows
                if (row["stage"], row["instruction"]) == (stage, name)
            ]
            for stage in range(2)
            for name in ("forward", "backward")
        }
    )
    again = solve(build(profile, "1f1b", 2, 80.0, data_parallel=2)).frontier.fastest
    assert (fastest["time"], fastest["energy"]) == pytest.approx((again.time, again.energy))
    operations = api.do(ShowOperations(job="told", pipeline=1))
    assert len(operations) == 8
    assert max(each["start"] + each["time"] for each in operations) == pytest.approx(again.time)
    with pytest.raises(PipelineError, match="`0 <= pipeline < 2` must hold, but got pipeline=2"):
        api.do(ShowOperations(job="told", pipeline=2))
    api.do(registering("silent", registration(0)))
    assert (api.do(ShowOperations(job="silent")), api.do(ShowProfile(job="silent"))) == ([], [])


def test_what_ranks_report_of_their_steps_is_what_was_saved(api):
    tell_all(api, "saving", (1, 2, 1), orders_of(2, 4))
    planned = _planned(api, "saving")["active"][0]["time"]
    assert api.do(ShowFrontier(job="saving"))["saved"] is None
    report_steps(api, "saving", planned, ranks=2)
    found = api.do(ShowFrontier(job="saving"))
    assert found["step_time"] == pytest.approx(planned)
    saved = present(found["saved"])
    assert (saved["energy"], saved["slowdown"]) == pytest.approx((0.1, 0.0))
    assert saved["plan"]["energy"] == pytest.approx(2 * 90.0)
    assert saved["reference"]["energy"] == pytest.approx(2 * 100.0)
    assert (saved["steps"], saved["references"]) == (20, 3)


# --- errors ---------------------------------------------------------------------------------------


def test_what_is_wrong_is_told_as_in_this_process(api):
    with pytest.raises(UnknownJobError, match="no pipeline job 'nobody'"):
        api.do(ShowPipeline(job="nobody"))
    api.do(registering("errors", registration(0)))
    with pytest.raises(UnknownJobError, match=r"rank 1 .* not registered"):
        api.do(ShowPlan(job="errors", rank=1, session="session 1"))
    with pytest.raises(JobConflictError, match="registered again by another process"):
        api.do(
            PutSequence(
                job="errors", rank=0, session="another", instructions=[Instruction("forward")]
            )
        )
    api.do(
        PutSequence(
            job="errors", rank=0, session="session 0", instructions=[Instruction("forward")]
        )
    )
    with pytest.raises(PipelineError, match="lacks forward and has in addition backward"):
        api.do(
            PutMeasurements(
                job="errors",
                rank=0,
                session="session 0",
                **measured([Instruction("backward")]).to_dict(),
            )
        )
    with pytest.raises(PipelineError, match="`0 <= dp_rank < 1` must hold"):
        api.do(ReportStraggler(job="errors", straggler=Straggler(4, healthy=True)))
    assert api.do(ShowPipeline(job="errors"))["status"] == "waits for rank 1 to register"
    api.do(DeletePipeline(job="errors"))
    with pytest.raises(UnknownJobError):
        api.do(DeletePipeline(job="errors"))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "ranks/0/measurements", '{"session": "s", "options": [], "blocking_power": NaN}'),
        ("PUT", "ranks/0/measurements", '{"session": "s", "options": [{"name": "forward"}]}'),
        ("PUT", "ranks/0/sequence", '{"session": "s", "instructions": [[1, 2, 3]]}'),
        ("PUT", "ranks/0/sequence", '{"session": "s", "instructions": [["f", 0]]}'),
        ("PUT", "ranks/-1", "{}"),
        ("GET", "ranks/0/plan?session=s&wait=nan", None),
        ("GET", "ranks/0/plan?session=s&wait=1e9", None),
        ("GET", "ranks/0/plan", None),
        ("POST", "stragglers", '{"dp_rank": 0, "slowdown": -1}'),
        ("POST", "stragglers", '{"dp_rank": 0}'),
    ],
)
def test_nonsense_is_a_422_and_no_traceback(server, method, path, body):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    address = f"/api/pipelines/{quote('a b')}/{path}"
    headers = {"Content-Type": "application/json", **server.bearer}
    connection.request(method, address, body, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == 422
    assert set(json.loads(answer)["error"]) == {"kind", "message"}
    assert b"Traceback" not in answer


def test_a_token_for_one_job_is_for_its_pipeline_too(file):
    store = Store(file)
    secret, _ = Tokens(store).create("mine", now=0.0)
    store.close()
    with serving(file) as server:
        api = RemotePipelines(server.url, secret, timeout=60.0)
        api.do(registering("mine", registration(0)))
        assert [job["name"] for job in api.do(ListPipelines())] == ["mine"]
        commands: list[Any] = [ShowPipeline, ShowFrontier, DeletePipeline]
        for command in commands:
            with pytest.raises(TokenError, match="for job 'mine' only"):
                api.do(command(job="another"))
        with pytest.raises(TokenError):
            api.do(registering("another", registration(0)))
        with pytest.raises(TokenError, match="a token is required"):
            RemotePipelines(server.url, "zeus_wrong", timeout=60.0).do(ListPipelines())


# --- the server itself ----------------------------------------------------------------------------


def test_a_server_that_is_told_to_stop_answers_those_who_wait(file):
    server = Server(file)
    api = RemotePipelines(server.url, timeout=60.0)
    standing = api.do(registering("waiting", registration(0)))
    waiting = http.client.HTTPConnection(server.host, server.port, timeout=60)
    query = urlencode({"session": "session 0", "version": standing.version, "wait": 30.0})
    path = f"/api/pipelines/waiting/ranks/0/plan?{query}"
    waiting.request("GET", path, headers=server.bearer)
    # Once its question is there: what was asked after it is answered, although it had to wait, too.
    api.do(ShowPlan(job="waiting", rank=0, session="session 0", version=standing.version, wait=0.1))
    assert server.stop() == ""
    answer = json.loads(waiting.getresponse().read())
    waiting.close()
    assert Directive.from_dict(answer) == standing
    assert server.process.returncode == 0


def test_metrics_count_jobs_and_plans(server, api):
    orders = orders_of(2, 2)
    tell_all(api, "counted", (1, 2, 1), orders)
    _planned(api, "counted")
    deadline = time.monotonic() + 120
    # It is counted a moment after it can be seen.
    while float((lines := _metrics(server))["zeus_pipeline_plans_total"]) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert float(lines["zeus_pipelines"]) >= 1
    assert float(lines["zeus_pipeline_ranks_heard"]) >= 2
    assert [event["kind"] for event in _events(server, "counted")] == ["plan"]


def _metrics(server: Server) -> dict[str, str]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("GET", "/metrics", headers=server.bearer)
    text = connection.getresponse().read().decode()
    connection.close()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def _events(server: Server, job: str):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("GET", f"/api/pipelines/{job}/events", headers=server.bearer)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found

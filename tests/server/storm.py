"""Kills a server at random points under concurrent reports, and looks what is left.

Every client goes on until its report is acknowledged, as a real one does. In the end each report
must have been counted exactly once, whatever was cut off in the middle.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.optimizer.batch_size.histories import spec
from tests.server.child import Server
from tests.server.wire import HttpClient

from zeus.optimizer.batch_size.api._commands import CreateJob, ShowJob, ShowLog
from zeus.optimizer.batch_size.job._events import Decided, EpochReported, event_from
from zeus.optimizer.batch_size.policies._job_state import JobState
from zeus.optimizer.batch_size.storage._service import Jobs
from zeus.store import Store


@dataclass
class Toll:
    """What came of it.

    Attributes:
        rounds: How often the server was killed.
        reports: How many were acknowledged; `repeated` how many had to be sent more than once.
        lost: Acknowledged, but not in the store.
        twice: Counted more than once.
        other: In the store, but never sent; or sent otherwise.
        problems: Anything else.
    """

    rounds: int = 0
    reports: int = 0
    repeated: int = 0
    lost: int = 0
    twice: int = 0
    other: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.twice or self.other or self.problems)


def storm(storage: str, rounds: int, reports: int, *, seed: int = 0, jobs: int = 20) -> Toll:
    """Have so many reports at once meet a server that is killed, again and again."""
    return asyncio.run(_Storm(storage, rounds, reports, seed, jobs).run())


class _Storm:
    def __init__(self, storage: str, rounds: int, reports: int, seed: int, jobs: int) -> None:
        self._storage = storage
        self._rounds = rounds
        self._chance = random.Random(seed)
        self._names = [f"storm {number}" for number in range(jobs)]
        self._reports = reports
        self._toll = Toll()
        self._sent: dict[tuple[str, int], dict] = {}
        self._trials: list[tuple[str, str]] = []  # by name of the job and of the trial
        self._wires: list[HttpClient] = []

    async def run(self) -> Toll:
        server = Server(self._storage)
        await self._prepare(server)
        usual = await self._round(server, 0, None)
        for number in range(1, self._rounds + 1):
            kill = asyncio.create_task(self._kill_and_restart(server, usual))
            await self._round(server, number, kill)
            server = await kill
            self._toll.rounds += 1
        for wire in self._wires:
            wire.close()
        said = server.stop()
        if server.process.returncode:
            self._toll.problems.append(f"the last server ends badly: {said}")
        self._look()
        return self._toll

    async def _prepare(self, server: Server) -> None:
        self._wires = [
            HttpClient(server.host, server.port, server.token) for _ in range(self._reports)
        ]
        client = server.jobs()
        for name in self._names:
            client.do(
                CreateJob(spec=spec(name, max_epochs=self._rounds + 10, beta=None, policy="paper"))
            )

        async def begin(number: int) -> None:
            name = self._names[number % len(self._names)]
            self._trials.append((name, await self._decide(self._wires[number], name, str(number))))

        await asyncio.gather(*(begin(number) for number in range(self._reports)))

    async def _decide(self, wire: HttpClient, name: str, request: str) -> str:
        body = {"gpu": "A40", "max_power": 300, "request": request, "lease": 86400}
        path = f"/api/jobs/{name.replace(' ', '%20')}/trials"
        return (await self._acknowledged(wire, path, body))["trial"]

    async def _acknowledged(self, wire: HttpClient, path: str, body: dict) -> dict:
        """Ask until there is an answer, and insist that it is a good one."""
        tries = 0
        while True:
            tries += 1
            try:
                status, answer = await wire.ask("POST", path, body)
            except ConnectionError:
                await asyncio.sleep(0.05)
                continue
            if status != 200:
                self._toll.problems.append(f"{path} was answered with {status}: {answer}")
            self._toll.repeated += tries > 1
            return answer

    async def _round(self, server: Server, number: int, kill: asyncio.Task | None) -> float:
        """One report of every trial at once, and a few new decisions; how long they took."""
        began = time.monotonic()

        async def report(place: int) -> None:
            _, trial = self._trials[place]
            body = {
                "epoch": number + 1,
                "time": self._chance.uniform(1, 2),
                "energy": self._chance.uniform(100, 200),
                "metric": 0.1,
            }
            self._sent[trial, number + 1] = body
            await self._acknowledged(self._wires[place], f"/api/trials/{trial}/epochs", body)
            self._toll.reports += 1

        async def begin(name: str) -> None:
            wire = HttpClient(server.host, server.port, server.token)
            await self._decide(wire, name, f"round {number}")
            wire.close()

        await asyncio.gather(
            *(report(place) for place in range(self._reports)), *map(begin, self._names[:5])
        )
        return time.monotonic() - began

    async def _kill_and_restart(self, server: Server, usual: float) -> Server:
        await asyncio.sleep(self._chance.uniform(0, usual))
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        # On the port where its clients look for it.
        return await asyncio.to_thread(Server, self._storage, port=server.port)

    def _look(self) -> None:
        """Compare what is stored with what was acknowledged."""
        jobs = Jobs(Store(self._storage))
        counted: Counter[tuple[str, int]] = Counter()
        requests: Counter[tuple[str, str]] = Counter()
        for name in self._names:
            log, after = [], 0
            while page := jobs.do(ShowLog(job=name, after=after)):
                log += page
                after = page[-1]["sequence"]
            if [record.pop("sequence") for record in log] != list(range(1, len(log) + 1)):
                self._toll.problems.append(f"the log of {name} is not in order")
            events = [event_from(record) for record in log]
            brain = JobState.of(jobs_spec(jobs, name), events)  # it obeys every rule
            prefix = next(t for n, t in self._trials if n == name).partition("-")[0]
            for event in events:
                if isinstance(event, EpochReported):
                    key = f"{prefix}-{event.trial}", event.epoch
                    counted[key] += 1
                    sent = self._sent.get(key)
                    if sent is None or any(getattr(event, k) != v for k, v in sent.items()):
                        self._toll.other += 1
                if isinstance(event, Decided):
                    requests[name, event.request] += 1
            if jobs.do(ShowJob(job=name)).trials != brain.log.trials:
                self._toll.problems.append(f"the counters of {name} are wrong")
        jobs.close()
        self._toll.lost = sum(key not in counted for key in self._sent)
        self._toll.twice = sum(number > 1 for number in counted.values())
        self._toll.twice += sum(number > 1 for number in requests.values())
        expected = self._reports + 5 * (self._rounds + 1)
        if sum(requests.values()) != expected:
            self._toll.problems.append(f"{sum(requests.values())} trials, not {expected}")


def jobs_spec(jobs: Jobs, name: str):
    from zeus.optimizer.batch_size.job._spec import JobSpec

    return JobSpec.from_dict(jobs.do(ShowJob(job=name)).spec)

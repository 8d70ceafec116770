"""A site with jobs of all kinds, served by a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.server.child import Server, serving
from tests.server.pages.world import A40, NIGHT, V100, Life, service, spec

from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, EndTrial, ReportEpoch
from zeus.store import Store, Tokens

HOSTILE = "<img src=x onerror=alert(1)> \"&' ..?%00#+ü"
EVIL_GPU = "<b onclick=alert(2)>GPU</b>"
EVIL_NOTE = "</span><script>alert(3)</script>"


@dataclass
class Site:
    """A server and what it serves.

    Attributes:
        server: The process.
        storage: What it reads.
        life: The job "nightly-bert": 24 recurrences on one GPU, 3 on another, and one that runs.
    """

    server: Server
    storage: str
    life: Life

    def url(self, path: str) -> str:
        """An address."""
        return self.server.url + path


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Iterator[Site]:
    """Without tokens."""
    storage = f"sqlite:///{tmp_path_factory.mktemp('site')}/jobs.db"
    jobs, clock = service(storage)
    clock.now = time.time() - 30 * NIGHT
    life = Life(jobs, clock, spec())
    life.recur(24)
    life.recur(3, V100)
    _make_hostile(jobs, clock)
    jobs.do(CreateJob(spec=spec("empty")))
    clock.now = time.time()
    life.run(A40, most=2)
    with serving(storage, "--no-token") as server:
        yield Site(server, storage, life)
    jobs.close()


def _make_hostile(jobs, clock) -> None:
    Life(jobs, clock, spec(HOSTILE, batch_sizes=(64, 256))).recur(2)
    decision = jobs.do(Decide(job=HOSTILE, gpu=EVIL_GPU, max_power=300.0))
    jobs.do(ReportEpoch(trial=decision.trial, epoch=1, time=3.0))  # nobody knows its energy
    jobs.do(EndTrial(trial=decision.trial, outcome="failed", note=EVIL_NOTE))


@dataclass
class Guarded:
    """A server that asks for tokens: of everything, of one job."""

    server: Server
    storage: str
    everything: str
    one_job: str


@pytest.fixture(scope="session")
def guarded(tmp_path_factory) -> Iterator[Guarded]:
    """With tokens, and the jobs "mine" and "theirs"."""
    storage = f"sqlite:///{tmp_path_factory.mktemp('guarded')}/jobs.db"
    jobs, _ = service(storage)
    for name in ("mine", "theirs"):
        jobs.do(CreateJob(spec=spec(name)))
    jobs.close()
    store = Store(storage)
    tokens = Tokens(store)
    secrets = [tokens.create(job, now=time.time())[0] for job in (None, "mine")]
    store.close()
    with serving(storage) as server:
        yield Guarded(server, storage, *secrets)

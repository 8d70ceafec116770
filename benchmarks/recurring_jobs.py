"""The server of recurring jobs: how many it serves, how many it keeps, and what it survives.

Measured beside the server of `zeus`, which is set up as its documentation asks, on SQLite and on a
PostgreSQL of our own; the tools take turns. The crash and fuzz tests are those of the test suite,
with more of everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import FOLDER, QUICK, Bench, say
from recurring_jobs_lists import lists
from rows import Row, percentile, row
from tools import OURS, PEER_FOLDER, PEERS, ROOT, Tool, pip, version_of, why

TASK, ROUND_TRIPS = "recurring_jobs", "round_trips"
PEER = "zeus"
_LOAD = FOLDER / "recurring_jobs_load.py"
_CREATE = """
import asyncio, os
from sqlalchemy.ext.asyncio import create_async_engine
from zeus.optimizer.batch_size.server.database.schema import Base

async def main():
    engine = create_async_engine(os.environ["ZEUS_BSO_DATABASE_URL"])
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Amount:
    """How much to measure."""

    clients: int = 64
    seconds: float = 5.0
    turns: int = 5
    kills: int = 25  # on each kind of store
    reports: int = 1_000
    jobs: int = 100_000
    listed: int = 10_000  # jobs in a list
    trials: int = 100
    decisions: int = 300
    cases: int = 250  # `python -m tests.server.fuzz 2000 SEED` sends more


_QUICK = Amount(
    seconds=2.0,
    turns=1,
    kills=2,
    reports=100,
    jobs=500,
    listed=200,
    trials=20,
    decisions=40,
    cases=25,
)


def bench_recurring_jobs(bench: Bench) -> Iterator[Row]:
    """Recurring jobs: crashes, a large store, lists, hostile requests."""
    sys.path.insert(0, str(ROOT))
    from tests.postgresql import PostgreSQL

    amount = _QUICK if bench.effort is QUICK else Amount()
    with (
        tempfile.TemporaryDirectory(prefix="zeus-jobs-") as scratch,
        contextlib.ExitStack() as ends,
    ):
        server = PostgreSQL.start()
        ends.callback(server.stop)
        yield from _kills(Path(scratch), server, amount)
        yield from _large(Path(scratch), server, amount)
        stores = {"SQLite": f"sqlite:///{scratch}/lists.db", "PostgreSQL": server.new_storage()}
        yield from lists(stores, amount.listed, 9)
        yield from _fuzzed(Path(scratch), amount)


# --- round trips --------------------------------------------------------------------------------


def bench_round_trips(bench: Bench) -> Iterator[Row]:
    """Decisions and reports that a server of recurring jobs serves, beside the peer's."""
    sys.path.insert(0, str(ROOT))
    from tests.postgresql import PostgreSQL

    amount = _QUICK if bench.effort is QUICK else Amount()
    peer = _peer_server() if any(tool.name == PEER for tool in bench.tools) else None
    with (
        tempfile.TemporaryDirectory(prefix="zeus-jobs-") as scratch,
        contextlib.ExitStack() as ends,
    ):
        server = PostgreSQL.start()
        ends.callback(server.stop)
        yield from _throughput(Path(scratch), server, peer, amount)


def _throughput(scratch: Path, server: Any, peer: Tool | None, amount: Amount) -> Iterator[Row]:
    for kind in ("SQLite", "PostgreSQL"):
        rounds = _Rounds(scratch, server, kind, amount)
        tools: dict[str, Callable[[int], dict[str, Any]]] = {
            OURS: partial(rounds.ours, "ours"),
            "ours, policy of the paper": partial(rounds.ours, "ours-paper"),
        }
        if peer is not None and not peer.error:
            tools[PEER] = partial(rounds.theirs, peer)
        found: dict[str, list[dict[str, Any]]] = {label: [] for label in tools}
        for turn in range(amount.turns):
            for label, run in tools.items():
                found[label].append(run(turn))
                say(f"  {kind}, {label}: {found[label][-1]}")
        yield from _throughput_rows(kind, found, peer, amount)


def _throughput_rows(
    kind: str, found: dict[str, list[dict[str, Any]]], peer: Tool | None, amount: Amount
) -> Iterator[Row]:
    case = f"{kind}, {amount.clients} clients, one server process"
    rates = {
        label: [each["round_trips"] / each["seconds"] for each in given]
        for label, given in found.items()
    }
    milliseconds = {label: 1e3 / statistics.median(each) for label, each in rates.items()}
    target = milliseconds[PEER] / 5 if PEER in milliseconds else None
    failed = peer is not None and peer.error
    more: dict[str, Any] = {"errors": {PEER: failed}} if failed else {}
    yield row(
        ROUND_TRIPS,
        "time of a round trip (decision and report), all clients together",
        case,
        "ms",
        milliseconds,
        target=target,
        per_second={label: statistics.median(each) for label, each in rates.items()},
        turns=rates,
        # Of the server's own process: that of PostgreSQL comes on top.
        server_cpu_milliseconds={
            label: 1e3 * statistics.median(each["cpu"] / each["round_trips"] for each in given)
            for label, given in found.items()
        },
        wrong={label: sum(each["wrong"] for each in given) for label, given in found.items()},
        **more,
    )
    setup = {
        label: statistics.median(each["setup"] for each in given) for label, given in found.items()
    }
    yield row(ROUND_TRIPS, "nothing to first decision", case, "s", setup)


@dataclass(frozen=True)
class _Rounds:
    """One kind of storage; every turn has an empty one."""

    scratch: Path
    server: Any
    kind: str
    amount: Amount

    def ours(self, who: str, turn: int) -> dict[str, Any]:
        """Measure our server."""
        storage = f"sqlite:///{self.scratch}/{who}-{turn}.db"
        if self.kind == "PostgreSQL":
            storage = self.server.new_storage()
        port = _free_port()
        # The peer knows no tokens.
        command = [sys.executable, "-m", "zeus", "serve", "--no-token", "--storage", storage]
        return _measured([*command, "--port", str(port)], {}, who, port, self.amount)

    def theirs(self, peer: Tool, turn: int) -> dict[str, Any]:
        """Measure the peer's."""
        url = f"sqlite+aiosqlite:///{self.scratch}/peer-{turn}.db"
        if self.kind == "PostgreSQL":
            import psycopg

            name = f"peer_{turn}"
            with psycopg.connect(self.server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            url = f"postgresql+asyncpg://zeus@/{name}?host={self.server.url.partition('host=')[2]}"
        port = _free_port()
        variables = {"ZEUS_BSO_DATABASE_URL": url, "ZEUS_BSO_LOG_LEVEL": "WARN"}
        variables["PYTHONPATH"] = ""  # it may lead to our package, whose name is the same
        # The tables must be made by hand, and their making is a part of setting it up.
        program = f"exec({_CREATE!r}); import uvicorn; uvicorn.run("
        program += f"'zeus.optimizer.batch_size.server.router:app', port={port}, access_log=False, "
        program += "log_level='error')"
        return _measured([str(peer.python), "-c", program], variables, PEER, port, self.amount)


def _measured(
    command: list[str], variables: dict[str, str], who: str, port: int, amount: Amount
) -> dict[str, Any]:
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _await_port(process, port)
        first = _load(who, port, 1, 0.01)
        setup = time.monotonic() - began - first["seconds"]
        before = _cpu_seconds(process.pid)
        load = _load(who, port, amount.clients, amount.seconds)
        return {**load, "cpu": _cpu_seconds(process.pid) - before, "setup": setup}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _load(who: str, port: int, clients: int, seconds: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(_LOAD), who, str(port), str(clients), str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + 120,
        check=True,
    )
    return json.loads(done.stdout)


def _cpu_seconds(process: int) -> float:
    """What a process has used of the processor so far; a busy machine does not change that."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _await_port(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(f"no server: {process.stderr.read()[-2000:]}")
        time.sleep(0.01)
    raise RuntimeError("no server within a minute")


def _peer_server() -> Tool:
    """The peer with its server, which needs an older pydantic than the rest of it."""
    distribution, version = PEERS[PEER]
    python = PEER_FOLDER / f"{PEER}-server" / "bin" / "python"
    try:
        if not python.exists() or version_of(python, distribution) != version:
            say(f"installing {distribution}[bso-server] {version}")
            make = [sys.executable, "-m", "venv", "--clear", str(python.parents[1])]
            subprocess.run(make, check=True, capture_output=True, text=True)
            drivers = ("aiosqlite", "asyncpg", "greenlet")
            pip(python, "install", f"{distribution}[bso-server]=={version}", *drivers)
    except (OSError, subprocess.SubprocessError) as error:
        return Tool(PEER, distribution, python, error=why(error))
    return Tool(PEER, distribution, python, version)


# --- crashes ------------------------------------------------------------------------------------


def _kills(scratch: Path, server: Any, amount: Amount) -> Iterator[Row]:
    from tests.server.storm import storm

    for kind in ("SQLite", "PostgreSQL"):
        storage = f"sqlite:///{scratch}/storm.db" if kind == "SQLite" else server.new_storage()
        toll = storm(storage, amount.kills, amount.reports, seed=len(kind), jobs=50)
        say(f"  {kind}: {toll}")
        yield row(
            TASK,
            "reports lost, counted twice or changed by kill -9 of the server",
            f"{kind}, {toll.rounds} kills under {amount.reports} concurrent reports each",
            "reports",
            {OURS: float(toll.lost + toll.twice + toll.other + len(toll.problems))},
            target=0.0,
            acknowledged=toll.reports,
            sent_again=toll.repeated,
            problems=toll.problems,
        )


# --- a large store ------------------------------------------------------------------------------


def _large(scratch: Path, server: Any, amount: Amount) -> Iterator[Row]:
    kinds: dict[str, Callable[[str], str]] = {
        "SQLite": lambda name: f"sqlite:///{scratch}/{name}.db",
        "PostgreSQL": lambda _: server.new_storage(),
    }

    def filled(kind: str) -> tuple[str, list[str]]:
        large = kinds[kind]("large")
        began = time.monotonic()
        names = _fill(large, amount.jobs, amount.trials)
        took = time.monotonic() - began
        say(f"  {kind}: {amount.jobs} jobs x {amount.trials} trials in {took:.0f} s")
        return large, names

    # Most of it is work of the databases, which need not wait for each other.
    with ThreadPoolExecutor() as threads:
        stores = dict(zip(kinds, threads.map(filled, kinds), strict=True))
    for kind, (large, names) in stores.items():
        chosen = random.Random(1).sample(names, amount.decisions)
        case = f"{kind}, {amount.jobs} jobs x {amount.trials} trials"
        yield from _decision_rows(case, kinds[kind]("empty"), large, chosen)


def _decision_rows(case: str, empty: str, large: str, names: list[str]) -> Iterator[Row]:
    """Decisions in both stores by turns, so that a busy machine is busy for all of them."""
    from zeus.optimizer.batch_size.storage._service import Jobs
    from zeus.store import Store

    there, here = Jobs(Store(empty)), Jobs(Store(large))
    base, cold, new = _Decisions(there), _Decisions(here), _Decisions(here)
    for name in names:
        base.decide()
        cold.decide(name)
        base.decide()
        new.decide()
    for jobs in (there, here):
        jobs.close()
    for found, words in (
        (cold, "each for another job, of which nothing is in memory"),
        (new, "each for a new job"),
    ):
        yield row(
            TASK,
            "time of a decision, in that in an empty store",
            f"{case}; {words}",
            "x",
            {OURS: statistics.median(found.times) / statistics.median(base.times)},
            target=2.0,
            of_cpu_time=statistics.median(found.cpu) / statistics.median(base.cpu),
            milliseconds={
                "empty store": 1e3 * statistics.median(base.times),
                "median": 1e3 * statistics.median(found.times),
                "95th percentile": 1e3 * percentile(found.times, 0.95),
                "empty store, CPU": 1e3 * statistics.median(base.cpu),
                "median, CPU": 1e3 * statistics.median(found.cpu),
            },
        )


def _spec(name: str) -> Any:
    from zeus.optimizer.batch_size.job._spec import JobSpec

    return JobSpec(
        name=name,
        batch_sizes=(8, 16, 32, 64, 128, 256, 512, 1024),
        default_batch_size=64,
        target_metric=0.9,
    )


class _Decisions:
    """Seconds that decisions take, and those of them that this process computes."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs
        self.times: list[float] = []
        self.cpu: list[float] = []

    def decide(self, name: str | None = None) -> None:
        """Decide for a job; by default for a new one."""
        from zeus.optimizer.batch_size.api._commands import CreateJob, Decide

        if name is None:
            name = f"new {len(self.times)}"
            self._jobs.do(CreateJob(spec=_spec(name)))
        began, used = time.perf_counter(), time.process_time()
        self._jobs.do(Decide(job=name, gpu="NVIDIA A40", max_power=300.0))
        self.cpu.append(time.process_time() - used)
        self.times.append(time.perf_counter() - began)


def _fill(storage: str, count: int, trials: int) -> list[str]:
    """Copy a job with so many trials so many times; the names of the copies."""
    from zeus.optimizer.batch_size.api._commands import CreateJob, Decide, ReportEpoch
    from zeus.optimizer.batch_size.storage._service import Jobs
    from zeus.store import Store

    store = Store(storage)
    jobs = Jobs(store)
    jobs.do(CreateJob(spec=_spec("template")))
    chance = random.Random(0)
    for _ in range(trials):
        decision = jobs.do(Decide(job="template", gpu="NVIDIA A40", max_power=300.0))
        energy = 2000 + abs(decision.batch_size - 100) * chance.uniform(5, 10)
        jobs.do(ReportEpoch(trial=decision.trial, epoch=1, time=10.0, energy=energy, metric=0.95))
    names = [f"copy {number}" for number in range(count)]
    columns = {table: _columns(store.engine, table) for table in ("zeus_jobs", *_BELONGINGS)}
    with _loading(store) as connection:
        for at in range(0, count, 2_000):
            _copy(connection, columns, names[at : at + 2_000])
    jobs.close()
    return names


_BELONGINGS = ("zeus_events", "zeus_trials", "zeus_snapshots", "zeus_accounts")


@contextlib.contextmanager
def _loading(store: Any) -> Iterator[Any]:
    """A connection to write very much, with no heed to power failures and foreign keys."""
    if store.engine.dialect.name == "sqlite":
        import sqlite3

        connection: Any = sqlite3.connect(store.engine.url.database, isolation_level=None)
        before: tuple[str, ...]
        before = ("PRAGMA synchronous = OFF", "PRAGMA wal_autocheckpoint = 100000")
        after: tuple[str, ...] = ("PRAGMA wal_checkpoint(TRUNCATE)",)
    else:
        import psycopg

        url = store.engine.url.set(drivername="postgresql")
        connection = psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
        before = (
            "ALTER SYSTEM SET max_wal_size = '8GB'",
            "SELECT pg_reload_conf()",
            "SET session_replication_role = replica",
            "SET synchronous_commit = off",
            "SET work_mem = '256MB'",
        )
        # As after years, and not minutes, of life.
        after = ("VACUUM ANALYZE", "CHECKPOINT")
    with contextlib.closing(connection):
        for statement in before:
            connection.execute(statement)
        yield connection
        for statement in after:
            connection.execute(statement)


def _copy(connection: Any, columns: dict[str, list[str]], names: Sequence[str]) -> None:
    """Copy the first job under other names, which are our own and need no quotes."""
    connection.execute("BEGIN")
    (last,) = connection.execute("SELECT max(id) FROM zeus_jobs").fetchone()
    rest = ", ".join(c for c in columns["zeus_jobs"] if c not in ("name", "spec"))
    listed = ", ".join(f"('{name}')" for name in names)
    connection.execute(
        f"WITH n (name) AS (VALUES {listed}) INSERT INTO zeus_jobs (name, spec, {rest}) "
        "SELECT n.name, replace(j.spec, '\"template\"', '\"' || n.name || '\"'), "
        + ", ".join(f"j.{c}" for c in rest.split(", "))
        + " FROM n CROSS JOIN zeus_jobs j WHERE j.id = 1"
    )
    for table in _BELONGINGS:
        rest = ", ".join(columns[table])
        listed = ", ".join(f"e.{column}" for column in columns[table])
        connection.execute(
            f"INSERT INTO {table} (job, {rest}) SELECT j.id, {listed} FROM zeus_jobs j "
            f"CROSS JOIN {table} e WHERE e.job = 1 AND j.id > {last} ORDER BY j.id"
        )
    connection.execute("COMMIT")


def _columns(engine: Any, table: str) -> list[str]:
    from sqlalchemy import inspect

    found = (column["name"] for column in inspect(engine).get_columns(table))
    return [name for name in found if name not in ("id", "job")]


# --- hostile requests ---------------------------------------------------------------------------


def _fuzzed(scratch: Path, amount: Amount) -> Iterator[Row]:
    from tests.server.fuzz import fuzz

    found = fuzz(scratch / "fuzz.db", amount.cases)
    say(f"  {sum(found.cases.values())} requests: {dict(found.problems)}")
    answers: dict[str, int] = {}
    for (_, status), number in found.answers.items():
        answers[str(status)] = answers.get(str(status), 0) + number
    yield row(
        TASK,
        "routes that answer wrongly or change what they may not",
        f"{sum(found.cases.values())} made-up requests, about {amount.cases} a route",
        "routes",
        {OURS: float(len(found.problems))},
        target=0.0,
        cases=dict(found.cases),
        answers=answers,
        problems=found.problems,
        failures=found.failures,
    )

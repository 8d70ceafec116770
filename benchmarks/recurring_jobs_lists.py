"""Lists of many recurring jobs: the time of a page, sorted and filtered, with its sums.

`python benchmarks/recurring_jobs_lists.py [JOBS]` prints the milliseconds of every kind of list, on
SQLite and on a PostgreSQL of its own.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rows import Row, percentile, row
from tools import OURS, ROOT

TASK = "recurring_jobs"
_LIMIT = 100.0  # milliseconds, within which a page is felt to come at once
_GPUS = ("NVIDIA A40", "NVIDIA H100", "Tesla V100")
_LISTS: dict[str, dict[str, Any]] = {
    "by name": {},
    "most saved": {"sort": "saved"},
    "least saved": {"sort": "saved", "reverse": True},
    "most wasted": {"sort": "wasted"},
    "last activity": {"sort": "updated"},
    "trouble first": {"sort": "trouble"},
    "by state": {"sort": "state"},
    "by batch size, last page": {"sort": "batch_size", "skip": -1},
    "most saved, one GPU model": {"sort": "saved", "gpu": _GPUS[0]},
    "most saved, one tag": {"sort": "saved", "tag": "tag 3"},
    "most saved, names that contain 77": {"sort": "saved", "text": "77"},
    "most saved, failed in the last week": {"sort": "saved", "state": "failed", "since": -1},
}


def lists(stores: dict[str, str], jobs: int, turns: int) -> Iterator[Row]:
    """Time every kind of list.

    Args:
        stores: URLs of empty stores, by their kind.
        jobs: Number of jobs.
        turns: How often each list is read.
    """
    for kind, storage in stores.items():
        times = _times(storage, jobs, turns)
        slowest = max(times, key=lambda name: statistics.median(times[name]))
        yield row(
            TASK,
            "time of a page of 50 jobs with the sums of all that match, the slowest kind of list",
            f"{kind}, {jobs} jobs; {slowest}",
            "ms",
            {OURS: 1e3 * statistics.median(times[slowest])},
            target=_LIMIT,
            medians={name: 1e3 * statistics.median(each) for name, each in times.items()},
            percentiles_95={name: 1e3 * percentile(each, 0.95) for name, each in times.items()},
        )


def _times(storage: str, jobs: int, turns: int) -> dict[str, list[float]]:
    from zeus.optimizer.batch_size.api._commands import ListJobs
    from zeus.optimizer.batch_size.storage._overview import Overviews
    from zeus.store import Store

    store = Store(storage)
    fill(store, jobs)
    overviews = Overviews(store)
    values: dict[str, Any] = {"skip": max(0, jobs - 50), "since": time.time() - 7 * 86_400}
    asked = {
        name: ListJobs(
            most=50, **{key: values[key] if each == -1 else each for key, each in query.items()}
        )
        for name, query in _LISTS.items()
    }
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(turns):
        for name, command in asked.items():
            began = time.perf_counter()
            page = overviews.jobs(command)
            times[name].append(time.perf_counter() - began)
            assert page.jobs, name
    store.close()
    return times


def fill(store: Any, count: int, seed: int = 1) -> None:
    """Write jobs with a trial each that differ in everything that lists are sorted by."""
    from zeus.optimizer.batch_size.job._spec import JobSpec
    from zeus.optimizer.batch_size.storage import Changes, writing_jobs
    from zeus.optimizer.batch_size.storage._tally import Tally

    chance, now = random.Random(seed), time.time()
    for first in range(0, count, 1_000):
        with writing_jobs(store) as transaction:
            changes = Changes()
            for number in range(first, min(count, first + 1_000)):
                spec = JobSpec(
                    name=f"job {number:06}",
                    batch_sizes=(8, 16, 32, 64, 128, 256, 512, 1024),
                    default_batch_size=64,
                    target_metric=0.9,
                )
                made = transaction.add_job(spec, now)
                assert made is not None
                _add(changes, made.id, chance, now, Tally())
                transaction.tag_job(made.id, [f"tag {number % 20}", f"team {number % 7}"])
            transaction.write(changes)


def _add(changes: Any, job: int, chance: random.Random, now: float, tally: Any) -> None:
    import json

    state = chance.choice(("converged", "converged", "converged", "failed", "stopped"))
    at = now - chance.uniform(0, 30 * 86_400)
    energy = chance.lognormvariate(14, 2)
    known = chance.random() < 0.8
    saved = energy * chance.gauss(0.2, 0.3)
    counters = {"sequence": 40, "trials": 20, "recurrences": 18, "running": 0}
    changes.jobs.append({"_id": job, "updated": at, **counters})
    changes.new_trials.append(
        {
            "job": job, "number": 20, "request": "r", "sequence": 1, "lease": 600.0,
            "recurrence": 18, "attempt": 0, "gpu": chance.choice(_GPUS), "gpus": 1,
            "max_power": 300.0, "batch_size": 2 ** chance.randrange(3, 11), "role": "exploit",
            "threshold": None, "began": at, "reason": "", "state": state, "lease_until": None,
            "ended": at, "epochs": 10, "time": 100.0, "energy": energy, "cost": energy,
            "metric": 0.9, "best": 0.9, "note": "",
        }
    )  # fmt: skip
    compared = {f"default_{each}": energy + saved if known else None for each in _CURRENCIES}
    compared |= {f"saved_{each}": saved if known else None for each in _CURRENCIES}
    changes.accounts.append(
        {
            "job": job, "sequence": 40, "tally": json.dumps(tally.to_dict()), "energy": energy,
            "time": 100.0, "cost": energy, "unmeasured": 0, "wasted": energy * chance.random(),
            "basis": "measured" if known else "", "comparison": "against the default",
            "trouble": "target not reached" if state == "failed" else "", **compared,
        }
    )  # fmt: skip


_CURRENCIES = ("energy", "time", "cost")


def main(jobs: int) -> None:
    """Print the milliseconds of every kind of list."""
    sys.path.insert(0, str(ROOT))
    from tests.postgresql import PostgreSQL

    server = PostgreSQL.start()
    try:
        with tempfile.TemporaryDirectory(prefix="zeus-lists-") as scratch:
            stores = {
                "SQLite": f"sqlite:///{Path(scratch)}/jobs.db",
                "PostgreSQL": server.new_storage(),
            }
            for found in lists(stores, jobs, 9):
                print(found["case"])
                for name, milliseconds in found["medians"].items():
                    print(f"  {name:40} {milliseconds:8.1f} ms")
    finally:
        server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)

"""The arena: what gives a model away, how good its intervals are, and what a kill loses.

    python benchmarks/arena.py [--rounds 400] [--kills 10] [--output FILE]

- `anonymity`: rounds between a fast model and a slow one that sends many words at once, over HTTP,
  each recorded as a client receives it. The accuracy of a random forest, cross-validated, that
  guesses which one is on the left from everything but the words and their number; beside it, the
  accuracy on the same models' streams as they come, which is what an arena without pacing shows.
- `coverage`: the share of true win rates inside the stated 95 % intervals, on simulated votes.
- `votes`: votes acknowledged before `kill -9` at random instants, and how many of them are missing.

Prints one JSON document. Takes about six minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.arena.processes import ArenaProcess, arena, fake_model
from tests.arena.test_anonymity import FAST, SLOW, accuracy, features, passed_on, received
from tests.arena.test_storage import prepared

from zeus.arena._bradley_terry import Vote, win_rates
from zeus.arena._storage import ArenaStorage
from zeus.store import Store


def anonymity(folder: Path, rounds: int) -> dict[str, Any]:
    with fake_model(**FAST) as fast, fake_model(**SLOW) as slow:
        models = {"fast": fast, "slow": slow}
        with (
            arena(f"sqlite:///{folder}/a.db", models, "--max-running", "64") as running,
            ThreadPoolExecutor(18) as pool,
        ):
            found = list(pool.map(lambda number: received(running, number), range(rounds)))
        labels = [label for _, label in found]
        with ThreadPoolExecutor(18) as pool:
            naive = list(pool.map(lambda label: passed_on(fast, slow, label), labels))
    return {
        "rounds": rounds,
        "accuracy": accuracy([features(seen) for seen, _ in found], labels),
        "standard_error_of_chance": 0.5 / rounds**0.5,
        "accuracy_without_pacing": accuracy(naive, labels),
    }


def coverage() -> list[dict[str, Any]]:
    rows = []
    chance = np.random.default_rng(11)
    for models, votes in ((2, 5), (2, 30), (4, 30), (4, 200), (8, 400)):
        inside, widths = [], []
        for trial in range(150):
            strengths = chance.normal(0, 1, models)
            odds = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
            truth = (odds.sum(axis=1) - 0.5) / (models - 1)
            cast = []
            for _ in range(votes):
                one, other = (int(each) for each in chance.choice(models, 2, replace=False))
                cast.append(Vote(one, other, float(chance.random() < odds[one, other])))
            for model, rate in enumerate(win_rates(cast, models, trial)):
                if rate is not None:
                    inside.append(rate.low <= truth[model] <= rate.high)
                    widths.append(rate.high - rate.low)
        rows.append(
            {
                "models": models,
                "votes": votes,
                "coverage": float(np.mean(inside)),
                "mean_width": float(np.mean(widths)),
            }
        )
    return rows


def lost_votes(folder: Path, kills: int) -> dict[str, int]:
    storage = f"sqlite:///{folder}/kill.db"
    chance, acknowledged = random.Random(5), dict[str, str]()
    waiting = [f"round-{number}" for number in range(300 * kills)]
    store = Store(storage)
    for name in waiting:
        prepared(ArenaStorage(store), name)
    store.close()
    for _ in range(kills):
        running = ArenaProcess(storage, {"a": "http://127.0.0.1:9", "b": "http://127.0.0.1:9"})
        began = threading.Event()

        def votes(running: ArenaProcess = running, began: threading.Event = began) -> None:
            with contextlib.suppress(OSError, IndexError, ValueError, HTTPException):
                while True:
                    name, word = waiting.pop(), chance.choice(["left", "right", "tie", "bad"])
                    if running.call(f"/api/rounds/{name}/vote", {"vote": word})[0] == 200:
                        acknowledged[name] = word
                        began.set()

        threads = [threading.Thread(target=votes) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait(60)
        time.sleep(chance.uniform(0.0, 0.5))
        running.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
    store = Store(storage)
    kept = ArenaStorage(store)
    lost = sum(kept.find(name).vote != word for name, word in acknowledged.items())
    store.close()
    return {"kills": kills, "acknowledged": len(acknowledged), "lost": lost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zeus-arena-") as scratch:
        report = {
            "anonymity": anonymity(Path(scratch), arguments.rounds),
            "coverage": coverage(),
            "votes": lost_votes(Path(scratch), arguments.kills),
        }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Rounds and rows in a store, SQLite and PostgreSQL: once, complete, and never lost."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPException

import pytest
from sqlalchemy import text
from tests.arena.processes import ArenaProcess
from tests.arena.test_rounds import answer

from zeus.arena._events import Answered, Asked, Judged, Voted
from zeus.arena._rows import BoardRow, Estimate
from zeus.arena._standings_cache import BoardCache
from zeus.arena._storage import ArenaStorage
from zeus.errors import ArenaConflictError, UnknownRoundError
from zeus.store import Store


def prepared(storage: ArenaStorage, name: str) -> None:
    """A round that waits for its vote."""
    now = time.time()
    storage.append(name, Asked("why? \x00ü", "a", "b"), now)
    storage.append(name, Answered(answer("a", 5.0), answer("b", 20.0)), now)


def row(number: int, **more) -> BoardRow:
    return BoardRow(
        model=f"m{number}", source="bench", energy_per_token=Estimate(0.5, 0.4, 0.6), **more
    )


def test_a_round_is_kept(storage):
    store = Store(storage)
    kept = ArenaStorage(store)
    prepared(kept, "one")
    with pytest.raises(UnknownRoundError):
        kept.append("other", Voted("left"), time.time())
    with pytest.raises(ArenaConflictError):
        kept.append("one", Asked("again", "a", "b"), time.time())
    kept.append("one", Voted("right"), time.time())
    assert kept.append("one", Voted("right"), time.time()).vote == "right"
    kept.append("one", Judged("no"), time.time())
    store.close()

    store = Store(storage)  # as another process would
    kept = ArenaStorage(store)
    found = kept.find("one")
    assert (found.asked.prompt, found.vote, found.informed_vote) == ("why? \x00ü", "right", "left")
    assert kept.add_rows([row(1), row(2)], 1.0) == 2
    assert kept.add_rows([row(2), row(3)], 2.0) == 1
    assert [each.model for each in kept.load().rows] == ["m1", "m2", "m3"]
    assert kept.load().rows[0] == row(1)
    cache = BoardCache(kept)
    assert len(cache.read().rows) == 5
    assert kept.remove_rows("bench") == 3
    assert len(cache.read().rows) == 2
    store.close()


def test_one_vote_whichever_process_is_first(storage):
    stores = [Store(storage) for _ in range(4)]
    prepared(ArenaStorage(stores[0]), "one")
    results: list[tuple[str, bool]] = []

    def vote(store: Store, word: str) -> None:
        try:
            ArenaStorage(store).append("one", Voted(word), time.time())
            results.append((word, True))
        except ArenaConflictError:
            results.append((word, False))

    words = ("left", "right", "tie", "bad") * 3
    threads = [
        threading.Thread(target=vote, args=(stores[number % 4], word))
        for number, word in enumerate(words)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = ArenaStorage(stores[0]).find("one").vote
    assert {word for word, accepted in results if accepted} == {kept}
    assert sum(accepted for _, accepted in results) == 3
    with stores[0].reading() as connection:
        events = text("SELECT count(*) FROM zeus_arena_events WHERE kind = 'voted'")
        assert connection.execute(events).scalar() == 1
    for store in stores:
        store.close()


def test_damage_costs_only_what_is_damaged(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/a.db")
    kept = ArenaStorage(store)
    for name in ("good", "bad"):
        prepared(kept, name)
    kept.add_rows([row(1), row(2)], 1.0)
    with store.writing() as connection:
        damage = "UPDATE zeus_arena_events SET payload = '{' WHERE round = 'bad'"
        connection.execute(text(damage))
        damage = """UPDATE zeus_board_rows SET payload = '{"model": 7}' WHERE number = 1"""
        connection.execute(text(damage))
    loaded = kept.load()
    assert (len(loaded.rounds), len(loaded.rows), loaded.damaged) == (1, 1, 2)
    with store.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM zeus_arena_events")).scalar() == 4
    store.close()


def test_no_acknowledged_vote_is_lost_by_a_kill(tmp_path):
    storage = f"sqlite:///{tmp_path}/a.db"
    names = [f"round-{number}" for number in range(600)]
    store = Store(storage)
    for name in names:
        prepared(ArenaStorage(store), name)
    store.close()
    chance, waiting, acknowledged = random.Random(), list(names), {}
    for _ in range(2):
        running = ArenaProcess(storage, {"a": "http://127.0.0.1:9", "b": "http://127.0.0.1:9"})
        began = threading.Event()

        def votes(running=running, began=began) -> None:
            # Until the server is gone: its last answers may or may not arrive.
            with contextlib.suppress(OSError, IndexError, ValueError, HTTPException):
                while True:
                    name, word = waiting.pop(), chance.choice(["left", "right", "tie", "bad"])
                    status, _ = running.call(f"/api/rounds/{name}/vote", {"vote": word})
                    assert status == 200
                    acknowledged[name] = word
                    began.set()

        threads = [threading.Thread(target=votes) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert began.wait(60)
        time.sleep(chance.uniform(0.0, 0.3))
        running.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
    store = Store(storage)
    kept = {name: ArenaStorage(store).find(name).vote for name in acknowledged}
    store.close()
    assert acknowledged
    assert kept == acknowledged


def test_an_import_that_is_killed_leaves_all_rows_or_none(tmp_path, traces):
    archive = traces / "serving" / "mlenergy-v2-llm.tar.xz"
    chance = random.Random()
    for number in range(2):
        storage = f"sqlite:///{tmp_path}/{number}.db"
        command = [sys.executable, "-m", "zeus", "board", "import", str(archive)]
        process = subprocess.Popen(
            [*command, "--storage", storage], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        database = tmp_path / f"{number}.db"
        while process.poll() is None and not database.exists():
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.0, 1.0))
        process.kill()
        said, _ = process.communicate()
        store = Store(storage)
        rows = len(ArenaStorage(store).load().rows)
        store.close()
        assert rows == 314 if said else rows in (0, 314)

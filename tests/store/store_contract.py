"""What every kind of storage must do; a new kind derives from `StoreContract`.

The fixture `storage` gives the URL of an empty database of that kind, `new_storage` more of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from tests.optimizer.batch_size.histories import random_history, spec
from tests.present import present

from zeus.errors import StorageError, TokenError
from zeus.optimizer.batch_size.job._events import Decided
from zeus.optimizer.batch_size.storage import Changes, reading_jobs, writing_jobs
from zeus.store import Store, Tokens
from zeus.store._engine import open_engine, writing
from zeus.store._schema import VERSIONS, upgrade
from zeus.store._tables import VERSION_TABLE, metadata


def filled(store: Store, name: str = "nightly", seed: int = 1) -> tuple[int, list]:
    """A job with a history; its number and its events."""
    job = spec(name)
    history = random_history(job, seed, 30)
    changes = Changes()
    with writing_jobs(store) as transaction:
        row = present(transaction.add_job(job, at=10.0))
        changes.events = [(row.id, n, event) for n, event in enumerate(history, 1)]
        changes.new_trials = [
            trial_row(row.id, event) for event in history if isinstance(event, Decided)
        ]
        counters = {"trials": len(changes.new_trials), "recurrences": 1, "running": 0}
        changes.jobs = [{"id": row.id, "updated": 20.0, "sequence": len(history), **counters}]
        transaction.write(changes)
    return row.id, history


def trial_row(job: int, event: Decided, **changed) -> dict:
    return {
        "job": job,
        "number": event.trial,
        "request": event.request,
        "sequence": 1,
        "state": "running",
        "lease": 60.0,
        "lease_until": 100.0 + event.trial,
        "recurrence": event.recurrence,
        "attempt": event.attempt,
        "gpu": event.gpu,
        "gpus": event.gpus,
        "max_power": event.max_power,
        "batch_size": event.batch_size,
        "role": "explore",
        "threshold": event.threshold,
        "began": event.at,
        "ended": None,
        "epochs": 0,
        "time": 0.0,
        "energy": 0.0,
        "cost": 0.0,
        "metric": None,
        "best": None,
        "note": "",
        **changed,
    }


class StoreContract:
    """Tests; the name of a derived class starts with `Test`."""

    @pytest.fixture
    def store(self, storage):
        opened = Store(storage)
        yield opened
        opened.close()

    # --- schema ---------------------------------------------------------------------------------

    def test_the_schema_is_what_the_tables_say(self, store):
        with store.engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
            )
            assert compare_metadata(context, metadata) == []

    def test_opening_again_changes_nothing(self, store, storage):
        job, history = filled(store)
        again = Store(storage)
        with reading_jobs(again) as view:
            assert [event for _, event in view.log(job)] == history
        again.close()

    @pytest.mark.parametrize("version", VERSIONS[:-1])
    def test_an_older_schema_is_upgraded_and_keeps_its_jobs(self, storage, version):
        engine = open_engine(storage)
        with writing(engine) as connection:
            upgrade(connection, version)
            connection.execute(
                text(
                    "INSERT INTO zeus_jobs (name, spec, created, updated, sequence, trials,"
                    " recurrences, running) VALUES ('old', :spec, 1, 1, 0, 0, 0, 0)"
                ),
                {"spec": json.dumps(spec("old").to_dict())},
            )
        engine.dispose()
        store = Store(storage)
        with reading_jobs(store) as view:
            assert present(view.job("old")).spec == spec("old")
        with store.engine.connect() as connection:
            assert inspect(connection).has_table("zeus_snapshots")
        store.close()

    @pytest.mark.parametrize("version", VERSIONS[1:-1])
    def test_an_older_token_may_still_change_things(self, storage, version):
        engine = open_engine(storage)
        with writing(engine) as connection:
            upgrade(connection, version)
            connection.execute(
                text(
                    "INSERT INTO zeus_tokens (id, hash, job, note, created) "
                    "VALUES ('old', :hash, NULL, '', 1)"
                ),
                {"hash": hashlib.sha256(b"zeus_old").hexdigest()},
            )
        engine.dispose()
        store = Store(storage)
        tokens = Tokens(store)
        known = tokens.find("zeus_old")
        assert known is not None
        assert (known.id, known.read_only, known.good(2.0)) == ("old", False, True)
        secret, made = tokens.create("mine", now=2.0, read_only=True)
        assert tokens.find(secret) == made
        assert [each.read_only for each in tokens.all()] == [False, True]
        store.close()

    def test_a_newer_schema_is_refused(self, store, storage):
        with writing(store.engine) as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(
            StorageError, match=rf"schema 9999, .* up to {VERSIONS[-1]}: .* upgrade"
        ):
            Store(storage)

    def test_processes_may_open_a_new_store_at_once(self, new_storage):
        where = new_storage()
        program = "import sys; from zeus.store import Store; Store(sys.argv[1])"
        several = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program, where], stderr=subprocess.PIPE
            )
            for _ in range(3)
        ]
        for process in several:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said.decode()

    def test_tables_of_others_are_left_alone(self, storage):
        engine = open_engine(storage)
        with writing(engine) as connection:
            connection.execute(text("CREATE TABLE jobs (id INTEGER)"))
            connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
            connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
        engine.dispose()
        store = Store(storage)
        filled(store)
        with store.engine.connect() as connection:
            assert connection.execute(text("SELECT * FROM alembic_version")).scalar() == "theirs"
        store.close()

    # --- jobs and logs --------------------------------------------------------------------------

    def test_a_log_comes_back_as_it_was_written(self, store):
        job, history = filled(store)
        other, _ = filled(store, "other", seed=2)
        assert job != other
        with reading_jobs(store) as view:
            assert present(view.job("nightly")).spec == spec("nightly")
            assert [event for _, event in view.log(job)] == history
            assert [n for n, _ in view.log(job, after=10, most=5)] == [11, 12, 13, 14, 15]
            assert view.job("nobody") is None

    def test_a_log_can_be_appended_to_but_not_rewritten(self, store):
        job, history = filled(store)
        with pytest.raises(StorageError), writing_jobs(store) as transaction:
            transaction.write(Changes(events=[(job, 3, history[2])]))

    def test_what_happened_to_one_trial(self, store):
        job, history = filled(store)
        with reading_jobs(store) as view:
            found = view.events_of_trial(job, 2, first=1)
        assert found == [event for event in history if event.trial == 2]

    def test_an_error_undoes_the_whole_transaction(self, store):
        job, history = filled(store)
        twice = Changes(events=[(job, 31, history[0]), (job, 31, history[0])])

        def write_both(transaction):
            transaction.write(Changes(profiles=[profile_row(job)]))
            transaction.write(twice)

        with pytest.raises(StorageError), writing_jobs(store) as transaction:
            write_both(transaction)
        with reading_jobs(store) as view:
            assert view.profiles(job) == []
            assert len(view.log(job)) == 30

    def test_names_and_texts_have_no_limit_and_any_alphabet(self, store):
        name = "Ж名前é’%_" * 400
        with writing_jobs(store) as transaction:
            transaction.add_job(spec(name), at=1.0)
        with reading_jobs(store) as view:
            assert present(view.job(name)).name == name

    def test_a_name_is_given_once(self, store):
        filled(store)
        with writing_jobs(store) as transaction:
            assert transaction.add_job(spec("nightly"), at=1.0) is None

    def test_jobs_come_in_pages(self, store):
        with writing_jobs(store) as transaction:
            for number in range(7):
                transaction.add_job(spec(f"job {number}"), at=1.0)
        with reading_jobs(store) as view:
            first = view.jobs("", 5)
            second = view.jobs(first[-1].name, 5)
        assert [row.name for row in (*first, *second)] == [f"job {n}" for n in range(7)]

    def test_a_job_is_deleted_with_all_that_is_its_own_and_its_number_is_not_reused(self, store):
        job, _ = filled(store)
        other, _ = filled(store, "other")
        with writing_jobs(store) as transaction:
            transaction.write(
                Changes(
                    snapshots=[{"job": other, "sequence": 1, "fingerprint": "f", "state": b"s"}],
                    profiles=[profile_row(other)],
                )
            )
            transaction.delete_job(other)
        with store.engine.connect() as connection:
            for table in ("events", "trials", "snapshots", "profiles"):
                left = connection.execute(text(f"SELECT DISTINCT job FROM zeus_{table}")).scalars()
                assert set(left) <= {job}
        with writing_jobs(store) as transaction:
            assert present(transaction.add_job(spec("another"), at=1.0)).id > other

    # --- trials, profiles, snapshots ------------------------------------------------------------

    def test_requests_are_found_by_job_and_text(self, store):
        job, history = filled(store)
        other, _ = filled(store, "other")
        request = next(e.request for e in history if isinstance(e, Decided) and e.trial == 2)
        with writing_jobs(store) as transaction:
            wanted = [(job, request), (job, "unheard of"), (other, "nor this")]
            assert transaction.requested(wanted) == {(job, request): 2}
            assert transaction.requested([]) == {}

    def test_a_request_gets_one_trial(self, store):
        job, history = filled(store)
        event = next(e for e in history if isinstance(e, Decided))
        with pytest.raises(StorageError), writing_jobs(store) as transaction:
            transaction.write(Changes(new_trials=[trial_row(job, event, number=1000)]))

    def test_many_rows_are_written_at_once_whatever_is_in_them(self, store):
        job, history = filled(store)
        event = next(e for e in history if isinstance(e, Decided) and e.trial == 1)
        notes = ['"quoted"', "{a,b}", "back\\slash", "NULL", "", "two\nlines", "ünïcode 🙂", "it's"]
        numbers = [1, 0.1, None, 5e-324, 1.7976931348623157e308, -2, math.inf, 1 / 3]
        rows = [
            trial_row(job, event, number=100 + n, request=f"{n} {note}", note=note, metric=number)
            for n, (note, number) in enumerate(zip(notes, numbers, strict=True))
        ]
        with writing_jobs(store) as transaction:
            transaction.write(Changes(new_trials=rows))
            asked = [(job, row["request"]) for row in rows]
            found = transaction.requested([*asked, (job, "nothing"), (job + 1, asked[0][1])])
            assert found == {key: row["number"] for key, row in zip(asked, rows, strict=True)}
            for row in rows:
                row |= {"best": row["metric"], "metric": None, "epochs": row["number"] * 2**20}
            transaction.write(Changes(trials=rows))
        with reading_jobs(store) as view:
            stored = {row["number"]: dict(row) for row in view.trials(job, most=len(rows))}
        for row in rows:
            assert {name: stored[row["number"]][name] for name in row} == row

    def test_leases_that_passed_are_found(self, store):
        job, history = filled(store)
        other, _ = filled(store, "other")
        event = next(e for e in history if isinstance(e, Decided) and e.trial == 1)
        renewed = trial_row(job, event, lease_until=1000.0)
        with writing_jobs(store) as transaction:
            assert transaction.lapsed([job], now=103.0) == [(job, 1), (job, 2)]
            assert transaction.lapsed([job, other], now=101.5) == [(job, 1), (other, 1)]
            transaction.write(Changes(trials=[renewed]))
            assert transaction.lapsed([job], now=103.0) == [(job, 2)]
            assert set(transaction.lapsed_jobs(101.5, 10)) == {other}

    def test_trials_come_latest_first_and_in_pages(self, store):
        job, _ = filled(store)
        with reading_jobs(store) as view:
            every = [row["number"] for row in view.trials(job)]
            assert every == sorted(every, reverse=True)
            assert [row["number"] for row in view.trials(job, before=4, most=2)] == [3, 2]
            assert present(view.trial(job, 1))["lease_until"] == 101.0
            assert view.trial(job, 1000) is None

    def test_profiles_and_snapshots_replace_those_before(self, store):
        job, _ = filled(store)
        for cost in (1.0, 2.0):
            state = {"job": job, "sequence": 1, "fingerprint": "f", "state": bytes([int(cost)])}
            with writing_jobs(store) as transaction:
                transaction.write(
                    Changes(profiles=[profile_row(job, epoch_cost=cost)], snapshots=[state])
                )
        with writing_jobs(store) as transaction:
            (profile,) = transaction.profiles(job)
            assert profile["epoch_cost"] == 2.0
            assert transaction.snapshot(job, "f") == (1, b"\x02")
            assert transaction.snapshot(job, "of other code") is None

    # --- several at once ------------------------------------------------------------------------

    def test_one_at_a_time_decides_for_a_job(self, store, storage):
        filled(store)
        other = Store(storage)
        order: list[str] = []
        locked = threading.Event()

        def second() -> None:
            locked.wait()
            with writing_jobs(other) as transaction:
                transaction.lock(["nightly"], [])
                order.append("second")

        thread = threading.Thread(target=second)
        thread.start()
        with writing_jobs(store) as transaction:
            transaction.lock(["nightly"], [])
            locked.set()
            thread.join(0.3)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]
        other.close()

    def test_readers_see_one_state_and_do_not_wait(self, store, storage):
        job, history = filled(store)
        other = Store(storage)
        with reading_jobs(store) as view:
            assert len(view.log(job)) == 30
            with writing_jobs(other) as transaction:
                transaction.lock(["nightly"], [])
                transaction.write(Changes(events=[(job, 31, history[0])]))
                assert len(view.log(job)) == 30
            assert len(view.log(job)) == 30
        with reading_jobs(store) as view:
            assert len(view.log(job)) == 31
        other.close()

    # --- tokens ---------------------------------------------------------------------------------

    def test_tokens(self, store):
        tokens = Tokens(store)
        secret, token = tokens.create("nightly", now=100.0, expires=200.0, note="for cron")
        everything, _ = tokens.create(None, now=101.0)
        assert tokens.find(secret) == token
        assert tokens.find(secret[:-1]) is None
        assert tokens.find("\ud800") is None
        assert token.good(199.0)
        assert not token.good(200.0)
        assert token.allows("nightly")
        assert not token.allows("other")
        assert present(tokens.find(everything)).allows("other")
        assert [each.note for each in tokens.all()] == ["for cron", ""]
        tokens.revoke(token.id, now=150.0)
        assert not present(tokens.find(secret)).good(150.0)
        with pytest.raises(TokenError, match="no token with the id 'nobody'"):
            tokens.revoke("nobody", now=1.0)
        with store.engine.connect() as connection:
            kept = repr(connection.execute(text("SELECT * FROM zeus_tokens")).all())
        assert secret not in kept
        assert secret.removeprefix("zeus_") not in kept


def profile_row(job: int, **changed) -> dict:
    return {
        "job": job,
        "gpu": "NVIDIA A40",
        "gpus": 1,
        "batch_size": 16,
        "at": 1.0,
        "epoch_cost": None,
        "load": None,
        "power_limit": None,
        "frontier": None,
        "key": None,
        **changed,
    }

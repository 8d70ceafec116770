"""Stores: the contract over SQLite and PostgreSQL, and what is particular to each."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.present import present
from tests.store.store_contract import StoreContract, filled

from zeus.errors import StorageError
from zeus.optimizer.batch_size.storage import reading_jobs
from zeus.store import Store, default_storage
from zeus.store import _engine as engine_module
from zeus.store import _schema as schema_module
from zeus.store._engine import may_be_tried_again
from zeus.store._schema import VERSIONS


class TestStore(StoreContract):
    """Over every kind of storage that the fixture knows."""


@pytest.mark.parametrize(
    "url",
    [
        "jobs.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://root@localhost/jobs",
        "http://localhost",
        "postgresql+asyncpg://localhost/jobs",
        "",
        "sqlite:///\x00",
    ],
)
def test_other_storage_is_refused_by_name(url):
    with pytest.raises(StorageError, match=r"storage must be sqlite:///FILE|cannot be opened"):
        Store(url)


def test_a_password_is_never_shown():
    with pytest.raises(StorageError) as found:
        Store("mysql://root:s3cret@localhost/jobs")
    assert "s3cret" not in str(found.value)
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    with pytest.raises(StorageError) as found:
        Store("postgresql://zeus:s3cret@/jobs?host=/nowhere")
    assert "s3cret" not in str(found.value)
    assert not may_be_tried_again(found.value)


def test_a_file_that_cannot_be_is_an_error_in_words(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory"):
        Store(f"sqlite:///{tmp_path}/nowhere/jobs.db")
    other = tmp_path / "letter.txt"
    other.write_text("Dear all,\n" * 100)
    with pytest.raises(StorageError, match="not a database"):
        Store(f"sqlite:///{other}")
    assert other.read_text() == "Dear all,\n" * 100


def test_nobody_else_reads_a_new_file(tmp_path):
    Store(f"sqlite:///{tmp_path}/jobs.db").close()
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_default_is_a_file_among_the_state(monkeypatch):
    state = Path(os.environ["ZEUS_STATE_DIR"])
    assert default_storage() == f"sqlite:///{state}/jobs.db"
    monkeypatch.setenv("ZEUS_STORAGE", "postgresql://zeus@/jobs")
    assert default_storage() == "postgresql://zeus@/jobs"


def test_all_versions_are_shipped():
    folder = Path(schema_module.__file__).parent / "migrations" / "versions"
    shipped = sorted(path.name[1:5] for path in folder.glob("r*.py"))
    assert tuple(shipped) == VERSIONS


def test_a_crash_while_the_schema_is_made_leaves_no_part_of_it(tmp_path):
    program = """
import os, sys
from zeus.store import _schema as schema
whole = schema.upgrade
def crash(connection, version):
    whole(connection, version)
    os.kill(os.getpid(), 9)
schema.upgrade = crash
from zeus.store import Store
Store(sys.argv[1])
"""
    where = f"sqlite:///{tmp_path}/jobs.db"
    done = subprocess.run([sys.executable, "-c", program, where], check=False)
    assert done.returncode == -9
    store = Store(where)
    filled(store)
    store.close()


def test_acknowledged_transactions_survive_a_kill(storage):
    program = """
import sys
from tests.optimizer.batch_size.histories import spec
from zeus.optimizer.batch_size.storage import writing_jobs
from zeus.store import Store
store = Store(sys.argv[1])
for number in range(1000000):
    with writing_jobs(store) as transaction:
        transaction.add_job(spec(f"job {number}"), at=1.0)
    print(number, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, storage], stdout=subprocess.PIPE, text=True
    )
    for _ in range(20):
        last = present(process.stdout).readline()
    process.kill()
    rest, _ = process.communicate()
    acknowledged = int([last, *rest.splitlines()][-1])
    store = Store(storage)
    with reading_jobs(store) as view:
        found = len(view.jobs("", 1_000_000))
    store.close()
    # The one that was being written may have got there as well.
    assert acknowledged + 1 <= found <= acknowledged + 2


def test_threads_may_make_stores_at_the_same_time(tmp_path):
    ready = threading.Barrier(8)

    def make(number: int) -> tuple[int, int]:
        ready.wait(60)
        store = Store(f"sqlite:///{tmp_path}/{number}.db")
        with reading_jobs(store) as view:
            numbers = view.numbers()
        store.close()
        return numbers

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(make, range(8))) == [(0, 0)] * 8


def test_a_connection_that_broke_while_nobody_used_it_is_replaced(postgresql, monkeypatch):
    import psycopg

    def backend() -> int:
        with reading_jobs(store) as view:
            return present(view._connection.exec_driver_sql("SELECT pg_backend_pid()").scalar())

    monkeypatch.setattr(engine_module, "_TRUSTED", 0.0)
    store = Store(postgresql.new_storage())
    before = backend()
    assert backend() == before
    with psycopg.connect(postgresql.url, autocommit=True) as other:
        ended = other.execute("SELECT pg_terminate_backend(%s, 60000)", [before]).fetchone()
    assert ended == (True,)
    assert backend() != before
    store.close()


def test_without_the_extra_the_line_that_mends_it_is_said():
    program = """
import sys
sys.modules["sqlalchemy"] = None
try:
    import zeus.store
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'zeus-energy[store]'" in done.stdout

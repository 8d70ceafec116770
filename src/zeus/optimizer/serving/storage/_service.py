"""Services in a store: what their controllers report, and what people ask of them.

Nothing is kept in memory. A report is in the store when it is answered, so several servers may
share a store, and one that is killed loses nothing that it has acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zeus.errors import DamagedJobError, JobConflictError, UnknownJobError
from zeus.optimizer.serving.api._commands import (
    DeleteService,
    EndService,
    ListServices,
    OfService,
    ReportService,
    ServiceCommand,
    ShowService,
    ShowServiceHistory,
    StartService,
)
from zeus.optimizer.serving.api._messages import check_name
from zeus.optimizer.serving.api._spans import Span
from zeus.optimizer.serving.storage import _records as records
from zeus.optimizer.serving.storage import _summaries as summaries
from zeus.optimizer.serving.storage._runs import Run, Runs
from zeus.optimizer.serving.storage._service_state import PATIENCE, Service
from zeus.store._store import Store
from zeus.transport._command import Answer

_LATEST = 64  # spans, of which the latest minute is taken


class Services:
    """Services in a store: executes the commands on them.

    Safe to use from several threads and, on one store, from several processes.

    Args:
        store: The store; not closed here.
        now: Returns seconds since 1970.
    """

    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now

    def do(self, command: ServiceCommand[Answer]) -> Answer:
        """Execute a command and return its answer.

        Raises:
            ZeusError: As documented by the commands.
        """
        if isinstance(command, OfService):
            command.permit(command.service)
        answer: Answer = self._do(command)
        return answer

    def _do(self, command: ServiceCommand[Any]) -> Any:
        match command:
            case StartService():
                return self._start(command)
            case ReportService():
                return self._report(command)
            case EndService(service=name, session=session):
                return self._end(name, session)
            case ListServices(scope=scope):
                now = self._now()
                return [
                    summaries.summary(each, each.state(now), each.minute)
                    for each in self.all(scope)
                ]
            case ShowService(service=name):
                found = self.latest(name)
                return summaries.info(found, found.state(self._now()), found.minute)
            case ShowServiceHistory(service=name):
                return summaries.history(self.whole(name))
            case DeleteService(service=name):
                with self._store.writing() as connection:
                    records.forget(connection, records.get(connection, name, lock=True))
                return None
        raise TypeError(f"not a command on services: {command!r}")

    # --- reports ------------------------------------------------------------------------------

    def _start(self, command: StartService) -> None:
        name, session, at = command.service, command.start.session, self._now()
        check_name("service", name)
        run = Run(command.start, at, at)
        with self._store.writing() as connection:
            found = records.find(connection, name, lock=True)
            if found is None:
                records.create(connection, name, at, session, Runs(run))
                return
            runs = found.runs()
            if found.session == session:  # sent again, as the answer was lost
                latest = replace(runs.latest, start=command.start, heard=at)
                records.save(connection, found, at, found.number, replace(runs, latest=latest))
                return
            records.begin(connection, found, at, session, runs.followed(run))

    def _report(self, command: ReportService) -> None:
        added, at = [Span.from_dict(each) for each in command.spans], self._now()
        with self._store.writing() as connection:
            found = self._own(connection, command.service, command.session)
            if command.number <= found.number:  # sent again, as the answer was lost
                records.hear(connection, found, at)
                return
            runs = found.runs().reported(at, command.state)
            total = records.add_spans(connection, found, added)
            records.save(connection, found, at, command.number, runs)
        if total >= records.MAX_SPANS:
            self._thin(found)

    def _thin(self, row: records.Row) -> None:
        # Merging takes longer than others should wait for a transaction that writes.
        with self._store.reading() as connection:
            fewer = records.thinned(connection, row)
        with self._store.writing() as connection:
            if records.find(connection, row.name, lock=True) is not None:
                records.replace_spans(connection, row, *fewer)

    def _end(self, name: str, session: str) -> None:
        at = self._now()
        with self._store.writing() as connection:
            found = self._own(connection, name, session)
            runs = found.runs().ended(at)
            records.save(connection, found, at, found.number, runs)

    def _own(self, connection: Any, name: str, session: str) -> records.Row:
        found = records.get(connection, name, lock=True)
        if found.session != session:
            raise JobConflictError(
                f"another process controls the service {name!r} since, or reports under its name"
            )
        return found

    # --- questions ----------------------------------------------------------------------------

    def all(self, scope: str | None = None) -> list[Service]:
        """Return all services by name with their latest spans.

        Args:
            scope: The only one that may be seen; `None` for all.
        """
        with self._store.reading() as connection:
            found = sorted(records.names(connection))
        services = []
        for name in found if scope is None else {scope} & set(found):
            try:
                services.append(self.latest(name))
            except UnknownJobError:
                continue  # deleted meanwhile
            except DamagedJobError:
                services.append(Service(name, 0.0, None))
        return services

    def latest(self, name: str) -> Service:
        """Return a service with its latest spans."""
        return self._service(name, _LATEST)

    def whole(self, name: str) -> Service:
        """Return a service with all that it did."""
        return self._service(name, records.MAX_SPANS)

    def _service(self, name: str, most: int) -> Service:
        with self._store.reading() as connection:
            row = records.get(connection, name)
            found = records.spans(connection, row, most)
        return Service(name, row.heard, row.runs(), tuple(found))

    def numbers(self) -> tuple[int, int]:
        """Return the number of services, and of those that were heard of recently."""
        with self._store.reading() as connection:
            recent = records.count(connection, self._now() - PATIENCE)
            return records.count(connection), recent

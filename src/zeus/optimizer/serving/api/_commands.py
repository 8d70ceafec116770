"""Commands on services: the only description of their API; see `zeus.transport._command`.

Commands on a service raise `UnknownJobError` if none has this name, `JobConflictError` if another
process has taken the place of the calling one, and `ServiceError` if a value is invalid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic

from zeus._rules import Items, Whole
from zeus.optimizer.serving.api._answers import ServiceInfo, ServiceSummary, SpanInfo
from zeus.optimizer.serving.api._messages import Name, RunState, ServiceStart
from zeus.optimizer.serving.api._spans import Span
from zeus.transport._command import Answer, Command

MAX_SPANS = 16  # in one report: each has up to 40 kB


@dataclass(frozen=True, kw_only=True)
class ServiceCommand(Command[Answer], Generic[Answer]):
    """Base class of commands on services."""

    renamed: ClassVar = {"name": "service"}


@dataclass(frozen=True, kw_only=True)
class OfService(ServiceCommand[Answer], Generic[Answer]):
    """Base class of commands on one service."""

    service: str


# --- of the process that controls it --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StartService(OfService[None]):
    """Begin a run of a service. A process that controlled it before is refused from now on.

    The service is created if it does not exist.
    """

    method = "PUT"
    path = "/api/services/{name}"
    inline = "start"

    start: ServiceStart


@dataclass(frozen=True, kw_only=True)
class ReportService(OfService[None]):
    """Report what a service did. The report is stored when it is answered.

    Attributes:
        session: The session that the run began with.
        number: Number of the report, from 1 on. One that was stored before changes nothing, so that
            a report without an answer can be sent again.
        spans: What happened since the report before, in the order of time.
        state: Sums of the run, and what is so now.
    """

    method = "POST"
    path = "/api/services/{name}/reports"
    inline = "state"

    session: Name
    number: Annotated[int, Whole(1, 2**53)]
    spans: Annotated[list[dict[str, Any]], Items(Span, 0, MAX_SPANS)]
    state: RunState


@dataclass(frozen=True, kw_only=True)
class EndService(OfService[None]):
    """Report that a run has ended, and the previous setting is restored.

    Attributes:
        session: The session that the run began with.
    """

    method = "POST"
    path = "/api/services/{name}/end"

    session: Name


# --- of everybody ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ListServices(ServiceCommand[list[ServiceSummary]]):
    """List all services by name, or the one that the token is for."""

    method = "GET"
    path = "/api/services"


@dataclass(frozen=True, kw_only=True)
class ShowService(OfService[ServiceInfo]):
    """Return one service with its runs."""

    method = "GET"
    path = "/api/services/{name}"


@dataclass(frozen=True, kw_only=True)
class ShowServiceHistory(OfService[list[SpanInfo]]):
    """Return what a service did over time; older spans are longer."""

    method = "GET"
    path = "/api/services/{name}/history"


@dataclass(frozen=True, kw_only=True)
class DeleteService(OfService[None]):
    """Delete what is kept of a service. A process that still controls it begins a new run."""

    method = "DELETE"
    path = "/api/services/{name}"


COMMANDS: tuple[type[ServiceCommand[Any]], ...] = (
    StartService,
    ReportService,
    EndService,
    ListServices,
    ShowService,
    ShowServiceHistory,
    DeleteService,
)
"""All commands that a server accepts."""

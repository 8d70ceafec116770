"""Exceptions that Zeus raises.

Each class also derives from the builtin that fits, so `except ValueError` works as well as the
exact name::

    ZeusError (Exception)
    ├── CapabilityError (RuntimeError)      a device cannot report or do something; says why
    ├── WindowError (ValueError)            a measurement window used out of order
    ├── UnknownDeviceError (ValueError)     an index that matches no device here
    ├── KnobError (ValueError)              a knob setting outside what the device accepts
    ├── SimulationError (ValueError)        a simulated node that cannot be built as asked
    ├── LogFileError (ValueError)           a window log that cannot be read or continued
    ├── FrontierError (ValueError)          an invalid point, frontier or objective
    ├── PictureError (ValueError)           a picture of an unknown file type
    ├── ProfileError (ValueError)           a file of profiles that cannot be read
    ├── RunError (ValueError)               a call to a training run out of order or range
    ├── RanksError (RuntimeError)           processes of a job that do not respond
    ├── JobSpecError (ValueError)           an invalid specification of a recurring job
    ├── JobLogError (ValueError)            an event that cannot follow the previous ones
    ├── JobConflictError (ValueError)       a request that contradicts a job's record
    ├── UnknownJobError (LookupError)       a recurring job or trial that does not exist
    ├── DamagedJobError (RuntimeError)      a job whose record cannot be read; says which, and why
    ├── StorageError (RuntimeError)         a store of jobs that cannot be opened or used; says why
    │   └── StorageUrlError (ValueError)    a URL that is not one of a store
    ├── TokenError (PermissionError)        a token that is missing, wrong, or for another job
    ├── ServerError (ConnectionError)       a Zeus server unreachable, or its answer invalid
    ├── BackendError (ConnectionError)      a model server unreachable, or its answer invalid
    ├── RequestError (ValueError)           a request that a Zeus server finds malformed
    ├── TraceError (ValueError)             a recorded trace that cannot be replayed; file and line
    ├── WorkerError (RuntimeError)          a replay process that died or is unreachable
    ├── StageProfileError (ValueError)      a pipeline's profile that cannot be used; file and line
    ├── PipelineError (ValueError)          an invalid pipeline or schedule
    ├── ServiceError (ValueError)           an invalid report about an inference service
    ├── NativeCodeError (RuntimeError)      compiled code missing and not buildable here
    ├── ArenaError (ValueError)             an invalid prompt, vote, round or row of the board
    │   ├── ArenaConflictError              an event that contradicts a round's record
    │   └── UnknownRoundError (LookupError) a round that does not exist
    ├── ReportError (ValueError)            a shared report of `zeus verify` that cannot be read
    ├── TelemetryError (RuntimeError)       metrics that cannot be published as asked; says why
    ├── ExtensionError (ValueError)         an extension that cannot be used; says why
    ├── FrameworkError (RuntimeError)       a framework that lacks something; what, version
    └── MissingExtraError (ImportError)     an optional dependency, with the line that installs it
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a device cannot report or do something."""

    UNSUPPORTED = "unsupported"
    NO_PERMISSION = "no permission"
    DRIVER_ABSENT = "driver absent"
    LOST = "device lost"
    HANGS = "driver call hangs"
    IMPLAUSIBLE = "implausible value"
    BLOCKED = "blocked by another process"
    UNREADABLE = "unreadable record"


class ZeusError(Exception):
    """Base of all exceptions raised by Zeus."""


class CapabilityError(ZeusError, RuntimeError):
    """A device cannot report or do something.

    Attributes:
        reason: The kind of obstacle.
        detail: The attempted operation and its result.
        cure: How to fix it, often a command; empty if there is no fix.
    """

    def __init__(self, reason: Reason, detail: str, cure: str = "") -> None:
        self.reason = reason
        self.detail = detail
        self.cure = cure
        super().__init__(f"{reason}: {detail}" + (f" ({cure})" if cure else ""))

    def __reduce__(self) -> tuple[object, ...]:  # a worker process hands it to its parent
        return type(self), (self.reason, self.detail, self.cure)

    def fresh(self) -> CapabilityError:
        """Return a copy without the traceback, which would keep devices alive and open."""
        return CapabilityError(self.reason, self.detail, self.cure)


class WindowError(ZeusError, ValueError):
    """A window was begun twice or ended without having been begun."""


class UnknownDeviceError(ZeusError, ValueError):
    """An index matches no device of this machine."""


class KnobError(ZeusError, ValueError):
    """A knob setting is outside the range that the device accepts."""


class SimulationError(ZeusError, ValueError):
    """A simulated node cannot be built or run as asked."""


class LogFileError(ZeusError, ValueError):
    """A window log cannot be read, or this monitor cannot append to it."""


class FrontierError(ZeusError, ValueError):
    """A point, a frontier or an objective breaks a rule; says which, and the value."""


class PictureError(ZeusError, ValueError):
    """A picture was requested in an unknown file type."""


class ProfileError(ZeusError, ValueError):
    """A file of profiles cannot be read; says where and why."""


class RunError(ZeusError, ValueError):
    """A training run was called out of order or with a value out of range."""


class RanksError(ZeusError, RuntimeError):
    """Processes of one job do not respond to each other."""


class JobSpecError(ZeusError, ValueError):
    """A recurring job's specification breaks a rule; says which, and the value."""


class JobLogError(ZeusError, ValueError):
    """An event of a recurring job breaks a rule, or cannot follow the previous ones."""


class JobConflictError(ZeusError, ValueError):
    """A request contradicts the record of a recurring job; says where."""


class UnknownJobError(ZeusError, LookupError):
    """There is no such recurring job, or no such trial of one."""


class DamagedJobError(ZeusError, RuntimeError):
    """A job's record in a store cannot be read; says which job, and where."""


class StorageError(ZeusError, RuntimeError):
    """A store of recurring jobs cannot be opened or used; says why."""


class StorageUrlError(StorageError, ValueError):
    """The URL of a store has another form; says which one it must have."""


class TokenError(ZeusError, PermissionError):
    """A token is missing, wrong, expired, or for another job."""


class ServerError(ZeusError, ConnectionError):
    """A Zeus server cannot be reached, or its answer is invalid."""


class BackendError(ZeusError, ConnectionError):
    """A server of language models cannot be reached, refuses, or its answer is invalid.

    Attributes:
        status: HTTP status of its answer; `None` if there was none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class RequestError(ZeusError, ValueError):
    """A request to a Zeus server is malformed; says which value breaks which rule."""


class TraceError(ZeusError, ValueError):
    """A recorded trace cannot be read or replayed; says the file and the line."""


class WorkerError(ZeusError, RuntimeError):
    """A process that replays jobs ended early, or cannot be reached."""


class StageProfileError(ZeusError, ValueError):
    """A profile of a pipeline's stages cannot be used; says where, and the value."""


class PipelineError(ZeusError, ValueError):
    """A pipeline, its schedule or a request breaks a rule; says which, and the value."""


class ServiceError(ZeusError, ValueError):
    """A report about an inference service breaks a rule; says which, and the value."""


class NativeCodeError(ZeusError, RuntimeError):
    """Compiled code was not shipped and cannot be built here; says what is missing and the fix."""


class ExtensionError(ZeusError, ValueError):
    """What another distribution adds to a registry of Zeus cannot be used; says why."""


class FrameworkError(ZeusError, RuntimeError):
    """A framework lacks something an integration relies on; says what, and the version."""


class ArenaError(ZeusError, ValueError):
    """A prompt, a vote, or a stored round or row of the arena is invalid."""


class ArenaConflictError(ArenaError):
    """An event of a round conflicts with what is recorded, such as a second vote."""


class UnknownRoundError(ArenaError, LookupError):
    """There is no round of this name."""


class ReportError(ZeusError, ValueError):
    """A shared report of `zeus verify` cannot be read; says why."""


class TelemetryError(ZeusError, RuntimeError):
    """Metrics cannot be published as asked: an address in use, a directory that is missing."""


class MissingExtraError(ZeusError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, *extras: str) -> None:
        from zeus._installation import add_extras  # noqa: PLC0415  (for an error only)

        self._given = (what, *extras)
        named = " and ".join(f"`{extra}`" for extra in extras)
        super().__init__(
            f"{what} needs the extra{'s' if len(extras) > 1 else ''} {named}: "
            + add_extras(*extras)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._given

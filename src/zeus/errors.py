"""Everything Zeus raises on purpose.

Each class is also the builtin a caller would expect, so `except ValueError` works as well as
the exact name::

    ZeusError (Exception)
    ├── CapabilityError (RuntimeError)      a device cannot tell or do something; says why
    ├── WindowError (ValueError)            a measurement window used out of order
    ├── UnknownDeviceError (ValueError)     an index that names no device here
    ├── KnobError (ValueError)              a knob setting outside what the device accepts
    ├── SimulationError (ValueError)        a simulated node that cannot be built as asked
    ├── LogFileError (ValueError)           a window log that cannot be read or continued
    ├── FrontierError (ValueError)          points or objectives that break their rules
    ├── PictureError (ValueError)           a picture of a kind that there is not
    ├── ProfileError (ValueError)           a file of profiles that is not one
    ├── RunError (ValueError)               a training run told something out of order or range
    ├── RanksError (RuntimeError)           processes of a job that do not answer each other
    ├── JobSpecError (ValueError)           a recurring job that breaks its rules
    ├── JobLogError (ValueError)            an event that cannot follow those before it
    ├── JobConflictError (ValueError)       what contradicts what is recorded of a recurring job
    ├── UnknownJobError (LookupError)       a recurring job, or a trial of one, that is not there
    ├── DamagedJobError (RuntimeError)      a job whose record cannot be read; says which, and why
    ├── StorageError (RuntimeError)         a store of jobs that cannot be opened or used; says why
    ├── TokenError (PermissionError)        a token that is missing, wrong, or for another job
    ├── ServerError (ConnectionError)       a Zeus server that cannot be reached, or answers wrongly
    ├── RequestError (ValueError)           a request whose form a Zeus server does not accept
    ├── TraceError (ValueError)             a recorded trace that cannot be replayed; file and line
    ├── WorkerError (RuntimeError)          processes that replay jobs and are gone, or not there
    ├── StageProfileError (ValueError)      a pipeline's profile that cannot be used; file and line
    ├── PipelineError (ValueError)          a pipeline or schedule that breaks a rule
    ├── NativeCodeError (RuntimeError)      compiled code that is not there and cannot be built
    ├── FrameworkError (RuntimeError)       a framework that is not as Zeus knows it; what, version
    └── MissingExtraError (ImportError)     an optional dependency, with the line that installs it
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a device cannot tell or do something."""

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
        detail: What was tried and what came back.
        cure: The line that mends it, or an empty string if nothing does.
    """

    def __init__(self, reason: Reason, detail: str, cure: str = "") -> None:
        self.reason = reason
        self.detail = detail
        self.cure = cure
        super().__init__(f"{reason}: {detail}" + (f" ({cure})" if cure else ""))


class WindowError(ZeusError, ValueError):
    """A window was begun twice or ended without having been begun."""


class UnknownDeviceError(ZeusError, ValueError):
    """An index names no device of this machine."""


class KnobError(ZeusError, ValueError):
    """A knob setting lies outside what the device accepts."""


class SimulationError(ZeusError, ValueError):
    """A simulated node cannot be built or run as asked."""


class LogFileError(ZeusError, ValueError):
    """A window log cannot be read, or not be continued by this monitor."""


class FrontierError(ZeusError, ValueError):
    """A point, a frontier or an objective breaks a rule; says which, and the value."""


class PictureError(ZeusError, ValueError):
    """A picture is asked for of a kind that there is not."""


class ProfileError(ZeusError, ValueError):
    """A file of profiles cannot be read; says where and why."""


class RunError(ZeusError, ValueError):
    """A training run was asked or told something that breaks its rules."""


class RanksError(ZeusError, RuntimeError):
    """Processes of one job do not answer each other."""


class JobSpecError(ZeusError, ValueError):
    """A recurring job's specification breaks a rule; says which, and the value."""


class JobLogError(ZeusError, ValueError):
    """An event of a recurring job breaks a rule, or cannot follow those before it."""


class JobConflictError(ZeusError, ValueError):
    """What was said contradicts what is recorded of a recurring job; says where."""


class UnknownJobError(ZeusError, LookupError):
    """There is no such recurring job, or no such trial of one."""


class DamagedJobError(ZeusError, RuntimeError):
    """What a store has recorded of a job cannot be read; says which job, and where."""


class StorageError(ZeusError, RuntimeError):
    """A store of recurring jobs cannot be opened or used; says why."""


class TokenError(ZeusError, PermissionError):
    """A token is missing, wrong, expired, or for another job."""


class ServerError(ZeusError, ConnectionError):
    """A Zeus server cannot be reached, or its answer makes no sense."""


class RequestError(ZeusError, ValueError):
    """A Zeus server does not accept the form of a request; says which value breaks which rule."""


class TraceError(ZeusError, ValueError):
    """A recorded trace cannot be read or replayed; says the file and the line."""


class WorkerError(ZeusError, RuntimeError):
    """A process that replays jobs has ended before its work, or cannot be reached."""


class StageProfileError(ZeusError, ValueError):
    """What was measured of a pipeline's stages cannot be used; says where, and the value."""


class PipelineError(ZeusError, ValueError):
    """A pipeline, its schedule or what is asked of it breaks a rule; says which, and the value."""


class NativeCodeError(ZeusError, RuntimeError):
    """Compiled code was not shipped and cannot be built here; says what is missing and the cure."""


class FrameworkError(ZeusError, RuntimeError):
    """A framework lacks what an integration relies upon; says what, and the version."""


class MissingExtraError(ZeusError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, *extras: str) -> None:
        named = " and ".join(f"`{extra}`" for extra in extras)
        super().__init__(
            f"{what} needs the extra{'s' if len(extras) > 1 else ''} {named}: "
            f"pip install 'zeus-energy[{','.join(extras)}]'"
        )

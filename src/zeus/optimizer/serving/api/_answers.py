"""Answers to the commands on services, as records of plain values."""

from __future__ import annotations

from typing import TypedDict


class SettingInfo(TypedDict):
    """A setting of each phase: MHz of a clock, or watts of a power limit."""

    prefill: float
    decode: float


class SavingInfo(TypedDict):
    """Shares of energy that are saved.

    `predicted`: at the chosen settings, against the highest one; both predicted. `measured`: what
    was measured, against what is predicted at the highest setting; null while nothing is changed.
    """

    predicted: float | None
    measured: float | None


class KeptInfo(TypedDict):
    """Requests in a span of time, by one of the bounds.

    `measured` is the percentile in seconds, `above` the share of requests that took longer than the
    bound. `kept` is null without requests.
    """

    measured: float | None
    requests: float
    above: float
    kept: bool | None


class BoundInfo(TypedDict):
    """A bound, the latest minute, and the run; `minutes` are those with requests.

    `latency`, `percent` and `seconds` are what is bounded and how.
    """

    latency: str
    percent: float
    seconds: float
    now: KeptInfo
    run: KeptInfo
    minutes: int
    minutes_kept: int


class NowInfo(TypedDict):
    """The latest minute of a service, up to `end`, in seconds since 1970.

    `power` is in watts, tokens and requests are per second, `running` and `waiting` are means, and
    `threatened` the share of time before which a bound was threatened.
    """

    end: float
    power: float | None
    joules_per_token: float | None
    prompt_tokens: float
    generated_tokens: float
    arrived: float
    running: float
    waiting: float
    threatened: float


class RunInfo(TypedDict):
    """A run: from the begin of a process that controls the service to its end.

    Instants are in seconds since 1970. `ended` is null for one that has not said so: it goes on, or
    was killed. `energy` is in joules, null if it was not measured; `bounds_kept` counts the bounds
    that were kept over the run, of those that had requests (`bounds`).
    """

    began: float
    heard: float
    ended: float | None
    seconds: float
    requests: float
    generated_tokens: float
    energy: float | None
    joules_per_token: float | None
    saving: SavingInfo
    bounds: int
    bounds_kept: int


class ServiceSummary(TypedDict):
    """A service.

    `state` is "controlled" or "observed" while reports come, "silent" once none has come for a
    while, and "ended". `heard` is when the last one came, in seconds since 1970. `energy` is in
    joules, over all runs. `setting` is in force, or would be if the service is only observed
    (`observe`).
    """

    name: str
    state: str
    observe: bool
    model: str
    host: str
    heard: float
    setting: SettingInfo | None
    knob: str
    threatened: bool
    trouble: str
    bounds: list[BoundInfo]
    now: NowInfo | None
    saving: SavingInfo
    energy: float


class ServiceInfo(ServiceSummary):
    """A service, who controls it, and its runs, the latest first."""

    engine: str
    where: str
    gpu: str
    gpus: int
    highest: float
    lowest: float
    phases: bool
    interval: float
    reason: str
    runs: list[RunInfo]


class SpanInfo(TypedDict):
    """A service from `begin` to `end`, in seconds since 1970; older spans are longer.

    `power` is in watts, tokens are per second, and latencies are those of the present bounds, in
    their order; null without requests.
    """

    begin: float
    end: float
    seconds: float
    setting: SettingInfo
    power: float | None
    joules_per_token: float | None
    prompt_tokens: float
    generated_tokens: float
    running: float
    waiting: float
    threatened: float
    saving: SavingInfo
    latencies: list[float | None]

"""Answers about services: what people and programs see of them."""

from __future__ import annotations

from typing import Any

from zeus.optimizer.serving._bounds import Bound
from zeus.optimizer.serving._report import Forecast
from zeus.optimizer.serving.api._messages import BoundKept, RunState
from zeus.optimizer.serving.api._spans import Span
from zeus.optimizer.serving.storage._runs import Run
from zeus.optimizer.serving.storage._service_state import Service


def summary(service: Service, state: str, minute: Span | None) -> dict[str, Any]:
    """Return a `ServiceSummary`.

    Args:
        service: The service.
        state: What it does.
        minute: Its latest minute.
    """
    if service.runs is None:
        return {
            "name": service.name,
            "state": state,
            "observe": False,
            "model": "",
            "host": "",
            "heard": service.heard,
            "setting": None,
            "knob": "clock",
            "threatened": False,
            "trouble": "its record in the store is damaged and cannot be read",
            "bounds": [],
            "now": None,
            "saving": saving(Forecast()),
            "energy": 0.0,
        }
    run = service.runs.latest
    now, start = run.state, run.start
    return {
        "name": service.name,
        "state": state,
        "observe": start.observe,
        "model": start.model,
        "host": start.host,
        "heard": service.heard,
        "setting": setting(now.prefill, now.decode) if now.decode else None,
        "knob": start.knob,
        "threatened": now.threatened,
        "trouble": now.trouble,
        "bounds": bounds(run, minute),
        "now": None if minute is None else _now(minute),
        "saving": saving(now.forecast, observe=start.observe),
        "energy": service.runs.totals.energy,
    }


def info(service: Service, state: str, minute: Span | None) -> dict[str, Any]:
    """Return a `ServiceInfo`; see `summary`."""
    assert service.runs is not None
    run = service.runs.latest
    start = run.start
    return {
        **summary(service, state, minute),
        "engine": start.engine,
        "where": start.where,
        "gpu": start.gpu,
        "gpus": start.gpus,
        "highest": start.highest,
        "lowest": start.lowest,
        "phases": start.phases,
        "interval": start.interval,
        "reason": run.state.reason,
        "runs": [_run_info(each) for each in (run, *service.runs.past)],
    }


def history(service: Service) -> list[dict[str, Any]]:
    """Return the `SpanInfo` of each span."""
    assert service.runs is not None
    start = service.runs.latest.start
    bounded = [each.bound() for each in start.bounds]
    return [
        {
            "begin": each.begin,
            "end": each.end,
            "seconds": each.seconds,
            "setting": setting(each.prefill, each.decode),
            "power": each.power,
            "joules_per_token": each.joules_per_token,
            **_rates(each),
            "running": each.running,
            "waiting": each.waiting,
            "threatened": share(each.threatened, each.seconds),
            "saving": saving(forecast(each), observe=start.observe),
            "latencies": [each.percentile(bound) for bound in bounded],
        }
        for each in service.spans
    ]


def bounds(run: Run, minute: Span | None) -> list[dict[str, Any]]:
    """Return the `BoundInfo` of each bound."""
    found = []
    for place, each in enumerate(run.start.bounds):
        kept = run.state.bounds[place] if place < len(run.state.bounds) else BoundKept()
        bound = each.bound()
        found.append(
            {
                "latency": each.latency,
                "percent": each.percent,
                "seconds": each.seconds,
                "now": _kept_now(bound, minute),
                "run": _kept(bound, kept.measured, kept.requests, kept.above),
                "minutes": kept.minutes,
                "minutes_kept": kept.minutes_kept,
            }
        )
    return found


def setting(prefill: float, decode: float) -> dict[str, float]:
    """Return a `SettingInfo`."""
    return {"prefill": prefill, "decode": decode}


def forecast(span: Span) -> Forecast:
    """Return what was predicted of a span, with what was measured."""
    return Forecast(span.highest, span.chosen, span.measured, span.compared)


def saving(found: Forecast, *, observe: bool = False) -> dict[str, float | None]:
    """Return a `SavingInfo`."""
    measured = None if observe else found.measured_saving
    return {"predicted": found.predicted_saving, "measured": measured}


def share(part: float, whole: float) -> float:
    """Return a share, at most 1; 0 of nothing."""
    return min(part / whole, 1.0) if whole > 0 else 0.0


def _now(minute: Span) -> dict[str, Any]:
    return {
        "end": minute.end,
        "power": minute.power,
        "joules_per_token": minute.joules_per_token,
        **_rates(minute),
        "arrived": minute.arrived / max(minute.seconds, 1e-3),
        "running": minute.running,
        "waiting": minute.waiting,
        "threatened": share(minute.threatened, minute.seconds),
    }


def _rates(span: Span) -> dict[str, float]:
    seconds = max(span.seconds, 1e-3)
    return {
        "prompt_tokens": span.prompt_tokens / seconds,
        "generated_tokens": span.generated_tokens / seconds,
    }


def _kept_now(bound: Bound, minute: Span | None) -> dict[str, Any]:
    counted = None if minute is None else minute.counted(bound)
    if minute is None or counted is None:
        return _kept(bound, None, 0.0, 0.0)
    above = share(counted.above, counted.requests)
    return _kept(bound, minute.percentile(bound), counted.requests, above)


def _kept(bound: Bound, measured: float | None, requests: float, above: float) -> dict[str, Any]:
    kept = above <= bound.budget if requests > 0 else None
    return {"measured": measured, "requests": requests, "above": above, "kept": kept}


def _run_info(run: Run) -> dict[str, Any]:
    state: RunState = run.state
    total, kept = run.bounds_kept
    return {
        "began": run.began,
        "heard": run.heard,
        "ended": run.ended,
        "seconds": state.seconds,
        "requests": state.finished,
        "generated_tokens": state.generated_tokens,
        "energy": state.energy,
        "joules_per_token": state.joules_per_token,
        "saving": saving(state.forecast, observe=run.start.observe),
        "bounds": total,
        "bounds_kept": kept,
    }

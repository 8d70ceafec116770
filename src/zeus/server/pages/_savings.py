"""What jobs saved, in words and figures: energy first, time and cost beside it."""

from __future__ import annotations

from zeus.drawing._markup import Content, Markup, join, tag
from zeus.optimizer.batch_size.api._answers import JobInfo, JobTotals
from zeus.optimizer.batch_size.storage._account import PREDICTED, Comparison, Currency
from zeus.server.pages._layout import unbroken
from zeus.server.pages._units import UNKNOWN, counted, joules, percent, seconds, total_joules


def compared(about: JobInfo | JobTotals, currency: Currency) -> Comparison:
    """Return what was saved as a comparison; what was spent follows from the difference."""
    saved, default = getattr(about, f"saved_{currency}"), getattr(about, f"default_{currency}")
    if saved is None or default is None:
        return Comparison(0.0, None)
    return Comparison(default - saved, default)


def amount(value: float | None, currency: Currency, *, like: float | None = None) -> str:
    """Format joules or seconds, with a sign for negative ones."""
    if currency == "time" and value is not None:
        return ("\u2212" if value < 0 else "") + seconds(abs(value))
    return joules(value, 3, like=like)


def share(comparison: Comparison) -> Markup:
    """Return the saved share of what the default would have taken."""
    if comparison.share is None:
        return tag("span", UNKNOWN)
    kind = "good" if comparison.share >= 0 else "bad"
    return tag("span", percent(comparison.share), class_=kind)


def saved_cell(job: JobInfo, currency: Currency) -> Content:
    """Return the cell of a list of jobs: the amount, its share, and whether it was predicted."""
    comparison = compared(job, currency)
    if comparison.saved is None:
        return tag("span", UNKNOWN, class_="why", title=job.comparison)
    kind = "" if comparison.saved >= 0 else "bad"
    value = tag("span", amount(comparison.saved, currency), class_=kind or None)
    sign = "≈\u202f" if job.basis == PREDICTED else ""
    rest = tag("span", percent(comparison.share), class_="why below")
    shown = rest if comparison.share is not None else None
    return tag("span", unbroken(sign, value), " ", shown, title=job.comparison)


def total_figures(totals: JobTotals) -> list[tuple[str, Content, Content]]:
    """Return the key figures of all jobs together."""
    energy = compared(totals, "energy")
    if energy.saved is None or energy.default is None:
        why = "no job can be compared with its default batch size yet"
        saved: tuple[str, Content, Content] = ("Energy saved", UNKNOWN, why)
    else:
        saved = ("Energy saved", _value(energy, "energy"), _basis(totals))
    figures = [saved]
    for currency, name in (("time", "Time saved"), ("cost", "Cost saved")):
        figure = compared(totals, currency)  # type: ignore[arg-type]
        if figure.default is not None:
            of = f"of {amount(figure.default, currency)} with the default"  # type: ignore[arg-type]
            figures.append((name, _value(figure, currency), of))  # type: ignore[arg-type]
    if totals.energy or totals.unmeasured:
        least = "at least " if totals.unmeasured else ""
        used = f"of the {least}{total_joules(totals.energy)} of all runs that have ended"
        figures.append(("Wasted in runs that missed", total_joules(totals.wasted), used))
    return figures


def _value(comparison: Comparison, currency: Currency) -> Markup:
    number = amount(comparison.saved, currency)
    return join(share(comparison), tag("span", f" · {number}", class_="beside"))


def _basis(totals: JobTotals) -> str:
    default = total_joules(totals.default_energy)
    jobs = f"{counted(totals.compared, 'job')} of {totals.jobs} compared"
    predicted = f", {totals.predicted} with a predicted default" if totals.predicted else ""
    return f"of {default} with the default batch sizes; {jobs}{predicted}"

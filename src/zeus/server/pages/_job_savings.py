"""What one job saved, compared with always running its default batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zeus.drawing._captions import Sample
from zeus.drawing._markup import Content, Markup, tag
from zeus.drawing._pages import note
from zeus.drawing._table import Column, table
from zeus.optimizer.batch_size.storage._account import (
    CURRENCIES,
    PREDICTED,
    Account,
    Baseline,
    Comparison,
    CoursePoint,
    Currency,
    break_even,
    course,
    gpu_name,
)
from zeus.optimizer.batch_size.storage._overview import Overview
from zeus.server.pages import _job_charts as charts
from zeus.server.pages._layout import details, section
from zeus.server.pages._plotting import HALF, figure
from zeus.server.pages._savings import amount, share
from zeus.server.pages._units import UNKNOWN, counted, digits, grouped, joules, seconds

_ROWS = 20
_NAMES = {"energy": "Energy", "time": "Time", "cost": "Cost"}


class Savings:
    """The figures and the section of a job's page that compare it with its default.

    Args:
        overview: The job.
        currency: What the section shows; the energy by default, or the cost if no energy is known.
    """

    def __init__(self, overview: Overview, currency: str = "") -> None:
        self.overview = overview
        self.account: Account = overview.account
        self.points = course(overview.spans, self.account)
        known = self.account.energy.default is not None or self.account.cost.default is None
        usual: Currency = "energy" if known and self.account.energy.spent else "cost"
        self.currency = next((each for each in CURRENCIES if each == currency), usual)

    # --- key figures ----------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[str, Content, Content]]:
        """Yield the key figures."""
        account = self.account
        if not account.basis:
            yield "Energy saved", UNKNOWN, account.words
            return
        predicted = "predicted: " if account.basis == PREDICTED else ""
        if account.energy.default is None:
            yield "Energy saved", UNKNOWN, account.words
        else:
            yield self._figure("energy", f"{predicted}{account.words}")
        for currency in ("time", "cost"):
            comparison: Comparison = getattr(account, currency)
            if comparison.default is not None:
                default = amount(comparison.default, currency)
                spent = amount(comparison.spent, currency)
                said = f"{spent} instead of {default}"
                yield self._figure(currency, said)
        yield self.break_even()

    def _figure(self, currency: Currency, remark: str) -> tuple[str, Content, Content]:
        comparison: Comparison = getattr(self.account, currency)
        saved = amount(comparison.saved, currency)
        value = share(comparison) + tag("span", f" · {saved}", class_="beside")
        return f"{_NAMES[currency]} saved", value, remark

    def break_even(self) -> tuple[str, Content, Content]:
        """Return the figure of the break-even recurrence."""
        found = {each: break_even(self.points, each) for each in ("energy", "cost")}
        first, rest = found["energy"], found["cost"]
        if self.account.energy.default is None:
            return "Break-even", *self._since(rest, "cost")
        value, words = self._since(first, "energy")
        other = f"in cost: {self._since(rest, 'cost')[0]}"
        return "Break-even", value, f"{words}; {other}"

    def _since(self, first: int | None, currency: str) -> tuple[str, str]:
        if first is None:
            return "not yet", f"the default would have taken less {currency} so far"
        words = f"from then on less {currency} in total than with the default"
        return f"recurrence {grouped(first)}", words

    # --- over time ------------------------------------------------------------------------------

    def section(self, links: dict[Currency, str]) -> Markup:
        """Return the section with the course of what was spent.

        Args:
            links: URL of the same page for each of what can be shown.
        """
        overview, currency = self.overview, self.currency
        last, width = overview.info.recurrences, overview.width
        known = any(getattr(point, currency).default is not None for point in self.points)
        legend: list[tuple[Sample, str]] = [(charts.SPENT, "this job")]
        if known:
            legend.append((charts.SPENT_BY_DEFAULT, "always the default"))
        even = break_even(self.points, currency)
        chart = figure(
            lambda frame: charts.spending(
                self.points, currency, last, width=width, even=even, frame=frame
            ),
            HALF,
            legend,
            self._baselines(),
            self._table(),
        )
        choice = tag(
            "nav",
            *(
                tag("a", _NAMES[each], href=links[each], aria_current=_true(each == currency))
                for each in CURRENCIES
            ),
            class_="pager small",
            aria_label="Quantity to compare",
        )
        title = f"{_NAMES[currency]} so far"
        about = "All trials that have ended, including exploration and retries."
        return section(title, choice, chart, name="spending", about=about)

    def _table(self) -> Markup:
        points, currency = self.points, self.currency
        every = max(1, -(-len(points) // _ROWS))
        chosen = [*points[every - 1 :: every]]
        if points and chosen[-1:] != [points[-1]]:
            chosen.append(points[-1])
        last, width = self.overview.info.recurrences, self.overview.width
        columns: Sequence[Column[CoursePoint]] = (
            Column("recurrence", lambda point: grouped(min(point.first + width - 1, last))),
            Column("this job", lambda p: amount(getattr(p, currency).spent, currency), number=True),
            Column(
                "always the default",
                lambda point: amount(getattr(point, currency).default, currency),
                number=True,
            ),
        )
        inner = table(f"{_NAMES[currency]} so far", columns, chosen)
        return details("Show as a table", inner, name="course")

    def _baselines(self) -> Markup:
        """Return a note that explains what the comparison rests on."""
        account, default = self.account, self.overview.spec.default_batch_size
        if not account.basis:
            return note(f"There is nothing to compare with: {account.words}.")
        rules = (
            f"The default, {default}, is counted once per recurrence that reached the target; "
            "this job with all its trials, those that missed it included."
        )
        entries = [tag("li", _words(account.baselines[gpu])) for gpu in account.converged]
        more = None
        if account.left_out:
            runs = counted(account.left_out, "run")
            more = tag("p", f"Left out on both sides: {runs} without measured energy.")
        return tag("div", tag("p", rules), tag("ul", *entries), more, class_="note")


def _words(base: Baseline) -> str:
    source = f"the mean of {base.runs} measured runs"
    if base.runs == 1:
        source = "measured in one run"
    if not base.runs:
        source = "predicted by the policy, not measured"
    power = "at the power limits chosen for it, so their savings are not counted"
    if base.factor is not None:
        times = f"{digits(base.factor, 3)}\u00a0×"
        power = f"at full power, which takes {times} the energy of the chosen power limit"
    if base.energy is None or base.time is None:
        return f"On {gpu_name(base.gpu)} a run costs {joules(base.cost)}: {source}, {power}."
    takes = f"{joules(base.energy)} and {seconds(base.time)} (cost {joules(base.cost)})"
    return f"On {gpu_name(base.gpu)} a run takes {takes}: {source}, {power}."


def _true(value: bool) -> str | None:
    return "true" if value else None
